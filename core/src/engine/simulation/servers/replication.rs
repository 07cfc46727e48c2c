//! Links: what is sent, received and lost.

use std::collections::VecDeque;

use super::server::{self, Attached, History, Item};
use super::{guard, Cluster, Link};
use crate::engine::guard::GuardEvent;

impl Cluster {
    /// A replica begins to follow a primary.
    pub(super) fn follow(&mut self, s: usize, to: usize) {
        let (replica, primary) = (&self.servers[s], &self.servers[to]);
        let can = replica.is_up() && !replica.is_primary && primary.is_up() && primary.is_primary;
        if !can || s == to || replica.link.as_ref().is_some_and(|link| link.to == to) {
            return;
        }
        let History { id, offset, .. } = replica.history;
        let theirs = &primary.history;
        let is_copy = theirs.from(id, offset).is_none();
        let queue = match theirs.from(id, offset) {
            Some(records) => {
                self.tally.continued += 1;
                let records = records.into_iter().map(Item::Record);
                [Item::Continue(theirs.id)]
                    .into_iter()
                    .chain(records)
                    .collect()
            }
            None => {
                self.tally.full_copies += 1;
                let whole = Item::Whole(primary.node.snapshot(), theirs.id, theirs.offset);
                [whole].into()
            }
        };
        self.cut(s, true);
        self.last_connection += 1;
        let connection = self.last_connection;
        self.servers[s].link = Some(Link {
            to,
            connection,
            queue,
        });
        self.servers[s].node.note_link(GuardEvent::Linked);
        let primary = &mut self.servers[to];
        primary.attached.push(Attached {
            connection,
            replica: s,
            inbox: VecDeque::new(),
            acked: 0,
        });
        primary.replicas_changed(self.true_us);
        if primary.came_after == Some(s) {
            primary.came_after = None;
            let has_rule = self.settings.guard.without != Some(guard::Rule::CameBack);
            if !(is_copy && has_rule) {
                let at_us = primary.node.memory.scene.get().mono_us;
                let event = GuardEvent::OldPrimaryIsBack(server::name_of(s), at_us);
                primary.node.note_link(event);
            }
        }
    }

    /// A replica acknowledges what it has received.
    fn acknowledge(&mut self, s: usize) {
        let server = &self.servers[s];
        let (Some(link), offset) = (&server.link, server.history.offset) else {
            return;
        };
        let (to, connection) = (link.to, link.connection);
        let mut attached = self.servers[to].attached.iter_mut();
        if let Some(one) = attached.find(|one| one.connection == connection) {
            one.inbox.push_back(offset);
        }
    }

    /// Links deliver everything in both directions.
    pub(super) fn flow(&mut self) {
        (0..self.servers.len()).for_each(|s| self.receive(s, usize::MAX));
        let up = self.servers.iter_mut().filter(|server| server.is_up());
        up.for_each(server::Server::hear_acks);
    }

    /// A primary learns which links are broken.
    pub(super) fn notice(&mut self, s: usize) {
        let lives = |one: &Attached| {
            let link = self.servers[one.replica].link.as_ref();
            link.is_some_and(|link| link.connection == one.connection)
        };
        let attached = &self.servers[s].attached;
        let alive: Vec<_> = attached.iter().filter(|one| lives(one)).cloned().collect();
        if self.servers[s].is_up() && alive.len() < attached.len() {
            self.servers[s].attached = alive;
            self.servers[s].replicas_changed(self.true_us);
        }
    }

    /// The link of a replica breaks. The primary learns of it at once if `is_seen`.
    pub(super) fn cut(&mut self, s: usize, is_seen: bool) {
        if let Some(link) = self.servers[s].link.take() {
            let is_record =
                |item: &&Item| matches!(item, Item::Record(record) if record.change.is_of_key());
            self.tally.records_lost += link.queue.iter().filter(is_record).count() as u64;
            if is_seen {
                self.notice(link.to);
            }
        }
    }

    /// Breaks the links to a primary that is none any more.
    pub(super) fn cut_all_to(&mut self, s: usize) {
        for other in 0..self.servers.len() {
            if self.servers[other].link.as_ref().is_some_and(|l| l.to == s) {
                self.cut(other, false);
            }
        }
        self.servers[s].attached.clear();
    }

    /// A replica receives so much.
    pub(super) fn receive(&mut self, s: usize, n: usize) {
        for _ in 0..n {
            let server = &mut self.servers[s];
            if !server.is_up() {
                return;
            }
            let link = server.link.as_mut();
            let Some(item) = link.and_then(|link| link.queue.pop_front()) else {
                return;
            };
            server.set_clocks(self.true_us);
            match item {
                Item::Continue(id) => server.history.id = id,
                Item::Record(record) => {
                    server.node.replay(&record);
                    if record.change.is_of_key() {
                        server.ledger.receive(&record);
                        server.save();
                    }
                    server.history.push(record);
                }
                Item::Whole(snapshot, id, offset) => {
                    server.node.load(&snapshot);
                    server.ledger.load(&snapshot);
                    server.history = History::begin(id, offset);
                    server.save();
                }
            }
            assert!(server.node.memory.events.take().is_empty(), "it answered");
            server.check_ledger();
            self.acknowledge(s);
        }
    }
}
