//! Users of redis.conf.example: in the configuration itself and in an ACL file.

use super::{commented, example};
use crate::harness::commands::{dangerous, of_one_key, shortest, writes};
use crate::harness::{Client, Kind, Reply, Server};

on_every_server![
    the_users_of_the_example_may_lock_and_look,
    an_acl_file_names_the_commands,
];

/// The name of the ACL file, beside the server's data.
const FILE: &str = "users.acl";

fn login(server: &Server, user: &str) -> Client {
    let mut c = server.client();
    assert_eq!(c.text(&format!("AUTH {user} change-me")), "OK");
    c
}

#[track_caller]
fn assert_denied(c: &mut Client, line: &str) {
    let error = c.error(line);
    assert!(error.starts_with("NOPERM "), "{line}: {error}");
}

/// One user locks and the other reads, and neither can do more.
#[track_caller]
fn check_users(server: &Server) {
    let mut worker = login(server, "worker");
    let mut watcher = login(server, "watcher");
    assert_eq!(worker.text("PING"), "PONG");
    assert!(worker.int("LOCK.ACQUIRE jobs:1 a 30000") > 0);
    assert!(worker.int("RWLOCK.RLOCK jobs:2 a 30000") > 0);
    assert!(worker.int("RWLOCK.WLOCK jobs:2 a 30000") > 0);
    assert_eq!(watcher.holders("jobs:1"), ["a"]);
    assert!(watcher.text("INFO lock").contains("lock_waiters:"));
    let mut second = login(server, "worker");
    let waiting = std::thread::spawn(move || second.int("LOCK.ACQUIRE jobs:1 b 30000 BLOCK 0"));
    watcher.until_waiters("jobs:1", &["b"]);
    assert_eq!(worker.int("LOCK.RENEW jobs:1 a 30000"), 1);
    assert_eq!(worker.int("LOCK.RELEASE jobs:1 a"), 1);
    assert!(waiting.join().unwrap() > 0);
    assert_eq!(worker.int("LOCK.RELEASE jobs:1 b"), 1);
    check_adapters(server);
    for line in [
        "EXISTS other",
        "PTTL other",
        "LOCK.MACQUIRE 2 jobs:1 other a 30000",
        "SUBSCRIBE other",
        "LOCK.TOP CONTENDED",
        "DEL jobs:1",
        "SET jobs:1 x",
        "GET jobs:1",
        "PUBLISH redis-lock:c x",
        "CONFIG GET lock.max-waiters",
    ] {
        assert_denied(&mut worker, line);
    }
    for line in of_one_key().map(shortest) {
        assert_denied(&mut worker, &line.replace("{}", "other"));
    }
    for line in dangerous() {
        assert_denied(&mut worker, &line.replace("{}", "jobs:1"));
    }
    for line in writes().chain(dangerous()) {
        assert_denied(&mut watcher, &line.replace("{}", "jobs:2"));
    }
    for line in ["DEL jobs:2", "CONFIG SET lock.max-waiters 0"] {
        assert_denied(&mut watcher, line);
    }
    assert_eq!(worker.int("LOCK.RELEASE jobs:2 a"), 1);
}

/// The worker may send all that the adapters in clients/ send at their defaults: each in the form
/// that they give it.
#[track_caller]
fn check_adapters(server: &Server) {
    let mut worker = login(server, "worker");
    let mut subscriber = login(server, "worker");
    assert!(!matches!(
        subscriber.call("SUBSCRIBE redis-lock:c"),
        Reply::Error(_)
    ));
    assert!(worker.int("LOCK.ACQUIRE jobs:3 a 30000 LIMIT 1") > 0);
    let queued = Reply::Simple("QUEUED".into());
    let lines = [
        "LOCK.ACQUIRE jobs:3 b 30000 NOTIFY 0 redis-lock:c KEEP 5000",
        "RWLOCK.RLOCK jobs:3 c 30000 NOTIFY 0 redis-lock:c KEEP 5000",
        "RWLOCK.WLOCK jobs:3 d 30000 NOTIFY 0 redis-lock:c KEEP 5000",
        "LOCK.MACQUIRE 2 jobs:3 jobs:4 e 30000 NOTIFY 0 redis-lock:c KEEP 5000",
    ];
    for line in lines {
        assert_eq!(worker.call(line), queued, "{line}");
    }
    assert_eq!(worker.waiters("jobs:3"), ["b", "c", "d", "e"]);
    for token in ["b", "c", "d", "e"] {
        assert_eq!(worker.int(&format!("LOCK.RELEASE jobs:3 {token}")), 0);
    }
    assert_eq!(worker.int("EXISTS jobs:3"), 1);
    assert!(worker.int("PTTL jobs:3") > 0);
    assert!(worker.int("LOCK.CHECK jobs:3 a") > 0);
    assert_eq!(worker.int("LOCK.RENEW jobs:3 a 30000"), 1);
    assert_eq!(worker.int("LOCK.RELEASE jobs:3 a ATLEAST 0"), 1);
}

fn the_users_of_the_example_may_lock_and_look(kind: Kind) {
    let config = [vec![example()], commented("user ")].concat().join("\n");
    check_users(&Server::start_with_config(kind, &config));
}

fn an_acl_file_names_the_commands(kind: Kind) {
    let config = format!("{}aclfile {FILE}\n", example());
    // The default user belongs to the operator.
    let users = [
        vec!["user default on nopass ~* &* +@all".into()],
        commented("user "),
    ]
    .concat();
    let text = users.join("\n") + "\n";
    let mut server = Server::start_with_files(kind, &config, &[(FILE, text.as_bytes())]);
    check_users(&server);
    let mut c = server.client();

    // The file changes, and is read again.
    let text = text
        .replace(" +lock.renew", "")
        .replace("~jobs:*", "~tasks:*");
    let path = server.dir().join(FILE);
    std::fs::write(&path, &text).unwrap();
    assert_eq!(c.text("ACL LOAD"), "OK");
    let mut worker = login(&server, "worker");
    assert!(worker.int("LOCK.ACQUIRE tasks:1 a 30000") > 0);
    assert_denied(&mut worker, "LOCK.ACQUIRE jobs:1 a 30000");
    assert_denied(&mut worker, "LOCK.RENEW tasks:1 a 30000");

    // A file with an unknown command changes nothing.
    std::fs::write(&path, text.replace("+lock.info", "+lock.inform")).unwrap();
    let error = c.error("ACL LOAD");
    assert!(error.contains("Unknown command"), "{error}");
    assert!(login(&server, "watcher").call("LOCK.INFO tasks:1") != Reply::Nil);

    // The saved file is read at the next start, when the module is loaded before the users.
    assert_eq!(
        c.text("ACL SETUSER worker +lock.renew resetkeys ~jobs:*"),
        "OK"
    );
    assert_eq!(c.text("ACL SAVE"), "OK");
    server.shut_down();
    server.start_again();
    server.client().call("FLUSHALL");
    check_users(&server);
}
