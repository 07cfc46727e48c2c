//! Locks inside MULTI, scripts and functions, from the view of waiters and of clients that WATCH.

use super::super::harness::workload::{words, Command};
use super::super::harness::{wait_for, Client, Kind, Reply, Server};

on_every_server![
    every_end_of_a_hold_in_a_transaction_or_script_grants_the_next_waiter,
    every_change_of_a_lock_fails_a_watch,
    every_end_by_time_and_every_grant_fails_a_watch,
    waiters_and_refusals_fail_no_watch,
    a_watched_lock_decides_whether_a_transaction_runs,
    the_flags_of_a_function_are_kept,
];

/// Runs a line in some context.
type Run = fn(&mut Client, &str);

fn surroundings(server: &Server) -> Vec<(&'static str, Run)> {
    let mut all: Vec<(&str, Run)> = vec![
        ("MULTI", |c, line| {
            c.multi(&["PING", line, "PING"]);
        }),
        ("EVAL", |c, line| {
            ran(c, "EVAL", "return redis.call(unpack(ARGV))", line);
        }),
        ("EVAL in MULTI", |c, line| {
            c.call("MULTI");
            ran(c, "EVAL", "return redis.call(unpack(ARGV))", line);
            c.call("EXEC");
        }),
    ];
    load(&mut server.client());
    all.push(("FCALL", |c, line| ran(c, "FCALL", "run", line)));
    all.push(("FCALL in MULTI", |c, line| {
        c.call("MULTI");
        ran(c, "FCALL", "run", line);
        c.call("EXEC");
    }));
    all
}

/// Functions that run their arguments, with different flags.
fn load(c: &mut Client) {
    let mut library = "local function run(keys, args) return redis.pcall(unpack(args)) end\n\
                       redis.register_function('run', run)\n"
        .to_string();
    for (name, flag) in [
        ("reads", "no-writes"),
        ("oom", "allow-oom"),
        ("stale", "allow-stale"),
    ] {
        library += &format!(
            "redis.register_function{{function_name='{name}', callback=run, flags={{'{flag}'}}}}\n"
        );
    }
    c.load_functions(&library);
}

/// `EVAL script 0 line`, or the same with a function.
fn command(call: &str, what: &str, line: &str) -> Command {
    let mut args = vec![
        call.as_bytes().to_vec(),
        what.as_bytes().to_vec(),
        b"0".to_vec(),
    ];
    args.extend(words(line));
    args
}

#[track_caller]
fn ran(c: &mut Client, call: &str, what: &str, line: &str) {
    let reply = c.send(&command(call, what, line));
    assert!(
        !matches!(reply, Reply::Error(_)),
        "{call} {line}: {reply:?}"
    );
}

const ENDS: [&str; 11] = [
    "LOCK.RELEASE k a",
    "LOCK.RENEW k a 1",
    "RWLOCK.RLOCK k a 60000", // grants the reader
    "DEL k",
    "UNLINK k",
    "PEXPIRE k -1",
    "PEXPIREAT k 1",
    "RENAME k away",
    "MOVE k 3",
    "FLUSHDB",
    "FLUSHALL",
];

fn every_end_of_a_hold_in_a_transaction_or_script_grants_the_next_waiter(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut last = 0;
    for (name, run) in surroundings(&server) {
        for end in ENDS {
            last = last.max(c.int("RWLOCK.WLOCK k a 60000"));
            let mut b = server.raw_blocked("RWLOCK.RLOCK k b 60000 BLOCK 0");
            run(&mut c, end);
            let reply = b.line().unwrap();
            let fence = reply.strip_prefix(':').and_then(|n| n.parse::<i64>().ok());
            assert!(fence > Some(last), "{end} in {name}: {reply}");
            last = fence.unwrap();
            assert!(c.holders("k").contains(&"b".to_string()), "{end} in {name}");
            c.call("FLUSHALL");
        }
        // In other contexts a lock of another type is refused as it is alone.
        c.int("LOCK.ACQUIRE k a 60000");
        let mut b = server.raw_blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
        run(&mut c, "SET k text");
        assert!(b.line().unwrap().starts_with("-WRONGTYPE "), "{name}");
        c.call("FLUSHALL");
    }
}

