//! Any bytes are decoded or refused. A decoded record has exactly one encoding, and a history of
//! records gives the same lock on every server.

use redis_lock::lock::codec::{
    decode, decode_held, encode_effect, encode_fence, encode_held, encode_leases, encode_state,
    Record, MAX_EFFECT_LEN,
};
use redis_lock::lock::{Effect, Fate, Lock, Mode, Now};

/// The input is one record. It is also a history of a lock: records, each after its length.
pub fn run(data: &[u8]) {
    read(data);
    read_held(data);
    let (mut primary, mut replica) = (None, None);
    let mut rest = data;
    while let Some((record, tail)) = split(rest) {
        rest = tail;
        match read(record) {
            Some(Record::State(lock)) => {
                replica = copy(&lock);
                primary = Some(lock);
            }
            Some(Record::Effect(effect)) => {
                apply(&effect, &mut primary);
                apply(&effect, &mut replica);
            }
            Some(Record::Fence(_) | Record::Leases(_)) | None => {}
        }
        assert_eq!(primary, replica);
        if let Some(lock) = &primary {
            check(lock);
            // As after a load from a file in the middle of the history.
            replica = copy(lock);
            assert_eq!(primary, replica);
        }
    }
}

fn split(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = data.split_first_chunk::<2>()?;
    let len = usize::from(u16::from_le_bytes(*len));
    (len > 0).then(|| rest.split_at(len.min(rest.len())))
}

/// Decodes, and fails unless encoding gives the same bytes again.
fn read(bytes: &[u8]) -> Option<Record<'_>> {
    let record = decode(bytes).ok()?;
    let again = match &record {
        Record::State(lock) => {
            check(lock);
            encode_state(lock)
        }
        Record::Effect(effect) => {
            let mut out = Vec::new();
            encode_effect(effect, &mut out);
            assert!(out.len() <= MAX_EFFECT_LEN);
            out
        }
        Record::Fence(fence) => encode_fence(*fence).to_vec(),
        Record::Leases(leases) => encode_leases(leases),
    };
    assert_eq!(again, bytes);
    Some(record)
}

fn copy(lock: &Lock) -> Option<Lock> {
    match decode(&encode_state(lock)) {
        Ok(Record::State(lock)) => Some(lock),
        other => panic!("{lock:?} came back as {other:?}"),
    }
}

/// Applies an effect as the server does. A repetition changes nothing.
fn apply(effect: &Effect<'_>, lock: &mut Option<Lock>) {
    let Some(held) = lock else {
        *lock = effect.apply_to_absent();
        return;
    };
    if effect.apply_to(held) == Fate::Free {
        *lock = None;
        return;
    }
    let mut twice = held.clone();
    assert_eq!(effect.apply_to(&mut twice), Fate::Held);
    assert_eq!(*held, twice);
}

/// The input is a token after its length, and then the record that accompanies it.
fn read_held(data: &[u8]) {
    let Some((len, rest)) = data.split_first() else {
        return;
    };
    let Some((token, record)) = rest.split_at_checked(usize::from(*len)) else {
        return;
    };
    if let Ok(Effect::Hold {
        now_ms,
        mode,
        token: read,
        hold,
    }) = decode_held(token, record)
    {
        assert_eq!(read.as_bytes(), token);
        assert_eq!(encode_held(now_ms, mode, &hold).as_bytes(), record);
    }
}

/// The invariants of every lock between effects.
fn check(lock: &Lock) {
    let holders = lock.holders();
    assert_eq!(holders.len(), lock.len());
    assert!(!holders.is_empty());
    assert!(lock.mode() == Mode::Shared || holders.len() == 1);
    let order = |at: usize| (holders[at].1.fence, holders[at].0.as_token());
    assert!((1..holders.len()).all(|at| order(at - 1) < order(at)));
    let deadlines = || holders.iter().map(|(_, hold)| hold.deadline);
    assert_eq!(lock.latest_deadline(), deadlines().max());
    let now = Now::from_millis(deadlines().min().map_or(0, |deadline| deadline.ms()));
    for (token, hold) in &holders {
        assert_eq!(
            lock.hold_of(token.as_token(), now),
            Some((lock.mode(), *hold))
        );
        let others = holders
            .iter()
            .filter(|(other, _)| other.as_token() != token.as_token());
        let latest = others.map(|(_, hold)| hold.deadline).max();
        assert_eq!(lock.latest_deadline_of_others(token.as_token()), latest);
    }
    let tokens = holders.iter().map(|(token, _)| token.as_bytes().len());
    let bytes = lock.memory_bytes();
    assert!(bytes >= tokens.sum() && bytes < 8192 + 2048 * lock.len());
}
