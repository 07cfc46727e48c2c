//! LOCK.MACQUIRE: several locks in one step, or none.

use crate::harness::{Client, Kind, Reply, Server};

mod copies;
mod cut;
mod endings;
mod waiting;

on_every_server![
    all_keys_are_taken_under_one_fence_or_none,
    modes_are_those_of_their_keys,
    the_same_token_again_has_the_same_fence_and_new_deadlines,
    partial_in_each_form,
    keys_are_released_and_renewed_one_by_one,
    what_is_malformed_changes_nothing,
    a_key_of_another_type_refuses_all,
    the_server_makes_a_token,
    a_shared_request_enters_beside_readers,
    it_answers_at_once_in_transactions_and_scripts,
    the_keys_are_seen_by_the_server_and_by_users,
    counters_and_events_tell_of_it,
];

/// The holds of a key: token, fence, time to live.
pub fn holds(c: &mut Client, key: &str) -> Vec<(String, i64, i64)> {
    let info = c.call(&format!("LOCK.INFO {key}"));
    if info == Reply::Nil {
        return Vec::new();
    }
    let holders = info.field("holders");
    let hold = |h: &Reply| {
        let token = String::from_utf8_lossy(h.field("token").as_bytes()).into_owned();
        (token, h.field("fence").as_int(), h.field("ttl").as_int())
    };
    holders.items().iter().map(hold).collect()
}

#[track_caller]
pub fn assert_held(c: &mut Client, keys: &[&str], token: &str, fence: i64) {
    for key in keys {
        let all = holds(c, key);
        let own = all.iter().find(|(owner, ..)| owner == token);
        let own = own.unwrap_or_else(|| panic!("{key}: {all:?}"));
        assert_eq!(own.1, fence, "{key}");
    }
}

fn all_keys_are_taken_under_one_fence_or_none(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let before = c.int("LOCK.ACQUIRE other x 60000");
    let fence = c.int("LOCK.MACQUIRE 3 a b c me 60000");
    assert!(fence > before);
    assert_held(&mut c, &["a", "b", "c"], "me", fence);
    assert!(c.int("PTTL b") > 50_000);
    // Whichever of the keys is held, none is taken.
    for line in ["2 d a", "2 a d", "3 d b e", "1 c"] {
        assert_eq!(
            c.call(&format!("LOCK.MACQUIRE {line} you 60000")),
            Reply::Nil
        );
    }
    assert_eq!(c.int("EXISTS d e"), 0);
    assert_eq!(c.call("LOCK.INFO d"), Reply::Nil);
    let next = c.int("LOCK.MACQUIRE 2 d e you 60000");
    assert!(next > fence);
    assert!(c.int("LOCK.ACQUIRE f you 60000") > next);
    // The most keys that there may be.
    let keys: Vec<String> = (0..128).map(|n| format!("many:{n}")).collect();
    let fence = c.int(&format!("LOCK.MACQUIRE 128 {} me 60000", keys.join(" ")));
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    assert_held(&mut c, &keys, "me", fence);
}

fn modes_are_those_of_their_keys(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = c.int("LOCK.MACQUIRE 2 a b me 60000 MODES SHARED EXCLUSIVE");
    assert_held(&mut c, &["a", "b"], "me", fence);
    for (key, mode) in [("a", "shared"), ("b", "exclusive")] {
        let info = c.call(&format!("LOCK.INFO {key}"));
        assert_eq!(info.field("mode").as_bytes(), mode.as_bytes());
    }
    assert!(c.int("RWLOCK.RLOCK a you 60000") > fence);
    assert_eq!(c.call("RWLOCK.RLOCK b you 60000"), Reply::Nil);
    assert!(c.int("LOCK.MACQUIRE 2 a z you2 60000 modes shared exclusive") > fence);
    assert_eq!(c.call("LOCK.MACQUIRE 2 a y you3 60000"), Reply::Nil);
    assert_eq!(c.holders("a"), ["me", "you", "you2"]);
}

fn the_same_token_again_has_the_same_fence_and_new_deadlines(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = c.int("LOCK.MACQUIRE 2 a b me 10000 MODES SHARED EXCLUSIVE");
    assert_eq!(
        c.int("LOCK.MACQUIRE 2 a b me 60000 MODES SHARED EXCLUSIVE"),
        fence
    );
    // In another order, and shorter.
    assert!(c.int("PTTL a") > 50_000 && c.int("PTTL b") > 50_000);
    let line = "LOCK.MACQUIRE 2 b a me 20000 MODES EXCLUSIVE SHARED BLOCK 5";
    assert_eq!(c.int(line), fence);
    assert!(c.int("PTTL a") <= 20_000 && c.int("PTTL b") <= 20_000);
    assert_held(&mut c, &["a", "b"], "me", fence);
}

