//! The holds as the commands report them, to compare a server with a record that is years old.

use std::fmt::Write;

use crate::harness::{Client, Reply};

/// The databases that are read.
const DATABASES: u8 = 4;

/// The tolerance of a deadline: the time and the remaining ttl are read in one transaction, but one
/// after the other.
const EXACT_MS: i64 = 1_000;

/// A hold, in the columns of a `locks.tsv`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hold {
    db: u8,
    key: String,
    /// That of the lock, with its limit if it has one.
    mode: String,
    /// Its bytes, escaped.
    token: String,
    fence: i64,
    since_ms: i64,
    deadline_ms: i64,
}

impl Hold {
    fn line(&self) -> String {
        let Self {
            db,
            key,
            mode,
            token,
            fence,
            since_ms,
            deadline_ms,
        } = self;
        format!("{db}\t{key}\t{mode}\t{token}\t{fence}\t{since_ms}\t{deadline_ms}")
    }

    fn read(line: &str) -> Option<Self> {
        let columns: Vec<_> = line.split('\t').collect();
        let [db, key, mode, token, fence, since_ms, deadline_ms] = columns[..] else {
            return None;
        };
        Some(Self {
            db: db.parse().ok()?,
            key: key.to_string(),
            mode: mode.to_string(),
            token: token.to_string(),
            fence: fence.parse().ok()?,
            since_ms: since_ms.parse().ok()?,
            deadline_ms: deadline_ms.parse().ok()?,
        })
    }

    fn is_same(&self, other: &Self) -> bool {
        let exactly = Self {
            deadline_ms: other.deadline_ms,
            ..self.clone()
        };
        exactly == *other && (self.deadline_ms - other.deadline_ms).abs() <= EXACT_MS
    }
}

/// All holds that a server has, in order.
#[track_caller]
pub fn of(c: &mut Client) -> Vec<Hold> {
    let mut holds = Vec::new();
    for db in 0..DATABASES {
        // A cluster has only the first.
        if matches!(c.call(&format!("SELECT {db}")), Reply::Error(_)) && db > 0 {
            break;
        }
        for key in c.call("KEYS *").words::<Vec<_>>() {
            if c.text(&format!("TYPE {key}")) == "redislock" {
                holds.extend(holds_of(c, db, &key));
            }
        }
    }
    c.call("SELECT 0");
    holds.sort();
    holds
}

fn holds_of(c: &mut Client, db: u8, key: &str) -> Vec<Hold> {
    let replies = c.multi(&["TIME", &format!("LOCK.INFO {key}")]);
    let [time, info] = &replies[..] else {
        panic!("two replies: {replies:?}");
    };
    let part = |n: usize| time.items()[n].to_text().parse::<i64>().unwrap();
    let now_ms = part(0) * 1_000 + part(1) / 1_000;
    let mut mode = info.field("mode").to_text();
    if mode == "counted" {
        mode = format!("counted {}", info.field("limit").as_int());
    }
    let holders = info.field("holders");
    let hold = |holder: &Reply| Hold {
        db,
        key: key.to_string(),
        mode: mode.clone(),
        token: holder.field("token").as_bytes().escape_ascii().to_string(),
        fence: holder.field("fence").as_int(),
        since_ms: holder.field("since").as_int(),
        deadline_ms: now_ms + holder.field("ttl").as_int(),
    };
    holders.items().iter().map(hold).collect()
}

/// The holds as a `locks.tsv` has them.
pub fn write(holds: &[Hold]) -> String {
    let mut text = String::from("# db\tkey\tmode\ttoken\tfence\tsince_ms\tdeadline_ms\n");
    for hold in holds {
        writeln!(text, "{}", hold.line()).unwrap();
    }
    text
}

/// Reads the holds of a `locks.tsv`.
#[track_caller]
pub fn read(text: &str) -> Vec<Hold> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| Hold::read(line).unwrap_or_else(|| panic!("a bad line: {line}")))
        .collect()
}

pub fn largest_fence(holds: &[Hold]) -> i64 {
    let fences = holds.iter().map(|hold| hold.fence);
    fences.max().expect("a hold")
}

/// The latest time at which one of the holds was granted.
pub fn last_granted_ms(holds: &[Hold]) -> i64 {
    let granted = holds.iter().map(|hold| hold.since_ms);
    granted.max().expect("a hold")
}

#[track_caller]
pub fn assert_same(holds: &[Hold], expected: &[Hold], when: &str) {
    let pairs = holds.iter().zip(expected);
    let same = holds.len() == expected.len() && pairs.clone().all(|(a, b)| a.is_same(b));
    let (here, there) = (write(holds), write(expected));
    assert!(same, "{when}:\n{here}\nand should be\n{there}");
}
