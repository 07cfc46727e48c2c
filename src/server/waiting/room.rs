//! Who waits where: plain data, without a call of the module API, so that it can be borrowed around any of them.

use std::collections::BTreeSet;
use std::rc::Rc;

use foldhash::HashMap;

use super::deliveries::{Deliveries, Delivery};
use crate::lock::queue::{Next, Ticket, WaitQueue, Waiter};
use crate::lock::{Fence, Lock, Now, Refusal, TokenBuf, Waiting};

/// A key in a database.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) db: i32,
    pub(crate) key: Rc<[u8]>,
}

/// In the place of a database that is not known.
pub(crate) const ANY_DB: i32 = -1;

/// A blocked client as the server knows it. The pointer is only ever compared here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handle(pub(crate) *mut redis_module::raw::RedisModuleBlockedClient);

/// A hold that was granted to a waiting client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) token: TokenBuf,
    pub(crate) fence: Fence,
    pub(crate) delivery: Delivery,
}

/// Who waits, and what is to be done when.
#[derive(Debug, Default)]
pub(crate) struct Room {
    lines: HashMap<i32, HashMap<Rc<[u8]>, Line>>,
    /// Exactly the tickets in `lines`.
    seats: HashMap<Ticket, Seat>,
    by_client: HashMap<Handle, Ticket>,
    /// When somebody may be next, in wall-clock milliseconds: one entry for each line that has one.
    wakes: BTreeSet<(u64, Place)>,
    /// When a request has waited long enough, in microseconds of the monotonic clock: one entry for each that does not wait for ever.
    timeouts: BTreeSet<(u64, Ticket)>,
    /// Keys that have changed outside a command of ours.
    dirty: BTreeSet<Place>,
    /// Keys with a lock that must be looked at once this node of a cluster serves them.
    later: BTreeSet<Place>,
    /// The waited keys that are still to be looked at in this turn of the patrol.
    patrol: Vec<Place>,
    /// Grants that their clients have not heard of yet.
    pub(crate) deliveries: Deliveries,
    last_ticket: u64,
}

/// The queue of a key. There is none without a waiter.
#[derive(Debug, Default)]
struct Line {
    queue: WaitQueue,
    /// The key's entry in `wakes`.
    wakes_at_ms: Option<u64>,
}

#[derive(Debug)]
struct Seat {
    place: Place,
    client: Handle,
    /// Since when it waits, on the monotonic clock.
    since_us: u64,
    /// The request's entry in `timeouts`.
    times_out_at_us: Option<u64>,
    /// Whether the server made the token, which the reply then carries.
    made: bool,
}

/// A waiter that has left the room.
#[derive(Debug)]
pub(crate) struct Leaver {
    pub(crate) place: Place,
    pub(crate) client: Handle,
    pub(crate) waiter: Waiter,
    /// Since when it has waited, on the monotonic clock.
    pub(crate) since_us: u64,
    pub(crate) made: bool,
}

/// When there is something to do without a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) at_once: bool,
    /// When the first lock is to be looked at, in wall-clock milliseconds; `None` is never.
    pub(crate) wakes_at_ms: Option<u64>,
    /// When the first request has waited long enough, in microseconds of the monotonic clock; `None` is never.
    pub(crate) times_out_at_us: Option<u64>,
}

impl Due {
    /// In how many microseconds: 0 is at once, `None` is never.
    pub(crate) fn idle_us(&self, now: Now, monotonic_us: u64) -> Option<u64> {
        if self.at_once {
            return Some(0);
        }
        let wake = self.wakes_at_ms.map(|at_ms| {
            let at_us = at_ms.saturating_mul(1_000);
            at_us.saturating_sub(now.us())
        });
        let timeout = self.times_out_at_us;
        let timeout = timeout.map(|at_us| at_us.saturating_sub(monotonic_us));
        wake.into_iter().chain(timeout).min()
    }

    /// Whether who is ready for this is ready for `later`.
    pub(crate) fn covers(&self, later: &Self) -> bool {
        let covers = |one: Option<u64>, other: Option<u64>| {
            other.is_none_or(|other| one.is_some_and(|one| one <= other))
        };
        self.at_once
            || (!later.at_once
                && covers(self.wakes_at_ms, later.wakes_at_ms)
                && covers(self.times_out_at_us, later.times_out_at_us))
    }
}

/// A client that comes to wait.
#[derive(Debug)]
pub(crate) struct Newcomer {
    pub(crate) client: Handle,
    pub(crate) waiter: Waiter,
    pub(crate) refusal: Refusal,
    /// On the monotonic clock, as the next.
    pub(crate) since_us: u64,
    /// `None` is never.
    pub(crate) times_out_at_us: Option<u64>,
    pub(crate) made: bool,
}

