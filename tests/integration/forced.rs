//! Holds that were ended by force: LOCK.LOG and the server's log.

use std::time::Instant;

use crate::harness::{wait_for, Client, Kind, Reply, Server};

on_every_server![
    a_deletion_names_its_client,
    every_command_that_takes_a_lock_away_is_named,
    a_client_that_finds_a_lock_at_its_end_is_not_named,
    ends_of_the_module_and_of_time_are_not_told,
    a_flush_is_one_entry,
    an_eviction_names_no_client,
    a_storm_is_told_in_few_lines,
    a_replica_tells_nothing,
    the_log_refuses_bad_numbers_and_keeps_its_entries,
    names_are_shown_only_to_those_who_may_read_them,
];

#[track_caller]
fn log(c: &mut Client, count: usize) -> Vec<Reply> {
    c.call(&format!("LOCK.LOG {count}")).items().to_vec()
}

#[track_caller]
fn newest(c: &mut Client) -> Reply {
    log(c, 1).pop().expect("an entry")
}

fn acquire(c: &mut Client, key: &str) -> i64 {
    c.int(&format!("LOCK.ACQUIRE {key} owner 600000"))
}

/// Whether this server tells its running client.
fn tells_client(kind: Kind) -> bool {
    matches!(kind, Kind::Valkey8_1 | Kind::Valkey9)
}

/// What an entry has of a client where the server tells it, and else null.
fn if_told(kind: Kind, value: impl Into<Reply>) -> Reply {
    match tells_client(kind) {
        true => value.into(),
        false => Reply::Nil,
    }
}

/// The lines of the log about holds that were ended.
fn lines(server: &Server) -> Vec<String> {
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains("> held lock"));
    lines.map(String::from).collect()
}

fn a_deletion_names_its_client(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client_resp3();
    let mut bob = server.user("bob", "~* +@all");
    bob.call("CLIENT SETNAME worker-7");
    let fence = acquire(&mut c, "jobs:1");
    let from_ms = c.now_us() / 1_000;
    assert_eq!(bob.int("DEL jobs:1"), 1);
    let to_ms = c.now_us() / 1_000;
    let entry = newest(&mut c);
    let id = bob.int("CLIENT ID");
    let info = bob.text(&format!("CLIENT LIST ID {id}"));
    let address = info
        .split(' ')
        .find_map(|field| field.strip_prefix("addr="));
    let time_ms = u64::try_from(entry.field("time").as_int()).unwrap();
    // The two clocks may differ by a little.
    assert!((from_ms - 5..=to_ms + 5).contains(&time_ms), "{entry:?}");
    for (name, expected) in [
        ("db", Reply::Int(0)),
        ("key", "jobs:1".into()),
        ("token", "owner".into()),
        ("fence", Reply::Int(fence)),
        ("holders", Reply::Int(1)),
        ("by", if_told(kind, "del")),
        ("user", if_told(kind, "bob")),
        ("address", if_told(kind, address.unwrap())),
        ("client", if_told(kind, Reply::Int(id))),
        ("name", if_told(kind, "worker-7")),
    ] {
        assert_eq!(entry.field(name), expected, "{name}");
    }
    let Reply::Map(fields) = &entry else {
        panic!("{entry:?}");
    };
    assert_eq!(fields.len(), 11);
    let lines = lines(&server);
    let [line] = &lines[..] else {
        panic!("{lines:?}");
    };
    let client: &[_] = match tells_client(kind) {
        true => &["by del", "user bob", "name worker-7"],
        false => &["by ?", "client not known"],
    };
    for part in [&["key jobs:1", "token owner"], client].concat() {
        assert!(line.contains(part), "{line}");
    }
}

