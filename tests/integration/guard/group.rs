//! The guard of a primary with two replicas: a majority, and a planned hand-over.

use std::time::{Duration, Instant};

use super::{assert_logged, ENDED};
use crate::harness::{for_ms, wait_for, CutLink, Kind, Reply, Server};

on_every_server![
    the_old_primary_lives_on_and_nobody_else_gets_its_locks,
    a_primary_without_a_majority_grants_nothing,
    beats_go_to_no_file,
    without_a_majority_to_ask_no_beat_is_sent,
    a_planned_hand_over_ends_the_guard_early,
    a_planned_hand_over_among_five_waits,
    a_hand_over_that_loses_a_grant_does_not,
    a_hand_over_ends_a_guard_early_that_is_set_while_servers_run,
];

const TTL_MS: u64 = 3_000;
const QUORUM: [&str; 6] = ["guard", "quorum", "max-ttl", "3000", "guard-fresh", "1000"];
/// The modes that a hand-over concerns.
const MODES: [[&str; 4]; 2] = [
    ["guard", "failover", "max-ttl", "4000"],
    ["guard", "quorum", "max-ttl", "4000"],
];
const LEASE: Duration = Duration::from_secs(4);

/// A primary and two replicas, which follow it by a port.
pub(super) struct Group {
    pub(super) primary: Server,
    pub(super) replicas: [Server; 2],
}

