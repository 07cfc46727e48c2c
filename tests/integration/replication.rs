//! The data of a replica, and its state after a promotion.

use crate::harness::aof;
use crate::harness::dump::raise_fences_by_an_hour;
use crate::harness::workload::{self, script};
use crate::harness::{now_ms, wait_for};
use crate::harness::{Client, Kind, Reply, Server, State, AT_ONCE, SYNCED};
use crate::replicas::primary;

on_every_server![
    commands_that_change_nothing_replicate_nothing,
    a_replica_hides_expired_holds_before_its_primary_deletes_them,
    a_replica_attached_later_gives_larger_fences,
    the_old_primary_follows_the_new_one,
    a_replica_restarts_from_its_own_aof,
    monitor_and_slowlog_show_the_command_as_sent,
    a_random_history_is_replicated_without_replicating_in_place
];

#[track_caller]
fn assert_same(primary: &Server, replica: &Server, when: &str) {
    workload::settle(&mut primary.client());
    replica.assert_same_as(primary, when);
}

/// Sent alone, such commands are in `bad_input`.
fn commands_that_change_nothing_replicate_nothing(kind: Kind) {
    let primary = primary(kind);
    let replica = Server::start_replica_of(&primary, &[]);
    let mut c = primary.client();
    c.int("LOCK.ACQUIRE k me 600000");
    c.int("RWLOCK.RLOCK shared a 600000");
    c.int("RWLOCK.RLOCK shared b 600000");
    replica.wait_until_it_follows(&primary);
    let sent = |c: &mut Client| c.info("master_repl_offset").parse::<i64>().unwrap();
    let before = sent(&mut c);
    let nothing = [
        "LOCK.ACQUIRE k you 60000",
        "RWLOCK.WLOCK k you 60000",
        "RWLOCK.RLOCK k you 60000",
        "RWLOCK.RLOCK k * 60000",
        "RWLOCK.WLOCK shared a 60000",
        "LOCK.RENEW k you 60000",
        "LOCK.RELEASE k you",
        "LOCK.RENEW free me 60000",
        "LOCK.RELEASE free me",
        "LOCK.INFO k",
        "LOCK.INFO free",
    ];
    c.multi(&nothing);
    c.send(&script(&nothing));
    assert_eq!(sent(&mut c), before);
    // A command that changes something does send bytes.
    c.int("LOCK.RENEW k me 700000");
    assert!(sent(&mut c) > before + 40);
    assert_same(&primary, &replica, "after all");
}

/// As on a server for which replication in place is not proved. configuration/in_place.rs shows
/// what the setting does.
fn a_random_history_is_replicated_without_replicating_in_place(kind: Kind) {
    let options = [&["replicate-in-place", "no"], &AT_ONCE[..]].concat();
    let primary = Server::start_with(kind, &options);
    let replica = Server::start_replica_of(&primary, &[]);
    let mut c = primary.client();
    for seed in 70..75 {
        workload::run(&mut c, seed, 1000);
        assert_same(&primary, &replica, &format!("seed {seed}"));
    }
}

fn a_replica_hides_expired_holds_before_its_primary_deletes_them(kind: Kind) {
    let primary = primary(kind);
    let replica = Server::start_replica_of(&primary, &[]);
    let (mut c, mut r) = (primary.client(), replica.client());
    // The primary deletes nothing without a command.
    c.call("DEBUG SET-ACTIVE-EXPIRE 0");
    c.int("LOCK.ACQUIRE alone me 1000");
    c.int("RWLOCK.RLOCK shared short 1000");
    let last = c.int("RWLOCK.RLOCK shared long 600000");
    let ends = now_ms() + 1000;
    replica.wait_until_it_follows(&primary);
    let offset = c.info("master_repl_offset");
    wait_for("the deadline", || (now_ms() > ends).then_some(()));
    assert_eq!(r.call("LOCK.INFO alone"), Reply::Nil);
    let holders = r.call("LOCK.INFO shared").field("holders");
    assert_eq!(holders.items().len(), 1);
    assert_eq!(c.info("master_repl_offset"), offset);
    assert_eq!(r.int("DBSIZE"), 2, "it deletes nothing by itself");
    // The next owners arrive while the old holds still exist there.
    assert!(c.int("LOCK.ACQUIRE alone you 600000") > last);
    assert!(c.int("RWLOCK.RLOCK shared new 600000") > last);
    assert_same(&primary, &replica, "after the next owners");
    assert_eq!(c.int("LOCK.RELEASE shared new"), 1);
    assert_eq!(c.int("RWLOCK.WLOCK shared long 600000"), last);
    assert_same(&primary, &replica, "after the conversion");
    assert_eq!(r.steady_info("alone")[1], Reply::from("you"));
}

