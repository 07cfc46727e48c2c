//! Disk faults. A save fails because a folder is in the place of the file, and the append-only file
//! cannot grow because the process may not.

use std::fs;
use std::path::PathBuf;

use super::super::harness::disk::{
    fill_disk, have_room_again, leave_room, leave_room_for_logs, without_signal,
};
use super::super::harness::{figure, scale, wait_for, Kind, Later, Reply, Server, Setup};

on_every_server![
    a_failed_save_refuses_all_writes_until_one_succeeds,
    a_failed_save_refuses_nothing_if_so_configured,
    a_full_disk_refuses_all_writes_until_space_returns,
    appendfsync_always_acknowledges_only_written_commands,
    appendfsync_always_answers_a_waiter_only_after_its_grant_is_written,
    with_too_few_replicas_nobody_is_granted,
];

/// Each of these writes.
const WRITES: [&str; 9] = [
    "LOCK.ACQUIRE free x 60000",
    "LOCK.ACQUIRE k a 60000",
    "LOCK.ACQUIRE k x 60000 BLOCK 0",
    "RWLOCK.RLOCK free x 60000",
    "RWLOCK.WLOCK free x 60000",
    "LOCK.RENEW k a 60000",
    "LOCK.RELEASE k a",
    "LOCK.RELEASE free x",
    "DEL k",
];

/// Locks with waiters.
struct Fixture {
    b: Later,
    d: Later,
    writer: Later,
    reader: Later,
    timed_out: Later,
}

fn set_up(server: &Server) -> Fixture {
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    c.int("RWLOCK.RLOCK shared a 60000");
    Fixture {
        b: server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0"),
        d: server.blocked("RWLOCK.RLOCK k d 60000 BLOCK 0"),
        writer: server.blocked("RWLOCK.WLOCK shared w 60000 BLOCK 0"),
        reader: server.blocked("RWLOCK.RLOCK shared r 60000 BLOCK 0"),
        timed_out: server.blocked("LOCK.ACQUIRE k t 60000 BLOCK 500"),
    }
}

/// The state while the server refuses writes.
fn check_refusals(server: &Server, fixture: &Fixture, code: &str) {
    let mut c = server.client();
    for line in WRITES {
        c.refused(line, code);
    }
    let script = ["EVAL", "return redis.call('LOCK.RELEASE', 'k', 'a')", "0"];
    let reply = c.send(&script);
    assert!(reply.as_error().contains(code.trim_end()), "{reply:?}");
    c.call("MULTI");
    c.refused("LOCK.RELEASE k a", code);
    c.refused("EXEC", "EXECABORT");
    assert!(c.int("PTTL k") > 0);
    assert_eq!(c.text("TYPE k"), "redislock");
    // The reader is next now, but a grant is a write.
    assert_eq!(c.int(&format!("CLIENT KILL ID {}", fixture.writer.id)), 1);
    wait_for("the timeout and some time more", || {
        assert_eq!(c.holders("shared"), ["a"]);
        assert_eq!(c.waiters("shared"), ["r"]);
        (c.waiters("k") == ["b", "d"]).then_some(())
    });
    assert_eq!(c.holders("k"), ["a"]);
    assert!(fixture.reader.is_pending() && fixture.b.is_pending() && fixture.d.is_pending());
}

/// The state after writes are accepted again.
fn check_recovery(server: &Server, fixture: Fixture) {
    let mut c = server.client();
    assert_eq!(fixture.timed_out.reply(), Reply::Nil);
    fixture.writer.broken();
    assert!(fixture.reader.fence() > 0);
    assert_eq!(c.holders("shared"), ["a", "r"]);
    assert_eq!(c.int("LOCK.RENEW k a 60000"), 1);
    assert_eq!(c.int("LOCK.RELEASE k a"), 1);
    let b = fixture.b.fence();
    assert_eq!(c.int("LOCK.RELEASE k b"), 1);
    assert!(fixture.d.fence() > b);
    assert_eq!(server.blocked_clients(), 0);
}

fn start_saving(kind: Kind) -> Server {
    let server = Server::start(kind);
    let set = ["CONFIG", "SET", "save", "3600 1000000"];
    server.client().send(&set).assert_ok();
    server
}

/// Puts a folder in the place of the dump.
pub(super) fn in_the_way(server: &Server) -> PathBuf {
    server.dir().join("dump.rdb")
}

pub(super) fn fail_to_save(server: &Server) {
    fs::create_dir(in_the_way(server)).unwrap();
    let mut c = server.client();
    c.text("BGSAVE");
    c.until_info("rdb_last_bgsave_status", "err");
}

