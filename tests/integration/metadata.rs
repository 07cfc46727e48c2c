//! The server's description of the commands and values: COMMAND, OBJECT, …, and the form of LOCK.INFO.

mod category;
mod users;

use std::collections::HashSet;

use redis_lock::command::spec::{KeyWords, Kind as ArgKind};

use crate::harness::commands::{call_of, commands, shortest};
use crate::harness::{wait_for, Client, Kind, Reply, Server, MODULE_COMMAND};

on_every_server![
    command_getkeys_returns_the_key,
    the_module_is_listed_and_cannot_be_unloaded,
    type_and_scan_return_the_held_locks,
    memory_usage_follows_the_holders,
    a_digest_covers_the_whole_value,
    a_lock_cannot_be_copied,
    info_has_exactly_its_fields,
    resp3_replies_use_maps_and_null,
];

fn words(reply: &Reply) -> HashSet<String> {
    reply.words()
}

fn command_getkeys_returns_the_key(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for spec in commands().filter(|spec| spec.keys != KeyWords::None) {
        let keys = spec
            .args
            .iter()
            .filter(|arg| matches!(arg.kind, ArgKind::Key));
        let keys: Vec<Reply> = keys.map(|_| "the-key".into()).collect();
        let options = spec.args.iter().filter(|arg| arg.is_optional);
        let ways = options.flat_map(|arg| match arg.kind {
            ArgKind::OneOf(args) if arg.token.is_none() => args.iter(),
            _ => std::slice::from_ref(arg).iter(),
        });
        let of_more = ways
            .filter(|arg| !matches!(arg.kind, ArgKind::Key))
            .map(call_of);
        for more in [String::new()].into_iter().chain(of_more) {
            let call = [&shortest(spec), &*more].join(" ").replace("{}", "the-key");
            let line = format!("COMMAND GETKEYS {}", call.trim());
            assert_eq!(c.call(&line), Reply::Array(keys.clone()), "{line}");
        }
    }
}

fn listed(c: &mut Client) -> Option<Reply> {
    let list = c.call("MODULE LIST");
    let mut found = list.items().iter();
    found
        .find(|m| m.field("name") == Reply::from("lock"))
        .cloned()
}

/// The version in Cargo.toml as MODULE LIST shows it: 10203 is 1.2.3.
fn version_number() -> i64 {
    let numbers = env!("CARGO_PKG_VERSION").split(['.', '-']).take(3);
    numbers.fold(0, |sum, n| sum * 100 + n.parse::<i64>().unwrap())
}

fn the_module_is_listed_and_cannot_be_unloaded(kind: Kind) {
    let server = Server::start_with(kind, &MODULE_COMMAND);
    let mut c = server.client();
    let module = listed(&mut c).expect("the module in MODULE LIST");
    assert_eq!(module.field("ver"), Reply::Int(version_number()));
    let fence = c.int("LOCK.ACQUIRE k me 1000000");
    for key in ["k", "none"] {
        c.refused_saying("MODULE UNLOAD lock", "data type");
        assert!(listed(&mut c).is_some());
        // Not even without a lock in the keyspace.
        assert_eq!(c.int("LOCK.ACQUIRE k me 1000000") == fence, key == "k");
        c.call("FLUSHALL");
    }
}

fn type_and_scan_return_the_held_locks(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut expected = HashSet::new();
    for n in 0..50 {
        c.call(&format!("SET string{n} v"));
        c.int(&format!("LOCK.ACQUIRE lock{n} me 1000000"));
        c.int(&format!("RWLOCK.RLOCK shared{n} me 1000000"));
        expected.extend([format!("lock{n}"), format!("shared{n}")]);
    }
    assert_eq!(c.text("TYPE lock7"), "redislock");
    assert_eq!(c.text("TYPE shared7"), "redislock");
    let scan = "SCAN 0 COUNT 10000 TYPE redislock";
    assert_eq!(words(&c.call(scan).items()[1]), expected);
    assert_eq!(c.int("LOCK.RELEASE lock7 me"), 1);
    assert!(expected.remove("lock7"));
    assert_eq!(words(&c.call(scan).items()[1]), expected);
}

