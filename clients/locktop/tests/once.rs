//! `locktop --once` against real servers.

// Its style is that of its own crate.
#[rustfmt::skip]
#[path = "../../rust/tests/common/mod.rs"]
mod common;
mod program;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{eventually, Cluster, Server};
use program::{
    address, command, locktop, name_of_a_user, server_that_tells_clients, without_top, Ran,
};
use serde_json::{json, Value};

/// A port at which nobody listens.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A lock that `owner` holds and `next` waits for.
fn contend(server: &Server, key: &str) {
    let mut admin = server.admin();
    admin.run(&["LOCK.ACQUIRE", key, "owner", "60000"]);
    admin.run(&["LOCK.ACQUIRE", key, "next", "60000", "KEEP", "60000"]);
}

fn document(words: &[&str]) -> Value {
    let ran = locktop(&[&["--once", "--json"], words].concat());
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

fn notes(document: &Value) -> String {
    document["servers"][0]["notes"].to_string()
}

#[test]
fn one_server_as_a_table() {
    let server = Server::start();
    contend(&server, "jobs:42");
    let ran = locktop(&["--once", &address(&server)]);
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    let line = ran.line("jobs:42");
    let words: Vec<_> = line.split_whitespace().skip(1).collect();
    assert_eq!(
        words[..7],
        [
            "jobs:42",
            &address(&server),
            "0",
            "exclusive",
            "1",
            "1",
            "owner"
        ]
    );
    assert!(ran.line("primary").contains(&address(&server)), "{ran:?}");
    let mut admin = server.admin();
    admin.run(&["LOCK.ACQUIRE", "idle:1", "owner", "60000"]);
    assert!(!locktop(&["--once", &address(&server)])
        .out
        .contains("idle:1"));
    let all = locktop(&["--once", "--all", &address(&server)]);
    assert!(all.line("idle:1").contains("owner"), "{all:?}");
    assert_eq!(all.out.matches("jobs:42").count(), 1, "{all:?}");
}

#[test]
fn an_empty_password_is_none() {
    let server = Server::start();
    let words = ["--once", &address(&server)];
    let ran = Ran::of(command(&words).env("REDISCLI_AUTH", ""));
    assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{ran:?}");
}

#[test]
fn one_server_as_json() {
    let server = Server::start();
    let mut admin = server.admin();
    let ask = |key: &[u8], token: &str| {
        let mut command = redis::cmd("LOCK.ACQUIRE");
        command
            .arg(key)
            .arg(token)
            .arg(60_000)
            .arg("KEEP")
            .arg(60_000);
        command
    };
    let mut connection = server.client().get_connection().unwrap();
    for token in ["owner", "next", "last"] {
        let _: redis::Value = ask(b"a\x1b[2J\xff", token).query(&mut connection).unwrap();
    }
    let document = document(&[&address(&server)]);
    let lock = &document["locks"][0];
    assert_eq!(lock["key"], "a\\x1b[2J\\xff");
    assert_eq!(
        (&lock["server"], &lock["db"]),
        (&json!(address(&server)), &json!(0))
    );
    assert_eq!((&lock["holders"], &lock["waiters"]), (&json!(1), &json!(2)));
    assert_eq!(lock["oldest"]["token"], "owner");
    let ttl = lock["oldest"]["ttl_ms"].as_u64().unwrap();
    assert!((1..=60_000).contains(&ttl), "{lock}");
    let info = &document["servers"][0]["info"];
    assert_eq!(
        (&info["lock_held_exclusive"], &info["lock_waiters"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(document["version"], 1);
    assert!(document["servers"][0]["module"].is_string());
    admin.run(&["PING"]);
}

#[test]
fn what_has_happened_as_json_with_the_rights() {
    let server = server_that_tells_clients();
    let mut admin = server.admin();
    admin.run(&["LOCK.ACQUIRE", "jobs:\x1b", "owner", "60000"]);
    admin.run(&["LOCK.ACQUIRE", "jobs:\x1b", "next", "60000", "BLOCK", "30"]);
    let fence = admin.int(&["LOCK.CHECK", "jobs:\x1b", "owner"]);
    admin.run(&["DEL", "jobs:\x1b"]);
    admin.run(&["LOCK.ACQUIRE", "mail", "owner", "60000"]);
    admin.run(&["UNLINK", "mail"]);
    let rights = [
        "+info",
        "+lock.top",
        "+lock.log",
        "+lock.info",
        "+pttl",
        "+time",
    ];
    let user = name_of_a_user(&server, "operator", &rights);
    let both = document(&[&user]);
    let key = &both["contended"][0];
    assert_eq!(
        (&key["server"], &key["db"], &key["key"], &key["waits"]),
        (
            &json!(address(&server)),
            &json!(0),
            &json!("jobs:\\x1b"),
            &json!(1)
        )
    );
    assert!(key["waited_ms"].as_u64().unwrap() >= 30, "{key}");
    assert_eq!(
        (&key["longest_ms"], &key["error_ms"]),
        (&key["waited_ms"], &json!(0))
    );
    let log = both["log"].as_array().unwrap();
    assert_eq!(log.len(), 2);
    assert_eq!(
        (&log[0]["key"], &log[0]["by"]),
        (&json!("mail"), &json!("unlink"))
    );
    let entry = &log[1];
    assert_eq!(entry["key"], "jobs:\\x1b");
    assert_eq!(
        (
            &entry["token"],
            &entry["fence"],
            &entry["by"],
            &entry["user"]
        ),
        (
            &json!("owner"),
            &json!(fence),
            &json!("del"),
            &json!("default")
        )
    );
    assert!(entry["address"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(entry["age_ms"].as_u64().unwrap() < 60_000, "{entry}");
    let up = &both["servers"][0];
    assert_eq!(
        (&up["contended_error"], &up["log_error"]),
        (&Value::Null, &Value::Null)
    );

    // Without them there is a reason, and all else stays.
    let user = name_of_a_user(&server, "reader", &["+info"]);
    let none = document(&[&user]);
    assert_eq!((&none["contended"], &none["log"]), (&json!([]), &json!([])));
    let up = &none["servers"][0];
    assert_eq!(
        up["contended_error"],
        "the user may not call LOCK.TOP CONTENDED"
    );
    assert_eq!(up["log_error"], "the user may not call LOCK.LOG");
    assert_eq!(up["up"], true);
    // The table has no place for them, so they are not asked for.
    let ran = locktop(&["--once", &address(&server)]);
    assert!(
        !ran.out.contains("CONTENDED") && !ran.out.contains("LOCK.LOG"),
        "{ran:?}"
    );
}

#[test]
fn a_guard_is_shown_until_it_ends() {
    let server = Server::start_with(&["guard", "restart", "max-ttl", "60000"]);
    let address = address(&server);
    let table = locktop(&["--once", &address]);
    assert_eq!((table.status, table.err.as_str()), (0, ""));
    let line = table.line("guard");
    let left = line.strip_prefix(&format!("{address}: guard: restart, "));
    assert!(left.is_some_and(|left| left.ends_with(" left")), "{line}");
    assert_eq!(document(&[&address])["servers"][0]["guard"], "restart");

    server.admin().run(&["CONFIG", "SET", "lock.guard", "off"]);
    let table = locktop(&["--once", &address]);
    assert!(!table.out.contains("guard"), "{table:?}");
    assert_eq!(document(&[&address])["servers"][0]["guard"], "off");
}

#[test]
fn one_of_two_servers_is_down() {
    let server = Server::start();
    contend(&server, "jobs:42");
    let down = format!("127.0.0.1:{}", free_port());
    let ran = locktop(&["--once", &address(&server), &down]);
    assert_eq!(ran.status, 1);
    assert!(ran.out.contains("jobs:42"), "{ran:?}");
    assert!(
        ran.line("is down")
            .contains(&format!("{down} is down: Connection refused")),
        "{ran:?}"
    );
}

#[test]
fn a_server_that_hangs_is_down_and_holds_nobody_up() {
    let (server, frozen) = (Server::start(), Server::start());
    contend(&server, "jobs:42");
    frozen.freeze();
    let start = Instant::now();
    let ran = locktop(&["--once", &address(&frozen), &address(&server)]);
    frozen.thaw();
    assert_eq!(ran.status, 1);
    assert!(ran.out.contains("jobs:42"), "{ran:?}");
    assert!(
        ran.line("is down").contains("no answer within 2 s"),
        "{ran:?}"
    );
    assert!(
        start.elapsed() < Duration::from_secs(8),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn the_databases_that_were_asked_for() {
    let server = Server::start();
    contend(&server, "in-0");
    let mut admin = server.admin();
    admin.run(&["SELECT", "5"]);
    admin.run(&["LOCK.ACQUIRE", "in-5", "owner", "60000"]);
    admin.run(&["LOCK.ACQUIRE", "in-5", "next", "60000", "KEEP", "60000"]);
    let keys = |words: &[&str]| {
        let address = address(&server);
        let document = document(&[&[address.as_str()], words].concat());
        let locks = document["locks"].as_array().unwrap().clone();
        let key = |lock: &Value| format!("{}/{}", lock["db"], lock["key"].as_str().unwrap());
        locks.iter().map(key).collect::<BTreeSet<_>>()
    };
    let set = |keys: &[&str]| {
        keys.iter()
            .map(|key| (*key).to_owned())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(keys(&[]), set(&["0/in-0"]));
    assert_eq!(keys(&["--db", "5"]), set(&["5/in-5"]));
    assert_eq!(keys(&["--all-databases"]), set(&["0/in-0", "5/in-5"]));
}

#[test]
fn a_cluster_is_found_from_one_seed() {
    let cluster = Cluster::start();
    for (node, key) in cluster.nodes.iter().zip(["b", "c", "a"]) {
        contend(node, key);
    }
    // The seed is the replica, which knows the primaries.
    let seed = address(&cluster.nodes[3]);
    let document = document(&["--cluster", &seed]);
    let servers = document["servers"].as_array().unwrap();
    let names: BTreeSet<_> = servers
        .iter()
        .map(|server| server["address"].as_str().unwrap())
        .collect();
    let primaries: Vec<_> = cluster.nodes[..3].iter().map(address).collect();
    assert_eq!(names, primaries.iter().map(String::as_str).collect());
    let locks = document["locks"].as_array().unwrap();
    let of = |key: &str| locks.iter().find(|lock| lock["key"] == key).unwrap()["server"].clone();
    assert_eq!(
        [of("b"), of("c"), of("a")],
        [0, 1, 2].map(|n| json!(primaries[n]))
    );
}

#[test]
fn the_name_of_a_node_cannot_rule_the_terminal() {
    let cluster = Cluster::start();
    let mut admin = cluster.nodes[0].admin();
    let name = "\x1b]0;a title\x07x";
    admin.run(&["CONFIG", "SET", "cluster-announce-ip", name]);
    let ran = locktop(&["--cluster", "--once", &address(&cluster.nodes[0])]);
    assert!(!ran.out.contains('\x1b'), "{ran:?}");
    assert!(ran.line("\\x1b]0;a title\\x07x").contains("down"));
}

#[test]
fn a_server_without_the_module_says_so() {
    let server = Server::start_without_module();
    let ran = locktop(&["--once", &address(&server)]);
    assert_eq!(ran.status, 0);
    assert!(
        ran.out.contains("the module lock is not loaded here"),
        "{ran:?}"
    );
    assert_eq!(
        document(&[&address(&server)])["servers"][0]["module"],
        Value::Null
    );
}

#[test]
fn without_the_right_to_top_the_locks_are_scanned_for() {
    let server = Server::start();
    contend(&server, "jobs:42");
    let rights = ["+info", "+lock.info", "+scan", "+time"];
    let user = name_of_a_user(&server, "scanner", &rights);
    let document = document(&[&user]);
    assert!(
        notes(&document).contains("may not call LOCK.TOP: locks are looked for by SCAN"),
        "{document}"
    );
    let lock = &document["locks"][0];
    assert_eq!(
        (&lock["key"], &lock["waiters"]),
        (&json!("jobs:42"), &json!(1))
    );
    assert_eq!(lock["oldest"]["token"], "owner");
}

#[test]
fn without_any_right_to_locks_the_numbers_stay() {
    let server = Server::start();
    contend(&server, "jobs:42");
    let user = name_of_a_user(&server, "reader", &["+info"]);
    let document = document(&[&user]);
    assert!(
        notes(&document).contains("and not SCAN or LOCK.INFO instead: NOPERM"),
        "{document}"
    );
    assert_eq!(document["servers"][0]["info"]["lock_waiters"], 1);
    assert_eq!(document["locks"], json!([]));
    let user = name_of_a_user(&server, "nobody", &["+lock.top"]);
    let ran = locktop(&["--once", &user]);
    assert!(ran.out.contains("the user may not call INFO"), "{ran:?}");
    assert_eq!(
        (ran.status, ran.line("jobs:42").contains("owner")),
        (0, true)
    );
}

#[test]
fn a_module_without_top_is_scanned() {
    let server = Server::start();
    for n in 0..30 {
        contend(&server, &format!("jobs:{n}"));
    }
    let port = without_top(server.port);
    let document = document(&[&format!("127.0.0.1:{port}"), "--top", "20"]);
    assert!(
        notes(&document).contains("LOCK.TOP is missing (module 0.1): locks are"),
        "{document}"
    );
    assert_eq!(document["locks"].as_array().unwrap().len(), 20);
    let why = &document["servers"][0]["contended_error"];
    assert_eq!(why, "the module here is too old for LOCK.TOP CONTENDED");
}

#[test]
fn passwords_come_by_the_environment_and_wrong_ones_are_said() {
    let server = Server::start_with(&[]);
    contend(&server, "jobs:42");
    server
        .admin()
        .run(&["CONFIG", "SET", "requirepass", "secret"]);
    let address = address(&server);
    let refused = locktop(&["--once", &address]);
    assert_eq!(refused.status, 1);
    assert!(refused.line("is down").contains("NOAUTH"), "{refused:?}");
    let mut command = program::command(&["--once", &address]);
    let ran = Ran::of(command.env("REDISCLI_AUTH", "secret"));
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.out.contains("jobs:42"), "{ran:?}");
    let ran = locktop(&[
        "--once",
        &address,
        "--user",
        "default",
        "--password",
        "secret",
    ]);
    assert_eq!(ran.status, 0, "{ran:?}");
}

#[test]
fn what_is_no_command_line_ends_with_2() {
    let lines: [&[&str]; 4] = [
        &["--nonsense"],
        &["--json"],
        &["--once", "a:b:c"],
        &["127.0.0.1:1"],
    ];
    for words in lines {
        let ran = locktop(words);
        assert_eq!(
            (ran.status, ran.out.as_str()),
            (2, ""),
            "{words:?}: {ran:?}"
        );
        assert!(!ran.err.is_empty(), "{words:?}");
    }
}

#[test]
fn tls_checks_the_certificate() {
    let folder = std::env::temp_dir().join(format!("locktop-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let (key, certificate) = (path("key.pem"), path("cert.pem"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
        ])
        .args([
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=locktop",
            "-addext",
            "subjectAltName=DNS:localhost",
        ])
        .args([
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-keyout",
            &key,
            "-out",
            &certificate,
        ])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let port = free_port().to_string();
    let tls = [
        "--tls-port",
        &port,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
    ];
    let server = Server::start_with(&[&tls[..], &["--tls-auth-clients", "no"]].concat());
    contend(&server, "jobs:42");
    let url = format!("rediss://localhost:{port}");
    let mut trusting = program::command(&["--once", &url]);
    let ran = Ran::of(trusting.env("SSL_CERT_FILE", &certificate));
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.out.contains("jobs:42"), "{ran:?}");
    let stranger = locktop(&["--once", &url]);
    assert_eq!(stranger.status, 1, "{stranger:?}");
    assert!(
        stranger.line("is down").contains("certificate"),
        "{stranger:?}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_replica_says_that_it_does_not_know_the_waiters() {
    let primary = Server::start();
    let port = primary.port.to_string();
    let replica = Server::start_with(&["--replicaof", "127.0.0.1", &port]);
    let mut admin = replica.admin();
    eventually("the replica follows", || {
        format!("{:?}", admin.run(&["INFO", "replication"])).contains("master_link_status:up")
    });
    let document = document(&[&address(&replica)]);
    assert_eq!(document["servers"][0]["role"], "replica");
    assert!(
        notes(&document).contains("only its primary knows the waiters"),
        "{document}"
    );
}
