//! Servers that crash, start, pause and change their roles.

use std::collections::BTreeSet;

use super::{guard, Arrival, Cluster, Disk, Event, Server, Snapshot, State};
use crate::engine::simulation::node::Node;

/// Clocks that differ by less are within the second that the documents ask for.
const WITHIN_A_SECOND_US: u64 = 950_000;

/// After how long a server that has stood still has heard that it was replaced.
const HEARS_US: u64 = 1_900_000;

impl Cluster {
    /// A server starts, and has loaded its file.
    pub(super) fn begin(&mut self, s: usize, file: &Snapshot) {
        self.last_history += 1;
        let server = &mut self.servers[s];
        let fresh = Server::new(server.clocks, server.is_primary);
        let before = std::mem::replace(server, fresh);
        server.set_clocks(self.true_us);
        server.history.id = self.last_history;
        // As the module does when it is loaded, before the file is.
        server.node.memory.guard.set(self.settings.guard);
        server.node.started();
        server.node.load(file);
        server.ledger.load(file);
        server.files = before.files;
        server.save();
        self.raise_floor(s);
    }

    /// What a server gives from now on must be above what was given before.
    fn raise_floor(&mut self, s: usize) {
        let walls = || {
            let walls = self.servers.iter();
            walls.map(|server| server.clocks.wall_us(self.true_us))
        };
        let (least, most) = (walls().min().unwrap(), walls().max().unwrap());
        let (given_by_clock, given) = (self.given_by_clock, self.given);
        let ledger = &mut self.servers[s].ledger;
        ledger.given_before = given;
        ledger.floor = match most - least < WITHIN_A_SECOND_US {
            true => given_by_clock,
            false => 0,
        };
    }

    pub(super) fn crash(&mut self, s: usize) {
        if self.servers[s].state == State::Down {
            return;
        }
        self.tally.crashes += 1;
        self.cut(s, true);
        self.cut_all_to(s);
        let server = &mut self.servers[s];
        server.state = State::Down;
        server.arrivals.clear();
    }

    pub(super) fn restart(&mut self, s: usize, disk: Disk, is_primary: bool) {
        let server = &mut self.servers[s];
        if server.state != State::Down {
            return;
        }
        let lacks = match disk {
            _ if self.settings.loses_nothing && server.is_primary => Some(0),
            Disk::Lacks(n) => Some(n),
            Disk::Empty => None,
        };
        server.is_primary = match self.settings.loses_nothing {
            true => server.is_primary,
            false => is_primary && (s == self.newest || !self.settings.old_primaries_stop),
        };
        // What is newer than the file is not written any more.
        let keep = lacks.map_or(0, |n| server.files.len().saturating_sub(n));
        server.files.truncate(keep);
        let file = server.files.back().cloned().unwrap_or_default();
        self.begin(s, &file);
    }

    pub(super) fn pause(&mut self, s: usize) {
        let server = &mut self.servers[s];
        if server.is_up() {
            server.state = State::Paused;
            if server.is_primary {
                // It has run for a moment at least.
                let boot_us = server.clocks.mono_us(self.true_us);
                server.node.machine.guard.note_look(boot_us);
            }
        }
    }

    pub(super) fn resume(&mut self, s: usize) {
        if self.servers[s].state != State::Paused {
            return;
        }
        self.servers[s].state = State::Up;
        self.servers[s].hear_acks();
        while let Some(arrival) = self.servers[s].arrivals.pop_front() {
            self.serve(s, arrival);
        }
        let (server, now_us) = (&mut self.servers[s], self.true_us);
        if std::mem::take(&mut server.stands_still) {
            server.stops_us = server.stops_us.map(|us| us.max(now_us + HEARS_US));
        }
    }

