//! The lines of the screens that show what has happened.

use super::details::{plain, table, Line};
use super::grid::Column;
use crate::model::past::{Asked, Contended, Forced};
use crate::model::{Model, Snapshot};
use crate::text::{count, escape, milliseconds};

const UNKNOWN: &str = "-";

pub(crate) fn contended(model: &Model, width: usize) -> Vec<Line> {
    let row = |(server, key): (&str, &Contended)| {
        vec![
            milliseconds(key.waited_ms),
            escape(&key.place.key),
            server.to_owned(),
            key.place.db.to_string(),
            count(key.waits),
            milliseconds(key.longest_ms),
            milliseconds(key.error_ms),
        ]
    };
    let columns = vec![
        Column::number(["", "waited"], 7, 0),
        Column::growing(["", "lock"], 16),
        Column::text(["", "server"], 14, 2),
        Column::number(["", "db"], 2, 4),
        Column::number(["", "waits"], 6, 0),
        Column::number(["", "longest"], 7, 1),
        Column::number(["", "error"], 6, 3),
    ];
    let rows = model.contended().into_iter().map(row).collect();
    lines(
        model,
        |snapshot| &snapshot.contended,
        "Nobody has waited for a lock.",
        columns,
        rows,
        width,
    )
}

pub(crate) fn log(model: &Model, width: usize) -> Vec<Line> {
    let bytes = |bytes: &Option<Vec<u8>>| bytes.as_deref().map_or(UNKNOWN.to_owned(), escape);
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| UNKNOWN.to_owned());
    let number = |n: Option<u64>| n.map_or(UNKNOWN.to_owned(), |n| n.to_string());
    let row = |(server, entry): (&str, &Forced)| {
        vec![
            entry.clock.clone(),
            milliseconds(entry.age_ms),
            server.to_owned(),
            number(entry.db),
            bytes(&entry.key),
            text(&entry.by),
            text(&entry.user),
            text(&entry.address),
            text(&entry.name),
            bytes(&entry.token),
            number(entry.fence),
        ]
    };
    let columns = vec![
        Column::text(["", "time"], 8, 0),
        Column::number(["", "age"], 6, 5),
        Column::text(["", "server"], 9, 4),
        Column::number(["", "db"], 2, 6),
        Column::growing(["", "lock"], 8),
        Column::text(["", "by"], 6, 0),
        Column::text(["", "user"], 4, 1),
        Column::text(["", "address"], 9, 1),
        Column::growing(["", "client"], 6),
        Column::growing(["", "token"], 6),
        Column::number(["", "fence"], 5, 3),
    ];
    let rows = model.log().into_iter().map(row).collect();
    lines(
        model,
        |snapshot| &snapshot.log,
        "No held lock has been ended by force.",
        columns,
        rows,
        width,
    )
}

/// First each server that cannot tell, with the reason; then the table.
fn lines<T>(
    model: &Model,
    of: impl Fn(&Snapshot) -> &Asked<T>,
    nothing: &str,
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    width: usize,
) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut has_answer = false;
    for server in &model.servers {
        match server.snapshot().map(&of) {
            Some(Some(Ok(_))) => has_answer = true,
            Some(Some(Err(why))) => lines.push(plain(format!("{}: {why}", server.name))),
            // It is down, or it has not answered since the screen was opened.
            Some(None) | None => {}
        }
    }
    if !rows.is_empty() {
        lines.extend(table(columns, rows, width));
    } else if has_answer {
        lines.push(plain(nothing.to_owned()));
    } else if lines.is_empty() {
        lines.push(plain("asking …".to_owned()));
    }
    lines
}
