//! Links: what is sent, received and lost.

use super::server::{History, Item};
use super::{Cluster, Link};

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
        self.cut(s);
        self.servers[s].link = Some(Link { to, queue });
    }

    /// The link of a replica breaks.
    pub(super) fn cut(&mut self, s: usize) {
        if let Some(link) = self.servers[s].link.take() {
            let is_record = |item: &&Item| matches!(item, Item::Record(_));
            self.tally.records_lost += link.queue.iter().filter(is_record).count() as u64;
        }
    }

    /// Breaks the links to a primary that is none any more.
    pub(super) fn cut_all_to(&mut self, s: usize) {
        for other in 0..self.servers.len() {
            if self.servers[other].link.as_ref().is_some_and(|l| l.to == s) {
                self.cut(other);
            }
        }
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
                    server.ledger.receive(&record);
                    server.history.push(record);
                    server.save();
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
        }
    }
}
