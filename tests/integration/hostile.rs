//! Malicious or damaged input: payloads for RESTORE and random commands. None of it may crash or
//! hang the server, or leave a lock that does not work.

pub mod lines;
pub mod mutants;
pub mod payload;

use rand::rngs::StdRng;
use rand::SeedableRng;

use crate::harness::{figure, scale, wait_for, Client, Kind, Reply, Server};
use lines::{is_counted, kind_of, random_line};
use mutants::{damaged, Damage};
use payload::Payload;

on_every_server![
    mutated_payloads_are_refused_or_restore_working_locks,
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

/// The payloads to mutate: one exclusive hold, one reader, several, many, permits, and tokens of all
/// lengths.
fn seeds(c: &mut Client) -> Vec<Vec<u8>> {
    let long = "x".repeat(512);
    let mut lines = vec![
        "LOCK.ACQUIRE exclusive me 900000000".to_string(),
        format!("LOCK.ACQUIRE long {long} 900000000"),
        "RWLOCK.RLOCK reader a 900000000".to_string(),
    ];
    for n in 0..4 {
        lines.push(format!("RWLOCK.RLOCK readers r{n} {}", 900_000_000 - n));
    }
    for n in 0..40 {
        let token = "y".repeat(1 + n * 511 / 39);
        lines.push(format!("RWLOCK.RLOCK many {token} 900000000"));
    }
    lines.push("LOCK.ACQUIRE permit a 900000000 LIMIT 7".to_string());
    for limit in 3..6 {
        lines.push(format!(
            "LOCK.ACQUIRE permits p{limit} 900000000 LIMIT {limit}"
        ));
    }
    lines.push("RWLOCK.RLOCK mixed r 900000000".to_string());
    lines.push("LOCK.ACQUIRE mixed p 900000000 LIMIT 4".to_string());
    for line in &lines {
        assert!(c.int(line) > 0);
    }
    let keys = [
        "exclusive",
        "long",
        "reader",
        "readers",
        "many",
        "permit",
        "permits",
        "mixed",
    ];
    keys.map(|key| dump(c, key)).to_vec()
}

#[derive(Default)]
struct Tally {
    accepted: usize,
    refused: usize,
    held: usize,
}

fn mutated_payloads_are_refused_or_restore_working_locks(kind: Kind) {
    let payloads = PAYLOADS * scale();
    let server = start(kind);
    let mut c = server.client();
    let seeds = seeds(&mut c);
    for seed in &seeds {
        assert_eq!(Payload::read(seed).write(), *seed, "the footer is wrong");
    }
    let mut rng = StdRng::seed_from_u64(0x6861_726d);
    let (mut records, mut envelopes, mut any) = Default::default();
    for _ in 0..payloads / BATCH {
        let batch: Vec<_> = (0..BATCH).map(|_| damaged(&mut rng, &seeds)).collect();
        for (damage, held) in try_batch(&mut c, &batch) {
            let tally: &mut Tally = match damage {
                Damage::Record => &mut records,
                Damage::Envelope => &mut envelopes,
                Damage::Any => &mut any,
            };
            match held {
                None => tally.refused += 1,
                Some(held) => {
                    tally.accepted += 1;
                    tally.held += usize::from(held);
                }
            }
        }
        c.call("FLUSHALL");
    }
    // Both results must have occurred, and with footers that let the bytes reach the module.
    assert!(records.accepted > payloads / 20 && records.refused > payloads / 20);
    assert!(records.held > payloads / 20);
    assert!(envelopes.accepted > 0 && envelopes.refused > payloads / 20);
    // A change without a new footer is always detected.
    assert!(any.accepted <= payloads / 1000 && any.refused > payloads / 20);
    let accepted = records.accepted + envelopes.accepted;
    figure(
        kind,
        &format!("{payloads} payloads, {accepted} accepted, the others refused"),
    );
}

/// Sends the payloads to the server and checks the results. `None` if one was refused, else whether
/// the lock has a holder.
fn try_batch(c: &mut Client, batch: &[(Damage, Vec<u8>)]) -> Vec<(Damage, Option<bool>)> {
    const MULTI: usize = 1 + 5 + 1;
    let mut commands = Vec::with_capacity(batch.len() * MULTI);
    for (n, (_, payload)) in batch.iter().enumerate() {
        let key = format!("k{n}");
        // In one step, because the module deletes a lock whose holds have all expired.
        commands.extend([
            line(&["MULTI"]),
            line(&[b"RESTORE".as_slice(), key.as_bytes(), b"0", payload]),
            line(&["EXISTS", &key]),
            line(&["TYPE", &key]),
            line(&["DUMP", &key]),
            line(&["LOCK.INFO", &key]),
            line(&["EXEC"]),
        ]);
    }
    let replies = c.pipeline(&commands);
    let mut results = Vec::with_capacity(batch.len());
    for (n, (damage, payload)) in batch.iter().enumerate() {
        let done = &replies[n * MULTI..][..MULTI];
        let [restored, exists, ty, dumped, info] = done[MULTI - 1].items() else {
            panic!("{done:?}")
        };
        let shown = || format!("{damage:?} {}", payload.escape_ascii());
        if let Reply::Error(_) = restored {
            assert_eq!(*exists, Reply::Int(0), "{}", shown());
            results.push((*damage, None));
            continue;
        }
        assert_eq!(*restored, Reply::Simple("OK".into()), "{}", shown());
        assert_eq!(*ty, Reply::Simple("redislock".into()), "{}", shown());
        if *damage == Damage::Record {
            // One lock has one encoding.
            assert_eq!(dumped.as_bytes(), payload, "{}", shown());
        }
        assert_works(c, &format!("k{n}"), dumped.as_bytes(), info, &shown);
        results.push((*damage, Some(*info != Reply::Nil)));
    }
    results
}

/// Fails unless the data of a restored lock is consistent, and it can be acquired, released, saved
/// and loaded again.
fn assert_works(
    c: &mut Client,
    key: &str,
    dumped: &[u8],
    info: &Reply,
    shown: &dyn Fn() -> String,
) {
    let k = key.as_bytes();
    let mut commands = vec![
        line(&["MULTI"]),
        line(&[
            b"RESTORE".as_slice(),
            &b"again"[..],
            b"0",
            dumped,
            b"REPLACE",
        ]),
        line(&["DUMP", "again"]),
        line(&["EXEC"]),
        line(&["LOCK.RENEW", key, "nobody at all", "1000"]),
        line(&["LOCK.ACQUIRE", key, "nobody at all", "1000000"]),
    ];
    let mut held = Vec::new();
    if *info == Reply::Nil {
        // All its holds have expired, so the lock is free.
        held.push(Reply::from("nobody at all"));
    } else {
        for holder in info.field("holders").items() {
            held.push(holder.field("token"));
        }
    }
    let tokens: Vec<_> = held.iter().map(Reply::as_bytes).collect();
    for token in &tokens {
        commands.push(line(&[&b"LOCK.RENEW"[..], k, token, b"1000000"]));
    }
    for token in &tokens {
        commands.push(line(&[&b"LOCK.RELEASE"[..], k, token]));
    }
    commands.push(line(&["EXISTS", key]));
    let replies = c.pipeline(&commands);
    let again = [Reply::Simple("OK".into()), Reply::Bulk(dumped.to_vec())];
    assert_eq!(replies[3].items(), again, "{}", shown());
    assert_eq!(replies[4], Reply::Int(0), "{}", shown());
    match (info, &replies[5]) {
        (Reply::Nil, Reply::Int(fence)) => assert!(*fence > 0 && *fence < 1 << 53),
        (Reply::Nil, other) => panic!("{other:?}: {}", shown()),
        (_, other) => assert_eq!(*other, Reply::Nil, "{}", shown()),
    }
    let (done, exists) = replies[6..].split_at(tokens.len() * 2);
    assert!(
        done.iter().all(|reply| *reply == Reply::Int(1)),
        "{done:?}: {}",
        shown()
    );
    assert_eq!(exists, [Reply::Int(0)], "{}", shown());
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
