//! Tables as text: which columns there are, and which of them fit.

/// A column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) title: [&'static str; 2],
    /// At least so many columns of the terminal, so that the table does not jump with its numbers.
    min: usize,
    is_number: bool,
    /// It shares what is left, and is cut where that is too little.
    grows: bool,
    /// The column with the largest number is left out first; 0 stays.
    rank: u8,
}

impl Column {
    pub(crate) const fn text(title: [&'static str; 2], min: usize, rank: u8) -> Self {
        Self {
            title,
            min,
            is_number: false,
            grows: false,
            rank,
        }
    }

    pub(crate) const fn number(title: [&'static str; 2], min: usize, rank: u8) -> Self {
        Self {
            title,
            min,
            is_number: true,
            grows: false,
            rank,
        }
    }

    pub(crate) const fn growing(title: [&'static str; 2], min: usize) -> Self {
        Self {
            title,
            min,
            is_number: false,
            grows: true,
            rank: 0,
        }
    }
}

/// What a cell looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mark {
    #[default]
    Plain,
    /// It takes long.
    Slow,
    /// It does not go on.
    Stuck,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Grid {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<String>>,
    /// Those of each row, in the order of the columns. What is missing is plain.
    pub(crate) marks: Vec<Vec<Mark>>,
}

/// A column that fits, and how wide it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fit {
    pub(crate) index: usize,
    pub(crate) width: usize,
}

const GAP: usize = 1;

impl Grid {
    /// As wide as the longest text of the column.
    fn natural(&self, index: usize, column: &Column) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(index));
        let widths = cells.map(|cell| cell.chars().count());
        let titles = column.title.iter().map(|title| title.chars().count());
        widths
            .chain(titles)
            .max()
            .unwrap_or_default()
            .max(column.min)
    }

    /// The columns for a table of this width.
    pub(crate) fn fit(&self, width: usize) -> Vec<Fit> {
        let least = |fit: &Fit| match self.columns.get(fit.index) {
            Some(column) if column.grows => column.min,
            _ => fit.width,
        };
        let natural = self.columns.iter().enumerate();
        let mut fits: Vec<_> = natural
            .map(|(index, column)| Fit {
                index,
                width: self.natural(index, column),
            })
            .collect();
        let rank = |fit: &Fit| self.columns.get(fit.index).map_or(0, |column| column.rank);
        let gaps = |fits: &[Fit]| fits.len().saturating_sub(1) * GAP;
        while fits.iter().map(least).sum::<usize>() + gaps(&fits) > width {
            let last = fits.iter().map(rank).max().unwrap_or_default();
            if last == 0 {
                break;
            }
            fits.retain(|fit| rank(fit) != last);
        }
        let mut too_wide =
            (fits.iter().map(|fit| fit.width).sum::<usize>() + gaps(&fits)).saturating_sub(width);
        // The widest of those that may be cut is cut, until all fit.
        while too_wide > 0 {
            let shrinkable = fits.iter_mut().filter(|fit| fit.width > least(fit));
            let Some(widest) = shrinkable.max_by_key(|fit| fit.width) else {
                break;
            };
            widest.width -= 1;
            too_wide -= 1;
        }
        fits
    }

    pub(crate) fn cell(&self, row: &[String], fit: Fit) -> String {
        let text = row.get(fit.index).map_or("", String::as_str);
        self.pad(text, fit)
    }

    pub(crate) fn mark(&self, row: usize, fit: Fit) -> Mark {
        let marks = self.marks.get(row);
        let mark = marks.and_then(|marks| marks.get(fit.index).copied());
        mark.unwrap_or_default()
    }

    pub(crate) fn title(&self, line: usize, fit: Fit) -> String {
        let titles = self.columns.get(fit.index).map(|column| column.title);
        let text = titles
            .and_then(|lines| lines.get(line).copied())
            .unwrap_or_default();
        self.pad(text, fit)
    }

    fn pad(&self, text: &str, fit: Fit) -> String {
        let text = crate::text::shorten(text, fit.width);
        let width = fit.width;
        if self
            .columns
            .get(fit.index)
            .is_some_and(|column| column.is_number)
        {
            format!("{text:>width$}")
        } else {
            format!("{text:<width$}")
        }
    }

    /// The whole table, nothing cut or left out.
    pub(crate) fn plain(&self) -> String {
        let fits = self.fit(usize::MAX);
        let mut text = String::new();
        let mut line = |cells: Vec<String>| {
            text.push_str(cells.join(" ").trim_end());
            text.push('\n');
        };
        for number in [0, 1] {
            line(fits.iter().map(|fit| self.title(number, *fit)).collect());
        }
        for row in &self.rows {
            line(fits.iter().map(|fit| self.cell(row, *fit)).collect());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        Grid {
            columns: vec![
                Column::growing(["", "key"], 4),
                Column::number(["", "n"], 3, 0),
                Column::text(["", "mode"], 4, 1),
            ],
            rows: vec![["a-long-key", "12", "shared"].map(str::to_owned).into()],
            marks: Vec::new(),
        }
    }

    fn fit(width: usize) -> Vec<(usize, usize)> {
        grid()
            .fit(width)
            .iter()
            .map(|fit| (fit.index, fit.width))
            .collect()
    }

    #[test]
    fn a_narrow_table_cuts_keys_and_then_leaves_columns_out() {
        assert_eq!(fit(80), [(0, 10), (1, 3), (2, 6)]);
        assert_eq!(fit(18), [(0, 7), (1, 3), (2, 6)]);
        assert_eq!(fit(14), [(0, 10), (1, 3)]);
        assert_eq!(fit(9), [(0, 5), (1, 3)]);
        assert_eq!(fit(1), [(0, 4), (1, 3)]);
    }

    #[test]
    fn the_plain_table_cuts_nothing() {
        assert_eq!(
            grid().plain(),
            "\nkey          n mode\na-long-key  12 shared\n"
        );
    }
}
