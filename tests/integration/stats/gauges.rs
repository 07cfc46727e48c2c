//! The gauges, for every way in which locks come and go.

use super::assert_held;
use crate::harness::{Client, Kind, Reply, Server};

on_every_server![
    gauges_follow_every_change_of_locks,
    gauges_follow_a_full_synchronization,
];

/// Enough readers for the server to free their lock on another thread.
const READERS: usize = 100;

/// Locks of every shape in two databases. Leaves the client in database 0.
fn take_some(c: &mut Client) {
    for db in ["1", "0"] {
        c.call(&format!("SELECT {db}"));
        for key in ["exclusive", "other"] {
            c.int(&format!("LOCK.ACQUIRE {key} me 600000"));
        }
        c.int("RWLOCK.RLOCK alone me 600000");
        for reader in 0..3 {
            c.int(&format!("RWLOCK.RLOCK shared reader{reader} 600000"));
        }
        for reader in 0..READERS {
            c.int(&format!("RWLOCK.RLOCK readers reader{reader} 600000"));
        }
        c.int("LOCK.ACQUIRE permit me 600000 LIMIT 3");
        for permit in 0..3 {
            c.int(&format!(
                "LOCK.ACQUIRE permits permit{permit} 600000 LIMIT 5"
            ));
        }
        c.int("RWLOCK.RLOCK permits reader 600000");
        c.call("SET text x");
    }
}

fn gauges_follow_every_change_of_locks(kind: Kind) {
    let server = Server::start_with(kind, &["--appendonly", "yes"]);
    let mut c = server.client();
    take_some(&mut c);
    let dump = c.call("DUMP shared");
    let dump = dump.as_bytes();
    c.call("FLUSHALL");
    assert_eq!(assert_held(&mut c, "FLUSHALL"), [0, 0, 0, 0]);
    let full = [4, 2 * 104, 14, 2 * 5];
    for line in [
        "DEL exclusive shared readers permit permits",
        "UNLINK exclusive shared readers permit permits",
        "SET exclusive x",
        "SET readers x",
        "SET permits x",
        "LOCK.ACQUIRE permit you 600000 LIMIT 2",
        "LOCK.RELEASE permit me",
        "LOCK.RELEASE permits permit0",
        "LOCK.ACQUIRE permits permit0 600000 LIMIT 4",
        "RWLOCK.RLOCK permits permit0 600000",
        "GETSET text x",
        "SUNIONSTORE shared nothing",
        "RENAME exclusive new",
        "RENAME exclusive readers",
        "RENAME permits permit",
        "RENAME permit exclusive",
        "RENAME text readers",
        "RENAMENX exclusive other",
        "MOVE readers 2",
        "MOVE readers 1",
        "COPY readers new",
        "SWAPDB 0 1",
        "SWAPDB 0 2",
        "FLUSHDB",
        "FLUSHDB ASYNC",
        "FLUSHALL",
        "FLUSHALL ASYNC",
        "EVAL redis.call('del',KEYS[1])redis.call('LOCK.ACQUIRE',KEYS[1],'me','5000') 1 readers",
        "PERSIST shared",
        "DEBUG RELOAD",
        "DEBUG LOADAOF",
        "BGREWRITEAOF",
        "LOCK.RESETSTAT",
    ] {
        take_some(&mut c);
        assert_eq!(assert_held(&mut c, "taking them"), full, "before {line}");
        c.call(line);
        assert_held(&mut c, line);
        // Ended holds are not subtracted again, and the remaining ones are.
        c.call("FLUSHALL SYNC");
        assert_eq!(
            assert_held(&mut c, &format!("{line} and FLUSHALL")),
            [0, 0, 0, 0]
        );
    }
    take_some(&mut c);
    for (line, payload, fails) in [
        ("new 0", dump, false),
        ("readers 0 REPLACE", dump, false),
        ("exclusive 0", dump, true),
        ("exclusive 0 REPLACE", &dump[..dump.len() - 12], true),
    ] {
        let reply = c.restore(line, payload);
        assert_eq!(matches!(reply, Reply::Error(_)), fails, "{reply:?}");
        assert_held(&mut c, "RESTORE");
    }
}

fn gauges_follow_a_full_synchronization(kind: Kind) {
    for load in ["disabled", "swapdb"] {
        let primary = Server::start_with(kind, &["--repl-diskless-sync-delay", "0"]);
        let mut p = primary.client();
        take_some(&mut p);
        let replica = Server::start_with(kind, &["--repl-diskless-load", load]);
        let mut r = replica.client();
        take_some(&mut r);
        r.int("LOCK.ACQUIRE mine me 600000");
        replica.follow(&primary);
        replica.wait_until_it_follows(&primary);
        assert_eq!(assert_held(&mut r, load), [4, 2 * 104, 14, 2 * 5]);
        // The effects after the synchronization count as well.
        p.int("LOCK.RELEASE exclusive me");
        p.int("RWLOCK.RLOCK other me 600000");
        p.int("RWLOCK.RLOCK alone you 600000");
        p.call("DEL readers");
        p.call("MOVE shared 2");
        let held = assert_held(&mut p, "changes");
        replica.wait_until_it_follows(&primary);
        assert_eq!(assert_held(&mut r, load), held);
    }
}
