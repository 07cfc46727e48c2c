//! Malicious or damaged input: payloads for RESTORE and random commands. None of it may crash or
//! hang the server, or leave a lock that does not work.

pub mod lines;
pub mod payload;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::harness::{figure, scale, wait_for, Client, Kind, Reply, Server};
use lines::{is_counted, kind_of, random_line};
use payload::Payload;

on_every_server![
    damaged_payloads_are_refused_or_restore_a_lock,
    a_restored_fence_far_in_the_future_is_refused,
    a_restored_fence_is_never_given_again,
    a_restored_hold_ends_at_its_own_deadline,
    random_commands_are_all_answered,
];

/// Payloads per server, and how many of them are in flight.
const PAYLOADS: usize = 16_000;
const BATCH: usize = 1_000;

fn line<A: AsRef<[u8]>>(words: &[A]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_ref().to_vec()).collect()
}

/// A server with plain payloads, without compression between the bytes of a test and those that the
/// module reads. It also verifies payloads of its own types, which a mutation may produce.
fn start(kind: Kind) -> Server {
    let options = ["--rdbcompression", "no", "--sanitize-dump-payload", "yes"];
    Server::start_with(kind, &options)
}

#[track_caller]
fn dump(c: &mut Client, key: &str) -> Vec<u8> {
    c.call(&format!("DUMP {key}")).as_bytes().to_vec()
}

/// Whoever damages a whole payload and signs it again: a part of the server's own format is damaged,
/// too. (`fuzz` damages the record alone.)
fn damaged_payloads_are_refused_or_restore_a_lock(kind: Kind) {
    let payloads = PAYLOADS * scale();
    let server = start(kind);
    let mut c = server.client();
    for line in [
        "LOCK.ACQUIRE exclusive me 900000000",
        "RWLOCK.RLOCK readers a 900000000",
        "RWLOCK.RLOCK readers b 900000000",
        "LOCK.ACQUIRE permits a 900000000 LIMIT 7",
    ] {
        assert!(c.int(line) > 0);
    }
    let seeds = ["exclusive", "readers", "permits"].map(|key| dump(&mut c, key));
    let mut rng = StdRng::seed_from_u64(0x6861_726d);
    let mut accepted = 0;
    for _ in 0..payloads / BATCH {
        let commands = (0..BATCH).flat_map(|n| {
            let payload = damaged(&mut rng, &seeds[n % seeds.len()]);
            // In one step, because the module deletes a lock whose holds have all expired.
            [
                line(&["MULTI"]),
                line(&[b"RESTORE".as_slice(), b"k", b"0", &payload, b"REPLACE"]),
                line(&["TYPE", "k"]),
                line(&["LOCK.RENEW", "k", "nobody", "1000"]),
                line(&["DEL", "k"]),
                line(&["EXEC"]),
            ]
        });
        let replies = c.pipeline(&commands.collect::<Vec<_>>());
        for done in replies.chunks(6).map(|replies| replies[5].items()) {
            let is_taken = !matches!(done[0], Reply::Error(_));
            let is_lock = done[1] == Reply::Simple("redislock".into());
            assert_eq!(
                (is_lock, done[2].clone()),
                (is_taken, Reply::Int(0)),
                "{done:?}"
            );
            accepted += usize::from(is_taken);
        }
    }
    assert!(
        accepted > payloads / 100 && accepted < payloads / 2,
        "{accepted}"
    );
    figure(
        kind,
        &format!("{payloads} payloads, {accepted} accepted, the others refused"),
    );
}

/// Changes one to three bytes of a payload, and signs it. The first byte is the server's type.
pub fn damaged(rng: &mut StdRng, seed: &[u8]) -> Vec<u8> {
    let (body, footer) = seed.split_at(seed.len() - payload::FOOTER);
    let mut bytes = body.to_vec();
    // Most numbers precede the first token.
    let reach = if rng.random() { 16 } else { bytes.len() };
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(1..reach.min(bytes.len()).max(2));
        match rng.random_range(0..4) {
            0 => bytes[at] = rng.random(),
            1 => bytes[at] ^= 1 << rng.random_range(0..8),
            2 => bytes.truncate(at.max(2)),
            _ => bytes.insert(at, rng.random()),
        }
    }
    payload::sealed(bytes, [footer[0], footer[1]])
}

const HOUR_US: u64 = 3600 * 1_000_000;

fn a_restored_fence_far_in_the_future_is_refused(kind: Kind) {
    let server = start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE exclusive me 1000000");
    c.int("RWLOCK.RLOCK shared a 1000000");
    let now = c.now_us();
    for key in ["exclusive", "shared"] {
        let mut payload = Payload::read(&dump(&mut c, key));
        for fence in [
            (1 << 53) - 1,
            now + 2 * 365 * 24 * HOUR_US,
            1 << 53,
            u64::MAX,
            0,
        ] {
            payload.set_fence(fence);
            let forged = payload.write();
            let reply = c.restore("forged 0", &forged);
            assert!(matches!(reply, Reply::Error(_)), "{fence}: {reply:?}");
            let reply = c.restore(&format!("{key} 0 REPLACE"), &forged);
            assert!(matches!(reply, Reply::Error(_)), "{fence}: {reply:?}");
            let script = b"return redis.call('RESTORE', 'forged', 0, ARGV[1])";
            let reply = c.send(&[b"EVAL".as_slice(), &script[..], b"0", &forged]);
            assert!(matches!(reply, Reply::Error(_)), "{fence}: {reply:?}");
        }
        assert_eq!(c.int("EXISTS forged"), 0);
        assert_eq!(c.int(&format!("EXISTS {key}")), 1);
    }
    let next = c.int("LOCK.ACQUIRE other me 1000000") as u64;
    assert!(next < now + HOUR_US, "{next} follows no clock");
}

