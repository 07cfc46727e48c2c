//! Holds that were ended by force: by another command, or by eviction. Each makes a line of the
//! server's log and an entry of LOCK.LOG.
//!
//! # Bounds
//!
//! A storm of such ends must neither fill the log nor slow the server down. So only
//! [`MOST_A_SECOND`] of them in a second get a line, and a last line has the number of the others.
//! Only as many are looked up in CLIENT LIST, whose time grows with the number of clients: in the
//! long run no more than one part in [`PARTS`] of the time goes into it, and in a burst some 100
//! milliseconds. [`MOST_ENTRIES`] entries are kept, with 1,024 bytes of a key and 256 of each name:
//! at most 350 KB.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt::Write;

use super::running_client::{Client, Knowledge};
use super::stats::held;
use crate::server::api::clock;
use crate::server::api::{Caller, Context, Level};
use redis_lock_core::engine::printable::{escaped, line_of};
use redis_lock_core::lock::Lock;

/// How many entries are kept.
const MOST_ENTRIES: usize = 128;

/// How many bytes of a key are kept.
const LONGEST_KEY: usize = 1_024;

/// How many ends get a line of the log in each second.
const MOST_A_SECOND: u32 = 10;

/// One part in so many of the time may be spent on CLIENT LIST.
const PARTS: u64 = 100;

/// The time whose part may be spent in advance.
const SPARE_US: u64 = 10_000_000;

/// How much of a word is shown in the log, in characters once it is escaped. A line has 1,024.
const SHOWN: usize = 150;

/// An entry of LOCK.LOG.
#[derive(Clone, Debug)]
pub(in crate::server) struct Entry {
    pub(in crate::server) time_ms: u64,
    /// The database; `None` where all were emptied.
    pub(in crate::server) db: Option<i32>,
    /// The key; `None` where whole databases were emptied.
    pub(in crate::server) key: Option<Box<[u8]>>,
    /// The token and the fence of the oldest hold.
    pub(in crate::server) oldest: Option<(Box<[u8]>, u64)>,
    /// How many holds have ended, if that is known.
    pub(in crate::server) holders: Option<usize>,
    /// The command, or what else has ended them.
    pub(in crate::server) by: Option<Box<[u8]>>,
    pub(in crate::server) client: Option<Client>,
}

/// The ends that are remembered.
#[derive(Default)]
pub(in crate::server) struct Forced {
    /// Newest first.
    entries: RefCell<VecDeque<Entry>>,
    rate: Cell<LogRate>,
    knowledge: Knowledge,
}

impl Forced {
    /// Notes the end of a lock by a command or by eviction, in the callback that tells of it.
    /// `has_client` says whether the client may be asked for.
    #[cold]
    pub(in crate::server) fn lock_ended(
        &self,
        (db, name): (i32, &[u8]),
        lock: &Lock,
        is_evicted: bool,
        has_client: bool,
    ) {
        let Some(ctx) = Context::detached() else {
            return;
        };
        let now = clock::now();
        let oldest = lock.first_live_holds(1, now).pop();
        let entry = Entry {
            time_ms: now.ms(),
            db: Some(db),
            key: Some(name.get(..LONGEST_KEY).unwrap_or(name).into()),
            oldest: oldest.map(|(token, _, hold)| (token.as_bytes().into(), hold.fence.get())),
            holders: Some(lock.occupancy(now).holders),
            by: is_evicted.then(|| b"eviction".as_slice().into()),
            client: None,
        };
        self.note(ctx, entry, has_client && !is_evicted);
    }

    /// Notes that all holds of a database, or of all, are about to end.
    #[cold]
    pub(in crate::server) fn flushed(&self, db: Option<i32>, has_client: bool) {
        let held = held::now();
        let ctx = Context::detached().filter(|ctx| ctx.is_primary() && !ctx.is_loading());
        let Some(ctx) = ctx.filter(|_| held.keys() > 0) else {
            return;
        };
        let (by, holders) = match db {
            None => ("flushall", usize::try_from(held.holds()).ok()),
            Some(_) => ("flushdb", None),
        };
        let entry = Entry {
            time_ms: clock::now().ms(),
            db,
            key: None,
            oldest: None,
            holders,
            by: Some(by.as_bytes().into()),
            client: None,
        };
        self.note(ctx, entry, has_client);
    }

    fn note(&self, ctx: Context<'_>, mut entry: Entry, has_client: bool) {
        self.tell_rest(ctx);
        let mut rate = self.rate.get();
        let is_told = rate.takes(clock::monotonic_us());
        let may_look = is_told && has_client && rate.may_look(clock::monotonic_us());
        self.rate.set(rate);
        entry.client = may_look.then(|| self.look(ctx)).flatten();
        if let Some(client) = &entry.client {
            entry.by = Some(client.command.clone());
        }
        if is_told {
            ctx.log_escaped(Level::Notice, &line_of(entry.line()));
        }
        let mut entries = self.entries.borrow_mut();
        entries.truncate(MOST_ENTRIES.saturating_sub(1));
        entries.push_front(entry);
    }

