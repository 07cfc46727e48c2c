//! The screen, drawn from the state. It uses the terminal's own 16 colours, so that it is readable
//! on dark and on light ones.

mod details;
pub(crate) mod grid;
mod past;
pub(crate) mod tables;

use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table, TableState};
use ratatui::Frame;

use crate::app::{App, Screen};
use crate::model::State;
use crate::source::Databases;
use crate::text::{escape, shorten};
use grid::{Grid, Mark};

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// No colours where NO_COLOR says so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Colours {
    pub(crate) on: bool,
}

impl Colours {
    fn of(self, colour: Color) -> Style {
        if self.on {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }

    fn bad(self) -> Style {
        self.of(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn note(self) -> Style {
        self.of(Color::Magenta)
    }

    fn heading(self) -> Style {
        BOLD
    }
}

/// Draws everything. A scroll that went beyond the end comes back to it.
pub(crate) fn draw(frame: &mut Frame<'_>, app: &mut App, colours: Colours) {
    let area = frame.area();
    let notes = notes(app);
    let servers = tables::servers(&app.model);
    // The locks are to have half of the screen at least.
    let half = area.height / 2;
    let server_lines = height(servers.rows.len())
        .saturating_add(2)
        .min(half.max(4));
    let note_lines = height(notes.len()).min(half.saturating_sub(server_lines).max(1));
    let parts = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(server_lines),
        Constraint::Length(note_lines),
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(1),
    ]);
    let [title, top, middle, _, bottom, foot] = parts.areas(area);
    frame.render_widget(Paragraph::new(title_line(app, colours, title.width)), title);
    draw_grid(frame, top, &servers, None, colours);
    let lines = notes.iter().map(|(is_bad, note)| {
        let style = if *is_bad {
            colours.bad()
        } else {
            colours.note()
        };
        Line::styled(shorten(note, usize::from(middle.width)), style)
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), middle);
    match app.screen.clone() {
        Screen::Detail(target) => {
            let lines = details::lock(&target, app.model.detail(&target), inner_width(bottom));
            let title = escape(&target.place.key);
            draw_lines(frame, bottom, &title, &lines, &mut app.scroll, colours);
        }
        Screen::Contended => {
            let lines = past::contended(&app.model, inner_width(bottom));
            let title = "Most waiting since the start or LOCK.RESETSTAT";
            draw_lines(frame, bottom, title, &lines, &mut app.scroll, colours);
        }
        Screen::Log => {
            let lines = past::log(&app.model, inner_width(bottom));
            let title = "Held locks that were ended by force, in all databases";
            draw_lines(frame, bottom, title, &lines, &mut app.scroll, colours);
        }
        _ => draw_locks(frame, bottom, app, colours),
    }
    frame.render_widget(Paragraph::new(foot_line(app, colours, foot.width)), foot);
    draw_popup(frame, app, colours);
}

fn height(lines: usize) -> u16 {
    u16::try_from(lines).unwrap_or(u16::MAX)
}

fn inner_width(area: Rect) -> usize {
    usize::from(area.width.saturating_sub(4))
}

fn notes(app: &App) -> Vec<(bool, String)> {
    let mut notes = tables::notes(&app.model);
    if let Some(error) = &app.no_nodes {
        notes.insert(
            0,
            (
                true,
                format!("the nodes of the cluster are not known: {error}"),
            ),
        );
    }
    notes
}

/// Those that fit, each as a whole.
fn fitting<'a>(parts: impl IntoIterator<Item = Span<'a>>, width: u16) -> Line<'a> {
    let mut left = usize::from(width);
    let fits = |part: &Span<'_>| {
        let rest = left.checked_sub(part.width());
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    Line::from_iter(parts.into_iter().filter(fits))
}

/// What changes what is shown comes first, as a narrow terminal leaves parts out.
fn title_line(app: &App, colours: Colours, width: u16) -> Line<'static> {
    let servers = &app.model.servers;
    let down = servers
        .iter()
        .filter(|server| matches!(server.state, State::Down(_)))
        .count();
    let mut spans = vec![
        Span::styled("locktop", BOLD),
        Span::raw(match servers.len() {
            1 => "  1 server".to_owned(),
            n => format!("  {n} servers"),
        }),
    ];
    if down > 0 {
        spans.push(Span::styled(format!(", {down} down"), colours.bad()));
    }
    let databases = match app.wishes.databases {
        Databases::One(db) => format!("database {db}"),
        Databases::All => "all databases".to_owned(),
    };
    spans.push(Span::raw(format!("  {databases}")));
    if app.wishes.paused {
        spans.push(Span::styled("  paused", colours.bad()));
    }
    if !app.order.filter.is_empty() {
        spans.push(Span::styled(
            format!("  keys with {}", app.order.filter),
            colours.note(),
        ));
    }
    let seconds = app.wishes.interval.as_secs_f64();
    spans.push(Span::raw(format!("  every {seconds} s")));
    let reversed = if app.order.reverse { " reversed" } else { "" };
    spans.push(Span::raw(format!(
        "  by {}{reversed}",
        app.order.sort.name()
    )));
    if app.wishes.all {
        spans.push(Span::raw("  all locks"));
    }
    if app.read_only {
        spans.push(Span::raw("  read-only"));
    }
    fitting(spans, width)
}

