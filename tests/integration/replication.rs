//! The data of a replica, and its state after a promotion.

use crate::harness::dump::raise_fences_by_an_hour;
use crate::harness::workload::{self};
use crate::harness::{Client, Kind, Server, AT_ONCE};
use crate::replicas::primary;

on_every_server![
    a_replica_attached_later_gives_larger_fences,
    monitor_and_slowlog_show_the_command_as_sent,
    a_random_history_is_replicated_without_replicating_in_place
];

#[track_caller]
fn assert_same(primary: &Server, replica: &Server, when: &str) {
    workload::settle(&mut primary.client());
    replica.assert_same_as(primary, when);
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
