//! Errors that commands return. After an error nothing has changed: no value, no ttl, no key, no
//! byte sent to a replica.

mod fixture;

use crate::harness::{Kind, Reply, Server};
use fixture::{words, Fixture};

on_every_server![
    a_malformed_command_changes_nothing,
    a_key_of_another_type_is_left_alone,
    a_refused_command_changes_nothing_and_is_not_replicated,
    an_error_says_what_is_expected,
];

const TAKES: [&str; 3] = ["LOCK.ACQUIRE", "RWLOCK.WLOCK", "RWLOCK.RLOCK"];

const TTL: &str = "ERR ttl must be an integer from 1 to 281474976710656, in milliseconds";
const TWICE: &str = "ERR an option was given twice";
const NO_OWNER: &str = "ERR * is no token here, name the one that the acquire has returned";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// An error of each kind, for each key and its token. The parsers' own tests have every way to be
/// wrong. The third would be 100 if it were truncated to 64 bits.
const MALFORMED: [(&str, &str); 24] = [
    ("LOCK.ACQUIRE {k} {t} 0", TTL),
    ("RWLOCK.WLOCK {k} {t} 281474976710657", TTL),
    ("LOCK.RENEW {k} {t} 18446744073709551716", TTL),
    ("LOCK.ACQUIRE {k}  1000", "ERR the token is empty"),
    (
        "LOCK.RELEASE {k} {long}",
        "ERR the token is longer than 512 bytes",
    ),
    (
        "LOCK.ACQUIRE {k} {t} 1000 NX",
        "ERR unknown option, expected LIMIT, BLOCK, NOTIFY, KEEP or LINGER",
    ),
    (
        "RWLOCK.RLOCK {k} {t} 1000 LIMIT 5",
        "ERR unknown option, expected BLOCK, NOTIFY, KEEP or LINGER",
    ),
    (
        "LOCK.ACQUIRE {k} {t} 1000 LIMIT 4294967297",
        "ERR LIMIT needs an integer from 1 to 2147483647",
    ),
    (
        "RWLOCK.WLOCK {k} {t} 1000 BLOCK BLOCK 5",
        "ERR timeout must be an integer from 0 to 281474976710656, in milliseconds",
    ),
    (
        "LOCK.ACQUIRE {k} {t} 1000 block",
        "ERR a value is missing: LIMIT n, BLOCK timeout, NOTIFY timeout channel, KEEP grace, LINGER milliseconds",
    ),
    ("RWLOCK.RLOCK {k} {t} 1000 BLOCK 5 block 5", TWICE),
    (
        "LOCK.RELEASE {k} {t} NOW",
        "ERR unknown option, expected ATLEAST",
    ),
    (
        "LOCK.RELEASE {k} {t} ATLEAST -1",
        "ERR ATLEAST needs an integer from 0 to 281474976710656, in milliseconds",
    ),
    (
        "LOCK.INFO {k} {t}",
        "ERR unknown option, expected HOLDERS or WAITERS",
    ),
    ("LOCK.CANCEL {k} {t}", "ERR unknown option, expected TOKEN"),
    (
        "LOCK.MACQUIRE 129 {k} {t} 1000",
        "ERR numkeys must be an integer from 1 to 128",
    ),
    (
        "LOCK.MACQUIRE 2 {k} {k} {t} 1000",
        "ERR a key was named twice",
    ),
    ("LOCK.MACQUIRE 1 {k} {t} 1000 MODES SHARED MODES SHARED", TWICE),
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
        "LOCK.MACQUIRE 1 {k} {t} 1000 LINGER -1",
        "ERR LINGER needs an integer from 0 to 281474976710656, in milliseconds",
    ),
    (
        "LOCK.MACQUIRE 1 {k} * 1000 KEEP 5",
        "ERR KEEP and NOTIFY need a token of the client's own, not *",
    ),
    (
        "LOCK.MACQUIRE 1 {k} {t} 1000 LIMIT 5",
        "ERR unknown option, expected MODES, BLOCK, NOTIFY, KEEP or LINGER",
    ),
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
    assert_eq!(c.error("LOCK.EXEC k * PING"), NO_OWNER);
    let late = "NOTHELD the token does not hold the lock, stop the work under it";
    assert_eq!(c.error("LOCK.EXEC k you PING"), late);
    assert_eq!(c.int("LOCK.RELEASE k me"), 1);
}

fn a_malformed_command_changes_nothing(kind: Kind) {
    let mut fixture = Fixture::set_up(kind);
    let long = "x".repeat(513);
    for key in ["free", "held"] {
        // The token is the holder's own, so an accepted command would change the lock.
        let fill = |line: &str| line.replace("{k}", key).replace("{t}", "me");
        for (line, error) in MALFORMED {
            fixture.refuses(&words(&fill(line).replace("{long}", &long)), error);
        }
        for line in [
            "LOCK.ACQUIRE",
            "RWLOCK.WLOCK {k}",
            "RWLOCK.RLOCK {k} {t}",
            "LOCK.RELEASE {k}",
            "LOCK.RENEW {k} {t}",
            "LOCK.INFO",
        ] {
            fixture.refuses_arity(&fill(line));
        }
    }
    // An accepted value would have been visible.
    fixture.changed("LOCK.ACQUIRE free me 1000000");
    fixture.changed("LOCK.RENEW held me 1000000");
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
