//! The queue's rules said naively: two lists, walked from end to end.

use super::{Block, Event, FIRST_FENCE};
use crate::lock::Mode;

#[derive(Clone, Copy, Debug)]
pub(super) struct NaiveHold {
    pub(super) token: u8,
    pub(super) mode: Mode,
    pub(super) deadline: u64,
    pub(super) fence: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NaiveWaiter {
    pub(super) ticket: u64,
    pub(super) token: u8,
    pub(super) mode: Mode,
    pub(super) ttl: u64,
    pub(super) upgrade: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Oracle {
    pub(super) holds: Vec<NaiveHold>,
    pub(super) waiters: Vec<NaiveWaiter>,
    pub(super) last_fence: u64,
    pub(super) last_ticket: u64,
}

impl Oracle {
    pub(super) fn new() -> Self {
        Self {
            holds: Vec::new(),
            waiters: Vec::new(),
            last_fence: FIRST_FENCE,
            last_ticket: 0,
        }
    }

    /// Forgets the holds that are over, and says anew who upgrades and where everybody stands.
    fn look_again(&mut self, now: u64) {
        self.holds.retain(|hold| now <= hold.deadline);
        let owners: Vec<u8> = self.holds.iter().map(|hold| hold.token).collect();
        let waiters = &mut self.waiters;
        waiters.sort_by_key(|waiter| waiter.ticket);
        for waiter in waiters.iter_mut() {
            waiter.upgrade &= owners.contains(&waiter.token);
        }
        let converts = |w: &&NaiveWaiter| w.mode == Mode::Exclusive && owners.contains(&w.token);
        let standing = waiters.iter().find(|waiter| waiter.upgrade);
        let upgrading = standing.or(waiters.iter().find(converts)).map(|w| w.token);
        for waiter in waiters.iter_mut() {
            waiter.upgrade = converts(&&*waiter) && Some(waiter.token) == upgrading;
        }
        waiters.sort_by_key(|waiter| (!waiter.upgrade, waiter.ticket));
    }

    pub(super) fn owns(&self, token: u8) -> bool {
        self.holds.iter().any(|hold| hold.token == token)
    }

    fn admits(&self, token: u8, mode: Mode) -> bool {
        let mut others = self.holds.iter().filter(|hold| hold.token != token);
        match mode {
            Mode::Exclusive => others.next().is_none(),
            Mode::Shared => others.all(|hold| hold.mode == Mode::Shared),
        }
    }

    pub(super) fn take(&mut self, token: u8, mode: Mode, deadline: u64) -> u64 {
        let own = self.holds.iter().position(|hold| hold.token == token);
        let fence = match own {
            Some(at) => self.holds.remove(at).fence,
            None => {
                self.last_fence += 1;
                self.last_fence
            }
        };
        self.holds.push(NaiveHold {
            token,
            mode,
            deadline,
            fence,
        });
        fence
    }

    pub(super) fn ask(&mut self, mode: Mode, token: u8, ttl: u64, block: Block, now: u64) -> Event {
        let owns = self.owns(token);
        if self.admits(token, mode) && (owns || self.waiters.is_empty()) {
            return Event::Answered(Some(self.take(token, mode, now + ttl)));
        }
        let mut upgrades = self.waiters.iter().filter(|waiter| waiter.upgrade);
        if owns && upgrades.any(|waiter| waiter.token != token) {
            return Event::Deadlock;
        }
        if block == Block::No {
            return Event::Answered(None);
        }
        self.last_ticket += 1;
        self.waiters.push(NaiveWaiter {
            ticket: self.last_ticket,
            token,
            mode,
            ttl,
            upgrade: owns,
        });
        Event::Waits(self.last_ticket)
    }

    /// What an owner can have at once comes first, then what it can never have, then the head.
    pub(super) fn serve(&mut self, now: u64, events: &mut Vec<Event>) {
        loop {
            self.look_again(now);
            let owners = self.waiters.iter().filter(|w| self.owns(w.token));
            let granted = owners
                .clone()
                .filter(|w| self.admits(w.token, w.mode))
                .min_by_key(|waiter| waiter.ticket);
            let refused = owners.clone().find(|waiter| !waiter.upgrade);
            let head = self.waiters.first();
            let next = granted.or(refused).or(head).copied();
            let Some(next) = next else {
                return;
            };
            if self.admits(next.token, next.mode) {
                let fence = self.take(next.token, next.mode, now + next.ttl);
                events.push(Event::Granted(next.ticket, fence));
            } else if self.owns(next.token) && !next.upgrade {
                events.push(Event::Refused(next.ticket));
            } else {
                return;
            }
            self.waiters.retain(|waiter| waiter.ticket != next.ticket);
        }
    }

    pub(super) fn release(&mut self, token: u8) {
        self.holds.retain(|hold| hold.token != token);
    }
}
