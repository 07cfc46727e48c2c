//! ACL rules of categories: what they allow and refuse. Those of keys are in security/keys.rs.

use redis_lock::command::spec::Flag;

use super::words;
use crate::harness::commands::{commands, of_one_key, shortest, text};
use crate::harness::{Client, Kind, Reply, Server};

on_servers![[redis_7_0 Redis7_0] commands_are_in_no_category_before_7_2];
on_servers![[redis_8_2 Redis8_2, redis_8_6 Redis8_6, valkey_8_0 Valkey8_0, valkey_9 Valkey9] categories_contain_the_commands];

#[track_caller]
pub(super) fn assert_may(c: &mut Client, line: &str) {
    let reply = c.call(line);
    assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
}

#[track_caller]
pub(super) fn assert_may_not(c: &mut Client, line: &str) {
    c.refused(line, "NOPERM ");
}

/// They can be named.
fn commands_are_in_no_category_before_7_2(kind: Kind) {
    let server = Server::start(kind);
    let mut named = server.user("named", "~* -@all +lock.acquire +lock.release");
    assert_may(&mut named, "LOCK.ACQUIRE k me 1000000");
    assert_may_not(&mut named, "LOCK.RENEW k me 1000000");
}

fn categories_contain_the_commands(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    // Valkey 8.0 knows the category and does not list the command in it.
    for spec in commands().filter(|_| kind.is_redis_8()) {
        for category in spec.categories().split(' ') {
            let listed = words(&c.call(&format!("ACL CAT {category}")));
            assert!(listed.contains(text(spec.name)), "{category}");
        }
    }
    for (n, (rules, flag, is_flag_s)) in [
        ("-@all +@write", Flag::Write, true),
        ("-@all +@read", Flag::ReadOnly, true),
        ("+@all -@write", Flag::Write, false),
        ("-@all +@fast", Flag::Fast, true),
        ("+@all -@blocking", Flag::Blocking, false),
    ]
    .into_iter()
    .enumerate()
    {
        let mut limited = server.user(&format!("limited-{n}"), &format!("~* {rules}"));
        for spec in of_one_key() {
            let line = shortest(spec).replace("{}", "k");
            match spec.flags.contains(&flag) == is_flag_s {
                true => assert_may(&mut limited, &line),
                false => assert_may_not(&mut limited, &line),
            }
        }
    }
    for category in ["admin", "dangerous"] {
        let mut plain = server.user("plain", &format!("~* +@all -@{category}"));
        assert_may_not(&mut plain, "LOCK._APPLY k x");
        assert_may_not(&mut plain, "LOCK._RELEASE k me");
        assert_may(&mut plain, "LOCK.ACQUIRE k me 1000000");
    }
}
