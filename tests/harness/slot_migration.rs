//! Slots that move by `CLUSTER MIGRATESLOTS`: Valkey 9.

use super::client::Reply;
use super::cluster::Cluster;
use super::server::wait_for;

impl Cluster {
    /// Makes a node give its slots from `first` to `last` to another node.
    #[track_caller]
    pub fn begin_to_migrate(&self, [first, last]: [i64; 2], from: usize, to: usize) {
        let line = format!(
            "CLUSTER MIGRATESLOTS SLOTSRANGE {first} {last} NODE {}",
            self.id(to)
        );
        let mut c = self.client(from);
        wait_for(&line, || match c.call(&line) {
            Reply::Simple(ok) if ok == "OK" => Some(()),
            // Another migration of the slot has not ended everywhere.
            Reply::Error(error) if error.contains("slot") => None,
            other => panic!("{line}: {other:?}"),
        });
    }

    /// The state of the last migration of a node.
    #[track_caller]
    pub fn migration_state(&self, node: usize) -> String {
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
        for node in [from, to] {
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