impl Place {
    /// Follows SWAPDB. False when it is about other databases.
    pub(crate) fn swap_db(&mut self, one: i32, other: i32) -> bool {
        self.db = match self.db {
            db if db == one => other,
            db if db == other => one,
            _ => return false,
        };
        true
    }
}

impl Room {
    /// Whether nobody waits anywhere.
    pub(crate) fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// How many wait, on all keys.
    pub(crate) fn len(&self) -> usize {
        self.seats.len()
    }

    /// For how many keys they wait.
    pub(crate) fn keys(&self) -> usize {
        self.lines.values().map(HashMap::len).sum()
    }

    /// The queue of a key, if anybody waits for it.
    pub(crate) fn queue(&self, db: i32, key: &[u8]) -> Option<&WaitQueue> {
        self.lines.get(&db)?.get(key).map(|line| &line.queue)
    }

    /// What a request on this key must know of those who wait.
    pub(crate) fn waiting(&self, db: i32, key: &[u8]) -> Waiting<'_> {
        self.queue(db, key)
            .map_or_else(Waiting::default, WaitQueue::as_waiting)
    }

    /// The place of a key that is waited for.
    pub(crate) fn place(&self, db: i32, key: &[u8]) -> Option<Place> {
        let (key, _) = self.lines.get(&db)?.get_key_value(key)?;
        let key = Rc::clone(key);
        Some(Place { db, key })
    }

    /// All keys that are waited for.
    pub(crate) fn places(&self) -> Vec<Place> {
        let lines = self.lines.iter().flat_map(|(db, lines)| {
            let keys = lines.keys().map(Rc::clone);
            keys.map(|key| Place { db: *db, key })
        });
        lines.collect()
    }

    /// The request that is to be granted or refused now on a key with this lock.
    pub(crate) fn next(&mut self, place: &Place, lock: Option<&Lock>, now: Now) -> Option<Next> {
        self.line(place)?.queue.next(lock, now)
    }

    pub(crate) fn enter(&mut self, place: Place, newcomer: Newcomer) {
        self.last_ticket = self.last_ticket.saturating_add(1);
        let ticket = Ticket(self.last_ticket);
        let lines = self.lines.entry(place.db).or_default();
        let line = lines.entry(Rc::clone(&place.key)).or_default();
        line.queue.push(ticket, newcomer.waiter, newcomer.refusal);
        if let Some(at_us) = newcomer.times_out_at_us {
            self.timeouts.insert((at_us, ticket));
        }
        self.by_client.insert(newcomer.client, ticket);
        let seat = Seat {
            place,
            client: newcomer.client,
            since_us: newcomer.since_us,
            times_out_at_us: newcomer.times_out_at_us,
            made: newcomer.made,
        };
        self.seats.insert(ticket, seat);
    }

    /// Takes a request out. Whoever takes it must unblock its client.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> Option<Leaver> {
        let seat = self.seats.remove(&ticket)?;
        self.by_client.remove(&seat.client);
        if let Some(at_us) = seat.times_out_at_us {
            self.timeouts.remove(&(at_us, ticket));
        }
        let line = self.line(&seat.place)?;
        let waiter = line.queue.remove(ticket)?;
        if line.queue.is_empty() {
            self.set_wake(&seat.place, None);
            if let Some(lines) = self.lines.get_mut(&seat.place.db) {
                lines.remove(&seat.place.key);
            }
        }
        Some(Leaver {
            place: seat.place,
            client: seat.client,
            waiter,
            since_us: seat.since_us,
            made: seat.made,
        })
    }

    /// Takes out the request of a client; `None` when it does not wait any more.
    pub(crate) fn leave_client(&mut self, client: Handle) -> Option<Leaver> {
        let ticket = self.by_client.get(&client).copied()?;
        self.leave(ticket)
    }

    /// All requests on a key.
    pub(crate) fn tickets(&self, place: &Place) -> Vec<Ticket> {
        let queue = self.queue(place.db, &place.key);
        queue.map_or_else(Vec::new, |queue| queue.iter().map(|(t, _)| t).collect())
    }

    /// Sets the alarm of a key that is waited for.
    pub(crate) fn set_wake(&mut self, place: &Place, at_ms: Option<u64>) {
        let Some(line) = self.line(place) else {
            return;
        };
        let before = std::mem::replace(&mut line.wakes_at_ms, at_ms);
        if before == at_ms {
            return;
        }
        if let Some(before) = before {
            self.wakes.remove(&(before, place.clone()));
        }
        if let Some(at_ms) = at_ms {
            self.wakes.insert((at_ms, place.clone()));
        }
    }

    /// Marks a key as changed, if anybody waits for it. Answers whether somebody does.
    pub(crate) fn mark(&mut self, db: i32, key: &[u8]) -> bool {
        let place = self.place(db, key);
        place.map(|place| self.dirty.insert(place)).is_some()
    }

    /// The same where the key has lost its lock, and may get another one in its place.
    pub(crate) fn mark_replaced(&mut self, db: i32, key: &[u8]) -> bool {
        if let Some(line) = self.lines.get_mut(&db).and_then(|lines| lines.get_mut(key)) {
            line.queue.lock_replaced();
        }
        self.mark(db, key)
    }

    /// Marks a key as changed, whether anybody waits for it or not. `None` is any database.
    pub(crate) fn mark_anyway(&mut self, db: Option<i32>, key: &[u8]) {
        let (db, key) = (db.unwrap_or(ANY_DB), key.into());
        self.dirty.insert(Place { db, key });
    }

    /// Marks a key as replaced in whatever database it is waited for.
    pub(crate) fn mark_in_all_dbs(&mut self, key: &[u8]) -> bool {
        let dbs: Vec<i32> = self.lines.keys().copied().collect();
        let mut any = false;
        for db in dbs {
            any |= self.mark_replaced(db, key);
        }
        any
    }

    /// Marks all keys of a database, or of all, that anybody waits for, as replaced.
    pub(crate) fn mark_db(&mut self, db: Option<i32>) -> bool {
        for (number, lines) in &mut self.lines {
            if db.is_none_or(|db| db == *number) {
                let lines_here = lines.values_mut();
                lines_here.for_each(|line| line.queue.lock_replaced());
                self.dirty.extend(lines.keys().map(|key| Place {
                    db: *number,
                    key: Rc::clone(key),
                }));
            }
        }
        !self.dirty.is_empty()
    }

    /// Has two databases change places. A marked key counts as marked in both.
    pub(crate) fn swap_dbs(&mut self, one: i32, other: i32) {
        let marks: Vec<Place> = self.dirty.iter().cloned().collect();
        for mut place in marks {
            if place.swap_db(one, other) {
                self.dirty.insert(place);
            }
        }
        self.deliveries.swap_dbs(one, other);
    }

    /// Takes the mark of a key that is served. Whether it had one.
    pub(crate) fn unmark(&mut self, place: &Place) -> bool {
        self.dirty.remove(place)
    }

    /// Has a key looked at again once this node may serve it.
    pub(crate) fn put_off(&mut self, place: Place) {
        self.later.insert(place);
    }

    /// Marks the keys that were put off.
    pub(crate) fn mark_put_off(&mut self) {
        self.dirty.append(&mut self.later);
    }

    /// Some of the keys that are waited for, others each time until all have come.
    pub(crate) fn next_of_patrol(&mut self, most: usize) -> Vec<Place> {
        if self.patrol.is_empty() {
            self.patrol = self.places();
        }
        let rest = self.patrol.len().saturating_sub(most);
        self.patrol.split_off(rest)
    }

    /// Takes the marks.
    pub(crate) fn take_dirty(&mut self) -> BTreeSet<Place> {
        std::mem::take(&mut self.dirty)
    }

    /// Takes the requests whose time is over at `now_us` of the monotonic clock.
    pub(crate) fn take_timed_out(&mut self, now_us: u64) -> Vec<Leaver> {
        let due = self
            .timeouts
            .iter()
            .take_while(|(at_us, _)| *at_us <= now_us);
        let tickets: Vec<Ticket> = due.map(|(_, ticket)| *ticket).collect();
        tickets.into_iter().filter_map(|t| self.leave(t)).collect()
    }

    /// Marks the keys whose alarm has rung.
    pub(crate) fn mark_woken(&mut self, now: Now) {
        let due = self
            .wakes
            .iter()
            .take_while(|(at_ms, _)| *at_ms <= now.ms());
        let places: Vec<Place> = due.map(|(_, place)| place.clone()).collect();
        for place in places {
            self.set_wake(&place, None);
            self.dirty.insert(place);
        }
    }

    /// Whether there are keys to look at.
    pub(crate) fn has_work(&self) -> bool {
        !self.dirty.is_empty() || self.deliveries.has_revoked()
    }

    /// When there is something to do.
    pub(crate) fn due(&self) -> Due {
        Due {
            at_once: self.has_work(),
            wakes_at_ms: self.wakes.first().map(|(at_ms, _)| *at_ms),
            times_out_at_us: self.timeouts.first().map(|(at_us, _)| *at_us),
        }
    }

    fn line(&mut self, place: &Place) -> Option<&mut Line> {
        self.lines.get_mut(&place.db)?.get_mut(&place.key)
    }
}