    pub(super) fn promote(&mut self, s: usize) {
        if !self.servers[s].is_up() || self.servers[s].is_primary {
            return;
        }
        self.tally.promotions += 1;
        self.last_history += 1;
        let came_after = self.servers[s].link.as_ref().map(|link| link.to);
        self.cut(s, true);
        let server = &mut self.servers[s];
        server.came_after = came_after;
        server.is_primary = true;
        server.set_clocks(self.true_us);
        server.history.branch(self.last_history);
        server.node.promoted();
        self.raise_floor(s);
        self.newest = s;
        // The clock by which the new primary waits may be fast.
        let stops_us = self.true_us + self.settings.guard.slack_ms * 980;
        for (other, server) in self.servers.iter_mut().enumerate() {
            server.stops_us = match server.stops_us {
                _ if other == s || !server.is_primary => None,
                stops_us @ Some(_) => stops_us,
                None => Some(stops_us),
            };
            server.stands_still |= server.state == State::Paused && server.stops_us.is_some();
        }
    }

    /// Time goes on, and the servers stop that have to.
    pub(super) fn pass(&mut self, ms: u64) {
        let (since_us, until_us) = (self.true_us, self.true_us + ms * 1_000);
        // One that stands still does not hear that it was replaced.
        let stop = |(s, server): (usize, &Server)| {
            Some((server.stops_us.filter(|_| !server.stands_still)?, s))
        };
        let stops = self.servers.iter().enumerate().filter_map(stop);
        let stops: BTreeSet<_> = stops.filter(|(us, _)| *us <= until_us).collect();
        let must_stop = self.settings.old_primaries_stop;
        for (us, s) in stops.into_iter().filter(|_| must_stop) {
            self.true_us = us.max(self.true_us);
            self.crash(s);
            self.servers[s].is_primary = false;
            self.servers[s].stops_us = None;
        }
        self.true_us = until_us;
        // The beats of the others have gone on meanwhile.
        for server in self.servers.iter_mut().filter(|server| server.is_up()) {
            let at = |us| server.clocks.mono_us(us);
            let (since_us, until_us) = (at(since_us), at(until_us));
            server.node.machine.guard.goes_on(since_us, until_us);
        }
    }

    /// A server becomes a replica. Redis answers the blocked clients.
    pub(super) fn demote(&mut self, s: usize, to: usize) {
        if s == to || !self.servers[s].is_up() || !self.servers[s].is_primary {
            return;
        }
        let other = &self.servers[to];
        if !(other.is_up() && other.is_primary) {
            return;
        }
        self.cut_all_to(s);
        let server = &mut self.servers[s];
        server.is_primary = false;
        server.stops_us = None;
        server.came_after = None;
        let blocked: Vec<_> = match self.settings.tells_blocked {
            true => std::mem::take(&mut server.blocked).into_iter().collect(),
            false => Vec::new(),
        };
        self.turn(s, None, |node: &mut Node| node.demoted(&blocked));
        for id in blocked {
            if let Some(pending) = self.pending(id) {
                pending.reply = Some(Event::TryAgain);
            }
        }
        self.follow(s, to);
    }

    /// Another server becomes the primary, with all that the old one has decided. `dies` says that
    /// the old one crashes then.
    pub(super) fn change_primary(&mut self, to: usize, dies: bool) {
        let is_it = |server: &Server| server.is_up() && server.is_primary;
        let Some(from) = self.servers.iter().position(is_it) else {
            return;
        };
        if from == to || !self.servers[to].is_up() || self.servers[to].is_primary {
            return;
        }
        self.follow(to, from);
        self.receive(to, usize::MAX);
        self.promote(to);
        if dies {
            self.crash(from);
            self.servers[from].is_primary = false;
        } else {
            self.demote(from, to);
        }
        for other in 0..self.servers.len() {
            if other != to {
                self.follow(other, to);
            }
        }
    }

    pub(super) fn set(&mut self, guard: guard::Settings) {
        let guard = guard::Settings {
            without: self.settings.guard.without,
            ..guard
        };
        self.settings.guard = guard;
        (0..self.servers.len()).for_each(|s| self.arrive(s, Arrival::Settings(guard)));
    }

    /// What a client sends reaches a server.
    pub(super) fn arrive(&mut self, s: usize, arrival: Arrival) {
        match self.servers[s].state {
            State::Up => self.serve(s, arrival),
            State::Paused => self.servers[s].arrivals.push_back(arrival),
            State::Down => {}
        }
    }
}