impl Group {
    pub(super) fn start(kind: Kind, options: &[&str]) -> Self {
        let options = [options, &["--repl-diskless-sync-delay", "0"]].concat();
        let start = || Server::start_with(kind, &options);
        Self {
            primary: start(),
            replicas: [start(), start()],
        }
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

/// With the guard, and without it.
fn the_old_primary_lives_on_and_nobody_else_gets_its_locks(kind: Kind) {
    for is_guarded in [true, false] {
        let options: &[&str] = if is_guarded { &QUORUM } else { &[] };
        let group = Group::start(kind, options);
        let link = CutLink::to(group.primary.port);
        group.follow(link.port);
        let [new, other] = &group.replicas;
        let (mut old, mut c) = (group.primary.client(), new.client());
        if is_guarded {
            old.until_info("lock_guard", "open");
        }
        old.int("LOCK.ACQUIRE known owner 3000");
        new.wait_until_it_follows(&group.primary);
        link.stall();
        let sent = Instant::now();
        // What the replicas have acknowledged is fresh yet.
        old.int("LOCK.ACQUIRE k first 3000");
        c.text("REPLICAOF NO ONE");
        other.follow(new);
        if is_guarded {
            c.refused("LOCK.RENEW known owner 3000", "TRYAGAIN");
            assert_eq!(c.call("LOCK.ACQUIRE k early 3000"), Reply::Nil);
            old.until_info("lock_guard", "alone");
            assert_eq!(old.info("lock_guard_left_ms"), "0");
            assert_eq!(old.info("lock_guard_members_fresh"), "1");
            assert_eq!(old.call("LOCK.ACQUIRE free me 3000"), Reply::Nil);
            old.refused("LOCK.RENEW k first 3000", "TRYAGAIN");
            assert!(old.int("LOCK.CHECK k first") > 0);
        }
        c.int("LOCK.ACQUIRE k second 3000 BLOCK 20000");
        let is_over = sent.elapsed() > Duration::from_millis(TTL_MS);
        assert_eq!(is_over, is_guarded, "{:?}", sent.elapsed());
    }
}

fn a_primary_without_a_majority_grants_nothing(kind: Kind) {
    let group = Group::start(kind, &QUORUM);
    let mut c = group.primary.client();
    c.until_info("lock_guard", "alone");
    let waits = group.primary.blocked("LOCK.ACQUIRE k me 3000 BLOCK 0");
    group.follow(group.primary.port);
    c.until_info("lock_guard", "open");
    waits.reply().as_int();
    assert_logged(&group.primary, "alone", ENDED);
    c.until_info("lock_guard_members_fresh", "3");
    // One replica is enough, once it has followed for long.
    group.replicas[0].client().text("REPLICAOF NO ONE");
    c.until_info("lock_guard_members_fresh", "2");
    c.until_info("lock_guard", "open");
    c.int("LOCK.ACQUIRE k me 3000 BLOCK 0");
    assert_eq!(c.int("LOCK.RENEW k me 3000"), 1);
    c.int("LOCK.ACQUIRE other me 3000");
    group.replicas[1].client().text("REPLICAOF NO ONE");
    c.until_info("lock_guard", "alone");
    let error = c.error("LOCK.RENEW k me 3000");
    assert!(error.starts_with("TRYAGAIN"));
    c.text("MULTI");
    c.text("LOCK.RENEW k me 3000");
    assert_eq!(c.error("EXEC"), error);
    let script = "return redis.pcall('LOCK.RENEW', KEYS[1], 'me', 3000)";
    assert_eq!(c.send(&["EVAL", script, "1", "k"]), Reply::Error(error));
    assert_eq!(c.int("LOCK.RELEASE k me"), 1);
    assert_eq!(c.call("LOCK.ACQUIRE k me 3000"), Reply::Nil);
    assert_eq!(c.int("LOCK.RENEW k me 3000"), 0);
}

fn beats_go_to_no_file(kind: Kind) {
    let options = [&QUORUM[..], &["--appendonly", "yes"]].concat();
    let group = Group::start(kind, &options);
    group.follow(group.primary.port);
    let mut c = group.primary.client();
    c.until_info("lock_guard", "open");
    for server in [&group.primary, &group.replicas[0]] {
        let mut c = server.client();
        let mut bytes = || c.info("aof_current_size").parse::<u64>().unwrap();
        let before = bytes();
        let sent = group.sent();
        wait_for("some beats", || (group.sent() > sent + 1_000).then_some(()));
        assert_eq!(bytes(), before);
    }
}

fn without_a_majority_to_ask_no_beat_is_sent(kind: Kind) {
    for (mode, sends) in [("off", false), ("restart", false), ("quorum", true)] {
        // The server itself sends a PING so often, and nothing else.
        let options = ["guard", mode, "max-ttl", "1000"];
        let options = [&options[..], &["--repl-ping-replica-period", "3600"]].concat();
        let group = Group::start(kind, &options);
        group.follow(group.primary.port);
        let mut c = group.primary.client();
        c.until_info("lock_guard_left_ms", "0");
        let sent = group.sent();
        // A beat is sent four times a second.
        for_ms(1_000, || ());
        assert_eq!(group.sent() > sent, sends, "{mode}");
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
        let set = "CONFIG SET lock.guard failover lock.max-ttl 4000";
        server.client().text(set);
    }
    hand_over(&group);
}

/// Has the first replica become the primary, which grants before the longest lease is over.
fn hand_over(group: &Group) {
    let new = &group.replicas[0];
    let (mut old, mut c) = (group.primary.client(), new.client());
    old.until_info("lock_guard", "open");
    let fence = old.int("LOCK.ACQUIRE k me 4000");
    new.wait_until_it_follows(&group.primary);
    let begun = Instant::now();
    old.text(&format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 15000", new.port));
    c.until_info("role", "master");
    assert!(c.int("LOCK.ACQUIRE other me 4000 BLOCK 20000") > fence);
    assert!(begun.elapsed() < LEASE, "{:?}", begun.elapsed());
    assert_eq!(c.int("LOCK.RENEW k me 4000"), 1);
}

/// The old and the new primary are no majority, so the new one waits for all of C.
fn a_planned_hand_over_among_five_waits(kind: Kind) {
    let options = ["guard", "quorum", "max-ttl", "2000", "guard-members", "5"];
    let more = ["guard-fresh", "1000", "--repl-diskless-sync-delay", "0"];
    let options = [&options[..], &more].concat();
    let servers: Vec<_> = (0..5).map(|_| Server::start_with(kind, &options)).collect();
    let (primary, replicas) = servers.split_first().unwrap();
    for replica in replicas {
        replica.follow(primary);
        replica.wait_until_it_follows(primary);
    }
    let mut old = primary.client();
    old.until_info("lock_guard", "open");
    let (new, others) = replicas.split_first().unwrap();
    let mut c = new.client();
    new.wait_until_it_follows(primary);
    let begun = Instant::now();
    old.text(&format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 15000", new.port));
    c.until_info("role", "master");
    for other in others {
        other.follow(new);
    }
    c.int("LOCK.ACQUIRE k me 2000 BLOCK 20000");
    // C is 3 s and 4 %.
    assert!(
        begun.elapsed() > Duration::from_millis(3_120),
        "{:?}",
        begun.elapsed()
    );
}

fn a_hand_over_that_loses_a_grant_does_not(kind: Kind) {
    for mode in ["failover", "quorum"] {
        let options = ["guard", mode, "max-ttl", "1500", "guard-fresh", "500"];
        let options = [&options[..], &["guard-slack", "500"]].concat();
        let group = Group::start(kind, &options);
        let link = CutLink::to(group.primary.port);
        group.follow(link.port);
        let [new, other] = &group.replicas;
        let (mut old, mut c) = (group.primary.client(), new.client());
        old.until_info("lock_guard", "open");
        link.stall();
        let sent = Instant::now();
        old.int("LOCK.ACQUIRE k first 1500");
        c.text("REPLICAOF NO ONE");
        for server in [&group.primary, other] {
            server.follow(new);
        }
        group.primary.wait_until_it_follows(new);
        c.int("LOCK.ACQUIRE k second 1500 BLOCK 30000");
        let lease = Duration::from_millis(1_500);
        assert!(sent.elapsed() > lease, "{:?}", sent.elapsed());
    }
}