fn partial_in_each_form(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let partial = |line: &str| {
        let error = server.client().error(line);
        assert!(error.starts_with("PARTIAL "), "{line}: {error}");
    };
    // It holds some of them.
    c.int("LOCK.ACQUIRE a me 60000");
    for wait in ["", " BLOCK 0", " KEEP 5", " NOTIFY 0 c"] {
        partial(&format!("LOCK.MACQUIRE 2 a b me 60000{wait}"));
        partial(&format!("LOCK.MACQUIRE 2 b a me 60000{wait}"));
    }
    // It holds all of them, but not together.
    c.int("LOCK.ACQUIRE b me 60000");
    partial("LOCK.MACQUIRE 2 a b me 60000");
    // It holds them together, and the request is for fewer or more, or for another mode.
    c.call("FLUSHALL");
    let fence = c.int("LOCK.MACQUIRE 2 a b me 60000");
    assert_eq!(c.int("LOCK.MACQUIRE 1 a me 60000"), fence);
    partial("LOCK.MACQUIRE 3 a b c me 60000");
    partial("LOCK.MACQUIRE 2 a b me 60000 MODES SHARED EXCLUSIVE");
    partial("LOCK.MACQUIRE 2 a b me 60000 MODES SHARED SHARED");
    // It waits for one of them by another request, or for others together.
    for (first, kept) in [
        ("LOCK.ACQUIRE a you 60000", "KEEP 60000"),
        ("RWLOCK.RLOCK b you 60000", "KEEP 60000"),
        ("LOCK.MACQUIRE 1 a you 60000", "KEEP 60000"),
        ("LOCK.MACQUIRE 3 a b c you 60000", "KEEP 60000"),
    ] {
        assert_eq!(c.call(&format!("{first} {kept}")), Reply::Nil);
        partial("LOCK.MACQUIRE 2 a b you 60000 BLOCK 0");
        partial("LOCK.MACQUIRE 2 b a you 60000");
        c.int("LOCK.RELEASE a you");
        c.int("LOCK.RELEASE b you");
    }
    // It waits for a key among others: a request for that key alone is another one, too.
    assert_eq!(
        c.call("LOCK.MACQUIRE 2 b a you 60000 KEEP 60000"),
        Reply::Nil
    );
    for command in ["LOCK.ACQUIRE", "RWLOCK.WLOCK", "RWLOCK.RLOCK"] {
        partial(&format!("{command} a you 60000"));
        partial(&format!("{command} b you 60000 BLOCK 0"));
    }
    assert_eq!(
        (c.waiters("a"), c.waiters("b")),
        (vec!["you".into()], vec!["you".into()])
    );
    // While somebody listens, the modes are settled.
    let listens = server.blocked("LOCK.MACQUIRE 2 a b you 60000 BLOCK 0");
    partial("LOCK.MACQUIRE 2 a b you 60000 MODES SHARED EXCLUSIVE BLOCK 0");
    assert_eq!(c.call("LOCK.MACQUIRE 2 a b you 60000"), Reply::Nil);
    assert!(listens.is_pending());
    // None of the refusals has changed anything.
    assert_held(&mut c, &["a", "b"], "me", fence);
    assert_eq!(c.int("LOCK.RELEASE a me"), 1);
    assert_eq!(c.int("LOCK.RELEASE b me"), 1);
    assert!(listens.fence() > fence);
}

fn keys_are_released_and_renewed_one_by_one(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = c.int("LOCK.MACQUIRE 3 a b c me 20000");
    assert_eq!(c.int("LOCK.RENEW b me 60000"), 1);
    assert!(c.int("PTTL a") <= 20_000 && c.int("PTTL b") > 50_000);
    assert_eq!(c.int("LOCK.CHECK b me"), fence);
    assert_eq!(c.int("LOCK.RELEASE b me"), 1);
    assert_eq!(c.int("EXISTS a b c"), 2);
    assert!(c.int("LOCK.ACQUIRE b you 60000") > fence);
    assert_held(&mut c, &["a", "c"], "me", fence);
    assert_eq!(c.int("LOCK.RELEASE b me"), 0);
    // Each of them can be converted, as any hold.
    assert_eq!(c.int("RWLOCK.RLOCK a me 60000"), fence);
    assert!(c.int("RWLOCK.RLOCK a you 60000") > fence);
}

