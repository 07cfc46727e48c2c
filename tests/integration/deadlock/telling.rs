//! What the refused client is told of a cycle.

use super::*;

on_every_server![the_second_key_is_named_only_to_those_who_may_read_it];
on_servers![[valkey_9 Valkey9] a_key_of_a_database_without_rights_is_not_named];

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
