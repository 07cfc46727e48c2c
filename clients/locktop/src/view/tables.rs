//! The two tables: the servers, and the locks of all of them.

use super::grid::{Column, Grid, Mark};
use crate::model::info::Info;
use crate::model::lock::Lock;
use crate::model::{Model, Order, Row, Server, Snapshot, Sort, State};
use crate::text::{count, escape, microseconds, milliseconds, per_second};

const UNKNOWN: &str = "-";

/// The counters that are shown by the second.
const RATES: [&str; 5] = [
    "lock_acquired",
    "lock_handed_over",
    "lock_refused",
    "lock_expired",
    "lock_taken_back",
];
const PERCENTILES: [&str; 3] = ["p50", "p99", "max"];

pub(crate) fn servers(model: &Model) -> Grid {
    let snapshots = || model.servers.iter().filter_map(Server::snapshot);
    let mut waits = snapshots().filter_map(|snapshot| snapshot.info.wait("p50"));
    let of_last_minute = waits.next().is_some_and(|wait| wait.of_last_minute);
    let [p50, p99, max] = if of_last_minute {
        ["p50 1m", "p99 1m", "max 1m"]
    } else {
        PERCENTILES
    };
    Grid {
        columns: vec![
            Column::growing(["", "server"], 14),
            Column::text(["", "role"], 7, 9),
            Column::text(["", "version"], 12, 7),
            Column::text(["", "module"], 6, 8),
            Column::number(["held", "now"], 5, 0),
            Column::number(["waiting", "now"], 7, 0),
            Column::number(["acquired", "per s"], 8, 2),
            Column::number(["handed", "on /s"], 6, 3),
            Column::number(["refused", "per s"], 7, 5),
            Column::number(["expired", "per s"], 7, 4),
            Column::number(["revoked", "per s"], 7, 6),
            Column::number(["wait", p50], 6, 1),
            Column::number(["wait", p99], 6, 1),
            Column::number(["wait", max], 6, 1),
        ],
        rows: model.servers.iter().map(server).collect(),
        marks: model.servers.iter().map(marks_of_server).collect(),
    }
}

/// How many columns the longest table has.
const ALL_COLUMNS: usize = 14;

fn marks_of_server(server: &Server) -> Vec<Mark> {
    let mark = match &server.state {
        State::Down(_) => Mark::Stuck,
        State::Up(snapshot) if guard(&snapshot.info).is_some() => Mark::Slow,
        State::Connecting | State::Up(_) => Mark::Plain,
    };
    vec![mark; ALL_COLUMNS]
}

fn server(server: &Server) -> Vec<String> {
    let mut row = vec![server.name.clone()];
    match &server.state {
        State::Connecting => row.push("…".to_owned()),
        State::Down(_) => row.push("down".to_owned()),
        State::Up(snapshot) => row.extend(numbers(snapshot, server)),
    }
    row
}

fn numbers(snapshot: &Snapshot, server: &Server) -> Vec<String> {
    let info = &snapshot.info;
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
    let word = |text: &str| {
        let text = Some(text).filter(|text| !text.is_empty());
        or_unknown(text.map(|text| escape(text.as_bytes())))
    };
    let mut row = vec![
        word(&info.role),
        word(&info.server),
        or_unknown(info.module.clone()),
        or_unknown(info.held().map(count)),
        or_unknown(info.field("lock_waiters").map(count)),
    ];
    row.extend(RATES.map(|name| or_unknown(server.rates.of(name).map(per_second))));
    row.extend(
        PERCENTILES.map(|name| or_unknown(info.wait(name).map(|wait| microseconds(wait.us)))),
    );
    row
}

/// What there is to say of each server, beside its row.
pub(crate) fn notes(model: &Model) -> Vec<(bool, String)> {
    let mut notes = Vec::new();
    for server in &model.servers {
        match &server.state {
            State::Connecting => {}
            State::Down(error) => notes.push((true, format!("{} is down: {error}", server.name))),
            State::Up(snapshot) => {
                let of = |is_bad, note: &str| (is_bad, format!("{}: {note}", server.name));
                notes.extend(guard(&snapshot.info).map(|guard| of(true, &guard)));
                notes.extend(snapshot.notes.iter().map(|note| of(false, note)));
            }
        }
    }
    notes
}

