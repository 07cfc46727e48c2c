//! `rename-command` removes commands that a module could use to find out whether the server refuses
//! writes. In every case a deadline grants nobody while clients cannot write, and does when they
//! can.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use super::super::harness::disk::{fill_disk, have_room_again};
use super::super::harness::{wait_for, Client, Kind, Later, Reply, Server};
use super::disk::{fail_to_save, in_the_way, start_appending_with};

on_every_server![
    a_deadline_with_too_few_replicas_grants_nobody,
    a_deadline_after_a_failed_save_grants_nobody,
    a_deadline_while_the_disk_is_full_grants_nobody,
    a_disk_error_that_stops_no_write_stops_no_hand_off,
    a_deadline_hands_on_while_writes_are_taken,
];

/// The removed commands: none, and each alone.
const TAKEN: [&[&str]; 6] = [
    &[],
    &["EVAL"],
    &["SETRANGE"],
    &["EXISTS"],
    &["CONFIG"],
    &["CLIENT"],
];

/// The remaining ttl of a dead owner's hold, in which the test makes its server refuse writes.
const REST_MS: u64 = 1_500;

/// The command line that removes commands, with more options.
fn without<'a>(names: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    let renamed = names.iter().flat_map(|name| ["--rename-command", name, ""]);
    renamed.chain(more.iter().copied()).collect()
}

/// Runs a test for each set of removed commands in parallel, because most of the time is spent
/// waiting.
fn for_each_taken(test: impl Fn(&[&str]) + Sync) {
    let test = &test;
    thread::scope(|scope| {
        for names in TAKEN {
            scope.spawn(move || test(names));
        }
    });
}

#[track_caller]
fn assert_taken_away(c: &mut Client, names: &[&str]) {
    for name in names {
        c.refused(name, "ERR unknown command");
    }
}

/// Whether the server refuses a client's write with this code.
fn refuses_writes(c: &mut Client, code: &str) -> bool {
    matches!(c.call("SET text text"), Reply::Error(error) if error.starts_with(code))
}

fn takes_writes(c: &mut Client) -> bool {
    c.call("SET text text") == Reply::Simple("OK".into())
}

/// A client waits for the lock of a dead owner, and another one times out after its deadline.
struct Fixture {
    waits: Later,
    gives_up: Later,
    end: Instant,
}

impl Fixture {
    fn set_up(server: &Server) -> Self {
        let mut c = server.client();
        c.int("LOCK.ACQUIRE k dead 60000");
        let waits = server.blocked("LOCK.ACQUIRE k b 600000 BLOCK 0");
        let line = format!("LOCK.ACQUIRE k d 600000 BLOCK {}", REST_MS + 500);
        let gives_up = server.blocked(&line);
        // The last step, so that setup does not use up the ttl.
        assert_eq!(c.int(&format!("LOCK.RENEW k dead {REST_MS}")), 1);
        let end = Instant::now() + Duration::from_millis(REST_MS);
        Self {
            waits,
            gives_up,
            end,
        }
    }

    /// The server refuses writes by now, and hands nothing off at the deadline or after it.
    #[track_caller]
    fn stays_with_nobody(self, server: &Server, code: &str, names: &[&str]) -> Later {
        let mut c = server.client();
        assert!(refuses_writes(&mut c, code), "{names:?}");
        assert!(Instant::now() < self.end, "too slow a machine");
        assert_eq!(self.gives_up.reply(), Reply::Nil, "{names:?}");
        assert!(Instant::now() > self.end);
        assert!(self.waits.is_pending(), "{names:?}");
        assert!(c.holders("k").is_empty());
        assert_eq!(c.waiters("k"), ["b"]);
        c.refused("LOCK.RELEASE k nobody", code);
        self.waits
    }
}

fn wait_until_writes_are_taken(server: &Server) {
    let mut c = server.client();
    wait_for("writes to be taken", || takes_writes(&mut c).then_some(()));
}