fn every_command_that_takes_a_lock_away_is_named(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let id = c.int("CLIENT ID");
    c.int("LOCK.ACQUIRE other you 600000");
    let payload = c.call("DUMP other").as_bytes().to_vec();
    let named = |c: &mut Client, by: &str| {
        let entry = newest(c);
        assert_eq!(entry.field("key"), "k".into(), "{by}");
        assert_eq!(entry.field("by"), if_told(kind, by));
        assert_eq!(entry.field("client"), if_told(kind, Reply::Int(id)), "{by}");
    };
    for (line, by) in [
        ("UNLINK k", "unlink"),
        ("SET k x", "set"),
        ("RENAME k moved", "rename"),
        ("MOVE k 1", "move"),
        ("PEXPIRE k -1", "pexpire"),
        ("EVAL redis.call('DEL',KEYS[1]) 1 k", "eval"),
    ] {
        c.call("DEL k");
        acquire(&mut c, "k");
        c.call(line);
        named(&mut c, by);
    }
    c.call("DEL k");
    acquire(&mut c, "k");
    c.restore("k 0 REPLACE", &payload);
    named(&mut c, "restore");
    c.call("LOCK.RELEASE k you");
    acquire(&mut c, "k");
    c.multi(&["PING", "DEL k"]);
    named(&mut c, "exec");
    acquire(&mut c, "k");
    c.call("LOCK.EXEC k owner DEL k");
    named(&mut c, "lock.exec");
    // The lock that was moved lives on.
    assert_eq!(c.holders("moved"), ["owner"]);
}

fn a_client_that_finds_a_lock_at_its_end_is_not_named(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.call("DEBUG SET-ACTIVE-EXPIRE 0");
    for line in ["EXISTS early", "LOCK.ACQUIRE early other 60000"] {
        acquire(&mut c, "early");
        let held = server.client().call(line);
        c.call("PEXPIRE early 1");
        // It is the only client with a command, and it finds the key at its end.
        let mut finder = server.client();
        wait_for("the end", || (finder.call(line) != held).then_some(()));
        let entry = newest(&mut c);
        assert_eq!(entry.field("key"), "early".into());
        for name in ["by", "client", "user", "address", "name"] {
            assert_eq!(entry.field(name), Reply::Nil, "{line}: {name}");
        }
    }
}

fn ends_of_the_module_and_of_time_are_not_told(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    acquire(&mut c, "k");
    c.int("LOCK.RELEASE k owner");
    c.int("LOCK.ACQUIRE k owner 1");
    c.until("EXISTS k", 0);
    acquire(&mut c, "k");
    let waiter = server.blocked("LOCK.ACQUIRE k you 600000 BLOCK 0");
    c.int("LOCK.RELEASE k owner");
    waiter.fence();
    c.int("LOCK.RELEASE k you");
    c.call("SET k x");
    c.call("DEL k");
    assert_eq!(log(&mut c, 10), []);
    assert_eq!(lines(&server), Vec::<String>::new());
}

fn a_flush_is_one_entry(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.call("FLUSHALL");
    assert_eq!(log(&mut c, 10), []);
    for key in ["a", "b"] {
        acquire(&mut c, key);
    }
    c.int("RWLOCK.RLOCK c r1 600000");
    c.int("RWLOCK.RLOCK c r2 600000");
    c.call("FLUSHALL");
    acquire(&mut c, "a");
    c.call("FLUSHDB ASYNC");
    let entries = log(&mut c, 10);
    let [db, all] = &entries[..] else {
        panic!("{entries:?}");
    };
    let id = c.int("CLIENT ID");
    for (entry, by, holders) in [
        (all, "flushall", Reply::Int(4)),
        (db, "flushdb", Reply::Nil),
    ] {
        assert_eq!(entry.field("by"), by.into());
        assert_eq!(entry.field("holders"), holders, "{by}");
        assert_eq!(entry.field("client"), if_told(kind, Reply::Int(id)), "{by}");
        for name in ["key", "token", "fence"] {
            assert_eq!(entry.field(name), Reply::Nil, "{by}");
        }
    }
    assert_eq!(all.field("db"), Reply::Nil);
    assert_eq!(db.field("db"), Reply::Int(0));
}

fn an_eviction_names_no_client(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    acquire(&mut c, "k");
    c.call("CONFIG SET maxmemory-policy volatile-random");
    c.call("CONFIG SET maxmemory 1");
    c.call("SET text x");
    c.call("CONFIG SET maxmemory 0");
    let entry = newest(&mut c);
    assert_eq!(entry.field("by"), "eviction".into());
    assert_eq!(entry.field("key"), "k".into());
    for name in ["client", "user", "address", "name"] {
        assert_eq!(entry.field(name), Reply::Nil);
    }
}

