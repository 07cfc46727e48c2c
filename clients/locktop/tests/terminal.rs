//! locktop in a real terminal, against real servers.

// Its style is that of its own crate.
#[rustfmt::skip]
#[path = "../../rust/tests/common/mod.rs"]
mod common;
mod program;

use std::process::Command;

use common::{eventually, Cluster, Server};
use program::{address, name_of_a_user, server_that_tells_clients, without_top, Terminal};

/// What the README says that an operator needs for everything.
const ALL_RIGHTS: [&str; 13] = [
    "+info",
    "+lock.top",
    "+lock.log",
    "+lock.info",
    "+pttl",
    "+time",
    "+select",
    "+cluster|slots",
    "+lock.check",
    "+lock.exec",
    "+lock.cancel",
    "+del",
    "+scan",
];

fn hold(server: &Server, key: &str, tokens: &[&str]) {
    let mut admin = server.admin();
    for token in tokens {
        admin.run(&["LOCK.ACQUIRE", key, token, "600000", "KEEP", "600000"]);
    }
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

/// How often the server was asked for this.
fn calls(server: &Server, command: &str) -> u64 {
    let stats = format!("{:?}", server.admin().run(&["INFO", "commandstats"]));
    let mark = format!("cmdstat_{command}:calls=");
    let rest = stats.split(&mark).nth(1).unwrap_or("0");
    let digits = rest.split(|char: char| !char.is_ascii_digit()).next();
    digits.unwrap().parse().unwrap()
}

/// Nobody is on the log's screen, so nobody asks.
fn asks_no_log(server: &Server) {
    let (tops, logs) = (calls(server, "lock.top"), calls(server, "lock.log"));
    eventually("locktop goes on to look", || {
        calls(server, "lock.top") > tops + 3
    });
    assert_eq!(calls(server, "lock.log"), logs);
}

#[test]
fn the_log_and_the_contended_keys_with_all_rights() {
    let (server, other) = (server_that_tells_clients(), Server::start_without_module());
    let mut admin = server.admin();
    hold(&server, "jobs:\x1b[2J", &["owner"]);
    admin.run(&[
        "LOCK.ACQUIRE",
        "jobs:\x1b[2J",
        "next",
        "600000",
        "BLOCK",
        "30",
    ]);
    hold(&server, "mail:1", &["owner"]);
    admin.run(&["CLIENT", "SETNAME", "cron"]);
    admin.run(&["DEL", "mail:1"]);
    let user = name_of_a_user(&server, "operator", &ALL_RIGHTS);
    let terminal = Terminal::start_ahead(&[&user, &address(&other), "--interval", "100"]);
    terminal.shows_text("the module lock is not loaded here");
    asks_no_log(&server);

    terminal.press(&["c"]);
    // Above the line, and on the screen of the keys.
    let why = format!("{}: the module lock is not loaded here", address(&other));
    let screen = terminal.shows("the key, and why the other server has none", |screen| {
        screen.contains("jobs:\\x1b[2J") && screen.matches(&why).count() == 2
    });
    let line = screen.lines().find(|line| line.contains("jobs:")).unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[3..6], [&address(&server), "0", "1"], "{screen}");

    terminal.press(&["l"]);
    let screen = terminal.shows_text("mail:1");
    let line = screen.lines().find(|line| line.contains("mail:1")).unwrap();
    let words: Vec<_> = line.split_whitespace().skip(1).collect();
    assert_eq!(
        words[2..7],
        [&address(&server), "0", "mail:1", "del", "default"]
    );
    assert_eq!(words[8..10], ["cron", "owner"], "{screen}");
    let time_ms = time_of_the_newest(&server);
    let local = time_ms / 1_000 + 330 * 60;
    let (hour, minute, second) = (local / 3_600 % 24, local / 60 % 60, local % 60);
    assert_eq!(
        words[0],
        format!("{hour:02}:{minute:02}:{second:02}"),
        "{screen}"
    );

    terminal.press(&["Escape"]);
    terminal.shows_text("Enter one lock");
    // A look that began before may still ask.
    let tops = calls(&server, "lock.top");
    eventually("the screen's last look ends", || {
        calls(&server, "lock.top") > tops + 1
    });
    asks_no_log(&server);
}

