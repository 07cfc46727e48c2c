//! The ACL category of the module, on servers that let a module have one.

use std::collections::HashSet;

use super::users::{assert_may, assert_may_not};
use super::words;
use crate::harness::commands::{commands, dangerous, of_one_key, shortest, text, writes};
use crate::harness::{built_module, module, Client, Kind, Server};

on_servers![[redis_7_0 Redis7_0] there_is_no_category_lock_before_7_4];
on_servers![
    [redis_8_2 Redis8_2, redis_8_6 Redis8_6, valkey_8_0 Valkey8_0, valkey_9 Valkey9]
    the_category_lock_has_all_commands_and_no_other,
    a_user_of_the_category_may_lock_and_no_more,
    the_module_joins_a_category_of_its_name,
    the_module_loads_where_no_category_is_left,
];

/// The commands that the server lists in `@lock`.
///
/// Valkey 8.0 knows the categories of a module's command and lists the command in none of them.
fn assert_all_are_in_the_category(c: &mut Client, kind: Kind) {
    let all: HashSet<String> = commands().map(|spec| text(spec.name).into()).collect();
    if kind != Kind::Valkey8_0 {
        assert_eq!(words(&c.call("ACL CAT lock")), all);
    }
}

fn there_is_no_category_lock_before_7_4(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    assert!(!words(&c.call("ACL CAT")).contains("lock"));
    c.refused_saying("ACL SETUSER nobody +@lock", "Unknown command or category");
}

fn the_category_lock_has_all_commands_and_no_other(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    assert!(words(&c.call("ACL CAT")).contains("lock"));
    assert_all_are_in_the_category(&mut c, kind);
}

fn a_user_of_the_category_may_lock_and_no_more(kind: Kind) {
    let server = Server::start(kind);
    let mut worker = server.user("worker", "~jobs:* -@all +@lock -@dangerous");
    for line in of_one_key().map(shortest) {
        assert_may(&mut worker, &line.replace("{}", "jobs:1"));
        assert_may_not(&mut worker, &line.replace("{}", "other"));
    }
    assert_may(&mut worker, "LOCK.MACQUIRE 2 jobs:1 jobs:2 me 1000000");
    let others = ["DEL jobs:1", "PING", "ACL CAT"].map(String::from);
    for line in dangerous().chain(others) {
        assert_may_not(&mut worker, &line.replace("{}", "jobs:1"));
    }
    // The command inside needs its own right.
    assert_may_not(&mut worker, "LOCK.EXEC jobs:1 me GET jobs:1");
    let mut all_but_locks = server.user("other", "~* +@all -@lock");
    assert_may(&mut all_but_locks, "PING");
    for line in writes().chain(dangerous()) {
        assert_may_not(&mut all_but_locks, &line.replace("{}", "jobs:1"));
    }
}

/// A server with a module that takes these categories, and then ours.
fn start_behind_a_taker(kind: Kind, name: &str, takes: &str) -> Server {
    let library = built_module("tests/integration/metadata/taker.c", kind, name);
    let [first, second] = [&library, &module()].map(|path| path.to_str().unwrap().to_string());
    let options = ["--loadmodule", &first, takes, "--loadmodule", &second];
    let server = Server::start_without_module(kind, &options);
    std::fs::remove_file(&library).unwrap();
    server
}

fn the_module_joins_a_category_of_its_name(kind: Kind) {
    let server = start_behind_a_taker(kind, "joins", "lock");
    assert_all_are_in_the_category(&mut server.client(), kind);
}

fn the_module_loads_where_no_category_is_left(kind: Kind) {
    let server = start_behind_a_taker(kind, "full", "all");
    let mut c = server.client();
    let categories = words(&c.call("ACL CAT"));
    assert!(categories.contains("taken-0"), "{categories:?}");
    assert!(!categories.contains("lock"), "{categories:?}");
    assert!(c.int("LOCK.ACQUIRE k me 1000000") > 0);
    let info = c.call("COMMAND INFO lock.acquire");
    let categories = words(&info.items()[0].items()[6]);
    assert!(categories.contains("@write"), "{categories:?}");
}
