//! The module's own command, by which its timer checks whether a client could write. No client gets
//! a reply to it, and nobody else sees it.

use std::collections::BTreeSet;

use super::{in_scripts, load_function};
use crate::harness::aof;
use crate::harness::workload::{words, Command};
use crate::harness::{for_ms, Client, Kind, Reply, Server, COMMANDS_ONLY};

on_every_server![
    only_the_module_may_send_the_write_check,
    the_write_check_is_not_replicated_or_persisted,
];

const REFUSAL: &str = "this command is for the module itself only";

#[track_caller]
fn assert_refused(reply: &Reply) {
    assert!(reply.as_error().contains(REFUSAL), "{reply:?}");
}

/// In every context that a client can create.
fn ask(c: &mut Client) {
    let lines = ["LOCK._WRITABLE", "LOCK._WRITABLE k", "LOCK._WRITABLE k x"];
    for line in lines {
        assert!(c.error(line).ends_with(REFUSAL), "{line}");
    }
    let replies = in_transaction(c, &lines.map(words));
    replies.iter().for_each(assert_refused);
    for script in in_scripts("LOCK._WRITABLE k") {
        assert_refused(&c.send(&script));
    }
    let without_key = ["EVAL", "return redis.call('lock._writable')", "0"];
    assert_refused(&c.send(&without_key));
    let without_key = without_key.map(Vec::from).to_vec();
    assert_refused(&in_transaction(c, &[without_key])[0]);
}

/// The replies of a transaction, some of which may be errors.
#[track_caller]
fn in_transaction(c: &mut Client, commands: &[Command]) -> Vec<Reply> {
    let mut all = commands.to_vec();
    all.insert(0, vec![b"MULTI".to_vec()]);
    all.push(vec![b"EXEC".to_vec()]);
    let replies = c.pipeline(&all);
    replies.last().unwrap().items().to_vec()
}

/// Makes the timer hand off a lock, for which it sends the check.
fn hand_on_by_timer(server: &Server) {
    let mut c = server.client();
    let before = c.calls_of("lock._writable");
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    c.int("LOCK.RENEW k a 20");
    b.fence();
    c.int("DEL k");
    d.fence();
    c.int("LOCK.RELEASE k d");
    assert!(
        c.calls_of("lock._writable") > before,
        "or this has tested nothing"
    );
}

fn only_the_module_may_send_the_write_check(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    load_function(&mut c);
    let mut boss = server.user("boss", "~* &* +@all");
    ask(&mut c);
    hand_on_by_timer(&server);
    ask(&mut boss);
    assert_eq!(c.int("DBSIZE"), 0);
    // Nor after a check that was refused.
    c.int("LOCK.ACQUIRE k a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    c.in_one_go(&["LOCK.RENEW k a 20", "CONFIG SET min-replicas-to-write 1"]);
    c.until_holders("k", &[]);
    for_ms(150, || assert!(b.is_pending()));
    for line in ["LOCK._WRITABLE", "LOCK._WRITABLE k"] {
        c.refused(line, "NOREPLICAS ");
    }
    c.call("CONFIG SET min-replicas-to-write 0");
    ask(&mut c);
    b.fence();
}

/// The names of the commands in the append-only file of a server.
fn names(server: &Server) -> BTreeSet<String> {
    let commands = aof::read(server.dir()).0.into_iter();
    commands
        .map(|command| String::from_utf8_lossy(&command[0]).to_uppercase())
        .collect()
}

/// Only the effects of locks.
#[track_caller]
fn assert_only_effects(server: &Server) {
    let names = names(server);
    assert!(names.contains("LOCK._APPLY"), "{names:?}");
    let known = [
        "LOCK._APPLY",
        "LOCK._RELEASE",
        "PEXPIREAT", // of a rewrite
        "SELECT",
        "DEL",
        "UNLINK",
        "MULTI",
        "EXEC",
    ];
    for name in &names {
        assert!(known.contains(&name.as_str()), "{names:?}");
    }
}

fn the_write_check_is_not_replicated_or_persisted(kind: Kind) {
    let at_once = [&COMMANDS_ONLY[..], &["--repl-diskless-sync-delay", "0"]].concat();
    let primary = Server::start_with(kind, &at_once);
    primary.client().int("LOCK.ACQUIRE first me 600000");
    let replica = Server::start_replica_of(&primary, &COMMANDS_ONLY);
    crate::harness::aof::until_rewritten(&mut replica.client());
    let mut c = primary.client();
    for _ in 0..5 {
        hand_on_by_timer(&primary);
        for line in ["LOCK._WRITABLE", "LOCK._WRITABLE k"] {
            let lines = [line, "LOCK.ACQUIRE k e 60000", "LOCK.RELEASE k e", line];
            in_transaction(&mut c, &lines.map(words));
            c.send(&[
                "EVAL",
                "redis.pcall(ARGV[1]) return redis.call('DEL', 'k')",
                "0",
                line,
            ]);
        }
    }
    replica.wait_until_it_follows(&primary);
    assert_only_effects(&primary);
    assert_only_effects(&replica);
}