fn what_is_malformed_changes_nothing(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let keys: Vec<String> = (0..129).map(|n| format!("k{n}")).collect();
    let too_many = format!("129 {} me 10", keys.join(" "));
    for (line, error) in [
        ("2 a a me 60000", "ERR a key was named twice"),
        ("3 a b a me 60000 BLOCK 0", "ERR a key was named twice"),
        ("0 me 60000 x", "ERR numkeys"),
        ("-1 a me 60000", "ERR numkeys"),
        ("a b me 60000", "ERR numkeys"),
        ("9223372036854775808 a me 60000", "ERR numkeys"),
        (&too_many, "ERR numkeys"),
        ("3 a me 60000", "ERR wrong number of arguments"),
        ("2 a b me", "ERR wrong number of arguments"),
        ("1 a me 0", "ERR ttl"),
        ("1 a me 60000 LIMIT 5", "ERR unknown option"),
        ("2 a b me 60000 MODES SHARED", "ERR MODES"),
        ("2 a b me 60000 MODES SHARED WRITE", "ERR MODES"),
        ("1 a me 60000 MODES SHARED MODES SHARED", "ERR an option"),
        ("1 a me 60000 BLOCK 1 NOTIFY 1 c", "ERR BLOCK and NOTIFY"),
        ("1 a me 60000 KEEP 0", "ERR grace"),
        ("1 a * 60000 KEEP 5", "ERR KEEP and NOTIFY need"),
    ] {
        let is = c.error(&format!("LOCK.MACQUIRE {line}"));
        assert!(is.starts_with(error), "{line}: {is}");
    }
    let long = "x".repeat(513);
    assert!(c
        .error(&format!("LOCK.MACQUIRE 1 a {long} 60000"))
        .contains("512"));
    let empty = c.send(&["LOCK.MACQUIRE", "1", "a", "", "60000"]);
    assert!(matches!(empty, Reply::Error(_)), "{empty:?}");
    assert_eq!(c.int("DBSIZE"), 0);
    // Keys and tokens are binary-safe.
    let names: [&[u8]; 6] = [
        b"LOCK.MACQUIRE",
        b"2",
        b"",
        b"\0\xff \r\n",
        b"\0\xfe",
        b"60000",
    ];
    let fence = c.send(&names).as_int();
    let again = c.send(&[names[0], b"2", names[3], names[2], names[4], names[5]]);
    assert_eq!(again.as_int(), fence);
}

fn a_key_of_another_type_refuses_all(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.call("SET b x");
    for line in ["2 a b", "2 b a"] {
        for wait in ["", " BLOCK 0", " KEEP 5"] {
            let error = c.error(&format!("LOCK.MACQUIRE {line} me 60000{wait}"));
            assert!(error.starts_with("WRONGTYPE"), "{error}");
        }
    }
    assert_eq!(c.int("EXISTS a"), 0);
    assert_eq!(c.call("LOCK.INFO a"), Reply::Nil);
    assert_eq!(c.text("GET b"), "x");
}

fn the_server_makes_a_token(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let reply = c.call("LOCK.MACQUIRE 2 a b * 60000");
    let [token, fence] = reply.items() else {
        panic!("{reply:?}");
    };
    let token = String::from_utf8(token.as_bytes().to_vec()).unwrap();
    assert_eq!(token.len(), 36);
    assert_held(&mut c, &["a", "b"], &token, fence.as_int());
    // Also after a wait.
    let waits = server.blocked("LOCK.MACQUIRE 2 b c * 60000 BLOCK 0");
    c.int(&format!("LOCK.RELEASE b {token}"));
    let reply = waits.reply();
    let [token, fence] = reply.items() else {
        panic!("{reply:?}");
    };
    let token = String::from_utf8(token.as_bytes().to_vec()).unwrap();
    assert_held(&mut c, &["b", "c"], &token, fence.as_int());
}

fn a_shared_request_enters_beside_readers(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("RWLOCK.RLOCK a reader 60000");
    let shared = "MODES SHARED SHARED";
    assert!(c.int(&format!("LOCK.MACQUIRE 2 a b me 60000 {shared}")) > 0);
    // A writer that waits for one of the keys keeps it out.
    let writer = server.blocked("LOCK.ACQUIRE b writer 60000 BLOCK 0");
    assert_eq!(
        c.call(&format!("LOCK.MACQUIRE 2 a b you 60000 {shared}")),
        Reply::Nil
    );
    assert_eq!(c.holders("a"), ["reader", "me"]);
    c.int("LOCK.RELEASE b me");
    writer.fence();
}

