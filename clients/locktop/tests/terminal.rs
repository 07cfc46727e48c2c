//! locktop in a real terminal, against real servers.

// Its style is that of its own crate.
#[rustfmt::skip]
#[path = "../../rust/tests/common/mod.rs"]
mod common;
mod program;

use common::{eventually, Cluster, Server};
use program::{address, name_of_a_user, without_top, Terminal};

/// What the README says that an operator needs for everything.
const ALL_RIGHTS: [&str; 11] = [
    "+info",
    "+lock.top",
    "+lock.info",
    "+pttl",
    "+time",
    "+select",
    "+cluster|slots",
    "+lock.check",
    "+lock.exec",
    "+del",
    "+scan",
];

fn hold(server: &Server, key: &str, tokens: &[&str]) {
    let mut admin = server.admin();
    for token in tokens {
        admin.run(&["LOCK.ACQUIRE", key, token, "600000", "KEEP", "600000"]);
    }
}

/// On 6.2 the rights have no subcommands by `|` that are commands of their own, and no LOCK.EXEC.
fn rights(server: &Server) -> Vec<&'static str> {
    let has_exec = server.admin().has_exec();
    let is_known = |right: &&str| has_exec || !right.contains("exec");
    ALL_RIGHTS.into_iter().filter(is_known).collect()
}

fn holder(server: &Server, key: &str) -> String {
    let info = server.admin().info(key);
    ["owner", "next", "last"]
        .into_iter()
        .find(|token| info.split("waiters").next().unwrap().contains(token))
        .unwrap_or("nobody")
        .to_owned()
}

#[test]
fn locks_move_over_the_screen_and_keys_change_it() {
    let server = Server::start();
    hold(&server, "jobs:1", &["owner", "next"]);
    let terminal = Terminal::start(&[&address(&server), "--interval", "100"]);
    terminal.shows_text("jobs:1");
    // It has waited for less time, and more wait for it.
    hold(&server, "mail:\x1b[2J", &["owner", "next", "last"]);
    let first = |key: &'static str| {
        move |screen: &str| {
            let at = |key: &str| screen.find(key);
            let other = if key == "jobs:1" { "mail:" } else { "jobs:1" };
            at(key).is_some() && at(other).is_some() && at(key) < at(other)
        }
    };
    let screen = terminal.shows("jobs:1 before mail:", first("jobs:1"));
    assert!(screen.contains("mail:\\x1b[2J"), "{screen}");
    terminal.press(&["s"]);
    terminal.shows("mail: before jobs:1", first("mail:"));
    terminal.press(&["r"]);
    terminal.shows("jobs:1 before mail:", first("jobs:1"));
    terminal.press(&["/", "a", "i"]);
    terminal.lacks_text("jobs:1");
    terminal.press(&["Escape"]);
    terminal.shows_text("jobs:1");
    terminal.press(&["?"]);
    terminal.shows_text("release the lock by force, after a question");
    terminal.press(&["q"]);
    terminal.lacks_text("release the lock by force, after a question");
    // The rates come by themselves.
    server.admin().run(&["LOCK.RELEASE", "jobs:1", "owner"]);
    terminal.press(&["i", "PageDown"]);
    terminal.shows("a release in the numbers", |screen| {
        let line = screen.lines().find(|line| line.contains("lock_released "));
        line.is_some_and(|line| line.split_whitespace().any(|word| word == "1"))
    });
    terminal.press(&["q", "q"]);
    assert_eq!(terminal.status(), "0");
}

#[test]
fn one_lock_with_its_queue() {
    let server = Server::start();
    hold(&server, "jobs:1", &["owner", "next", "last"]);
    let terminal = Terminal::start(&[&address(&server), "--interval", "100"]);
    terminal.shows_text("jobs:1");
    terminal.press(&["Enter"]);
    let screen = terminal.shows_text("2 waiters, the next one first");
    assert!(screen.find("1 next") < screen.find("2 last"), "{screen}");
    assert!(screen.contains("nobody listens"), "{screen}");
    server.admin().run(&["LOCK.RELEASE", "jobs:1", "owner"]);
    server
        .admin()
        .run(&["LOCK.ACQUIRE", "jobs:1", "next", "600000"]);
    terminal.shows_text("1 waiter, the next one first");
    terminal.press(&["Escape"]);
    terminal.shows_text("Enter one lock");
}

#[test]
fn a_release_by_force_asks_first() {
    let server = Server::start();
    hold(&server, "jobs:1", &["owner", "next", "last"]);
    let user = name_of_a_user(&server, "operator", &rights(&server));
    let terminal = Terminal::start(&[&user, "--interval", "100"]);
    terminal.shows_text("jobs:1");
    terminal.press(&["x"]);
    let screen = terminal.shows_text("y releases the lock");
    let fence = server.admin().int(&["LOCK.CHECK", "jobs:1", "owner"]);
    for part in [
        "lock     jobs:1",
        "holder   owner",
        "at once: next",
        "still believes",
    ] {
        assert!(screen.contains(part), "{part}\n{screen}");
    }
    assert!(
        screen.contains(&format!("server   {}, database 0", address(&server))),
        "{screen}"
    );
    assert!(screen.contains(&format!("fence    {fence}")), "{screen}");
    terminal.press(&["n"]);
    terminal.shows_text("nothing was released");
    assert_eq!(holder(&server, "jobs:1"), "owner");
    terminal.press(&["x"]);
    terminal.shows_text("y releases the lock");
    terminal.press(&["y"]);
    terminal.shows_text("jobs:1 was released by force");
    assert_eq!(
        server.admin().run(&["LOCK.CHECK", "jobs:1", "owner"]),
        redis::Value::Nil
    );
    if server.admin().has_exec() {
        let info = format!("{:?}", server.admin().run(&["INFO", "lock"]));
        assert!(info.contains("lock_executed:1"), "{info}");
    }
    let next = server
        .admin()
        .int(&["LOCK.ACQUIRE", "jobs:1", "next", "600000"]);
    assert!(next > fence, "{next} is not after {fence}");
}

