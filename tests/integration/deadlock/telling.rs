//! What the refused client is told of a cycle.

use super::*;

on_every_server![
    keys_and_tokens_may_have_any_bytes,
    the_second_key_is_named_only_to_those_who_may_read_it,
];
on_servers![[valkey_9 Valkey9] a_key_of_a_database_without_rights_is_not_named];

fn keys_and_tokens_may_have_any_bytes(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let hostile: [(&[u8], &[u8]); 5] = [
        (b"a\r\n+OK\r\n", b"%s%n%s%n"),
        (b"\0", b"\\x00"),
        (b"\xff\xfe %d", b""),
        (b" ", b"\x1b[2J\x07"),
        (b"k", b"\r\n\r\n"),
    ];
    let tokens: [&[u8]; 2] = [b"t\r\n%n%s\0", b"\xff \\"];
    let escape = |bytes: &[u8]| -> String {
        let byte = |byte: &u8| match byte {
            b'\\' => "\\x5c".into(),
            b'!'..=b'~' => char::from(*byte).to_string(),
            _ => format!("\\x{byte:02x}"),
        };
        bytes.iter().map(byte).collect()
    };
    for (one, other) in hostile {
        for (key, token) in [(one, tokens[0]), (other, tokens[1])] {
            c.send(&[b"LOCK.ACQUIRE".as_slice(), key, token, b"600000"])
                .as_int();
        }
        let wait = |key, token| {
            [
                &b"LOCK.ACQUIRE"[..],
                key,
                token,
                b"600000",
                b"KEEP",
                b"60000",
            ]
        };
        assert_eq!(c.send(&wait(other, tokens[0])), Reply::Nil);
        let refused = cycle_of(2, &escape(one), &escape(other));
        assert_eq!(c.send(&wait(one, tokens[1])), Reply::Error(refused));
        c.call("FLUSHALL");
        for (key, token) in [(one, tokens[1]), (other, tokens[0])] {
            c.send(&[b"LOCK.RELEASE".as_slice(), key, token]);
        }
    }
    // A long name is cut.
    let long = vec![b'\n'; 100_000];
    for (key, token) in [(&long[..], b"a"), (b"k", b"b")] {
        c.send(&[b"LOCK.ACQUIRE".as_slice(), key, token, b"600000"])
            .as_int();
    }
    assert_eq!(c.call("LOCK.ACQUIRE k a 600000 KEEP 60000"), Reply::Nil);
    match c.send(&[
        b"LOCK.ACQUIRE".as_slice(),
        &long[..],
        b"b",
        b"600000",
        b"KEEP",
        b"60000",
    ]) {
        Reply::Error(error) => assert!((400..700).contains(&error.len()), "{error}"),
        other => panic!("{other:?}"),
    }
    let log = server.log();
    let ours: Vec<_> = log
        .lines()
        .filter(|line| line.contains("deadlock refused"))
        .collect();
    assert!(!ours.is_empty());
    let is_plain = |line: &&str| line.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    assert!(ours.iter().all(is_plain), "{ours:?}");
}

/// Valkey 9.1 has rights to databases.
fn a_key_of_a_database_without_rights_is_not_named(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    hold(&mut c, "mine", "a");
    c.ok("SELECT 1");
    hold(&mut c, "yours", "b");
    let wait = "LOCK.ACQUIRE yours a 600000 KEEP 600000";
    assert_eq!(c.call(wait), Reply::Nil);
    let hidden = "DEADLOCK a cycle of 2 waits: mine waits for a token that waits for another key";
    for (rules, expected) in [
        ("~*", cycle_of(2, "mine", "yours")),
        ("~* db=0", hidden.into()),
        (
            "~mine db=0 (+@all ~yours db=1)",
            cycle_of(2, "mine", "yours"),
        ),
    ] {
        let mut tenant = server.user("tenant", &format!("+@all {rules}"));
        let ask = "LOCK.ACQUIRE mine b 600000 KEEP 60000";
        assert_eq!(tenant.error(ask), expected, "{rules}");
    }
}

fn the_second_key_is_named_only_to_those_who_may_read_it(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    // Two tenants use one token. `a` waits for a key of the other one.
    hold(&mut c, "mine:k", "a");
    hold(&mut c, "yours:k", "b");
    let wait = "LOCK.ACQUIRE yours:k a 600000 KEEP 600000";
    assert_eq!(c.call(wait), Reply::Nil);
    let named = cycle_of(2, "mine:k", "yours:k");
    let hidden = "DEADLOCK a cycle of 2 waits: mine:k waits for a token that waits for another key";
    let asks = [
        "LOCK.ACQUIRE mine:k b 600000 KEEP 60000",
        "RWLOCK.RLOCK mine:k b 600000 BLOCK 0",
        "LOCK.MACQUIRE 2 mine:free mine:k b 600000 NOTIFY 0 c",
    ];
    let rights = [
        ("~mine:*", false),
        ("~mine:* %W~yours:*", false),
        ("~mine:* %R~yours:*", true),
        ("%W~mine:* (+@all %R~yours:*)", true),
        ("~*", true),
    ]
    .as_slice();
    for (keys, is_named) in rights {
        let mut tenant = server.user("tenant", &format!("+@all allchannels {keys}"));
        for ask in asks {
            let expected = if *is_named { &named } else { hidden };
            assert_eq!(tenant.error(ask), expected, "{keys}: {ask}");
        }
    }
    // In a script nobody is asked. The error of a call is the script's.
    let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'b', '600000', 'KEEP', '60000')";
    let reply = c.send(&["EVAL", script, "1", "mine:k"]);
    assert!(
        reply.as_error().contains("waits for another key"),
        "{reply:?}"
    );
}
