//! Slots that move as a whole: by `CLUSTER MIGRATESLOTS` of Valkey 9, by `CLUSTER MIGRATION` of
//! Redis 8.4 and later.

use super::client::Reply;
use super::cluster::Cluster;
use super::server::wait_for;

impl Cluster {
    /// Makes a node give its slots from `first` to `last` to another node.
    #[track_caller]
    pub fn begin_to_migrate(&self, [first, last]: [i64; 2], from: usize, to: usize) {
        let (asked, line) = match self.nodes[from].kind.is_valkey() {
            true => (
                from,
                format!(
                    "CLUSTER MIGRATESLOTS SLOTSRANGE {first} {last} NODE {}",
                    self.id(to)
                ),
            ),
            false => (to, format!("CLUSTER MIGRATION IMPORT {first} {last}")),
        };
        let mut c = self.client(asked);
        wait_for(&line, || match c.call(&line) {
            Reply::Simple(ok) if ok == "OK" => Some(()),
            Reply::Bulk(_) => Some(()),
            // Another migration of the slot has not ended everywhere.
            Reply::Error(error) if error.contains("slot") => None,
            other => panic!("{line}: {other:?}"),
        });
    }

    /// The state of the last migration of a node.
    #[track_caller]
    pub fn migration_state(&self, node: usize) -> String {
        if !self.nodes[node].kind.is_valkey() {
            let tasks = self.client(node).call("CLUSTER MIGRATION STATUS ALL");
            let created = |task: &&Reply| task.field("create_time").as_int();
            let last = tasks.items().iter().max_by_key(created);
            let state = last.map_or("none".into(), |task| task.field("state").to_text());
            return match state.as_str() {
                "completed" => "success".into(),
                "canceled" => "cancelled".into(),
                _ => state,
            };
        }
        let jobs = self.client(node).call("CLUSTER GETSLOTMIGRATIONS");
        let Some(last) = jobs.items().first() else {
            return "none".into();
        };
        last.field("state").to_text()
    }

    #[track_caller]
    pub fn wait_for_migration_state(&self, node: usize, state: &str) {
        wait_for(&format!("the migration to be: {state}"), || {
            (self.migration_state(node) == state).then_some(())
        });
    }

    /// Waits until both nodes report that a migration succeeded.
    #[track_caller]
    pub fn end_of_migration(&self, from: usize, to: usize) {
        // The asked node knows the new migration, and the other one may still tell of the last one.
        let nodes = match self.nodes[from].kind.is_valkey() {
            true => [from, to],
            false => [to, from],
        };
        for node in nodes {
            wait_for("the migration to end", || {
                match self.migration_state(node).as_str() {
                    "success" => Some(()),
                    "failed" | "cancelled" => panic!("{:?}", self.nodes[node].log()),
                    _ => None,
                }
            });
        }
    }

    /// Keeps migrations from completing: at the source with `prevent-pause`, at the target with
    /// `prevent-failover`.
    #[track_caller]
    pub fn prevent(&self, node: usize, what: &str, is_prevented: bool) {
        let line = format!("DEBUG SLOTMIGRATION {what} {}", u8::from(is_prevented));
        assert_eq!(self.client(node).text(&line), "OK");
    }
}
