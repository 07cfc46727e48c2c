//! The lines of the screens that show one thing: a lock, the question before a release, the numbers
//! of a server, the help.

use super::grid::{Column, Grid};
use crate::app::Release;
use crate::model::info::is_counter;
use crate::model::lock::{Detail, Holder, Listener, Waiter};
use crate::model::{Server, Target};
use crate::text::{escape, microseconds, milliseconds, per_second, shorten};

/// A line, and whether it is a heading.
pub(crate) type Line = (bool, String);

fn heading(text: String) -> Line {
    (true, text)
}

pub(super) fn plain(text: String) -> Line {
    (false, text)
}

pub(crate) fn lock(
    target: &Target,
    detail: Option<&Result<Option<Detail>, String>>,
    width: usize,
) -> Vec<Line> {
    let detail = match detail {
        None => return vec![plain("asking …".to_owned())],
        Some(Err(error)) => return vec![plain(format!("LOCK.INFO: {error}"))],
        Some(Ok(None)) => {
            return vec![plain(
                "The lock is free, and nobody waits for it.".to_owned(),
            )]
        }
        Some(Ok(Some(detail))) => detail,
    };
    let limit = detail
        .limit
        .map_or_else(String::new, |limit| format!(", at most {limit} at once"));
    let place = &target.place;
    let mut lines = vec![
        plain(format!(
            "{}{limit} · {} · database {}",
            detail.mode, target.server, place.db
        )),
        plain(String::new()),
        heading(format!(
            "{} holder{}",
            detail.holder_count,
            s(detail.holder_count)
        )),
    ];
    lines.extend(holders(&detail.holders, width));
    lines.extend(more(detail.holder_count, detail.holders.len()));
    lines.push(plain(String::new()));
    let waiters = detail.waiter_count;
    lines.push(heading(format!(
        "{waiters} waiter{}, the next one first",
        s(waiters)
    )));
    lines.extend(self::waiters(&detail.waiters, width));
    lines.extend(more(waiters, detail.waiters.len()));
    lines
}

/// What the server has not shown.
fn more(count: u64, shown: usize) -> Option<Line> {
    let more = count.saturating_sub(shown as u64);
    (more > 0).then(|| plain(format!("and {more} more")))
}

fn s(n: u64) -> &'static str {
    if n == 1 {
        ""
    } else {
        "s"
    }
}

fn holders(holders: &[Holder], width: usize) -> Vec<Line> {
    if holders.is_empty() {
        return vec![plain("nobody".to_owned())];
    }
    let row = |holder: &Holder| {
        vec![
            escape(&holder.token),
            holder.fence.to_string(),
            milliseconds(holder.held_ms),
            milliseconds(holder.ttl_ms),
        ]
    };
    table(
        vec![
            Column::growing(["", "token"], 12),
            Column::number(["", "fence"], 16, 0),
            Column::number(["", "held"], 7, 0),
            Column::number(["", "ends in"], 7, 0),
        ],
        holders.iter().map(row).collect(),
        width,
    )
}

fn waiters(waiters: &[Waiter], width: usize) -> Vec<Line> {
    if waiters.is_empty() {
        return Vec::new();
    }
    let row = |(at, waiter): (usize, &Waiter)| {
        let limit = waiter
            .limit
            .map_or_else(String::new, |limit| format!(" {limit}"));
        let listener = match &waiter.listener {
            Listener::Client(id) => format!("client {id}"),
            Listener::Channel(name) => format!("channel {}", escape(name)),
            Listener::None => "nobody listens".to_owned(),
            Listener::Unknown => "-".to_owned(),
        };
        vec![
            at.saturating_add(1).to_string(),
            escape(&waiter.token),
            format!("{}{limit}", waiter.mode),
            milliseconds(waiter.waited_ms),
            listener,
            waiter.result.as_deref().map_or_else(String::new, escape),
        ]
    };
    let mut columns = vec![
        Column::number(["", ""], 3, 0),
        Column::growing(["", "token"], 12),
        Column::text(["", "mode"], 9, 0),
        Column::number(["", "waited"], 7, 0),
        Column::growing(["", "listens"], 14),
    ];
    if waiters.iter().any(|waiter| waiter.result.is_some()) {
        columns.push(Column::growing(["", "or result"], 12));
    }
    table(
        columns,
        waiters.iter().enumerate().map(row).collect(),
        width,
    )
}

pub(super) fn table(columns: Vec<Column>, rows: Vec<Vec<String>>, width: usize) -> Vec<Line> {
    let grid = Grid {
        columns,
        rows,
        marks: Vec::new(),
    };
    let fits = grid.fit(width);
    let titles: Vec<_> = fits.iter().map(|fit| grid.title(1, *fit)).collect();
    let mut lines = vec![plain(titles.join(" "))];
    for row in &grid.rows {
        let cells: Vec<_> = fits.iter().map(|fit| grid.cell(row, *fit)).collect();
        lines.push(plain(cells.join(" ")));
    }
    lines
}