fn time_of_the_newest(server: &Server) -> u64 {
    let log = server.admin().run(&["LOCK.LOG", "1"]);
    let entry = log.as_sequence().unwrap()[0].as_map_iter().unwrap().next();
    let (_, time) = entry.unwrap();
    redis::from_redis_value(time.clone()).unwrap()
}

#[test]
fn a_signal_leaves_the_terminal_in_order() {
    for (signal, status) in [("TERM", "143"), ("HUP", "129"), ("INT", "130")] {
        let server = Server::start();
        hold(&server, "jobs:1", &["owner", "next"]);
        let terminal = Terminal::start_shell();
        terminal.press(&["echo before", "Enter"]);
        terminal.shows_text("before\n");
        let pid = terminal.run(&[&address(&server), "--interval", "100"]);
        terminal.shows_text("jobs:1");
        let killed = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(killed.unwrap().success());
        // The first screen is back, and the shell has seen the signal.
        let screen = terminal.shows_text("before\n");
        assert!(!screen.contains("jobs:1"), "{signal}\n{screen}");
        terminal.press(&["echo it was $?.", "Enter"]);
        let screen = terminal.shows_text(&format!("it was {status}."));
        // What is typed is shown: the terminal itself echoes it.
        assert!(screen.contains("echo it was $?."), "{signal}\n{screen}");
        terminal.press(&["stty -a", "Enter"]);
        let screen = terminal.shows_text("echoctl");
        for setting in [" echo ", " icanon ", "isig "] {
            assert!(
                screen.replace('\n', " ").contains(setting),
                "{signal}{setting}\n{screen}"
            );
        }
    }
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
fn a_filter_leaves_a_lock_that_enter_opens() {
    let server = Server::start();
    hold(&server, "jobs:1", &["owner", "next"]);
    let terminal = Terminal::start(&[&address(&server), "--interval", "100"]);
    terminal.shows_text("jobs:1");
    hold(&server, "mail:1", &["owner", "last"]);
    terminal.shows_text("mail:1");
    terminal.press(&["/", "m", "a", "Enter"]);
    terminal.lacks_text("jobs:1");
    terminal.press(&["Enter"]);
    let screen = terminal.shows_text("1 waiter, the next one first");
    assert!(screen.contains("1 last"), "{screen}");
}

#[test]
fn a_terminal_of_80_columns_shows_whole_words_and_the_help() {
    let server = Server::start();
    hold(&server, "jobs:1", &["owner", "next"]);
    let terminal = Terminal::start(&[&address(&server), "--interval", "100"]);
    terminal.press(&["s"]);
    terminal.shows_text("by waiters");
    terminal.resize("80");
    let screen = terminal.shows("a foot that ends with a word", |screen| {
        let foot = screen.lines().last().unwrap_or_default().trim_end();
        foot.starts_with("? help  q quit") && foot.ends_with("  a all locks")
    });
    let header = screen.lines().find(|line| line.contains("holders waiters"));
    assert!(header.is_some(), "{screen}");
}

#[test]
fn locks_that_nobody_waits_for_are_listed_on_demand() {
    let server = Server::start();
    hold(&server, "jobs:1", &["owner", "next"]);
    hold(&server, "idle:1", &["owner"]);
    let user = name_of_a_user(&server, "operator", &ALL_RIGHTS);
    let terminal = Terminal::start(&[&user, "--interval", "100"]);
    terminal.shows_text("jobs:1");
    assert_eq!(calls(&server, "scan"), 0);
    terminal.press(&["a"]);
    let screen = terminal.shows_text("idle:1");
    assert_eq!(screen.matches("jobs:1").count(), 1, "{screen}");
    terminal.press(&["a"]);
    terminal.lacks_text("idle:1");
    terminal.press(&["a"]);
    terminal.shows_text("idle:1");
    terminal.press(&["/", "i", "d", "Enter", "x"]);
    terminal.shows_text("Nobody waits, so the lock is free then.");
    terminal.press(&["y"]);
    terminal.shows_text("idle:1 was released by force");
}

/// The first of its queue does not listen, so nobody gets it.
#[test]
fn the_first_wait_for_a_free_lock_is_cancelled_after_a_question() {
    let server = Server::start();
    hold(&server, "jobs:1", &["owner", "next", "last"]);
    let mut admin = server.admin();
    admin.run(&["LOCK.RELEASE", "jobs:1", "owner"]);
    let user = name_of_a_user(&server, "operator", &ALL_RIGHTS);
    let terminal = Terminal::start(&[&user, "--interval", "100"]);
    terminal.shows_text("jobs:1");
    terminal.press(&["x"]);
    let screen = terminal.shows_text("y cancels the wait");
    for part in ["Cancel the first wait?", "holder   nobody", "first    next"] {
        assert!(screen.contains(part), "{part}\n{screen}");
    }
    terminal.press(&["n"]);
    terminal.shows_text("nothing was ended");
    assert_eq!(admin.waiters("jobs:1"), 2);
    terminal.press(&["x"]);
    terminal.shows_text("y cancels the wait");
    terminal.press(&["y"]);
    terminal.shows_text("the wait of next for jobs:1 was cancelled");
    let fence = admin.int(&["LOCK.ACQUIRE", "jobs:1", "last", "600000"]);
    assert!(fence > 0);
}

#[test]
fn a_waiter_for_a_result_shows_its_key() {
    let server = Server::start();
    hold(&server, "{page}:once", &["owner", "next"]);
    let waiting = [
        "LOCK.ONCE",
        "{page}:once",
        "page\x1b[2J",
        "reader",
        "600000",
    ];
    let keeps = ["KEEP", "600000"];
    server.admin().run(&[&waiting[..], &keeps].concat());
    let terminal = Terminal::start(&[&address(&server), "--interval", "100"]);
    terminal.shows_text("{page}:once");
    terminal.press(&["Enter"]);
    let screen = terminal.shows_text("or result");
    let line = screen.lines().find(|line| line.contains("reader")).unwrap();
    assert!(line.contains("page\\x1b[2J"), "{screen}");
}

#[test]
fn a_release_by_force_asks_first() {
    let server = Server::start();
    hold(&server, "jobs:1", &["owner", "next", "last"]);
    let user = name_of_a_user(&server, "operator", &ALL_RIGHTS);
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
    terminal.shows_text("nothing was ended");
    assert_eq!(holder(&server, "jobs:1"), "owner");
    terminal.press(&["x"]);
    terminal.shows_text("y releases the lock");
    terminal.press(&["y"]);
    terminal.shows_text("jobs:1 was released by force");
    assert_eq!(
        server.admin().run(&["LOCK.CHECK", "jobs:1", "owner"]),
        redis::Value::Nil
    );
    let info = format!("{:?}", server.admin().run(&["INFO", "lock"]));
    assert!(info.contains("lock_executed:1"), "{info}");
    let next = server
        .admin()
        .int(&["LOCK.ACQUIRE", "jobs:1", "next", "600000"]);
    assert!(next > fence, "{next} is not after {fence}");
}

/// The question is about the first of the tokens. The second has the lock since.
fn asked_about_a_holder_who_has_gone(tokens: &[&str]) -> (Server, Terminal) {
    let server = Server::start();
    hold(&server, "jobs:1", tokens);
    let terminal = Terminal::start(&[&address(&server), "--interval", "100"]);
    terminal.shows_text("jobs:1");
    terminal.press(&["x"]);
    terminal.shows_text("holder   owner");
    server.admin().run(&["LOCK.RELEASE", "jobs:1", "owner"]);
    hold(&server, "jobs:1", &["next"]);
    (server, terminal)
}

#[test]
fn a_release_of_a_holder_who_has_gone_hits_nobody() {
    let (server, terminal) = asked_about_a_holder_who_has_gone(&["owner", "next", "last"]);
    terminal.press(&["y"]);
    terminal.shows_text("jobs:1 was not released: owner with fence");
    assert_eq!(holder(&server, "jobs:1"), "next");
}

#[test]
fn a_release_of_a_token_that_holds_the_lock_anew_hits_nobody() {
    let (server, terminal) = asked_about_a_holder_who_has_gone(&["owner", "next"]);
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
    terminal.shows_text("runs with --read-only, so nothing is ended");
    terminal.press(&["y"]);
    terminal.lacks_text("runs with --read-only, so nothing is ended");
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