/// Promotes the replica of a primary that is gone.
fn promote(replica: &Server) -> Client {
    replica.stand_alone();
    replica.client()
}

fn a_replica_attached_later_gives_larger_fences(kind: Kind) {
    // A replica that received no effects, but the data set as a whole: with no lock in it, and with
    // one of a smaller fence.
    for held in [false, true] {
        let mut primary = primary(kind);
        let mut c = primary.client();
        if held {
            c.int("LOCK.ACQUIRE k me 600000");
        }
        let ahead = raise_fences_by_an_hour(&mut c);
        assert_eq!(c.int("DBSIZE"), held.into());
        let replica = Server::start_replica_of(&primary, &[]);
        primary.kill();
        let next = promote(&replica).int("LOCK.ACQUIRE new me 600000");
        assert!(next > ahead, "held {held}: {next} after {ahead}");
    }
}

fn the_old_primary_follows_the_new_one(kind: Kind) {
    let old = primary(kind);
    let new = Server::start_replica_of(&old, &[]);
    let (mut o, mut n) = (old.client(), new.client());
    o.int("LOCK.ACQUIRE k me 600000");
    new.wait_until_it_follows(&old);
    promote(&new);
    o.int("LOCK.ACQUIRE lost me 600000"); // which the new one never receives
    assert_eq!(n.int("LOCK.RELEASE k me"), 1);
    let ahead = raise_fences_by_an_hour(&mut n);
    n.int("RWLOCK.RLOCK k you 600000");
    old.follow(&new);
    assert_same(&new, &old, "after the change of roles");
    assert_eq!(o.int("EXISTS lost"), 0);
    assert!(promote(&old).int("LOCK.ACQUIRE new me 600000") > ahead);
}

fn a_replica_restarts_from_its_own_aof(kind: Kind) {
    for preamble in ["yes", "no"] {
        let primary = primary(kind);
        let options = [&SYNCED[..], &["--aof-use-rdb-preamble", preamble]].concat();
        let mut replica = Server::start_replica_of(&primary, &options);
        let mut c = primary.client();
        // It rewrites its file after the first synchronization. The effects of this test must come
        // after that.
        aof::until_rewritten(&mut replica.client());
        workload::run(&mut c, 80, 2000);
        c.int("LOCK.ACQUIRE k me 600000");
        c.int("RWLOCK.RLOCK shared a 600000");
        c.int("PEXPIRE shared 500000");
        c.int("RWLOCK.RLOCK shared b 600000");
        assert_same(&primary, &replica, "before");
        let state = State::of(&mut c);
        let last = c.int("LOCK.ACQUIRE last me 600000");
        c.call("DEL last");
        replica.wait_until_it_follows(&primary);
        replica.kill();
        replica.start_again_with(&["--replicaof", "no", "one"]);
        let mut r = replica.client();
        State::of(&mut r).assert_same(&state, &format!("preamble {preamble}"));
        assert_eq!(r.int("LOCK.RELEASE k me"), 1);
        assert!(r.int("LOCK.ACQUIRE k you 600000") > last);
    }
}

/// An effect replaces the client's command for a moment. Nobody may see that.
fn monitor_and_slowlog_show_the_command_as_sent(kind: Kind) {
    let server = primary(kind);
    let replica = Server::start_replica_of(&server, &[]);
    let mut c = server.client();
    let mut monitor = server.raw();
    monitor.send("MONITOR");
    assert_eq!(monitor.line().unwrap(), "+OK");
    c.call("CONFIG SET slowlog-log-slower-than 0");
    c.call("SLOWLOG RESET");
    let lines = [
        "LOCK.ACQUIRE k me 60000",
        "LOCK.RENEW k me 70000",
        "LOCK.ACQUIRE k me 80000 BLOCK 5000",
        "LOCK.RELEASE k me",
        "RWLOCK.RLOCK k * 60000",
        "RWLOCK.RLOCK k you 60000",
        "LOCK.RELEASE k you",
    ];
    for line in lines {
        c.call(line);
    }
    let slow = c.call("SLOWLOG GET 100");
    let logged: Vec<String> = slow
        .items()
        .iter()
        .rev()
        .map(|entry| {
            let words = entry.items()[3].items().iter();
            let words: Vec<_> = words
                .map(|w| String::from_utf8_lossy(w.as_bytes()).into_owned())
                .collect();
            words.join(" ")
        })
        .collect();
    for line in lines {
        assert!(logged.contains(&line.to_string()), "{line}: {logged:?}");
        let quoted: Vec<_> = line.split(' ').map(|word| format!("\"{word}\"")).collect();
        let quoted = quoted.join(" ");
        while !monitor.line().unwrap().ends_with(&quoted) {}
    }
    replica.wait_until_it_follows(&server);
    assert_same(&server, &replica, "at the end");
}