fn foot_line(app: &App, colours: Colours, width: u16) -> Line<'static> {
    if app.screen == Screen::Filter {
        return Line::styled(
            format!("/{}_   Enter keeps it, Esc shows all", app.order.filter),
            BOLD,
        );
    }
    if !app.message.is_empty() {
        return Line::styled(
            app.message.clone(),
            colours.note().add_modifier(Modifier::BOLD),
        );
    }
    let keys = match app.screen {
        Screen::Detail(_) => "Esc back  arrows move  x release  p pause  + - pace",
        Screen::Contended => "Esc back  arrows move  l ended by force  p pause  + - pace",
        Screen::Log => "Esc back  arrows move  c contended  p pause  + - pace",
        _ => "? help  q quit  Enter one lock  x release  / filter  s order  a all locks  d database  i numbers  c contended  l log  p pause",
    };
    fitting(keys.split_inclusive("  ").map(Span::raw), width)
}

fn draw_locks(frame: &mut Frame<'_>, area: Rect, app: &App, colours: Colours) {
    let rows = app.model.rows(&app.order);
    if rows.is_empty() {
        let is_asked = app
            .model
            .servers
            .iter()
            .any(|server| server.snapshot().is_some());
        let said = match (is_asked, app.order.filter.is_empty()) {
            (true, true) if app.wishes.all => "There is no lock.",
            (true, true) => "Nobody waits for a lock.",
            (true, false) => "No key of a lock that somebody waits for contains this.",
            (false, _) => "No server has answered yet.",
        };
        frame.render_widget(Paragraph::new(said), area);
        return;
    }
    let grid = tables::locks(&rows, &app.order, app.model.servers.len() > 1);
    draw_grid(frame, area, &grid, Some(app.selected_row()), colours);
}

/// `selected` is none for a table in which nothing can be selected.
fn draw_grid(
    frame: &mut Frame<'_>,
    area: Rect,
    grid: &Grid,
    selected: Option<Option<usize>>,
    colours: Colours,
) {
    let fits = grid.fit(usize::from(area.width));
    let titles = fits
        .iter()
        .map(|fit| format!("{}\n{}", grid.title(0, *fit), grid.title(1, *fit)));
    let rows = grid.rows.iter().enumerate().map(|(at, row)| {
        let cells = fits.iter().map(|fit| {
            let style = match grid.mark(at, *fit) {
                Mark::Plain => Style::new(),
                Mark::Slow => colours.note(),
                Mark::Stuck => colours.bad(),
            };
            Cell::from(grid.cell(row, *fit)).style(style)
        });
        Row::new(cells)
    });
    let widths = fits.iter().map(|fit| Constraint::Length(height(fit.width)));
    let table = Table::new(rows, widths)
        .header(Row::new(titles).height(2).style(colours.heading()))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(selected.flatten());
    frame.render_stateful_widget(table, area, &mut state);
}

fn draw_lines(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    lines: &[details::Line],
    scroll: &mut u16,
    colours: Colours,
) {
    let shown = area.height.saturating_sub(2);
    *scroll = (*scroll).min(height(lines.len()).saturating_sub(shown));
    let visible = lines
        .iter()
        .skip(usize::from(*scroll))
        .take(usize::from(shown));
    let visible = visible.map(|(is_heading, text)| {
        let style = if *is_heading {
            colours.heading()
        } else {
            Style::new()
        };
        Line::styled(format!(" {text}"), style)
    });
    let title = shorten(title, inner_width(area));
    let block = Block::bordered().title(Span::styled(format!(" {title} "), BOLD));
    frame.render_widget(Clear, area);
    frame.render_widget(
        Paragraph::new(visible.collect::<Vec<_>>()).block(block),
        area,
    );
}

fn draw_popup(frame: &mut Frame<'_>, app: &mut App, colours: Colours) {
    let area = frame.area();
    let width = inner_width(area).min(66);
    let (title, lines) = match &app.screen {
        Screen::List | Screen::Filter | Screen::Detail(_) | Screen::Contended | Screen::Log => {
            return
        }
        Screen::Release(release) => (
            match &release.detail {
                Some(detail) if detail.holders.is_empty() => "Cancel the first wait?".to_owned(),
                _ => "Release this lock by force?".to_owned(),
            },
            details::question(release, width),
        ),
        Screen::Help => ("Keys".to_owned(), details::help(app.read_only)),
        Screen::Numbers(server) => {
            let lines = app.model.server(server).map(details::numbers);
            (server.clone(), lines.unwrap_or_default())
        }
        Screen::Databases(at) => {
            let names = app
                .database_choices()
                .into_iter()
                .map(|choice| match choice {
                    Databases::All => "all that have keys".to_owned(),
                    Databases::One(db) => db.to_string(),
                });
            let mark = |(n, name)| {
                (
                    n == *at,
                    format!("{} {name}", if n == *at { ">" } else { " " }),
                )
            };
            ("Database".to_owned(), names.enumerate().map(mark).collect())
        }
    };
    let lines_height = height(lines.len()).saturating_add(2).min(area.height);
    let size = Rect {
        width: height(width.saturating_add(4)).min(area.width),
        height: lines_height,
        ..area
    };
    let popup = Rect {
        x: area.width.saturating_sub(size.width) / 2,
        y: area.height.saturating_sub(size.height) / 2,
        ..size
    };
    draw_lines(frame, popup, &title, &lines, &mut app.scroll, colours);
}

#[cfg(test)]
mod tests;