fn every_change_of_a_lock_fails_a_watch(kind: Kind) {
    let server = Server::start(kind);
    let (mut watcher, mut c) = (server.client(), server.client());
    let payload = {
        c.int("LOCK.ACQUIRE k a 60000");
        c.call("DUMP k").as_bytes().to_vec()
    };
    let mut changes: Vec<(&str, Command)> = [
        "LOCK.ACQUIRE k a 70000",
        "LOCK.RENEW k a 70000",
        "LOCK.RELEASE k a",
        "RWLOCK.RLOCK k a 60000",
        "DEL k",
        "UNLINK k",
        "PEXPIRE k 50000",
        "PEXPIRE k -1",
        "PERSIST k",
        "RENAME k away",
        "RENAME other k",
        "MOVE k 3",
        "SWAPDB 0 3",
        "SET k text",
        "FLUSHDB",
        "FLUSHALL",
        "FLUSHALL ASYNC",
    ]
    .map(|line| (line, words(line)))
    .to_vec();
    let mut restore = words("RESTORE k 60000");
    restore.extend([payload, b"REPLACE".to_vec()]);
    changes.push(("RESTORE", restore));
    for (change, args) in changes {
        c.call("FLUSHALL");
        c.int("LOCK.ACQUIRE k a 60000");
        c.int("LOCK.ACQUIRE other a 60000");
        assert!(
            is_broken(&mut watcher, || {
                let reply = c.send(&args);
                assert!(!matches!(reply, Reply::Error(_)), "{change}: {reply:?}");
            }),
            "{change}"
        );
    }
    c.call("FLUSHALL");
    for change in [
        "RWLOCK.RLOCK k a 60000", // of a free lock
        "RWLOCK.RLOCK k b 60000",
        "LOCK.RELEASE k a",
    ] {
        let breaks = is_broken(&mut watcher, || assert_ne!(c.int(change), 0));
        assert!(breaks, "{change}");
    }
}

fn every_end_by_time_and_every_grant_fails_a_watch(kind: Kind) {
    let server = Server::start(kind);
    let (mut watcher, mut c) = (server.client(), server.client());
    c.int("LOCK.ACQUIRE k a 500");
    assert!(is_broken(&mut watcher, || {
        c.until("EXISTS k", 0);
    }));
    // A grant after a release, a deadline, a waiter that leaves, an eviction.
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 1000 BLOCK 0");
    let d = server.blocked("RWLOCK.RLOCK k d 60000 BLOCK 0");
    let w = server.blocked("RWLOCK.WLOCK k w 60000 BLOCK 0");
    let r = server.blocked("RWLOCK.RLOCK k r 60000 BLOCK 0");
    assert!(is_broken(&mut watcher, || {
        c.multi(&["LOCK.RELEASE k a"]);
        b.fence();
    }));
    assert!(is_broken(&mut watcher, || {
        d.fence();
    }));
    assert!(is_broken(&mut watcher, || {
        c.int(&format!("CLIENT KILL ID {}", w.id));
        r.fence();
    }));
    c.text("CONFIG SET maxmemory-policy allkeys-lru");
    let e = server.blocked("LOCK.ACQUIRE k e 60000 BLOCK 0");
    assert!(is_broken(&mut watcher, || {
        c.text("CONFIG SET maxmemory 1");
        wait_for("an eviction", || {
            c.call("SET x y");
            (c.info("lock_evicted") != "0").then_some(())
        });
        c.text("CONFIG SET maxmemory 0");
        e.fence();
    }));
}

/// Whether `change` fails a WATCH of `k` that began before it.
fn is_broken(watcher: &mut Client, change: impl FnOnce()) -> bool {
    watcher.call("WATCH k");
    change();
    watcher.call("MULTI");
    watcher.call("PING");
    watcher.call("EXEC") == Reply::Nil
}

