//! LOCK.MACQUIRE: several locks in one step, or none.

use crate::harness::{Client, Kind, Reply, Server};

mod asked;
mod copies;
mod cut;

on_every_server![
    it_takes_128_keys_and_names_of_any_bytes,
    the_keys_are_seen_by_the_server_and_by_users,
    events_tell_of_it,
];

#[track_caller]
pub fn assert_held(c: &mut Client, keys: &[&str], token: &str, fence: i64) {
    for key in keys {
        let all = c.holds(key);
        let own = all.iter().find(|(owner, ..)| owner == token);
        let own = own.unwrap_or_else(|| panic!("{key}: {all:?}"));
        assert_eq!(own.1, fence, "{key}");
    }
}

fn it_takes_128_keys_and_names_of_any_bytes(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let keys: Vec<String> = (0..128).map(|n| format!("k{n}")).collect();
    let most = format!("LOCK.MACQUIRE 128 {} me 60000", keys.join(" "));
    let fence = c.int(&most);
    assert_held(&mut c, &["k0", "k63", "k127"], "me", fence);
    c.call("FLUSHALL");
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

fn the_keys_are_seen_by_the_server_and_by_users(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut keys = |line: &str| -> Vec<String> {
        c.call(&format!("COMMAND GETKEYS LOCK.MACQUIRE {line}"))
            .words()
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

fn events_tell_of_it(kind: Kind) {
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
    // Both keys of each, in their order: acquired, acquired again, released and handed over.
    let all = sub.so_far();
    assert_eq!(all, ["a", "b", "a", "b", "b", "b", "d"]);
}