fn a_failed_save_refuses_all_writes_until_one_succeeds(kind: Kind) {
    let server = start_saving(kind);
    let fixture = set_up(&server);
    fail_to_save(&server);
    check_refusals(&server, &fixture, "MISCONF ");
    fs::remove_dir(in_the_way(&server)).unwrap();
    server.client().text("BGSAVE");
    check_recovery(&server, fixture);
}

fn a_failed_save_refuses_nothing_if_so_configured(kind: Kind) {
    let server = start_saving(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 2000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    fail_to_save(&server);
    c.refused("LOCK.RELEASE k a", "MISCONF ");
    c.text("CONFIG SET stop-writes-on-bgsave-error no");
    b.fence();
    assert_eq!(c.int("LOCK.RELEASE k b"), 1);
}

/// With an append-only file, in a process that gets an error instead of a signal for a file that is
/// too large.
fn start_appending(kind: Kind, fsync: &str) -> Server {
    start_appending_with(kind, fsync, &[])
}

pub(super) fn start_appending_with(kind: Kind, fsync: &str, more: &[&str]) -> Server {
    let options = [
        "--appendonly",
        "yes",
        "--appendfsync",
        fsync,
        "--auto-aof-rewrite-percentage",
        "0",
    ];
    let setup = Setup::with_module(&[&options[..], more].concat());
    let server = Server::start_as(kind, without_signal(setup));
    leave_room_for_logs(&server);
    server
}

fn a_full_disk_refuses_all_writes_until_space_returns(kind: Kind) {
    let server = start_appending(kind, "everysec");
    let fixture = set_up(&server);
    fill_disk(&server);
    check_refusals(&server, &fixture, "MISCONF ");
    have_room_again(&server);
    check_recovery(&server, fixture);
}

/// Restarts the server without a limit, and checks everything that was acknowledged.
fn have_it_back(server: &mut Server, fences: &[i64]) {
    server.start_again();
    let mut c = server.client();
    for (n, fence) in fences.iter().enumerate() {
        let again = c.int(&format!("LOCK.ACQUIRE k{n} t 600000"));
        assert_eq!(again, *fence, "the hold of k{n}");
    }
    let last = fences.last().copied().unwrap_or_default();
    assert!(c.int("LOCK.ACQUIRE new t 600000") > last);
}

fn appendfsync_always_acknowledges_only_written_commands(kind: Kind) {
    let mut server = start_appending(kind, "always");
    let mut acknowledged = 0;
    let crashes = 3 * scale();
    for crash in 0..crashes {
        let mut c = server.client();
        c.text("FLUSHALL");
        // The file ends in the middle of a record, at a different place each time.
        leave_room(&server, 20_000 + 17 * crash as u64);
        let mut fences = Vec::new();
        loop {
            let line = format!("LOCK.ACQUIRE k{} t 600000", fences.len());
            match c.try_call(&line) {
                Ok(Reply::Int(fence)) => fences.push(fence),
                Ok(other) => panic!("{other:?}"),
                Err(_) => break,
            }
        }
        wait_for("the server to end", || server.has_ended().then_some(()));
        assert!(server.log().contains("Exiting"), "{}", server.log());
        assert!(fences.len() > 10);
        acknowledged += fences.len();
        have_it_back(&mut server, &fences);
    }
    figure(kind, &format!("{crashes} full disks with appendfsync always: {acknowledged} acknowledged holds, none lost"));
}

fn appendfsync_always_answers_a_waiter_only_after_its_grant_is_written(kind: Kind) {
    let mut server = start_appending(kind, "always");
    let mut c = server.client();
    let fence = c.int("LOCK.ACQUIRE k a 4000");
    let b = server.blocked("LOCK.ACQUIRE k b 600000 BLOCK 0");
    leave_room(&server, 0);
    // The grant is the next write.
    b.broken();
    wait_for("the server to end", || server.has_ended().then_some(()));
    server.start_again();
    let mut c = server.client();
    assert!(c.holders("k").is_empty());
    assert!(c.int("LOCK.ACQUIRE k d 60000") > fence);
}

/// The other reason for which a server refuses all writes.
fn with_too_few_replicas_nobody_is_granted(kind: Kind) {
    let server = Server::start(kind);
    let mut replica = Server::start(kind);
    let mut c = server.client();
    replica.follow(&server);
    server.wait_for_its_replica();
    c.text("CONFIG SET min-replicas-to-write 1");
    wait_for("a write to be taken", || {
        matches!(c.call("SET text text"), Reply::Simple(_)).then_some(())
    });
    let fixture = set_up(&server);
    replica.kill();
    wait_for("writes to be refused", || {
        matches!(c.call("SET text text"), Reply::Error(_)).then_some(())
    });
    check_refusals(&server, &fixture, "NOREPLICAS ");
    c.text("CONFIG SET min-replicas-to-write 0");
    check_recovery(&server, fixture);
}