fn waiters_and_refusals_fail_no_watch(kind: Kind) {
    let server = Server::start(kind);
    let (mut watcher, mut c) = (server.client(), server.client());
    let of_an_exclusive_lock = [
        "LOCK.ACQUIRE k b 1000",
        "RWLOCK.RLOCK k b 1000",
        "LOCK.RELEASE k b",
        "LOCK.RENEW k b 1000",
        "LOCK.RENEW k a 0",
        "LOCK.INFO k",
        "LOCK.CANCEL k",
        "LOCK._APPLY k x",
        "LOCK._RELEASE k a",
        "LOCK.ACQUIRE free a 60000",
    ];
    let shared = ["RWLOCK.RLOCK k a 60000", "RWLOCK.RLOCK k b 60000"];
    for (before, lines) in [
        (&["LOCK.ACQUIRE k a 60000"][..], &of_an_exclusive_lock[..]),
        (&shared, &["RWLOCK.WLOCK k a 1000"]),
        (
            &["SET k text"],
            &["LOCK.ACQUIRE k a 1000", "LOCK.RELEASE k a"],
        ),
    ] {
        c.in_one_go(before);
        for line in lines {
            let breaks = is_broken(&mut watcher, || drop(c.call(line)));
            assert!(!breaks, "{line}");
        }
        c.call("FLUSHALL");
    }
    c.int("LOCK.ACQUIRE k a 60000");
    let mut b = None;
    assert!(!is_broken(&mut watcher, || {
        b = Some(server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0"));
        let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 20");
        assert_eq!(d.reply(), Reply::Nil);
        let e = server.blocked("RWLOCK.RLOCK k e 60000 BLOCK 0");
        c.int(&format!("CLIENT KILL ID {}", e.id));
        e.broken();
        assert_eq!(c.waiters("k"), ["b"]);
    }));
    assert!(b.unwrap().is_pending());
    // A lock of the same name in another database does not matter either.
    assert!(!is_broken(&mut watcher, || {
        c.call("SELECT 1");
        c.int("LOCK.ACQUIRE k a 60000");
        c.int("LOCK.RELEASE k a");
        c.call("SELECT 0");
    }));
}

/// The purpose of WATCH: a write that happens only if the client still holds the lock.
fn a_watched_lock_decides_whether_a_transaction_runs(kind: Kind) {
    let server = Server::start(kind);
    let mut owner = server.client();
    owner.int("LOCK.ACQUIRE k owner 60000");
    let next = server.blocked("LOCK.ACQUIRE k next 60000 BLOCK 0");
    owner.call("WATCH k");
    assert_eq!(owner.holders("k"), ["owner"]);
    assert_eq!(owner.multi(&["SET stock 1"]), [Reply::Simple("OK".into())]);
    owner.in_one_go(&["LOCK.RENEW k owner 1000", "WATCH k"]);
    assert_eq!(owner.holders("k"), ["owner"], "or the machine was too slow");
    next.fence();
    owner.call("MULTI");
    owner.call("SET stock 2");
    assert_eq!(owner.call("EXEC"), Reply::Nil);
    assert_eq!(owner.text("GET stock"), "1");
}

fn the_flags_of_a_function_are_kept(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    load(&mut c);
    let eval = "return redis.pcall(unpack(ARGV))";
    let no_writes = format!("#!lua flags=no-writes\n{eval}");
    c.int("LOCK.ACQUIRE k a 60000");
    for (call, what) in [
        ("FCALL", "reads"),
        ("FCALL_RO", "reads"),
        ("EVAL_RO", eval),
        ("EVAL", &no_writes),
    ] {
        for line in [
            "LOCK.ACQUIRE free x 60000",
            "RWLOCK.RLOCK free x 60000",
            "RWLOCK.WLOCK free x 60000",
            "LOCK.RENEW k a 90000",
            "LOCK.RELEASE k a",
        ] {
            let reply = c.send(&command(call, what, line));
            let error = reply.as_error();
            assert!(error.contains("read-only"), "{call} {line}: {error}");
        }
        let info = c.send(&command(call, what, "LOCK.INFO k"));
        assert_eq!(info.field("mode"), Reply::from("exclusive"), "{call}");
    }
    assert_eq!(
        (c.int("EXISTS free"), c.holders("k")),
        (0, vec!["a".into()])
    );
    // Without memory, only functions that allow it may acquire.
    c.text("CONFIG SET maxmemory 1");
    let refused = c.send(&command("FCALL", "run", "LOCK.ACQUIRE free x 60000"));
    assert!(refused.as_error().contains("OOM"), "{refused:?}");
    let fence = c.send(&command("FCALL", "oom", "LOCK.ACQUIRE free x 60000"));
    assert!(matches!(fence, Reply::Int(_)), "{fence:?}");
    c.text("CONFIG SET maxmemory 0");
    let released = c.send(&command("FCALL", "stale", "LOCK.RELEASE free x"));
    assert_eq!(released, Reply::Int(1));
}
