//! Every error that a command can return. After an error nothing has changed: no value, no ttl, no
//! key, no byte sent to a replica.

mod fixture;

use std::path::Path;

use redis_lock::lock::codec::encode_held;
use redis_lock::lock::{Deadline, Fence, Hold, Mode, Since};

use crate::harness::{aof, record_of, Kind, Reply, Server};
use fixture::{line, words, Fixture};

on_every_server![
    a_malformed_command_changes_nothing,
    a_key_of_another_type_is_left_alone,
    a_refused_command_changes_nothing_and_is_not_replicated,
    no_client_can_apply_a_record,
    an_error_says_what_is_expected,
];

const TAKES: [&str; 3] = ["LOCK.ACQUIRE", "RWLOCK.WLOCK", "RWLOCK.RLOCK"];

// The complete texts. They are constants, so none of them contains a byte from the user.
const TTL: &str = "ERR ttl must be an integer from 1 to 281474976710656, in milliseconds";
const TIMEOUT: &str = "ERR timeout must be an integer from 0 to 281474976710656, in milliseconds";
const UNKNOWN_OPTION: &str = "ERR unknown option, expected LIMIT, BLOCK, NOTIFY, KEEP or LINGER";
const UNKNOWN_RW_OPTION: &str = "ERR unknown option, expected BLOCK, NOTIFY, KEEP or LINGER";
const LIMIT: &str = "ERR LIMIT needs an integer from 1 to 2147483647";
const KEY_COUNT: &str = "ERR numkeys must be an integer from 1 to 128";
const TWICE: &str = "ERR an option was given twice";
const NO_TIMEOUT: &str =
    "ERR a value is missing: LIMIT n, BLOCK timeout, NOTIFY timeout channel, KEEP grace, LINGER milliseconds";
const NO_OWNER: &str = "ERR * is no token here, name the one that the acquire has returned";
const TOKEN_EMPTY: &str = "ERR the token is empty";
const TOKEN_LONG: &str = "ERR the token is longer than 512 bytes";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_FOR_CLIENTS: &str = "ERR this command is for replication and the append-only file only";

/// Invalid values of a ttl. The last would be 100 if it were truncated to 64 bits.
const NO_NUMBERS: [&[u8]; 8] = [
    b"",
    b"0",
    b"-1",
    b"007",
    b"100\0",
    b"\xff\xfe",
    b"281474976710657",
    b"18446744073709551716",
];

/// Each of these reaches the module on every server, in a script too.
fn an_error_says_what_is_expected(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k me 60000");
    for (line, error) in [
        (
            "LOCK.CANCEL k TOKEN",
            "ERR wrong number of arguments for 'lock.cancel' command, \
             expected LOCK.CANCEL key [TOKEN token]",
        ),
        (
            "lock.top 1 CONTENDED 1",
            "ERR wrong number of arguments for 'lock.top' command, \
             expected LOCK.TOP [count] [CONTENDED]",
        ),
        (
            "LOCK.MACQUIRE 3 a me 60000",
            "ERR wrong number of arguments for 'lock.macquire' command, \
             expected LOCK.MACQUIRE numkeys key [key ...] token|* ttl \
             [MODES EXCLUSIVE|SHARED [EXCLUSIVE|SHARED ...]] \
             [BLOCK timeout|NOTIFY timeout channel] [KEEP grace] [LINGER milliseconds]",
        ),
        (
            "LOCK.TOP 0",
            "ERR the number of locks must be an integer from 1 to 18446744073709551615",
        ),
        (
            "LOCK.LOG 0",
            "ERR the number of entries must be an integer from 1 to 18446744073709551615",
        ),
        (
            "LOCK.INFO k HOLDERS -1",
            "ERR HOLDERS and WAITERS need an integer from 0 to 18446744073709551615",
        ),
        ("LOCK.RELEASE k *", NO_OWNER),
        ("LOCK.RELEASE k * ATLEAST 5", NO_OWNER),
        ("LOCK.RENEW k * 60000", NO_OWNER),
        ("LOCK.CHECK k *", NO_OWNER),
        ("LOCK.CANCEL k TOKEN *", NO_OWNER),
    ] {
        assert_eq!(c.error(line), error, "{line}");
        let words: Vec<_> = line.split(' ').map(|word| format!("'{word}'")).collect();
        let script = format!("return redis.pcall({})", words.join(","));
        let in_script = c.send(&["EVAL", &script, "0"]);
        assert_eq!(in_script, Reply::Error(error.into()), "{line}");
    }
    if kind.is_7_0_or_later() {
        assert_eq!(c.error("LOCK.EXEC k * PING"), NO_OWNER);
        let late = "NOTHELD the token does not hold the lock, stop the work under it";
        assert_eq!(c.error("LOCK.EXEC k you PING"), late);
    } else {
        assert!(c.error("LOCK.EXEC k me PING").contains("unknown command"));
    }
    assert_eq!(c.int("LOCK.RELEASE k me"), 1);
}