fn memory_usage_follows_the_holders(kind: Kind) {
    const READERS: i64 = 1000;
    let server = Server::start(kind);
    let mut c = server.client();
    let usage = |c: &mut Client| c.int("MEMORY USAGE k SAMPLES 0");
    let used = |c: &mut Client| c.info("used_memory").parse::<i64>().unwrap();

    for take in ["LOCK.ACQUIRE", "RWLOCK.RLOCK"] {
        c.int(&format!("{take} k me 1000000"));
        let short = usage(&mut c);
        assert!((50..800).contains(&short), "{short} bytes for one hold");
        c.int("DEL k");
        c.int(&format!("{take} k {} 1000000", "x".repeat(512)));
        let long = usage(&mut c);
        assert!((short + 510..short + 1024).contains(&long), "{long} bytes");
        c.int("DEL k");
    }

    c.int("RWLOCK.RLOCK k reader-0000 1000000");
    let (first, mut last, before) = (usage(&mut c), usage(&mut c), used(&mut c));
    for n in 1..READERS {
        c.int(&format!("RWLOCK.RLOCK k reader-{n:04} 1000000"));
        let now = usage(&mut c);
        assert!(now > last, "{now} after {last} bytes for {n} readers");
        last = now;
    }
    let (said, grown) = (last - first, used(&mut c) - before);
    assert!(
        said < grown * 2 && grown < said * 2,
        "{said} bytes said, {grown} bytes used"
    );
    // It shrinks again, at least by the tokens, when all but one are gone.
    for n in 1..READERS {
        c.int(&format!("LOCK.RELEASE k reader-{n:04}"));
    }
    assert!(usage(&mut c) < last - READERS * 11);
}

