//! LOCK.CHECK and LOCK.EXEC, which guard work by a hold; LOCK.TOP.

use crate::harness::{wait_for, Client, Kind, Reply, Server, COMMANDS_ONLY};

on_every_server![
    a_script_that_begins_with_check_is_guarded,
    top_lists_the_longest_waits_first,
    exec_passes_every_reply_through,
    exec_refuses_what_scripts_refuse_first,
    exec_has_the_rights_of_its_caller,
    exec_names_the_keys_of_its_command,
    exec_replicates_only_its_command,
    exec_in_a_transaction_is_guarded_command_by_command,
];

fn acquire(c: &mut Client, key: &str, token: &str) -> i64 {
    c.int(&format!("LOCK.ACQUIRE {key} {token} 60000"))
}

fn a_script_that_begins_with_check_is_guarded(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    acquire(&mut c, "k", "me");
    let script = "if not redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) then return 'late' end \
                  return redis.call('INCR', KEYS[2])";
    let mut run = |token| c.send(&["EVAL", script, "2", "k", "n", token]);
    assert_eq!(run("me"), Reply::Int(1));
    assert_eq!(run("you").as_bytes(), b"late");
    assert_eq!(run("me"), Reply::Int(2));
}

fn top_lists_the_longest_waits_first(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    assert_eq!(c.call("LOCK.TOP").items(), []);
    acquire(&mut c, "exclusive", "me");
    c.int("RWLOCK.RLOCK shared one 60000");
    c.int("RWLOCK.RLOCK shared two 60000");
    c.int("LOCK.ACQUIRE permits a 60000 LIMIT 5");
    c.int("LOCK.ACQUIRE permits b 60000 LIMIT 2");
    acquire(&mut c, "unwanted", "me");
    c.call("LOCK.ACQUIRE exclusive you 1000 KEEP 600000");
    let begun_us = c.now_us();
    wait_for("some time", || {
        (c.now_us() > begun_us + 5_000).then_some(())
    });
    for token in ["three", "four"] {
        c.call(&format!("LOCK.ACQUIRE shared {token} 1000 KEEP 600000"));
    }
    for token in ["c", "d", "e"] {
        let line = format!("LOCK.ACQUIRE permits {token} 1000 LIMIT 7 KEEP 600000");
        assert_eq!(c.call(&line), Reply::Nil);
    }
    let top = c.call("LOCK.TOP");
    let keys: Vec<_> = top.items().iter().map(|line| line.field("key")).collect();
    assert_eq!(
        keys.iter().map(Reply::as_bytes).collect::<Vec<_>>(),
        [&b"exclusive"[..], b"shared", b"permits"]
    );
    let [first, second, third] = top.items() else {
        panic!("{top:?}");
    };
    for (line, mode, holders, waiters, token) in [
        (first, "exclusive", 1, 1, "me"),
        (second, "shared", 2, 2, "one"),
        (third, "counted", 2, 3, "a"),
    ] {
        assert_eq!(line.field("mode").as_bytes(), mode.as_bytes());
        assert_eq!(line.field("holders").as_int(), holders);
        assert_eq!(line.field("waiters").as_int(), waiters);
        assert_eq!(line.field("token").as_bytes(), token.as_bytes());
        assert!(line.field("waited").as_int() >= 0);
        assert!(line.field("held").as_int() >= 5, "{line:?}");
    }
    assert!(first.field("waited").as_int() >= 5);
    assert_eq!(c.call("LOCK.TOP 1").items().len(), 1);
    // A free key whose next place nobody listens at.
    c.int("LOCK.RELEASE exclusive me");
    let line = &c.call("LOCK.TOP 1").items()[0].clone();
    assert_eq!(line.field("mode").as_bytes(), b"free");
    assert_eq!(line.field("token"), Reply::Nil);
    assert_eq!(line.field("held").as_int(), 0);
    assert_eq!(line.field("holders").as_int(), 0);
    // Of the selected database only.
    c.call("SELECT 1");
    assert_eq!(c.call("LOCK.TOP 100").items(), []);
}

fn exec_passes_every_reply_through(kind: Kind) {
    let server = Server::start(kind);
    for mut c in [server.client(), server.client_resp3()] {
        acquire(&mut c, "k", "me");
        c.call("DEL h l s z");
        c.call("HSET h f v");
        c.call("ZADD z 1.5 a");
        c.call("SADD s a");
        for line in [
            "GET absent",
            "HGETALL h",
            "ZSCORE z a",
            "SMEMBERS s",
            "INCR h",
            "LRANGE absent 0 -1",
            "PING",
            "ECHO text",
            "LOCK.INFO free",
            "COMMAND COUNT",
        ] {
            let plain = c.send(&line.split(' ').collect::<Vec<_>>());
            let guarded = c.call(&format!("LOCK.EXEC k me {line}"));
            assert_eq!(guarded, plain, "{line}");
        }
        let error = c.error("LOCK.EXEC k me NOSUCH a b");
        assert!(error.contains("unknown command"), "{error}");
        let error = c.error("LOCK.EXEC k me GET");
        assert!(error.contains("wrong number of arguments"), "{error}");
    }
}