/// One line for each error. The parsers' own tests have every way to be wrong.
fn a_malformed_command_changes_nothing(kind: Kind) {
    let mut fixture = Fixture::set_up(kind);
    let long_token = "x".repeat(513);
    for key in ["free", "held", "shared", "capped"] {
        // The token is the holder's own, so an accepted command would change the lock.
        let token = if key == "shared" { "a" } else { "me" };
        for command in TAKES {
            for wrong in ["", " {k}", " {k} {t}"] {
                let wrong = wrong.replace("{k}", key).replace("{t}", token);
                let wrong = format!("{command}{wrong}");
                let wrong: Vec<&[u8]> = wrong.split(' ').map(str::as_bytes).collect();
                fixture.refuses_arity(&wrong);
            }
            let (unknown, limit) = match command {
                "LOCK.ACQUIRE" => (UNKNOWN_OPTION, LIMIT),
                _ => (UNKNOWN_RW_OPTION, UNKNOWN_RW_OPTION),
            };
            for (options, error) in [
                ("NX", unknown),
                ("BLOCK\0 5", unknown),
                ("BLOCK 5 5", unknown),
                ("block", NO_TIMEOUT),
                ("BLOCK BLOCK 5", TIMEOUT),
                ("BLOCK 18446744073709551716", TIMEOUT),
                ("BLOCK 5 block 5", TWICE),
                ("LIMIT 0", limit),
                ("LIMIT 4294967297", limit),
            ] {
                fixture.refuses(
                    &words(&format!("{command} {key} {token} 1000 {options}")),
                    error,
                );
            }
        }
        for command in [&TAKES[..], &["LOCK.RENEW"]].concat() {
            for ttl in NO_NUMBERS {
                let [c, k, t] = [command, key, token].map(str::as_bytes);
                fixture.refuses(&line(&[c, k, t, ttl]), TTL);
            }
            fixture.refuses(&words(&format!("{command} {key}  1000")), TOKEN_EMPTY);
            fixture.refuses(
                &words(&format!("{command} {key} {long_token} 1000")),
                TOKEN_LONG,
            );
        }
        fixture.refuses(&words(&format!("LOCK.RELEASE {key} ")), TOKEN_EMPTY);
        fixture.refuses(
            &words(&format!("LOCK.RELEASE {key} {long_token}")),
            TOKEN_LONG,
        );
        for (line, error) in [
            (
                "LOCK.RELEASE {k} {t} NOW",
                "ERR unknown option, expected ATLEAST",
            ),
            (
                "LOCK.INFO {k} {t}",
                "ERR unknown option, expected HOLDERS or WAITERS",
            ),
            ("LOCK.CANCEL {k} {t}", "ERR unknown option, expected TOKEN"),
            ("LOCK.MACQUIRE 129 {k} {t} 1000", KEY_COUNT),
            (
                "LOCK.MACQUIRE 2 {k} {k} {t} 1000",
                "ERR a key was named twice",
            ),
            (
                "LOCK.MACQUIRE 1 {k} {t} 1000 MODES SHARED MODES SHARED",
                TWICE,
            ),
            (
                "LOCK.MACQUIRE 1 {k} {t} 1000 MODES WRITE",
                "ERR MODES needs EXCLUSIVE or SHARED for each key",
            ),
            (
                "LOCK.MACQUIRE 1 {k} {t} 1000 BLOCK 1 NOTIFY 1 c",
                "ERR BLOCK and NOTIFY exclude each other",
            ),
            (
                "LOCK.MACQUIRE 1 {k} {t} 1000 KEEP 0",
                "ERR grace must be an integer from 1 to 3600000, in milliseconds",
            ),
            (
                "LOCK.MACQUIRE 1 {k} * 1000 KEEP 5",
                "ERR KEEP and NOTIFY need a token of the client's own, not *",
            ),
            (
                "LOCK.MACQUIRE 1 {k} {t} 1000 LIMIT 5",
                "ERR unknown option, expected MODES, BLOCK, NOTIFY, KEEP or LINGER",
            ),
        ] {
            fixture.refuses(
                &words(&line.replace("{k}", key).replace("{t}", token)),
                error,
            );
        }
        for wrong in [
            &["LOCK.RELEASE", key][..],
            &["LOCK.RENEW", key, token],
            &["LOCK.INFO"],
        ] {
            let wrong: Vec<&[u8]> = wrong.iter().map(|word| word.as_bytes()).collect();
            fixture.refuses_arity(&wrong);
        }
    }
    // An accepted value would have been visible.
    fixture.changed("LOCK.ACQUIRE free me 1000000");
    fixture.changed("LOCK.RENEW held me 1000000");
    fixture.changed("RWLOCK.RLOCK shared a 1000000");
    fixture.changed("LOCK.RELEASE capped me");
}