#[test]
fn a_release_of_a_holder_who_has_gone_hits_nobody() {
    let server = Server::start();
    hold(&server, "jobs:1", &["owner", "next", "last"]);
    let terminal = Terminal::start(&[&address(&server), "--interval", "100"]);
    terminal.shows_text("jobs:1");
    terminal.press(&["x"]);
    terminal.shows_text("holder   owner");
    server.admin().run(&["LOCK.RELEASE", "jobs:1", "owner"]);
    hold(&server, "jobs:1", &["next"]);
    terminal.press(&["y"]);
    terminal.shows_text("jobs:1 was not released: owner with fence");
    assert_eq!(holder(&server, "jobs:1"), "next");
}

#[test]
fn a_release_of_a_token_that_holds_the_lock_anew_hits_nobody() {
    let server = Server::start();
    hold(&server, "jobs:1", &["owner", "next"]);
    let terminal = Terminal::start(&[&address(&server), "--interval", "100"]);
    terminal.shows_text("jobs:1");
    terminal.press(&["x"]);
    terminal.shows_text("holder   owner");
    server.admin().run(&["LOCK.RELEASE", "jobs:1", "owner"]);
    hold(&server, "jobs:1", &["next"]);
    server.admin().run(&["LOCK.RELEASE", "jobs:1", "next"]);
    hold(&server, "jobs:1", &["owner"]);
    terminal.press(&["y"]);
    terminal.shows_text("jobs:1 was not released: owner with fence");
    assert_eq!(holder(&server, "jobs:1"), "owner");
}

/// A module of 0.1 does not say who listens.
#[test]
fn a_module_without_top_shows_a_queue_without_listeners() {
    let server = Server::start();
    hold(&server, "jobs:1", &["owner", "next"]);
    let old = format!("127.0.0.1:{}", without_top(server.port));
    let terminal = Terminal::start(&[&old, "--interval", "100"]);
    terminal.shows_text("jobs:1");
    terminal.press(&["Enter"]);
    let screen = terminal.shows_text("1 waiter, the next one first");
    assert!(!screen.contains("nobody listens"), "{screen}");
}

#[test]
fn a_read_only_view_releases_nothing() {
    let server = Server::start();
    hold(&server, "jobs:1", &["owner", "next"]);
    let terminal = Terminal::start(&[&address(&server), "--interval", "100", "--read-only"]);
    terminal.shows_text("jobs:1");
    terminal.press(&["x"]);
    terminal.shows_text("runs with --read-only, so nothing is released");
    terminal.press(&["y"]);
    terminal.lacks_text("runs with --read-only, so nothing is released");
    assert_eq!(holder(&server, "jobs:1"), "owner");
}

#[test]
fn a_server_that_hangs_freezes_no_key_and_comes_back() {
    let (server, other) = (Server::start(), Server::start());
    hold(&server, "jobs:1", &["owner", "next"]);
    hold(&other, "mail:1", &["owner", "next"]);
    let terminal = Terminal::start(&[&address(&server), &address(&other), "--interval", "100"]);
    terminal.shows("both", |screen| {
        screen.contains("jobs:1") && screen.contains("mail:1")
    });
    server.freeze();
    terminal.shows_text("is down: no answer within 2 s");
    terminal.press(&["?"]);
    terminal.shows_text("choose the database");
    terminal.press(&["q"]);
    let screen = terminal.lacks_text("choose the database");
    assert!(
        screen.contains("mail:1") && !screen.contains("jobs:1"),
        "{screen}"
    );
    server.thaw();
    terminal.shows_text("jobs:1");
}

#[test]
fn a_database_is_chosen_by_key() {
    let server = Server::start();
    let mut admin = server.admin();
    admin.run(&["SELECT", "3"]);
    for token in ["owner", "next"] {
        admin.run(&["LOCK.ACQUIRE", "in-3", token, "600000", "KEEP", "600000"]);
    }
    let terminal = Terminal::start(&[&address(&server), "--interval", "100"]);
    terminal.shows_text("Nobody waits for a lock.");
    terminal.press(&["d"]);
    terminal.shows_text("> 0");
    terminal.press(&["Down"]);
    terminal.shows_text("> 3");
    terminal.press(&["Enter"]);
    terminal.shows("the lock", |screen| {
        screen.contains("in-3") && screen.contains("database 3")
    });
}

#[test]
fn a_failover_of_the_cluster_is_followed() {
    let cluster = Cluster::start();
    let seed = address(&cluster.nodes[1]);
    let replica = address(&cluster.nodes[3]);
    let terminal = Terminal::start(&["--cluster", &seed, "--interval", "100"]);
    terminal.shows("three primaries", |screen| {
        cluster.nodes[..3]
            .iter()
            .all(|node| screen.contains(&address(node)))
            && !screen.contains(&replica)
    });
    let mut admin = cluster.nodes[3].admin();
    eventually("the replica takes over", || {
        admin.ask(&["CLUSTER", "FAILOVER", "TAKEOVER"]).is_ok()
    });
    let old = address(&cluster.nodes[0]);
    terminal.shows("the new primary", |screen| {
        screen.contains(&replica) && !screen.contains(&old)
    });
}