fn a_digest_covers_the_whole_value(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let digest = |c: &mut Client, key: &str| match &c.call(&format!("DEBUG DIGEST-VALUE {key}")) {
        Reply::Array(digests) => match &digests[0] {
            Reply::Simple(text) => text.clone(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let mut seen = HashSet::new();
    for line in [
        "LOCK.ACQUIRE k me 1000000",
        "LOCK.RENEW k me 2000000",
        "RWLOCK.RLOCK k me 2000000",
        "RWLOCK.RLOCK k you 2000000",
        "LOCK.RELEASE k me",
        "LOCK.ACQUIRE other me 1000000",
        "LOCK.ACQUIRE another me 1000000",
    ] {
        c.int(line);
        let key = line.split(' ').nth(1).unwrap();
        let new = digest(&mut c, key);
        assert_eq!(digest(&mut c, key), new);
        assert_ne!(new, "0".repeat(40));
        assert!(seen.insert(new), "{line} does not show");
        // With a ttl, because the server's digest covers its existence.
        let dump = c.call(&format!("DUMP {key}"));
        c.restore("copy 1000000 REPLACE", dump.as_bytes())
            .assert_ok();
        assert_eq!(digest(&mut c, "copy"), digest(&mut c, key), "{line}");
        // Without REPLACE the lock stays, with a ttl that may be shorter than its hold.
        let again = c.restore("copy 1000", dump.as_bytes());
        assert!(again.as_error().starts_with("BUSYKEY "), "{again:?}");
        assert!((900_000..=1_000_000).contains(&c.int("PTTL copy")));
    }
}

fn a_lock_cannot_be_copied(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.call("SET string v");
    for take in ["LOCK.ACQUIRE", "RWLOCK.RLOCK"] {
        c.int(&format!("{take} k me 1000000"));
        for copy in ["COPY k new", "COPY k string REPLACE", "COPY k k DB 1"] {
            c.refused(copy, "ERR ");
        }
        assert_eq!(c.int("LOCK.RELEASE k me"), 1);
        assert_eq!(c.int("DBSIZE"), 1);
        assert_eq!(c.text("GET string"), "v");
        c.call("SELECT 1");
        assert_eq!(c.int("DBSIZE"), 0);
        c.call("SELECT 0");
    }
}

/// The pairs of a flat array, including their names, and the form of pairs in a protocol.
type Form = fn(Vec<(&str, Reply)>) -> Reply;

fn flat(pairs: Vec<(&str, Reply)>) -> Reply {
    let items = pairs
        .into_iter()
        .flat_map(|(name, value)| [name.into(), value]);
    Reply::Array(items.collect())
}

fn map(pairs: Vec<(&str, Reply)>) -> Reply {
    Reply::Map(
        pairs
            .into_iter()
            .map(|(name, value)| (name.into(), value))
            .collect(),
    )
}

/// Creates holds and compares the complete reply of LOCK.INFO with the expected one.
fn check_info(c: &mut Client, pairs: Form) {
    assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
    for (take, limit, mode, tokens) in [
        ("LOCK.ACQUIRE", None, "exclusive", &["me"][..]),
        ("RWLOCK.RLOCK", None, "shared", &["z", "a", "m"]),
        ("LOCK.ACQUIRE", Some(2), "counted", &["z", "a"]),
    ] {
        let option = limit.map_or(String::new(), |limit| format!(" LIMIT {limit}"));
        let mut holders = Vec::new();
        let mut grants = Vec::new();
        for token in tokens {
            let from_ms = c.now_us() / 1000;
            let fence = c.int(&format!("{take} k {token} 1000000{option}"));
            let until_ms = c.now_us() / 1000;
            grants.push((*token, fence, from_ms..=until_ms));
        }
        // Later than all grants, so that no other instant is taken for one of them. A renewal is
        // not a grant.
        let granted_ms = c.now_us() / 1000;
        wait_for("the clock to move on", || {
            (c.now_us() / 1000 > granted_ms).then_some(())
        });
        for token in tokens {
            assert_eq!(c.int(&format!("LOCK.RENEW k {token} 1000000")), 1);
        }
        let longest = c.int("PTTL k");
        let info = c.call("LOCK.INFO k");
        let shortest = c.int("PTTL k");
        for (holder, (token, fence, granted_ms)) in info.field("holders").items().iter().zip(grants)
        {
            let (ttl, since) = (holder.field("ttl"), holder.field("since"));
            let since_ms = u64::try_from(since.as_int()).unwrap();
            assert!(
                granted_ms.contains(&since_ms),
                "{since_ms} is not in {granted_ms:?}"
            );
            assert!(ttl.as_int() <= longest);
            if tokens.len() == 1 {
                assert!(ttl.as_int() >= shortest);
            }
            holders.push(pairs(vec![
                ("token", token.into()),
                ("fence", Reply::Int(fence)),
                ("ttl", ttl),
                ("since", since),
            ]));
        }
        assert_eq!(holders.len(), tokens.len(), "{info:?}");
        let mut expected: Vec<(&str, Reply)> = vec![("mode", mode.into())];
        expected.extend(limit.map(|limit| ("limit", Reply::Int(limit))));
        expected.extend([
            ("holders", Reply::Array(holders)),
            ("waiters", Reply::Array(Vec::new())),
            ("holder-count", Reply::Int(tokens.len() as i64)),
            ("waiter-count", Reply::Int(0)),
        ]);
        assert_eq!(info, pairs(expected));
        c.int("DEL k");
    }
    assert_eq!(c.call("LOCK.INFO k"), Reply::Nil);
}

fn info_has_exactly_its_fields(kind: Kind) {
    let server = Server::start(kind);
    check_info(&mut server.client(), flat);
}

fn resp3_replies_use_maps_and_null(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client_resp3();
    check_info(&mut c, map);
}
