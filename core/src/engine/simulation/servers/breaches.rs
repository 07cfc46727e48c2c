//! Breaches: two clients that believe in holds of which one excludes the other.

use std::collections::BTreeMap;

use super::{Cluster, Mode};

impl Cluster {
    /// A server says that a client holds a lock. Nobody else may believe that then. The client
    /// knows of a hold that tolerates more, if it has asked for one.
    pub(super) fn check_is_true(&mut self, c: usize, name: u8, own: Option<Mode>) {
        let others = self.clients.iter().enumerate().filter(|(n, _)| *n != c);
        let theirs = others.filter_map(|(_, client)| client.beliefs.get(&name));
        let theirs = theirs.filter(|belief| self.true_us < belief.until_us);
        let theirs: Vec<Mode> = theirs.map(|belief| belief.mode).collect();
        let modes = theirs.iter().copied().chain(own);
        let tolerated = modes.map(Mode::tolerates).min().unwrap_or(u32::MAX);
        if theirs.len() as u32 >= tolerated {
            self.tally.breaches += 1;
            assert!(
                !self.settings.must_be_safe,
                "a check is wrong: {:?}",
                self.clients
            );
        }
    }

    /// Whether two clients believe in holds that do not tolerate each other. Each time that it
    /// begins counts once.
    pub(super) fn look_for_breaches(&mut self) {
        let mut believers: BTreeMap<u8, (usize, u32)> = BTreeMap::new();
        for client in &mut self.clients {
            client.beliefs.retain(|_, b| self.true_us < b.until_us);
            for (name, belief) in &client.beliefs {
                let (n, tolerated) = believers.entry(*name).or_insert((0, u32::MAX));
                *n += 1;
                *tolerated = (*tolerated).min(belief.mode.tolerates());
            }
        }
        let is_breach = |(n, tolerated): &(usize, u32)| *n > *tolerated as usize;
        believers.retain(|_, both| is_breach(both));
        for name in believers.keys() {
            if self.breached.insert(*name) {
                self.tally.breaches += 1;
                let both = &self.clients;
                assert!(!self.settings.must_be_safe, "two clients believe: {both:?}");
            }
        }
        self.breached.retain(|name| believers.contains_key(name));
    }
}
