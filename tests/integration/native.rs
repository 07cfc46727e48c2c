//! The effects of the server's own commands on a lock.

use crate::harness::workload::words;
use crate::harness::{now_ms, wait_for, Client, Kind, Reply, Server};

on_every_server![
    a_key_expires_exactly_with_its_hold,
    the_memory_of_thousands_of_readers_is_freed,
    an_expired_lock_counts_as_one_expired_key,
];
on_every_server_at_night![operations_on_a_key_with_many_readers_stay_cheap];

fn a_key_expires_exactly_with_its_hold(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for ttl in [54_321, 1 << 32, 1 << 48] {
        for command in ["LOCK.ACQUIRE", "RWLOCK.RLOCK"] {
            c.int(&format!("{command} k me {ttl}"));
            let holders = c.call("LOCK.INFO k").field("holders");
            let ends = holders.items()[0].field("since").as_int() + ttl;
            assert_eq!(c.int("PEXPIRETIME k"), ends);
            assert_eq!(c.int("EXPIRETIME k"), (ends + 500) / 1000);
            let before = now_ms();
            let left = c.int("PTTL k");
            assert!((before + left..=now_ms() + left).contains(&ends));
            c.int("LOCK.RELEASE k me");
        }
    }
}

fn the_memory_of_thousands_of_readers_is_freed(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let used = |c: &mut Client| c.info("used_memory").parse::<i64>().unwrap();
    // By a script, because data from a client would stay in its buffers.
    let take = "for n = 1, 5000 do redis.call('RWLOCK.RLOCK', 'k', 'reader ' .. n, 600000) end";
    let take = ["EVAL", take, "0"];
    c.send(&take); // so that only the readers are new the next time
    for delete in [
        "DEL k",
        "UNLINK k",
        "FLUSHDB",
        "FLUSHALL ASYNC",
        "SET k text",
        "PEXPIRE k 1",
    ] {
        c.call("FLUSHALL SYNC");
        let without = used(&mut c);
        c.send(&take);
        let with = used(&mut c);
        let grown = with - without;
        assert!(grown > 5000 * 60, "{with} after {without}");
        c.call(delete);
        wait_for("the memory to be given back", || {
            (used(&mut c) < without + grown / 4).then_some(())
        });
    }
}

fn an_expired_lock_counts_as_one_expired_key(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE alone me 20");
    for (token, ttl) in [("a", 10), ("b", 30), ("d", 50)] {
        c.int(&format!("RWLOCK.RLOCK shared {token} {ttl}"));
    }
    c.until("DBSIZE", 0);
    assert_eq!(c.info("expired_keys"), "2");
}

/// Microseconds per call of the most expensive command of a reader, by the server's own count, for
/// 2000 readers. Each uses the key `key` with `#` replaced by its number.
fn cost_of_a_reader(c: &mut Client, key: &str) -> f64 {
    c.call("CONFIG RESETSTAT");
    // The writer's command is refused, or converts the only reader.
    for (line, must_answer_1) in [
        ("RWLOCK.RLOCK KEY t# 500000", false),
        ("LOCK.RENEW KEY t# 550000", true),
        ("RWLOCK.WLOCK KEY t# 550000", false),
        ("LOCK.RELEASE KEY t#", true),
    ] {
        let line = line.replace("KEY", key);
        let lines = (0..2000).map(|n| words(&line.replace('#', &n.to_string())));
        for reply in c.pipeline(&lines.collect::<Vec<_>>()) {
            assert!(
                !must_answer_1 || reply == Reply::Int(1),
                "{line}: {reply:?}"
            );
        }
    }
    let names = ["rwlock.rlock", "lock.renew", "rwlock.wlock", "lock.release"];
    let costs = names.map(|name| {
        let stats = c.info(&format!("cmdstat_{name}"));
        let mut stats = stats.split(',');
        let usec = stats.find_map(|field| field.strip_prefix("usec_per_call="));
        usec.unwrap().parse::<f64>().unwrap()
    });
    costs.into_iter().fold(0.0, f64::max)
}

fn operations_on_a_key_with_many_readers_stay_cheap(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let alone = cost_of_a_reader(&mut c, "k#");
    c.send_all((0..20_000).map(|n| format!("RWLOCK.RLOCK k stays{n} 600000")));
    // A scan of 20,000 readers would take hundreds of microseconds. The best of three counts,
    // because the machine has other work.
    let among = (0..3).map(|_| cost_of_a_reader(&mut c, "k"));
    let among = among.fold(f64::INFINITY, f64::min);
    let holders = c.call("LOCK.INFO k HOLDERS 20000").field("holders");
    assert_eq!(holders.items().len(), 20_000);
    assert!(among < 10.0 * alone.max(1.0), "{among} µs after {alone} µs");
}
