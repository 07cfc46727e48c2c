//! Every path of the module at least once, in servers under valgrind's memcheck. `make valgrind`
//! runs the tests of all other files this way.
//!
//! Only on Redis 7.0, whose allocator memcheck can replace. The other servers have theirs built in,
//! or one that memcheck does not know.

use rand::rngs::StdRng;
use rand::SeedableRng;

use crate::harness::{figure, scale, wait_for, workload, Client, Kind, Reply, Server, Setup};
use crate::hostile::damaged;
use crate::hostile::lines::random_line;
use crate::hostile::payload::Payload;

const KIND: Kind = Kind::Redis7_0;
const COMMANDS: usize = 1_500;
const PAYLOADS: usize = 300;
const LINES: usize = 300;
const READERS: usize = 300;

/// Effects are in the file as they were sent, to be read one by one, and one server is enough for
/// everything that memcheck is to see.
const OPTIONS: [&str; 8] = [
    "--appendonly",
    "yes",
    "--appendfsync",
    "no",
    "--aof-use-rdb-preamble",
    "no",
    "--repl-diskless-sync-delay",
    "0",
];

#[test]
#[ignore = "nightly"]
fn valgrind_finds_no_invalid_access_and_no_leak() {
    let mut server = start();
    let mut replica = start();
    replica.follow(&server);
    replica.wait_until_it_follows(&server);

    workload::run(&mut server.client(), 0x6d65_6d6f, COMMANDS * scale());
    for end in ENDS {
        wait_and_pass_on(&server, end);
    }
    let readers = READERS * scale();
    a_crowd_of_readers_comes_and_goes(&mut server.client(), readers);
    let payloads = throw_payloads(&mut server.client(), PAYLOADS * scale());
    let lines = throw_lines(&mut server.client(), LINES * scale());
    tell_of_all(&mut server.client());
    replica.wait_until_it_follows(&server);
    be_demoted_and_promoted(&replica, &server);
    save_and_load(&mut server);

    let allocations = [&mut server, &mut replica].map(|server| {
        server.shut_down();
        let allocations = server.report().unwrap().allocations();
        // If the allocator were not replaced, there would be hardly any.
        assert!(allocations > 20_000, "only {allocations} were seen");
        allocations
    });
    figure(
        KIND,
        &format!(
            "{} commands, {payloads} payloads, {lines} odd lines, {} allocations on two servers: no invalid access, nothing lost",
            COMMANDS * scale(),
            allocations.iter().sum::<u64>()
        ),
    );
}

fn start() -> Server {
    let setup = Setup {
        memcheck: true,
        ..Setup::with_module(&OPTIONS)
    };
    Server::start_as(KIND, setup)
}

/// The ways to grant the next waiter.
const ENDS: [&str; 9] = [
    "LOCK.RELEASE k a",
    "DEL k",
    "UNLINK k",
    "PEXPIRE k 1",
    "LOCK.RENEW k a 1",
    "RENAME k other",
    "SWAPDB 0 3",
    "FLUSHALL ASYNC",
    "FLUSHDB SYNC",
];

/// Clients wait and leave in every way, and those that stay get the lock.
fn wait_and_pass_on(server: &Server, end: &str) {
    let mut c = server.client();
    c.call("FLUSHALL");
    c.int("LOCK.ACQUIRE k a 100000");
    let killed = server.blocked("LOCK.ACQUIRE k killed 100000 BLOCK 0");
    let reader = server.blocked("RWLOCK.RLOCK k reader 100000 BLOCK 0");
    let made = server.blocked("RWLOCK.RLOCK k * 100000 BLOCK 100000");
    let late = server.later("RWLOCK.WLOCK k late 100000 BLOCK 30");
    assert_eq!(late.reply(), Reply::Nil);
    let mut gone = server.raw_blocked("RWLOCK.WLOCK k gone 100000 BLOCK 0");
    let writer = server.blocked("RWLOCK.WLOCK k writer 100000 BLOCK 0");
    let overwritten = server.blocked("RWLOCK.WLOCK k overwritten 100000 BLOCK 0");
    c.int(&format!("CLIENT KILL ID {}", killed.id));
    killed.broken();
    gone.leave();
    assert_eq!(c.call("LOCK.INFO k").field("holders").items().len(), 1);
    c.call(end);
    reader.fence();
    let token = made.reply().items()[0].clone();
    // The first request to convert waits. It goes back to the queue if its shared hold ends in the
    // meantime.
    let upgrade = server.blocked("RWLOCK.WLOCK k reader 100000 BLOCK 0");
    assert_eq!(
        c.send(&[b"LOCK.RELEASE".as_slice(), &b"k"[..], token.as_bytes()]),
        Reply::Int(1)
    );
    upgrade.fence();
    c.int("RWLOCK.RLOCK k reader 100000");
    assert_eq!(c.int("LOCK.RELEASE k reader"), 1);
    writer.fence();
    c.call("SET k text");
    overwritten.error("WRONGTYPE");
    wait_for("all to have left", || {
        (server.blocked_clients() == 0).then_some(())
    });
}