fn a_key_of_another_type_is_left_alone(kind: Kind) {
    let mut fixture = Fixture::set_up(kind);
    for key in ["string", "list", "hash", "stream", "set", "zset", "legacy"] {
        for command in [
            format!("LOCK.ACQUIRE {key} me 1000"),
            format!("RWLOCK.WLOCK {key} me 1000"),
            format!("RWLOCK.RLOCK {key} me 1000"),
            format!("LOCK.ACQUIRE {key} * 1000"),
            format!("LOCK.RELEASE {key} me"),
            format!("LOCK.CANCEL {key}"),
            format!("LOCK.RENEW {key} me 1000"),
            format!("LOCK.INFO {key}"),
        ] {
            fixture.refuses(&words(&command), WRONG_TYPE);
        }
    }
    fixture.changed("LOCK.ACQUIRE free me 1000000");
}

fn a_refused_command_changes_nothing_and_is_not_replicated(kind: Kind) {
    let mut fixture = Fixture::set_up(kind);
    for key in ["held", "capped", "persisted"] {
        for command in TAKES {
            for token in ["you", "*"] {
                let line = format!("{command} {key} {token} 1000");
                assert_eq!(fixture.unchanged(&line, |c| c.call(&line)), Reply::Nil);
            }
        }
    }
    for line in [
        "LOCK.ACQUIRE shared you 1000",
        "RWLOCK.WLOCK shared you 1000",
        "RWLOCK.WLOCK shared a 1000",
        "LOCK.INFO free",
    ] {
        let reply = fixture.unchanged(&line, |c| c.call(line));
        assert_eq!(reply, Reply::Nil, "{line}");
    }
    for key in ["free", "held", "shared", "capped", "persisted"] {
        for line in [
            format!("LOCK.RELEASE {key} you"),
            format!("LOCK.RENEW {key} you 1000"),
            format!("LOCK.CANCEL {key} TOKEN me"),
        ] {
            let reply = fixture.unchanged(&line, |c| c.call(&line));
            assert_eq!(reply, Reply::Int(0), "{line}");
        }
        for line in ["RELEASE {k} *", "RENEW {k} * 1000", "CANCEL {k} TOKEN *"] {
            fixture.refuses(
                &words(&format!("LOCK.{}", line.replace("{k}", key))),
                NO_OWNER,
            );
        }
    }
    for (key, holders) in [("held", 1), ("shared", 2), ("capped", 1), ("persisted", 1)] {
        let line = format!("LOCK.INFO {key}");
        let info = fixture.unchanged(&line, |c| c.call(&line));
        assert_eq!(info.field("holders").items().len(), holders, "{line}");
    }
    fixture.changed("RWLOCK.RLOCK shared you 1000000");
    assert_eq!(fixture.changed("LOCK.RENEW capped me 1000000"), 1);
    assert_eq!(fixture.changed("LOCK.RELEASE persisted me"), 1);
}