/// The question names what is going to end, and what does not happen.
pub(crate) fn question(release: &Release, width: usize) -> Vec<Line> {
    let target = &release.target;
    let fitting = |text: String| shorten(&text, width);
    let mut lines = vec![
        plain(fitting(format!("lock     {}", escape(&target.place.key)))),
        plain(fitting(format!(
            "server   {}, database {}",
            target.server, target.place.db
        ))),
    ];
    let Some(detail) = &release.detail else {
        lines.push(plain("asking who holds it …".to_owned()));
        return lines;
    };
    let Some(oldest) = detail.oldest() else {
        lines.extend(cancel(detail, width));
        return lines;
    };
    lines.extend([
        plain(fitting(format!("holder   {}", escape(&oldest.token)))),
        plain(format!("fence    {}", oldest.fence)),
        plain(format!(
            "held     {}, ends in {}",
            milliseconds(oldest.held_ms),
            milliseconds(oldest.ttl_ms)
        )),
        plain(String::new()),
    ]);
    let holders = detail.holders.len();
    if holders > 1 {
        lines.push(heading(format!("All {holders} holders lose the lock.")));
    }
    let next = match detail.waiters.first() {
        Some(next) => fitting(format!(
            "The next waiter gets it at once: {}",
            escape(&next.token)
        )),
        None => "Nobody waits, so the lock is free then.".to_owned(),
    };
    let said = [
        "This deletes the key (DEL).",
        next.as_str(),
        "The holder is not told. It still believes that it holds the",
        "lock, and works on. Only a check of the fence stops its writes.",
        "",
    ];
    lines.extend(said.map(|text| plain(text.to_owned())));
    lines.push(heading(
        "y releases the lock. Every other key leaves it.".to_owned(),
    ));
    lines
}

/// Nobody holds the lock: what is in the way is the first place of its queue.
fn cancel(detail: &Detail, width: usize) -> Vec<Line> {
    let Some(first) = detail.waiters.first() else {
        return Vec::new();
    };
    let others = detail.waiter_count.saturating_sub(1);
    vec![
        plain("holder   nobody".to_owned()),
        plain(shorten(
            &format!("first    {}", escape(&first.token)),
            width,
        )),
        plain(format!("waits    {}", milliseconds(first.waited_ms))),
        plain(String::new()),
        plain("This ends the waits and the place of that token (LOCK.CANCEL).".to_owned()),
        plain(format!(
            "The {others} behind it move up. A client that still waits gets an error,"
        )),
        plain("and may ask again, at the end of the queue.".to_owned()),
        plain(String::new()),
        heading("y cancels the wait. Every other key leaves it.".to_owned()),
    ]
}

/// All that INFO says of the module, also what this program does not know.
pub(crate) fn numbers(server: &Server) -> Vec<Line> {
    let Some(snapshot) = server.snapshot() else {
        return vec![plain("the server is down".to_owned())];
    };
    let line = |(name, number): &(String, u64)| {
        let value = if name.contains("_usec") || name.contains("_us_") {
            microseconds(*number)
        } else {
            number.to_string()
        };
        let rate = server.rates.of(name).filter(|_| is_counter(name));
        let rate = rate.map_or_else(String::new, |rate| format!("{:>9}/s", per_second(rate)));
        let name = escape(name.as_bytes());
        plain(format!("{name:<30}{value:>16}{rate}"))
    };
    if snapshot.info.fields.is_empty() {
        return vec![plain("INFO says nothing of the module here".to_owned())];
    }
    snapshot.info.fields.iter().map(line).collect()
}

pub(crate) fn help(read_only: bool) -> Vec<Line> {
    let keys = [
        ("q, Esc", "quit; from another screen, back"),
        ("arrows, j k", "move; PageUp, PageDown, Home, End too"),
        ("Enter", "one lock: its holders and its queue"),
        (
            "s, r",
            "next order: wait, waiters, holders, age, key; reverse",
        ),
        ("/", "show only keys that contain …; Esc shows all again"),
        ("a", "also locks that nobody waits for, found by SCAN"),
        ("d", "choose the database"),
        ("i", "all numbers of the server in INFO lock"),
        ("c", "the keys with the most waiting since the reset"),
        ("l", "held locks that were ended by force, the newest first"),
        (
            "x",
            "release the lock by force, after a question; of a free",
        ),
        ("", "lock: cancel the wait of the first"),
        ("p", "pause, and go on"),
        ("+, -", "look half as often, twice as often"),
    ];
    let mut lines: Vec<_> = keys
        .iter()
        .map(|(key, does)| plain(format!("{key:<12} {does}")))
        .collect();
    let said = [
        "",
        "Times: how long the first of the queue has waited, how long the",
        "oldest holder has held, and when the lock ends if nobody renews.",
        "revoked: grants taken back, as the client had gone before.",
        "p50, p99, max: of waits that were granted; 1m: in the last minute,",
        "else since the server's start or LOCK.RESETSTAT.",
        "",
        "Coloured: the first has waited for 10 s (red: a minute), more than",
        "half of the lease is over and nobody renews it, nobody holds the",
        "lock (red), a guard, a server that is down (red).",
    ];
    lines.extend(said.map(|text| plain(text.to_owned())));
    if read_only {
        lines.push(plain(
            "This one runs with --read-only: x does nothing.".to_owned(),
        ));
    }
    lines
}