fn a_storm_is_told_in_few_lines(kind: Kind) {
    const LOCKS: usize = 10_000;
    let server = Server::start(kind);
    let mut c = server.client();
    let idle: Vec<_> = (0..200).map(|_| server.client()).collect();
    c.send_all((0..LOCKS).map(|n| format!("LOCK.ACQUIRE k:{n} owner 600000")));
    let began = Instant::now();
    c.send_all((0..LOCKS).map(|n| format!("DEL k:{n}")));
    let took = began.elapsed();
    assert_eq!(c.info("lock_forced"), LOCKS.to_string());
    let left_out = || {
        let lines = lines(&server);
        let parts = lines
            .iter()
            .filter_map(|line| line.split_once("by force: "));
        let numbers =
            parts.map(|(_, rest)| rest.split(' ').next().unwrap().parse::<usize>().unwrap());
        let rest: usize = numbers.sum();
        let told = lines
            .iter()
            .filter(|line| line.contains("ended by del") || line.contains("ended by ?"));
        (told.count(), rest)
    };
    wait_for("the line with the number of the others", || {
        let (told, rest) = left_out();
        (told + rest == LOCKS).then_some(())
    });
    let seconds = usize::try_from(took.as_secs()).unwrap() + 2;
    assert!(left_out().0 <= 10 * seconds);
    let entries = log(&mut c, 1_000);
    assert_eq!(entries.len(), 128);
    let last = format!("k:{}", LOCKS - 1);
    assert_eq!(entries[0].field("key"), last.as_str().into());
    drop(idle);
}

fn a_replica_tells_nothing(kind: Kind) {
    let primary = Server::start(kind);
    let replica = Server::start_replica_of(&primary, &[]);
    replica.wait_until_it_follows(&primary);
    let mut c = primary.client();
    acquire(&mut c, "k");
    c.call("DEL k");
    acquire(&mut c, "k");
    c.call("FLUSHALL");
    replica.wait_until_it_follows(&primary);
    let mut of_replica = replica.client();
    of_replica.until("DBSIZE", 0);
    assert_eq!(log(&mut c, 10).len(), 2);
    assert_eq!(log(&mut of_replica, 10), []);
    assert_eq!(lines(&replica), Vec::<String>::new());
}

fn the_log_refuses_bad_numbers_and_keeps_its_entries(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for bad in ["0", "-1", "x", "", "1 1"] {
        let line = format!("LOCK.LOG {bad}");
        let reply = c.send(&line.split(' ').collect::<Vec<_>>());
        assert!(reply.as_error().starts_with("ERR "), "{line}: {reply:?}");
    }
    acquire(&mut c, "k");
    c.call("DEL k");
    c.text("LOCK.RESETSTAT");
    assert_eq!(c.call("LOCK.LOG").items().len(), 1);
    // What a client has sent is escaped in the log.
    let key = b"a b\r\n%s\xff";
    c.send(&[b"LOCK.ACQUIRE".as_slice(), key, b"owner", b"600000"]);
    c.send(&[b"DEL".as_slice(), key]);
    assert_eq!(newest(&mut c).field("key"), Reply::Bulk(key.to_vec()));
    let lines = lines(&server);
    assert!(lines[1].contains(r"key a\x20b\x0d\x0a%s\xff,"), "{lines:?}");
}

fn names_are_shown_only_to_those_who_may_read_them(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for (db, key) in [(0, "mine:1"), (0, "yours:1"), (1, "mine:2")] {
        c.ok(&format!("SELECT {db}"));
        acquire(&mut c, key);
        assert_eq!(c.int(&format!("DEL {key}")), 1);
    }
    let shown = |rules: &str| {
        let mut tenant = server.user("tenant", &format!("+@all {rules}"));
        let mut entries = log(&mut tenant, 3);
        entries.reverse();
        let shown = entries.iter().map(|entry| {
            assert!(entry.field("fence").as_int() > 0);
            let (key, token) = (entry.field("key"), entry.field("token"));
            assert_eq!(key == Reply::Nil, token == Reply::Nil, "{entry:?}");
            key != Reply::Nil
        });
        <[bool; 3]>::try_from(shown.collect::<Vec<_>>()).unwrap()
    };
    assert_eq!(shown("~*"), [true, true, true]);
    assert_eq!(shown("~mine:*"), [true, false, true]);
    assert_eq!(shown("%W~mine:* %R~yours:*"), [false, true, false]);
    if kind == Kind::Valkey9 {
        // It has rights to databases.
        assert_eq!(shown("~* db=0"), [true, true, false]);
        assert_eq!(shown("~mine:* db=0,1"), [true, false, true]);
        assert_eq!(
            shown("~yours:* db=0 (+@all ~mine:* db=1)"),
            [false, true, true]
        );
    }
}