fn a_crowd_of_readers_comes_and_goes(c: &mut Client, readers: usize) {
    for end in ["UNLINK readers", "FLUSHALL ASYNC", "DEL readers"] {
        let come: Vec<_> = (0..readers)
            .map(|n| {
                let ttl = if n % 3 == 0 { 1 } else { 100_000 };
                workload::words(&format!("RWLOCK.RLOCK readers reader-{n} {ttl}"))
            })
            .collect();
        c.pipeline(&come);
        let go: Vec<_> = (0..readers / 2)
            .map(|n| workload::words(&format!("LOCK.RELEASE readers reader-{n}")))
            .collect();
        c.pipeline(&go);
        assert!(c.holders("readers").len() > readers / 4);
        let dump = c.call("DUMP readers");
        c.restore("copy 0 REPLACE", dump.as_bytes()).assert_ok();
        c.call(end);
    }
}

fn throw_payloads(c: &mut Client, payloads: usize) -> usize {
    c.int("LOCK.ACQUIRE one me 900000000");
    for n in 0..10 {
        c.int(&format!("RWLOCK.RLOCK many reader-{n} 900000000"));
    }
    let seeds = ["one", "many"].map(|key| c.call(&format!("DUMP {key}")).as_bytes().to_vec());
    for seed in &seeds {
        assert_eq!(Payload::read(seed).write(), *seed);
    }
    let mut rng = StdRng::seed_from_u64(0x6d75_7461);
    let mut restored = 0;
    for n in 0..payloads {
        let payload = damaged(&mut rng, &seeds[n % seeds.len()]);
        let reply = c.restore("mutant 0 REPLACE", &payload);
        restored += usize::from(reply == Reply::Simple("OK".into()));
    }
    assert!(restored > payloads / 100 && restored < payloads * 3 / 4);
    payloads
}

fn throw_lines(c: &mut Client, lines: usize) -> usize {
    let mut rng = StdRng::seed_from_u64(0x6c69_6e65);
    let odd: Vec<_> = (0..lines)
        .map(|_| random_line(&mut rng, &[b'x'; 100_000]))
        .collect();
    for chunk in odd.chunks(20) {
        c.pipeline(chunk);
    }
    c.call("FLUSHALL");
    lines
}

/// Everything else that a server or its users ask of the module.
fn tell_of_all(c: &mut Client) {
    c.call("CONFIG SET notify-keyspace-events KEA");
    c.int("LOCK.ACQUIRE k a 100000");
    c.int("RWLOCK.RLOCK shared a 100000");
    c.int("RWLOCK.RLOCK shared b 100000");
    for line in [
        "COMMAND DOCS lock.acquire rwlock.rlock lock.info lock.resetstat lock._apply",
        "COMMAND INFO lock.acquire",
        "MODULE LIST",
        "INFO everything",
        "LOCK.RESETSTAT",
        "CONFIG GET lock.*",
        "CONFIG SET lock.max-waiters 500",
        "MEMORY USAGE k",
        "MEMORY USAGE shared",
        "DEBUG DIGEST",
        "DEBUG OBJECT shared",
        "OBJECT ENCODING k",
        "PERSIST shared",
        "EXPIREAT shared 9999999999",
        "LOCK.RENEW shared a 5000",
        "MOVE shared 2",
        "SCAN 0 TYPE redislock",
    ] {
        let reply = c.call(line);
        assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
    }
    for line in ["COPY k copy", "MODULE UNLOAD lock", "LOCK._APPLY k x"] {
        c.error(line);
    }
}

/// The replica grants for a moment, and unblocks its waiters when it is a replica again.
fn be_demoted_and_promoted(replica: &Server, primary: &Server) {
    let mut c = replica.client();
    c.call("REPLICAOF NO ONE");
    c.int("LOCK.ACQUIRE its-own a 100000");
    let sent_away = replica.blocked("LOCK.ACQUIRE its-own b 100000 BLOCK 0");
    replica.follow(primary);
    sent_away.error("UNBLOCKED");
    replica.wait_until_it_follows(primary);
    assert_eq!(c.call("LOCK.INFO its-own"), Reply::Nil);
}

fn save_and_load(server: &mut Server) {
    let mut c = server.client();
    workload::run(&mut c, 0x7361_7665, COMMANDS / 5);
    c.int("LOCK.ACQUIRE kept a 100000");
    for line in ["SAVE", "DEBUG RELOAD", "BGREWRITEAOF"] {
        c.call(line);
        c.until_info("aof_rewrite_in_progress", "0");
    }
    c.call("DEBUG LOADAOF");
    assert_eq!(c.holders("kept"), ["a"]);
    server.shut_down();
    server.start_again();
    assert_eq!(server.client().holders("kept"), ["a"]);
}