fn a_restored_fence_is_never_given_again(kind: Kind) {
    let server = start(kind);
    let mut c = server.client();
    for (n, take) in ["LOCK.ACQUIRE", "RWLOCK.RLOCK"].iter().enumerate() {
        let own = c.int(&format!("{take} k me 1000000")) as u64;
        let mut payload = Payload::read(&dump(&mut c, "k"));
        assert_eq!(payload.fence(), own, "the test knows the format");
        // The clock of the other server is ahead of this one's.
        let ahead = c.now_us() + HOUR_US * (1 + n as u64);
        payload.set_fence(ahead);
        c.int("DEL k");
        c.restore("k 0", &payload.write()).assert_ok();
        assert_eq!(c.int(&format!("{take} k me 1000000")) as u64, ahead);
        let next = c.int("LOCK.ACQUIRE other me 1000000") as u64;
        assert!(next > ahead, "{next} after {ahead}");
        c.call("FLUSHALL");
        assert!(c.int("LOCK.ACQUIRE k you 1000000") as u64 > next);
        c.call("FLUSHALL");
    }
}

fn a_restored_hold_ends_at_its_own_deadline(kind: Kind) {
    let server = start(kind);
    let mut c = server.client();
    for take in ["LOCK.ACQUIRE", "RWLOCK.RLOCK"] {
        let first = c.int(&format!("{take} k early 300"));
        let payload = dump(&mut c, "k");
        let deadline_ms = Payload::read(&payload).deadline_ms();
        c.int("DEL k");
        // The key itself is to last a day, and then forever, when the hold is already over.
        for ttl in ["86400000", "0"] {
            c.restore(&format!("k {ttl} REPLACE"), &payload).assert_ok();
            wait_for("the key to end with the hold", || {
                matches!(c.int("PTTL k"), -2 | 0..=300).then_some(())
            });
            let second = wait_for("the deadline", || {
                match c.call("LOCK.ACQUIRE k late 60000") {
                    Reply::Int(fence) => Some(fence),
                    _ => None,
                }
            });
            // A hold lasts through the millisecond of its deadline, but Redis 8 deletes the key in
            // it.
            let over_ms = deadline_ms + u64::from(!kind.is_redis_8());
            assert!(c.now_us() / 1000 >= over_ms, "it ended before its time");
            assert!(second > first);
            assert_eq!(c.int("LOCK.RELEASE k early"), 0);
            assert_eq!(c.int("LOCK.RELEASE k late"), 1);
        }
    }
}

const LINES: usize = 10_000;

fn random_commands_are_all_answered(kind: Kind) {
    let lines = LINES * scale();
    let server = start(kind);
    let mut c = server.client();
    let mut listener = server.client();
    let mut rng = StdRng::seed_from_u64(0x6368_616f);
    c.call("SET string v");
    assert_ne!(listener.call("SUBSCRIBE heard"), Reply::Nil);
    let megabyte = vec![b'm'; 1 << 20];
    let mut kinds = std::collections::HashMap::new();
    let mut counted = 0;
    for batch in 0..lines / BATCH {
        let mut commands: Vec<_> = (0..BATCH)
            .map(|_| random_line(&mut rng, &megabyte))
            .collect();
        let last = format!("the end of batch {batch}");
        commands.push(line(&["ECHO", &last]));
        let replies = c.pipeline(&commands);
        // If a command had no reply or two, this reply would not be the last.
        assert_eq!(replies[BATCH], Reply::from(last.as_str()));
        for (command, reply) in commands.iter().zip(&replies[..BATCH]) {
            *kinds.entry(kind_of(command, reply)).or_insert(0) += 1;
            counted += i64::from(is_counted(command) && matches!(reply, Reply::Int(_)));
        }
    }
    for kind in ["error", "number", "null", "array", "place"] {
        assert!(
            kinds.get(kind).is_some_and(|n| *n > lines / 200),
            "{kinds:?}"
        );
    }
    assert_eq!(c.text("GET string"), "v");
    assert!(counted > 0, "{kinds:?}");
    let done = c.text("GET counted");
    assert_eq!(done, counted.to_string(), "each as often as it was told");
    // Nobody listens for most of the places that are left. They end, and so do those that are
    // granted.
    wait_for("all places to end", || {
        c.call("FLUSHALL");
        (c.call("LOCK.TOP").items().is_empty() && c.int("DBSIZE") == 0).then_some(())
    });
    // What LINGER binds to this connection ends with it.
    drop(c);
    assert_eq!(server.client().call("PING"), Reply::Simple("PONG".into()));
    figure(kind, &format!("{lines} random command lines, all answered"));
}
