//! A primary and its replicas.

use super::kind::Kind;
use super::server::{wait_for, Server};
use super::state::State;

impl Server {
    /// A primary, and a replica that has all its data.
    pub fn pair(kind: Kind, options: &[&str]) -> (Self, Self) {
        let primary = Self::start_with(kind, options);
        let replica = Self::start_replica_of(&primary, options);
        (primary, replica)
    }

    /// Starts a replica of `primary` with the module, and waits until it has all data.
    pub fn start_replica_of(primary: &Server, options: &[&str]) -> Self {
        let port = primary.port.to_string();
        let of = [&["--replicaof", "127.0.0.1", &port], options].concat();
        let replica = Self::start_with(primary.kind, &of);
        replica.wait_until_it_follows(primary);
        replica
    }

    /// Waits until this replica has executed everything that `primary` has sent.
    #[track_caller]
    pub fn wait_until_it_follows(&self, primary: &Server) {
        let (mut of, mut here) = (primary.client(), self.client());
        wait_for("the replica to follow", || {
            let sent = of.info("master_repl_offset");
            let up = here.info("master_link_status") == "up";
            (up && here.info("slave_repl_offset") == sent).then_some(())
        });
    }

    /// Waits until this replica is connected to its primary.
    #[track_caller]
    pub fn wait_until_link_is_up(&self) {
        self.client().until_info("master_link_status", "up");
    }

    /// Waits until the only replica is online at this primary.
    #[track_caller]
    pub fn wait_for_its_replica(&self) {
        let mut c = self.client();
        wait_for("the replica to be online", || {
            let is_there = c.info("connected_slaves") == "1";
            (is_there && c.info("slave0").contains("state=online")).then_some(())
        });
    }

    /// Makes this server a replica by a command, because the port of its primary may change.
    #[track_caller]
    pub fn follow(&self, primary: &Server) {
        self.follow_port(primary.port);
    }

    /// The same where a link to the primary listens.
    #[track_caller]
    pub fn follow_port(&self, port: u16) {
        let line = format!("REPLICAOF 127.0.0.1 {port}");
        // A server that follows already says so.
        assert!(self.client().text(&line).starts_with("OK"));
    }

    /// Makes this server follow nobody, while it stays a replica.
    #[track_caller]
    pub fn lose_primary(&self) {
        self.follow_port(1);
    }

    /// Makes this server a primary.
    #[track_caller]
    pub fn stand_alone(&self) {
        assert_eq!(self.client().text("REPLICAOF NO ONE"), "OK");
    }

    /// Fails the test unless this replica has the same data as its primary. Returns the number of
    /// keys.
    #[track_caller]
    pub fn assert_same_as(&self, primary: &Server, when: &str) -> usize {
        self.wait_until_it_follows(primary);
        let state = State::of(&mut primary.client());
        State::of(&mut self.client()).assert_same(&state, when);
        state.len()
    }
}