fn exec_refuses_what_scripts_refuse_first(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    acquire(&mut c, "k", "me");
    c.call("SET text x");
    for command in [
        "MULTI",
        "SUBSCRIBE c",
        "LOCK.EXEC k me PING",
        "EVAL return~1 0",
        "SELECT 1",
        "CLIENT REPLY OFF",
        "LOCK.RESETSTAT",
    ] {
        // Where the token holds, where it does not, and where the key is no lock.
        for guard in ["k me", "k you", "text me"] {
            let error = c.error(&format!("LOCK.EXEC {guard} {command}"));
            assert!(!error.starts_with("NOTHELD"), "{guard} {command}: {error}");
            assert!(
                !error.starts_with("WRONGTYPE"),
                "{guard} {command}: {error}"
            );
        }
    }
    let nested = c.send(&[
        "EVAL",
        "return redis.pcall('LOCK.EXEC', 'k', 'me', 'PING')",
        "0",
    ]);
    assert!(matches!(nested, Reply::Error(_)), "{nested:?}");
    // A write of a replica.
    let replica = Server::start_replica_of(&server, &[]);
    replica.wait_until_it_follows(&server);
    let error = replica.client().error("LOCK.EXEC k me GET text");
    assert!(error.starts_with("READONLY"), "{error}");
    // Memory is short: what takes memory is refused, and what frees it is not.
    c.call("CONFIG SET maxmemory 1");
    let error = c.error("LOCK.EXEC k me SET text y");
    assert!(error.starts_with("OOM"), "{error}");
    assert_eq!(c.int("LOCK.EXEC k me DEL text"), 1);
}

fn exec_has_the_rights_of_its_caller(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    acquire(&mut c, "lock", "me");
    c.call("SET own 1");
    c.call("SET foreign 1");
    c.call("ACL SETUSER worker on nopass resetkeys %R~lock ~own resetchannels &mine +lock.exec +get +set +publish");
    c.call("AUTH worker x");
    assert_eq!(c.text("LOCK.EXEC lock me GET own"), "1");
    assert_eq!(
        c.call("LOCK.EXEC lock me SET own 2"),
        Reply::Simple("OK".into())
    );
    assert_eq!(c.int("LOCK.EXEC lock me PUBLISH mine x"), 0);
    // A dry run asks for all keys, and neither for the inner command nor for its channels.
    let mut admin = server.client();
    for (line, says) in [
        ("SET own 2", "OK"),
        ("DEL own", "OK"),
        ("PUBLISH other x", "OK"),
        ("SET foreign 2", "no permissions"),
    ] {
        match admin.call(&format!("ACL DRYRUN worker LOCK.EXEC lock me {line}")) {
            Reply::Simple(said) => assert_eq!(said, says, "{line}"),
            said => {
                let said = said.to_text();
                assert!(said.contains(says), "{line}: {said}");
            }
        }
    }
    for guard in ["lock me", "lock you"] {
        for command in ["GET foreign", "SET lock x", "DEL own", "PUBLISH other x"] {
            let error = c.error(&format!("LOCK.EXEC {guard} {command}"));
            assert!(error.starts_with("NOPERM"), "{guard} {command}: {error}");
        }
    }
    let error = c.error("LOCK.EXEC foreign me GET own");
    assert!(error.starts_with("NOPERM"), "{error}");
}

fn exec_names_the_keys_of_its_command(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut keys = |line: &str| -> Vec<String> {
        c.call(&format!("COMMAND GETKEYS LOCK.EXEC {line}")).words()
    };
    assert_eq!(keys("k me MSET a 1 b 2"), ["k", "a", "b"]);
    assert_eq!(keys("k me PING"), ["k"]);
    assert_eq!(keys("k me EVAL script 2 a b c"), ["k", "a", "b"]);
    assert_eq!(keys("k me NOSUCH a"), ["k"]);
    assert_eq!(keys("k me GET"), ["k"]);
    assert_eq!(keys("k me LOCK.ACQUIRE other me 5"), ["k", "other"]);
    // However deep it is nested, nobody looks into it.
    let nested = "k me LOCK.EXEC ".repeat(50_000);
    assert_eq!(keys(&format!("{nested} k me PING")), ["k"]);
}

fn exec_replicates_only_its_command(kind: Kind) {
    let server = Server::start_with(kind, &COMMANDS_ONLY);
    let replica = Server::start_replica_of(&server, &[]);
    replica.wait_until_it_follows(&server);
    let mut c = server.client();
    acquire(&mut c, "k", "me");
    c.call("LOCK.EXEC k me SET v 1");
    c.call("LOCK.EXEC k me GET v");
    c.call("LOCK.EXEC k you SET v 2");
    c.call("LOCK.EXEC k me LOCK.RENEW k me 90000");
    replica.wait_until_it_follows(&server);
    let mut r = replica.client();
    assert_eq!(r.text("GET v"), "1");
    assert!(r.int("PTTL k") > 60_000);
    let stats = r.text("INFO commandstats").to_lowercase();
    assert!(!stats.contains("cmdstat_lock.exec"), "{stats}");
    assert!(stats.contains("cmdstat_set:calls=1,"), "{stats}");
}

fn exec_in_a_transaction_is_guarded_command_by_command(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    acquire(&mut c, "k", "me");
    c.call("MULTI");
    for line in [
        "LOCK.EXEC k me INCR n",
        "LOCK.EXEC k me LPUSH l a",
        "LOCK.RELEASE k me",
        "LOCK.EXEC k me INCR n",
    ] {
        assert_eq!(c.call(line), Reply::Simple("QUEUED".into()));
    }
    // The reply of the last one is the error of the whole, as this client sees it.
    let error = c.error("EXEC");
    assert!(error.starts_with("NOTHELD"), "{error}");
    assert_eq!(c.int("LLEN l"), 1);
    assert_eq!(c.text("GET n"), "1");
}
