//! The guard of a primary with two replicas: a majority, and a planned hand-over.

use super::{assert_logged, ms_since, ENDED, FAILOVER, TTL_MS};
use crate::harness::{start_by, Client, Clock, Kind, Reply, Server};

on_every_server![
    a_primary_without_a_majority_grants_nothing,
    beats_go_to_no_file,
];
// The last beat must be less than 1.5 seconds old by then: a busy machine waits for C.
on_every_server_at_night![
    a_planned_hand_over_ends_the_guard_early,
    a_hand_over_ends_a_guard_early_that_is_set_while_servers_run,
];

pub(super) const QUORUM: [&str; 6] = [
    "guard",
    "quorum",
    "max-ttl",
    "120000",
    "guard-fresh",
    "30000",
];
/// The modes that a hand-over concerns.
pub(super) const MODES: [[&str; 6]; 2] = [FAILOVER, QUORUM];

/// How far the clocks of the replicas are behind. A beat may be under way for so long, and the new
/// primary still knows that its clock is not ahead.
const BEHIND_US: i64 = 800_000;

/// A primary and two replicas, which follow it by a port.
pub(super) struct Group {
    pub(super) primary: Server,
    pub(super) replicas: [Server; 2],
    /// That of the primary first, so that a beat never seems to come from behind.
    clocks: [Clock; 2],
}

impl Group {
    pub(super) fn start(kind: Kind, options: &[&str]) -> Self {
        let more = ["--repl-diskless-sync-delay", "0", "--repl-timeout", "3600"];
        let options = [options, &more].concat();
        let clocks = [Clock::ahead_by_us(0), Clock::ahead_by_us(-BEHIND_US)];
        let start = |of: usize| start_by(&clocks[of], kind, &options);
        Self {
            primary: start(0),
            replicas: [start(1), start(1)],
            clocks,
        }
    }

    /// Lets time pass for all of them until the condition returns a value.
    #[track_caller]
    pub(super) fn pass_until<T>(&self, what: &str, condition: impl FnMut() -> Option<T>) -> T {
        Clock::all_pass_until(&self.clocks, what, condition)
    }

    /// The same until a server's guard says this.
    #[track_caller]
    pub(super) fn until_guard(&self, c: &mut Client, is: &str) {
        let what = format!("the guard to be {is}");
        self.pass_until(&what, || (c.info("lock_guard") == is).then_some(()));
    }

    /// Waits for the next beat of the primary. A replica goes by the last one.
    pub(super) fn let_it_say_so(&self) {
        let sent = self.sent();
        self.pass_until("a beat", || (self.sent() > sent).then_some(()));
    }

    /// How many bytes the primary has sent.
    fn sent(&self) -> u64 {
        let offset = self.primary.client().info("master_repl_offset");
        offset.parse().unwrap()
    }

    pub(super) fn follow(&self, port: u16) {
        for replica in &self.replicas {
            replica.follow_port(port);
            replica.wait_until_it_follows(&self.primary);
        }
    }
}

fn a_primary_without_a_majority_grants_nothing(kind: Kind) {
    let group = Group::start(kind, &QUORUM);
    let mut c = group.primary.client();
    c.until_info("lock_guard", "alone");
    let waits = group.primary.blocked("LOCK.ACQUIRE k me 120000 BLOCK 0");
    group.follow(group.primary.port);
    group.until_guard(&mut c, "open");
    waits.fence();
    assert_logged(&group.primary, "alone", ENDED);
    c.until_info("lock_guard_members_fresh", "3");
    // One replica is enough, once it has followed for long.
    group.replicas[0].client().text("REPLICAOF NO ONE");
    group.pass_until("one to be gone", || {
        (c.info("lock_guard_members_fresh") == "2").then_some(())
    });
    group.until_guard(&mut c, "open");
    c.int("LOCK.ACQUIRE k me 120000 BLOCK 0");
    assert_eq!(c.int("LOCK.RENEW k me 120000"), 1);
    c.int("LOCK.ACQUIRE other me 120000");
    group.replicas[1].client().text("REPLICAOF NO ONE");
    group.until_guard(&mut c, "alone");
    let error = c.error("LOCK.RENEW k me 120000");
    assert!(error.starts_with("TRYAGAIN"));
    c.text("MULTI");
    c.text("LOCK.RENEW k me 120000");
    assert_eq!(c.error("EXEC"), error);
    let script = "return redis.pcall('LOCK.RENEW', KEYS[1], 'me', 120000)";
    assert_eq!(c.send(&["EVAL", script, "1", "k"]), Reply::Error(error));
    assert_eq!(c.int("LOCK.RELEASE k me"), 1);
    assert_eq!(c.call("LOCK.ACQUIRE k me 120000"), Reply::Nil);
    assert_eq!(c.int("LOCK.RENEW k me 120000"), 0);
}

fn beats_go_to_no_file(kind: Kind) {
    let options = [&QUORUM[..], &["--appendonly", "yes"]].concat();
    let group = Group::start(kind, &options);
    group.follow(group.primary.port);
    let mut c = group.primary.client();
    group.until_guard(&mut c, "open");
    for server in [&group.primary, &group.replicas[0]] {
        let mut c = server.client();
        let mut bytes = || c.info("aof_current_size").parse::<u64>().unwrap();
        let before = bytes();
        let sent = group.sent();
        group.pass_until("some beats", || (group.sent() > sent + 1_000).then_some(()));
        assert_eq!(bytes(), before);
    }
}

fn a_planned_hand_over_ends_the_guard_early(kind: Kind) {
    for options in MODES {
        let group = Group::start(kind, &options);
        group.follow(group.primary.port);
        hand_over(&group);
    }
}

/// No event has told of the links that were there before.
fn a_hand_over_ends_a_guard_early_that_is_set_while_servers_run(kind: Kind) {
    let group = Group::start(kind, &[]);
    group.follow(group.primary.port);
    let [one, other] = &group.replicas;
    for server in [one, other, &group.primary] {
        let set = "CONFIG SET lock.guard failover lock.max-ttl 120000 lock.guard-slack 30000";
        server.client().text(set);
    }
    hand_over(&group);
}

/// Has the first replica become the primary, which grants although no time passes but that of the
/// test.
fn hand_over(group: &Group) {
    let new = &group.replicas[0];
    let (mut old, mut c) = (group.primary.client(), new.client());
    group.until_guard(&mut old, "open");
    group.let_it_say_so();
    let fence = old.int("LOCK.ACQUIRE k me 120000");
    new.wait_until_it_follows(&group.primary);
    let begun_us = c.now_us();
    old.text(&format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 15000", new.port));
    c.until_info("role", "master");
    let next = new.later("LOCK.ACQUIRE other me 120000 BLOCK 0");
    assert!(next.fence() > fence);
    let took_ms = ms_since(begun_us, &mut c);
    assert!(took_ms < TTL_MS, "{took_ms}");
    assert_eq!(c.int("LOCK.RENEW k me 120000"), 1);
}