/// Records that would change the keys of a [`Fixture`], each with its key: those that a server
/// wrote to its own append-only file.
fn records(kind: Kind) -> Vec<(String, Vec<u8>)> {
    let options = "--appendonly yes --appendfsync always --aof-use-rdb-preamble no";
    let options: Vec<_> = options.split(' ').collect();
    let server = Server::start_with(kind, &options);
    let mut c = server.client();
    for command in [
        "LOCK.ACQUIRE free thief 1000000",
        "LOCK.ACQUIRE held me 1000000",
        "LOCK.RELEASE held me",
        "RWLOCK.RLOCK shared a 1000000",
        "PEXPIRE shared 900000",
        "RWLOCK.RLOCK shared thief 1000000",
    ] {
        assert!(c.int(command) > 0);
    }
    let mut records = applied_in(server.dir());
    aof::rewrite(&mut c);
    records.extend(applied_in(server.dir()));
    // Five effects, a cap, and the states of two keys.
    assert!(records.len() >= 8, "{records:?}");
    let largest_fence = ((1u64 << 53) - 1).to_le_bytes();
    records.push(("free".into(), [&[1, 5], &largest_fence[..]].concat()));
    records.push(("held".into(), b"rubbish".to_vec()));
    records
}

/// The keys and records of all effects in the append-only file of a directory.
fn applied_in(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let effect = |args: Vec<Vec<u8>>| {
        let record = record_of(&args)?;
        Some((String::from_utf8(args[1].clone()).unwrap(), record))
    };
    aof::read(dir).0.into_iter().filter_map(effect).collect()
}

fn no_client_can_apply_a_record(kind: Kind) {
    let mut fixture = Fixture::set_up(kind);
    let mut r = fixture.replica.client();
    let mut boss = fixture.server.user("boss", "~* &* +@all");
    let mut all: Vec<_> = records(kind)
        .iter()
        .map(|(key, record)| line(&[b"LOCK._APPLY", key.as_bytes(), record]))
        .collect();
    let hold = Hold {
        fence: Fence::new(Fence::MAX).unwrap(),
        deadline: Deadline::from_millis(Deadline::MAX_MS).unwrap(),
        since: Since::at(1),
    };
    let held = encode_held(1, Mode::Exclusive, &hold);
    let held = held.as_bytes();
    all.push(line(&[b"LOCK._APPLY", b"held", b"me", held]));
    all.push(line(&[b"LOCK._APPLY", b"held", b"you", held, b""]));
    all.push(words("LOCK._RELEASE held me"));
    for apply in all {
        let key = String::from_utf8(apply[1].clone()).unwrap();
        fixture.refuses(&apply, NOT_FOR_CLIENTS);
        let in_multi = fixture.unchanged(&"MULTI", |c| {
            c.pipeline(&[words("MULTI"), apply.clone(), words("EXEC")])
        });
        let refused = Reply::Error(NOT_FOR_CLIENTS.into());
        assert_eq!(in_multi[2], Reply::Array(vec![refused.clone()]));
        let script = b"return redis.call(unpack(ARGV))".to_vec();
        let head = [b"EVAL".to_vec(), script, b"1".to_vec(), apply[1].clone()];
        let eval = [&head[..], &apply].concat();
        let in_lua = fixture.unchanged(&"EVAL", |c| c.send(&eval));
        assert!(matches!(in_lua, Reply::Error(_)), "{in_lua:?}");
        let by_boss = fixture.unchanged(&"boss", |_| boss.send(&apply));
        assert_eq!(by_boss, refused);
        for readonly in ["yes", "no"] {
            r.call(&format!("CONFIG SET replica-read-only {readonly}"));
            let dump = format!("DUMP {key}");
            let before = r.call(&dump);
            let on_replica = fixture.unchanged(&"replica", |_| r.send(&apply));
            match readonly {
                "no" => assert_eq!(on_replica, refused),
                _ => assert!(matches!(on_replica, Reply::Error(e) if e.starts_with("READONLY"))),
            }
            assert_eq!(r.call(&dump), before);
        }
    }
    // The fence in them was not noted either.
    assert!(fixture.changed("LOCK.ACQUIRE free me 1000000") < 1 << 52);
}