/// Why the server grants no new lock, and for how long yet.
fn guard(info: &Info) -> Option<String> {
    let reason = match info.guard.as_str() {
        "" | "off" | "open" => return None,
        reason => escape(reason.as_bytes()),
    };
    Some(match info.field("lock_guard_left_ms") {
        None | Some(0) => format!("guard: {reason}"),
        Some(ms) => format!("guard: {reason}, {} left", milliseconds(ms)),
    })
}

pub(crate) fn locks(rows: &[Row<'_>], order: &Order, has_several_servers: bool) -> Grid {
    let mark = |sort: Sort, plain: &'static str, down: &'static str, up: &'static str| match (
        order.sort == sort,
        order.reverse,
    ) {
        (false, _) => plain,
        (true, false) => down,
        (true, true) => up,
    };
    let mut columns = vec![
        Column::number(
            ["longest", mark(Sort::Wait, "wait", "wait ▼", "wait ▲")],
            7,
            0,
        ),
        Column::growing(["", mark(Sort::Key, "lock", "lock ▼", "lock ▲")], 16),
        Column::text(["", "server"], 14, 3),
        Column::number(["", "db"], 2, 6),
        Column::text(["", "mode"], 9, 5),
        Column::number([mark(Sort::Holders, "", "▼", "▲"), "holders"], 7, 4),
        Column::number([mark(Sort::Waiters, "", "▼", "▲"), "waiters"], 7, 0),
        Column::growing(["oldest", "holder"], 12),
        Column::number(["", mark(Sort::Age, "held", "held ▼", "held ▲")], 6, 1),
        Column::number(["ends", "in"], 6, 2),
    ];
    let mut grid_rows: Vec<_> = rows.iter().map(lock).collect();
    let mut marks: Vec<_> = rows.iter().map(|row| marks_of_lock(row.lock)).collect();
    if !has_several_servers {
        columns.remove(SERVER);
        for (row, marks) in grid_rows.iter_mut().zip(&mut marks) {
            row.remove(SERVER);
            marks.remove(SERVER);
        }
    }
    Grid {
        columns,
        rows: grid_rows,
        marks,
    }
}

/// A first waiter that waits so long is worth a look, and one that waits so much longer is a fault.
const SLOW_WAIT_MS: u64 = 10_000;
const STUCK_WAIT_MS: u64 = 60_000;

/// Those of the columns of [`lock`].
fn marks_of_lock(lock: &Lock) -> Vec<Mark> {
    let wait = match lock.waited_ms {
        STUCK_WAIT_MS.. => Mark::Stuck,
        SLOW_WAIT_MS.. => Mark::Slow,
        _ => Mark::Plain,
    };
    let (holder, end) = match &lock.oldest {
        None => (Mark::Stuck, Mark::Plain),
        Some(oldest) if oldest.is_neglected() => (Mark::Slow, Mark::Slow),
        Some(_) => (Mark::Plain, Mark::Plain),
    };
    let plain = Mark::Plain;
    vec![
        wait, plain, plain, plain, plain, plain, plain, holder, plain, end,
    ]
}

/// Its place among the columns.
const SERVER: usize = 2;

fn lock(row: &Row<'_>) -> Vec<String> {
    let lock = row.lock;
    let oldest = lock.oldest.as_ref();
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
    vec![
        milliseconds(lock.waited_ms),
        escape(&lock.place.key),
        row.server.to_owned(),
        lock.place.db.to_string(),
        lock.mode.clone(),
        count(lock.holders),
        count(lock.waiters),
        or_unknown(oldest.map(|oldest| escape(&oldest.token))),
        or_unknown(oldest.map(|oldest| milliseconds(oldest.held_ms))),
        or_unknown(oldest.and_then(|oldest| oldest.ttl_ms).map(milliseconds)),
    ]
}
