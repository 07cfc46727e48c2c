//! The commands that carry effects, in the contexts that a client can create.

use std::io::Write;
use std::process::{Command, Stdio};

use super::{in_scripts, load_function};
use crate::harness::{figure, packed, redis_cli, wait_for, Client, Kind, Reply, Server};

on_every_server![
    no_context_lets_a_client_apply_an_effect,
    clients_of_a_primary_and_of_a_writable_replica_call_no_internal_command,
    an_aof_piped_in_by_a_client_is_refused,
    a_connection_that_sent_psync_cannot_apply_effects,
    no_client_applies_an_effect_while_a_replica_loads,
];

/// An effect that would acquire the lock `k`, with a fence that stays visible afterwards.
fn effect() -> Vec<u8> {
    let mut record = vec![1, 2];
    record.extend(1_000u64.to_le_bytes());
    record.push(1);
    record.extend((1u64 << 52).to_le_bytes());
    record.extend((1u64 << 50).to_le_bytes());
    record.extend(1_000u64.to_le_bytes());
    record.extend(5u16.to_le_bytes());
    record.extend(b"thief");
    record
}

/// Fails if an effect or its fence was applied.
#[track_caller]
fn assert_not_applied(c: &mut Client) {
    assert_eq!(c.holders("k"), ["holder"]);
    let fence = c.int("LOCK.ACQUIRE later me 1000000");
    assert!(fence < 1 << 52, "{fence}");
}

fn fixture(kind: Kind) -> (Server, Client) {
    let server = Server::start(kind);
    let mut c = server.client();
    assert!(c.int("LOCK.ACQUIRE k holder 1000000") < 1 << 52);
    (server, c)
}

fn no_context_lets_a_client_apply_an_effect(kind: Kind) {
    let (server, mut c) = fixture(kind);
    load_function(&mut c);
    let mut boss = server.user("boss", "~* &* +@all");
    let apply = [b"LOCK._APPLY".to_vec(), b"k".to_vec(), effect()];
    for setup in [
        "PING",
        "CLIENT SETNAME master",
        "CLIENT TRACKING ON",
        "CLIENT NO-EVICT on",
        "CLIENT SETINFO lib-name master",
        "READONLY",
        "ASKING",
        "WATCH k",
        "REPLCONF listening-port 1",
        "REPLCONF capa eof capa psync2",
        "HELLO 3",
    ] {
        // Not all servers know all of these.
        boss.call(setup);
        let reply = boss.send(&apply);
        assert!(matches!(reply, Reply::Error(_)), "{setup}: {reply:?}");
    }
    for mut script in in_scripts("LOCK._APPLY k") {
        script.push(effect());
        let reply = boss.send(&script);
        assert!(matches!(reply, Reply::Error(_)), "{reply:?}");
    }
    assert_not_applied(&mut c);
}

fn clients_of_a_primary_and_of_a_writable_replica_call_no_internal_command(kind: Kind) {
    let (server, mut c) = fixture(kind);
    let replica = Server::start_replica_of(&server, &["--replica-read-only", "no"]);
    let text = "ERR this command is for replication and the append-only file only";
    let refused = Reply::Error(text.into());
    let effect = effect();
    let line = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
    for internal in [
        line(&[b"LOCK._APPLY", b"k", &effect]),
        line(&[b"LOCK._APPLY", b"k", b"thief", &effect]),
        line(&[b"LOCK._APPLY", b"k", b"thief", &effect, b""]),
        line(&[b"LOCK._RELEASE", b"k", b"holder"]),
        line(&[b"LOCK._GUARD", b"0", b"0", b"0", b"0", b""]),
    ] {
        for client in [&mut c, &mut replica.client()] {
            assert_eq!(client.send(&internal), refused);
            let transaction = [line(&[b"MULTI"]), internal.clone(), line(&[b"EXEC"])];
            let in_multi = client.pipeline(&transaction).remove(2);
            assert_eq!(in_multi, Reply::Array(vec![refused.clone()]));
        }
    }
    assert_not_applied(&mut c);
    assert_eq!(replica.client().holders("k"), ["holder"]);
}

fn an_aof_piped_in_by_a_client_is_refused(kind: Kind) {
    let (server, mut c) = fixture(kind);
    let record = effect();
    let file = packed(&[b"LOCK._APPLY".as_slice(), &b"k"[..], &record]);
    let mut cli = Command::new(redis_cli())
        .args(["-p", &server.port.to_string(), "--pipe"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    cli.stdin.take().unwrap().write_all(&file).unwrap();
    let output = cli.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("errors: 1, replies: 1"), "{said}");
    assert_not_applied(&mut c);
}

fn a_connection_that_sent_psync_cannot_apply_effects(kind: Kind) {
    for ask in ["SYNC", "PSYNC ? -1"] {
        let (server, mut c) = fixture(kind);
        let mut replica = server.raw();
        replica.send(ask);
        c.until_info("connected_slaves", "1");
        let record = effect();
        replica.send_bytes(&packed(&[b"LOCK._APPLY".as_slice(), &b"k"[..], &record]));
        let calls = |c: &mut Client| c.text("INFO commandstats");
        wait_for("the command to be refused", || {
            calls(&mut c).contains("cmdstat_lock._apply").then_some(())
        });
        assert_not_applied(&mut c);
    }
}

/// With repl-diskless-load swapdb a replica serves its clients while it loads, and answers LOADING.
fn no_client_applies_an_effect_while_a_replica_loads(kind: Kind) {
    let (primary, mut p) = fixture(kind);
    p.call("CONFIG SET repl-diskless-sync yes");
    p.call("CONFIG SET repl-diskless-sync-delay 0");
    p.call("DEBUG POPULATE 3000");
    let options = [
        "--repl-diskless-load",
        "swapdb",
        "--replica-read-only",
        "no",
        // The number of requests served while it loads.
        "--loading-process-events-interval-bytes",
        "1024",
    ];
    let replica = Server::start_with(kind, &options);
    let mut c = replica.client();
    replica.follow(&primary);
    replica.wait_until_it_follows(&primary);
    // It misses more than the backlog holds, so it gets a full synchronization, which takes
    // seconds. Its data is of the same history.
    p.call("CONFIG SET rdb-key-save-delay 1000");
    p.call("CONFIG SET repl-backlog-size 16384");
    replica.signal("STOP");
    p.call("CLIENT KILL TYPE replica");
    p.call(&format!("SET large {}", "x".repeat(100_000)));
    p.call("SET small x");
    replica.signal("CONT");
    c.until_info("async_loading", "1");
    let mut refused = 0;
    loop {
        let reply = c.send(&[b"LOCK._APPLY".to_vec(), b"k".to_vec(), effect()]);
        assert!(matches!(reply, Reply::Error(_)), "{reply:?}");
        if c.info("async_loading") == "0" {
            break;
        }
        refused += 1;
        p.call("CONFIG SET rdb-key-save-delay 0");
    }
    assert!(refused > 0);
    figure(kind, &format!("{refused} effects refused while it loaded"));
    replica.wait_until_it_follows(&primary);
    assert_not_applied(&mut p);
    assert_eq!(c.holders("k"), ["holder"]);
}
