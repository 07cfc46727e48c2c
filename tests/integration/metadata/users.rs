//! ACL rules: what they allow and refuse.

use super::{words, COMMANDS};
use crate::harness::{Client, Kind, Reply, Server};

on_every_server![
    key_permissions_separate_read_from_write,
    a_user_limited_to_some_keys_cannot_use_others,
    categories_contain_the_commands,
];

/// The commands that a user may call.
pub(super) const WRITES: [&str; 5] = [
    "LOCK.ACQUIRE {} me 1000000",
    "RWLOCK.RLOCK {} me 1000000",
    "RWLOCK.WLOCK {} me 1000000",
    "LOCK.RENEW {} me 1000000",
    "LOCK.RELEASE {} me",
];

/// A connection of a new user without a password.
pub(super) fn user(server: &Server, name: &str, rules: &str) -> Client {
    let mut admin = server.client();
    let reply = admin.call(&format!("ACL SETUSER {name} on nopass {rules}"));
    assert_eq!(reply, Reply::Simple("OK".into()), "{rules}");
    let mut c = server.client();
    c.call(&format!("AUTH {name} any"));
    c
}

#[track_caller]
pub(super) fn assert_may(c: &mut Client, line: &str) {
    let reply = c.call(line);
    assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
}

#[track_caller]
pub(super) fn assert_may_not(c: &mut Client, line: &str) {
    let error = c.error(line);
    assert!(error.starts_with("NOPERM "), "{line}: {error}");
}

fn key_permissions_separate_read_from_write(kind: Kind) {
    if !kind.is_7_0_or_later() {
        return;
    }
    let server = Server::start(kind);
    let mut reader = user(&server, "reader", "%R~app:* +@all");
    let mut writer = user(&server, "writer", "%W~app:* +@all");
    for line in WRITES {
        let line = line.replace("{}", "app:k");
        assert_may_not(&mut reader, &line);
        assert_may(&mut writer, &line);
    }
    assert_may(&mut reader, "LOCK.INFO app:k");
    assert_may_not(&mut writer, "LOCK.INFO app:k");
    for line in WRITES {
        assert_may_not(&mut writer, &line.replace("{}", "other:k"));
    }
    assert_may_not(&mut reader, "LOCK.INFO other:k");
}

fn a_user_limited_to_some_keys_cannot_use_others(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut some = user(&server, "some", "~app:* +@all");
    let others = ["other:k", "app", "app;k", "APP:k"];
    for key in others {
        c.int(&format!("LOCK.ACQUIRE {key} me 1000000"));
    }
    let lines = || {
        WRITES
            .into_iter()
            .chain(["LOCK.INFO {}", "LOCK.CHECK {} me"])
    };
    for line in lines().chain(["LOCK._APPLY {} x", "LOCK._RELEASE {} me"]) {
        for key in others {
            assert_may_not(&mut some, &line.replace("{}", key));
        }
    }
    for line in lines() {
        assert_may(&mut some, &line.replace("{}", "app:k"));
    }
    for key in others {
        assert_eq!(c.int(&format!("LOCK.RELEASE {key} me")), 1);
    }
}

fn categories_contain_the_commands(kind: Kind) {
    let server = Server::start(kind);
    if !kind.is_7_2_or_later() {
        // The commands are in no category but @all, and can be named.
        let mut named = user(&server, "named", "~* -@all +lock.acquire +lock.release");
        assert_may(&mut named, "LOCK.ACQUIRE k me 1000000");
        assert_may_not(&mut named, "LOCK.RENEW k me 1000000");
        return;
    }
    let mut c = server.client();
    for command in &COMMANDS {
        let name = command.name;
        let info = c.call(&format!("COMMAND INFO {name}"));
        let categories = words(&info.items()[0].items()[6]);
        let writes = !["lock.info", "lock.check"].contains(&name);
        assert_eq!(categories.contains("@write"), writes, "{name}");
        assert_eq!(categories.contains("@read"), !writes, "{name}");
        // Valkey 8.0 knows the category and does not list the command in it.
        if kind.is_redis_8() {
            let category = if writes { "write" } else { "read" };
            let listed = words(&c.call(&format!("ACL CAT {category}")));
            assert!(listed.contains(name), "{name}");
        }
    }
    let mut writer = user(&server, "writer", "~* -@all +@write");
    let mut reader = user(&server, "reader", "~* -@all +@read");
    let mut no_writer = user(&server, "no-writer", "~* +@all -@write");
    for line in WRITES {
        let line = line.replace("{}", "k");
        assert_may(&mut writer, &line);
        assert_may_not(&mut reader, &line);
        assert_may_not(&mut no_writer, &line);
    }
    assert_may_not(&mut writer, "LOCK.INFO k");
    assert_may(&mut reader, "LOCK.INFO k");
    assert_may(&mut no_writer, "LOCK.INFO k");
    let mut fast = user(&server, "fast", "~* -@all +@fast");
    let mut no_wait = user(&server, "no-wait", "~* +@all -@blocking");
    for line in WRITES {
        let line = line.replace("{}", "k");
        assert_may(&mut fast, &line);
        match line.contains("LOCK.RE") {
            true => assert_may(&mut no_wait, &line),
            false => assert_may_not(&mut no_wait, &line),
        }
    }
    assert_may_not(&mut fast, "LOCK.INFO k");
    assert_may(&mut no_wait, "LOCK.INFO k");
    for category in ["admin", "dangerous"] {
        let mut plain = user(&server, "plain", &format!("~* +@all -@{category}"));
        assert_may_not(&mut plain, "LOCK._APPLY k x");
        assert_may_not(&mut plain, "LOCK._RELEASE k me");
        assert_may(&mut plain, "LOCK.ACQUIRE k me 1000000");
    }
}