/// A primary that requires a replica, and has one.
fn careful(kind: Kind, names: &[&str]) -> (Server, Server) {
    let wants = [
        "--min-replicas-to-write",
        "1",
        "--repl-diskless-sync-delay",
        "0",
    ];
    let primary = Server::start_with(kind, &without(names, &wants));
    let replica = Server::start_replica_of(&primary, &[]);
    assert_taken_away(&mut primary.client(), names);
    wait_until_writes_are_taken(&primary);
    (primary, replica)
}

fn a_deadline_with_too_few_replicas_grants_nobody(kind: Kind) {
    for_each_taken(|names| {
        let (primary, mut replica) = careful(kind, names);
        let mut c = primary.client();
        let fixture = Fixture::set_up(&primary);
        replica.kill();
        wait_for("writes to be refused", || {
            refuses_writes(&mut c, "NOREPLICAS ").then_some(())
        });
        let b = fixture.stays_with_nobody(&primary, "NOREPLICAS ", names);
        replica.start_again();
        b.fence();
        assert_eq!(c.holders("k"), ["b"]);
    });
}

fn a_deadline_after_a_failed_save_grants_nobody(kind: Kind) {
    for_each_taken(|names| {
        let saves = without(names, &["--save", "3600", "1000000"]);
        let server = Server::start_with(kind, &saves);
        assert_taken_away(&mut server.client(), names);
        let fixture = Fixture::set_up(&server);
        fail_to_save(&server);
        let b = fixture.stays_with_nobody(&server, "MISCONF ", names);
        fs::remove_dir(in_the_way(&server)).unwrap();
        server.client().text("BGSAVE");
        b.fence();
        assert_eq!(server.client().holders("k"), ["b"]);
    });
}

fn a_deadline_while_the_disk_is_full_grants_nobody(kind: Kind) {
    for_each_taken(|names| {
        let server = start_appending_with(kind, "everysec", &without(names, &[]));
        let mut c = server.client();
        assert_taken_away(&mut c, names);
        let fixture = Fixture::set_up(&server);
        fill_disk(&server);
        let b = fixture.stays_with_nobody(&server, "MISCONF ", names);
        have_room_again(&server);
        b.fence();
        assert_eq!(c.holders("k"), ["b"]);
    });
}

/// A disk error that is over, or that the operator has configured to be ignored.
fn a_disk_error_that_stops_no_write_stops_no_hand_off(kind: Kind) {
    let server = Server::start_with(kind, &without(&[], &[]));
    let mut c = server.client();
    let set = |c: &mut Client, words: [&str; 2]| {
        c.send(&[&["CONFIG", "SET"], &words[..]].concat())
            .assert_ok();
    };
    // There are no automatic saves, so the failure of a manual save stops nothing.
    fail_to_save(&server);
    let is_handed_on = |c: &mut Client| {
        assert!(takes_writes(c));
        c.int("LOCK.ACQUIRE k dead 60000");
        let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
        c.int("LOCK.RENEW k dead 50");
        b.fence();
        c.int("LOCK.RELEASE k b");
    };
    is_handed_on(&mut c);
    set(&mut c, ["save", "3600 1000000"]);
    assert!(refuses_writes(&mut c, "MISCONF "));
    set(&mut c, ["stop-writes-on-bgsave-error", "no"]);
    is_handed_on(&mut c);
    // An append-only file that could not be written, and has been switched off since.
    let server = start_appending_with(kind, "everysec", &without(&[], &[]));
    let mut c = server.client();
    let fixture = Fixture::set_up(&server);
    fill_disk(&server);
    let b = fixture.stays_with_nobody(&server, "MISCONF ", &[]);
    set(&mut c, ["appendonly", "no"]);
    b.fence();
}

fn a_deadline_hands_on_while_writes_are_taken(kind: Kind) {
    for_each_taken(|names| {
        let (primary, _replica) = careful(kind, names);
        Fixture::set_up(&primary).waits.fence();
        assert_eq!(primary.client().holders("k"), ["b"]);
        let server = Server::start_with(kind, &without(names, &[]));
        Fixture::set_up(&server).waits.fence();
    });
}
