//! Grants of several keys on replicas, in the append-only file, after a restart, and in a cluster.

use super::assert_held;
use crate::harness::{aof, wait_for, Cluster, Kind, Reply, Server, SYNCED};
use crate::places::fixture::queued;

on_every_server![
    a_grant_is_one_transaction,
    all_are_there_after_a_restart,
    several_keys_in_a_cluster,
];

const KEYS: [&str; 3] = ["a", "b", "c"];

fn pair(kind: Kind) -> (Server, Server) {
    let options = [
        "--appendonly",
        "yes",
        "--aof-use-rdb-preamble",
        "no",
        "--repl-diskless-sync-delay",
        "0",
    ];
    Server::pair(kind, &options)
}

/// The commands of an append-only file, the transactions as one: the name and the key of each.
fn transactions(server: &Server) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let mut open: Option<Vec<String>> = None;
    for command in aof::read(server.dir()).0 {
        let text = |at: usize| {
            let word = command.get(at).map_or(&b""[..], Vec::as_slice);
            String::from_utf8_lossy(word).to_lowercase()
        };
        match text(0).as_str() {
            "select" => {}
            "multi" => open = Some(Vec::new()),
            "exec" => all.extend(open.take()),
            name => {
                let line = format!("{name} {}", text(1));
                match &mut open {
                    Some(lines) => lines.push(line),
                    None => all.push(vec![line]),
                }
            }
        }
    }
    all
}

fn a_grant_is_one_transaction(kind: Kind) {
    let (primary, replica) = pair(kind);
    let mut c = primary.client();
    c.int("LOCK.MACQUIRE 3 a b c x 60000");
    c.int("LOCK.RELEASE a x");
    c.int("LOCK.RELEASE b x");
    let waits = primary.blocked("LOCK.MACQUIRE 3 a b c me 60000 BLOCK 0");
    c.int("LOCK.RELEASE c x");
    waits.fence();
    // Handed on by the timer.
    let waits = primary.blocked("LOCK.MACQUIRE 3 c b a you 60000 BLOCK 0");
    for key in KEYS {
        c.int(&format!("LOCK.ACQUIRE {key} me 60000"));
    }
    c.call("DEL a b c");
    waits.fence();
    replica.wait_until_it_follows(&primary);
    let applied = KEYS.map(|key| format!("lock._apply {key}"));
    for server in [&primary, &replica] {
        // At once, by a release, and by the timer.
        let all = wait_for("the file to be written", || {
            let all = transactions(server);
            let has_all = |lines: &&Vec<String>| {
                let mut lines = lines.to_vec();
                lines.retain(|line| line.starts_with("lock._apply"));
                lines.sort();
                lines == applied
            };
            (all.iter().filter(has_all).count() == 3).then_some(all)
        });
        assert_eq!(all[0], applied, "granted at once");
        let with_release = |lines: &&Vec<String>| lines[0] == "lock._release c";
        let handed_over = all.iter().find(with_release).expect("a release");
        assert_eq!(handed_over[1..], applied, "the release and the grant");
    }
}

fn all_are_there_after_a_restart(kind: Kind) {
    for options in [&SYNCED[..], &["--save", "3600 1"]] {
        let mut server = Server::start_with(kind, options);
        let mut c = server.client();
        c.int("LOCK.ACQUIRE b x 60000");
        let waits =
            server.blocked("LOCK.MACQUIRE 3 a b c me 60000 MODES SHARED EXCLUSIVE SHARED BLOCK 0");
        c.int("LOCK.RELEASE b x");
        let fence = waits.fence();
        assert_eq!(
            c.call("LOCK.MACQUIRE 2 d b you 60000 KEEP 60000"),
            Reply::Nil
        );
        if options[0] == "--save" {
            c.call("SAVE");
        }
        server.kill();
        server.start_again();
        let mut c = server.client();
        assert_held(&mut c, &KEYS, "me", fence);
        // Places are in memory only.
        assert_eq!(c.waiters("b"), [""; 0]);
        let line = "LOCK.MACQUIRE 3 a b c me 60000 MODES SHARED EXCLUSIVE SHARED";
        assert_eq!(c.int(line), fence);
        assert!(c.int("LOCK.MACQUIRE 2 d e you 60000") > fence);
    }
}

fn several_keys_in_a_cluster(kind: Kind) {
    let cluster = Cluster::of(kind, 2, &[]);
    let names = cluster.keys_of(0, 2);
    let [a, b] = ["a", "b"].map(|name| format!("{{{}}}:{name}", names[0]));
    let mut c = cluster.client(0);
    let elsewhere = &names[1];
    assert_ne!(cluster.slot(&a), cluster.slot(elsewhere));
    for line in [format!("2 {a} {elsewhere}"), format!("2 {elsewhere} {b}")] {
        c.refused(&format!("LOCK.MACQUIRE {line} me 60000"), "CROSSSLOT");
    }
    let not_here = cluster.keys_of(1, 1).remove(0);
    c.refused(&format!("LOCK.MACQUIRE 1 {not_here} me 60000"), "MOVED");
    let fence = c.int(&format!("LOCK.MACQUIRE 2 {a} {b} x 60000"));
    assert_held(&mut c, &[&a, &b], "x", fence);
    // A hand-over in a step, and one of the timer.
    let waits = cluster.nodes[0].blocked(&format!("LOCK.MACQUIRE 2 {b} {a} me 60000 BLOCK 0"));
    c.int(&format!("LOCK.RELEASE {a} x"));
    c.int(&format!("LOCK.RELEASE {b} x"));
    let fence = waits.fence();
    assert_held(&mut c, &[&a, &b], "me", fence);
    let waits = cluster.nodes[0].blocked(&format!("LOCK.MACQUIRE 2 {a} {b} you 60000 BLOCK 0"));
    c.call(&format!("DEL {a}"));
    c.call(&format!("DEL {b}"));
    let fence = waits.fence();
    assert_held(&mut c, &[&a, &b], "you", fence);
    c.refused(
        &format!("LOCK.MACQUIRE 2 {a} {b} me 60000 NOTIFY 0 {elsewhere}"),
        "CROSSSLOT",
    );
    queued(
        &mut c,
        &format!("LOCK.MACQUIRE 2 {a} {b} me 60000 NOTIFY 0 {a}:channel"),
    );
    assert_eq!(c.int(&format!("LOCK.RELEASE {a} me")), 0);
}