    fn look(&self, ctx: Context<'_>) -> Option<Client> {
        let began_us = clock::monotonic_us();
        let mut caller = Caller::in_deletion(ctx);
        let client = self.knowledge.client_that_removes(&mut caller);
        let mut rate = self.rate.get();
        rate.has_looked(began_us, clock::monotonic_us());
        self.rate.set(rate);
        client
    }

    /// Logs how many ends of the last second had no line. The server's round calls it, too.
    pub(in crate::server) fn tell_rest(&self, ctx: Context<'_>) {
        let mut rate = self.rate.get();
        if rate.left_out == 0 {
            return;
        }
        let left_out = rate.take_left_out(clock::monotonic_us());
        self.rate.set(rate);
        if left_out > 0 {
            let line = format!("held locks were ended by force: {left_out} more, not logged");
            ctx.log_escaped(Level::Notice, &line_of(line));
        }
    }

    /// The newest entries, the newest first.
    pub(in crate::server) fn newest(&self, most: usize) -> Vec<Entry> {
        self.entries.borrow().iter().take(most).cloned().collect()
    }
}

impl Entry {
    /// The line of the log.
    fn line(&self) -> String {
        let shown = |bytes: &[u8]| escaped(bytes, SHOWN);
        let by = self.by.as_deref().map_or("?".into(), shown);
        let mut line = match self.key.as_deref() {
            Some(key) => format!("held lock ended by {by}: key {}", shown(key)),
            None => format!("held locks ended by {by}"),
        };
        // To write to a string never fails.
        let mut add = |part: std::fmt::Arguments<'_>| line.write_fmt(part).unwrap_or_default();
        if let Some(db) = self.db {
            add(format_args!(", database {db}"));
        }
        if let Some((token, fence)) = &self.oldest {
            add(format_args!(", token {}, fence {fence}", shown(token)));
        }
        if let Some(holders) = self.holders {
            add(format_args!(", holders {holders}"));
        }
        match &self.client {
            Some(client) => add(format_args!(
                ", client {}, user {}, address {}, name {}",
                client.id,
                shown(&client.user),
                shown(&client.address),
                shown(&client.name),
            )),
            None => add(format_args!(", client not known")),
        }
        line
    }
}

/// What may be logged and looked up. All instants are those of the monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
struct LogRate {
    /// When the running second has begun.
    began_us: u64,
    /// How many ends were logged in it.
    told: u32,
    /// How many were not.
    left_out: u64,
    /// By when the looks at CLIENT LIST so far are no more than their part of the time.
    paid_at_us: u64,
}

impl LogRate {
    /// Whether an end gets a line.
    fn takes(&mut self, now_us: u64) -> bool {
        if now_us.saturating_sub(self.began_us) >= 1_000_000 {
            self.began_us = now_us;
            self.told = 0;
        }
        if self.told < MOST_A_SECOND {
            self.told = self.told.saturating_add(1);
            return true;
        }
        self.left_out = self.left_out.saturating_add(1);
        false
    }

    /// How many had no line, once their second is over.
    fn take_left_out(&mut self, now_us: u64) -> u64 {
        if now_us.saturating_sub(self.began_us) < 1_000_000 {
            return 0;
        }
        std::mem::take(&mut self.left_out)
    }

    const fn may_look(&self, now_us: u64) -> bool {
        now_us.saturating_add(SPARE_US) >= self.paid_at_us
    }

    fn has_looked(&mut self, from_us: u64, to_us: u64) {
        let took_us = to_us.saturating_sub(from_us);
        let from_us = self.paid_at_us.max(to_us);
        self.paid_at_us = from_us.saturating_add(took_us.saturating_mul(PARTS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_ends_a_second_are_told_and_the_others_counted() {
        let mut rate = LogRate::default();
        let start = 5_000_000;
        let told = (0..1_000).filter(|n| rate.takes(start + n)).count();
        assert_eq!(told, 10);
        assert_eq!(rate.take_left_out(start + 999_999), 0);
        assert_eq!(rate.take_left_out(start + 1_000_000), 990);
        assert_eq!(rate.take_left_out(start + 1_000_000), 0);
        assert!(rate.takes(start + 1_000_000));
    }

    #[test]
    fn short_looks_are_for_free_and_long_ones_are_followed_by_a_pause() {
        let mut rate = LogRate::default();
        for n in 0..10 {
            assert!(rate.may_look(n * 1_000));
            rate.has_looked(n * 1_000, n * 1_000 + 500);
        }
        // A hundred times 200 ms, but for the time in advance.
        rate.has_looked(10_000_000, 10_200_000);
        assert!(!rate.may_look(20_199_999));
        assert!(rate.may_look(20_200_000));
    }

    #[test]
    fn a_line_is_short_and_escaped() {
        let long = || Box::from([b'\n'; 1_024].as_slice());
        let entry = Entry {
            time_ms: 0,
            db: Some(i32::MAX),
            key: Some(long()),
            oldest: Some((long(), u64::MAX)),
            holders: Some(usize::MAX),
            by: Some(long()),
            client: Some(Client {
                id: u64::MAX,
                user: long(),
                address: long(),
                name: long(),
                command: long(),
            }),
        };
        let line = entry.line();
        // The server cuts a line at 1,024 bytes, its own words included.
        assert!(line.len() < 1_200, "{}", line.len());
        assert!(line
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic()));
    }
}