fn it_answers_at_once_in_transactions_and_scripts(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE b other 60000");
    let replies = c.multi(&[
        "LOCK.MACQUIRE 2 a c me 60000",
        "LOCK.MACQUIRE 2 a b you 60000 BLOCK 0",
        "LOCK.RELEASE b other",
        "LOCK.MACQUIRE 2 b d you 60000 BLOCK 0",
    ]);
    assert_eq!(replies[1], Reply::Nil);
    assert!(replies[3].as_int() > replies[0].as_int());
    let script = "return redis.call('LOCK.MACQUIRE',2,KEYS[1],KEYS[2],ARGV[1],60000,'BLOCK',0)";
    let mut eval = |one, other| c.send(&["EVAL", script, "2", one, other, "script"]);
    assert_eq!(eval("a", "e"), Reply::Nil);
    let fence = eval("e", "f").as_int();
    assert_held(&mut c, &["e", "f"], "script", fence);
    let script = "return redis.call('LOCK.MACQUIRE',1,KEYS[1],'me',60000,'NOTIFY',0,'c')";
    let reply = c.send(&["EVAL", script, "1", "a"]);
    assert!(matches!(reply, Reply::Error(_)), "{reply:?}");
    assert_eq!(c.waiters("a"), [""; 0]);
}

fn the_keys_are_seen_by_the_server_and_by_users(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut keys = |line: &str| -> Vec<String> {
        let reply = c.call(&format!("COMMAND GETKEYS LOCK.MACQUIRE {line}"));
        let keys = reply.items().iter();
        keys.map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned())
            .collect()
    };
    assert_eq!(keys("1 a me 60000"), ["a"]);
    assert_eq!(
        keys("3 a b c me 60000 MODES SHARED SHARED SHARED"),
        ["a", "b", "c"]
    );
    // A user may take only what it may take alone.
    c.call("ACL SETUSER worker on nopass ~mine:* +@all");
    c.call("AUTH worker x");
    assert!(c.int("LOCK.MACQUIRE 2 mine:a mine:b me 60000") > 0);
    for line in ["2 mine:c a", "2 a mine:c", "3 mine:c mine:d b"] {
        let error = c.error(&format!("LOCK.MACQUIRE {line} me 60000"));
        assert!(error.starts_with("NOPERM"), "{line}: {error}");
    }
    // What cannot be read names no key, and is an error in any case.
    for line in [
        "x a me 60000",
        "0 a me 60000",
        "5 mine:a me 60000",
        "2 mine:a",
    ] {
        let error = c.error(&format!("LOCK.MACQUIRE {line}"));
        let known = ["ERR ", "NOPERM "];
        assert!(
            known.iter().any(|k| error.starts_with(k)),
            "{line}: {error}"
        );
    }
    if kind.is_7_0_or_later() {
        let mut admin = server.client();
        admin.call("ACL SETUSER reader on nopass %R~* +@all");
        let mut c = server.client();
        c.call("AUTH reader x");
        let error = c.error("LOCK.MACQUIRE 1 a me 60000");
        assert!(error.starts_with("NOPERM"), "{error}");
        let flags = admin.call("COMMAND INFO LOCK.MACQUIRE").items()[0].items()[2].clone();
        for flag in ["write", "denyoom", "blocking"] {
            assert!(
                flags.items().contains(&Reply::Simple(flag.into())),
                "{flags:?}"
            );
        }
    }
}

fn counters_and_events_tell_of_it(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.call("CONFIG SET notify-keyspace-events AKE");
    let mut sub = crate::places::fixture::Subscriber::connect(&server);
    sub.subscribe("PSUBSCRIBE __keyevent@*__:lock.*");
    c.int("LOCK.MACQUIRE 2 a b me 60000");
    c.int("LOCK.MACQUIRE 2 a b me 60000");
    let waits = server.blocked("LOCK.MACQUIRE 2 b d you 60000 BLOCK 0");
    c.call("LOCK.MACQUIRE 2 a d he 60000");
    c.int("LOCK.RELEASE b me");
    waits.fence();
    for (field, value) in [
        ("acquired", 6),
        ("reacquired", 2),
        ("macquired", 3),
        ("refused", 1),
        ("waited", 1),
        ("handed_over", 1),
        ("released", 1),
        ("held_exclusive", 3),
        ("waiters", 0),
        ("wait_count", 1),
    ] {
        assert_eq!(
            c.info(&format!("lock_{field}")),
            value.to_string(),
            "{field}"
        );
    }
    // Both keys of each, in their order: acquired, acquired again, released and handed over.
    let all = sub.so_far();
    assert_eq!(all, ["a", "b", "a", "b", "b", "b", "d"]);
}
