//! Each rule refuses what it should: small forged journals with one error.

use redis_lock::lock::codec::encode_effect;
use redis_lock::lock::{Deadline, Effect, Fence, Hold, Mode, Since, Token};

use super::checker::{instant_that_came_back, Fences};
use super::file::Account;
use super::journal::{Answer, Held, Holds, Life, Part, Request, Step, What};
use super::trial::EVERYTHING;
use crate::harness::packed;

const EXCLUSIVE: What = What::Acquire(Mode::Exclusive, None);
const SHARED: What = What::Acquire(Mode::Shared, None);

/// Every request takes a millisecond.
const TOOK_US: u64 = 1_000;

/// The server has restarted.
const LOOK_MS: std::ops::RangeInclusive<u64> = 500..=501;

fn step(what: What, key: &str, token: &str, ttl_ms: u64) -> Step {
    Step {
        what,
        key: key.into(),
        token: token.into(),
        ttl_ms,
    }
}

fn request(at_ms: u64, steps: &[Step], answers: Option<&[Answer]>) -> Request {
    Request {
        steps: steps.to_vec(),
        is_several: false,
        asked_us: at_ms * 1_000,
        ended_us: at_ms * 1_000 + TOOK_US,
        answers: answers.map(<[_]>::to_vec),
    }
}

fn took(at_ms: u64, key: &str, token: &str, fence: u64) -> Request {
    let take = step(EXCLUSIVE, key, token, 60_000);
    request(at_ms, &[take], Some(&[Answer::Fence(fence)]))
}

fn released(at_ms: u64, key: &str, token: &str) -> Request {
    let release = step(What::Release, key, token, 0);
    request(at_ms, &[release], Some(&[Answer::Done(true)]))
}

fn renewed(at_ms: u64, key: &str, token: &str, ttl_ms: u64) -> Request {
    let renew = step(What::Renew, key, token, ttl_ms);
    request(at_ms, &[renew], Some(&[Answer::Done(true)]))
}

/// One life, with these requests of each client.
fn life(requests: &[&[Request]]) -> Life {
    let part = |requests: &&[Request]| Part {
        base: Holds::new(),
        requests: requests.to_vec(),
    };
    let parts = requests.iter().map(part).collect();
    Life { parts }
}

/// A hold of 60 s that was acquired at this time.
fn held(taken_ms: u64, key: &str, token: &str, fence: u64) -> ((String, String), Held) {
    let held = Held {
        mode: Mode::Exclusive,
        fence: Some(fence),
        ends_ms: taken_ms + 60_000..=taken_ms + 60_001,
    };
    ((key.into(), token.into()), held)
}

fn came_back(life: &Life, seen: &[Holds]) -> Result<u64, String> {
    instant_that_came_back(life, seen, &LOOK_MS, &EVERYTHING)
}

fn came_back_from_any_instant(life: &Life, seen: &[Holds]) -> Result<u64, String> {
    instant_that_came_back(life, seen, &LOOK_MS, &(0..=u64::MAX))
}

#[test]
fn a_lost_acknowledged_effect_is_refused() {
    let (nothing, hold) = (Holds::new(), Holds::from([held(10, "a", "c0.1", 1)]));
    let take = life(&[&[took(10, "a", "c0.1", 1)]]);
    assert!(came_back(&take, std::slice::from_ref(&hold)).is_ok());
    assert!(came_back(&take, std::slice::from_ref(&nothing)).is_err());
    assert!(came_back_from_any_instant(&take, std::slice::from_ref(&nothing)).is_ok());
    let release = life(&[&[took(10, "a", "c0.1", 1), released(20, "a", "c0.1")]]);
    assert!(came_back(&release, std::slice::from_ref(&nothing)).is_ok());
    assert!(came_back(&release, std::slice::from_ref(&hold)).is_err());
    let renew = life(&[&[took(10, "a", "c0.1", 1), renewed(20, "a", "c0.1", 70_000)]]);
    assert!(came_back(&renew, &[hold]).is_err());
    let later = Holds::from([held(10_020, "a", "c0.1", 1)]);
    assert!(came_back(&renew, &[later]).is_ok());
}

#[test]
fn a_hold_that_returns_changed_is_refused() {
    let take = life(&[&[took(10, "a", "c0.1", 1)]]);
    let seen = |change: &dyn Fn(&mut Held)| {
        let (whose, mut held) = held(10, "a", "c0.1", 1);
        change(&mut held);
        came_back_from_any_instant(&take, &[Holds::from([(whose, held)])])
    };
    assert!(seen(&|_| {}).is_ok());
    assert!(seen(&|held| held.fence = Some(2)).is_err());
    assert!(seen(&|held| held.mode = Mode::Shared).is_err());
    assert!(seen(&|held| held.ends_ms = 60_012..=60_013).is_err());
    assert!(seen(&|held| held.ends_ms = 60_008..=60_009).is_err());
    let strange = Holds::from([held(10, "a", "c0.2", 1)]);
    assert!(came_back_from_any_instant(&take, &[strange]).is_err());
}

#[test]
fn only_expired_holds_may_be_missing() {
    let short = |ttl_ms| {
        let take = step(EXCLUSIVE, "a", "c0.1", ttl_ms);
        let taken = request(10, &[take], Some(&[Answer::Fence(1)]));
        came_back(&life(&[&[taken]]), &[Holds::new()])
    };
    assert!(short(400).is_ok());
    assert!(short(500).is_err());
}

#[test]
fn a_half_applied_request_is_refused() {
    let both = [
        step(SHARED, "a", "c0.1", 60_000),
        step(SHARED, "b", "c0.1", 60_000),
    ];
    let life = life(&[&[request(10, &both, None)]]);
    let shared = |key| {
        let (whose, held) = held(10, key, "c0.1", 1);
        let mode = Mode::Shared;
        (whose, Held { mode, ..held })
    };
    assert!(came_back(&life, &[Holds::new()]).is_ok());
    assert!(came_back(&life, &[Holds::from([shared("a"), shared("b")])]).is_ok());
    // One of the requests may have been refused, so only replies count.
    let taken = request(10, &both, Some(&[Answer::Fence(1), Answer::Fence(1)]));
    let life = self::life(&[&[taken]]);
    let half = [Holds::from([shared("a")])];
    assert!(came_back_from_any_instant(&life, &half).is_err());
}

#[test]
fn half_of_a_grant_of_several_keys_is_refused() {
    let token = "c0.1@0+1";
    let both = ["lock:0", "lock:1"].map(|key| step(EXCLUSIVE, key, token, 60_000));
    let has = |keys: &[&str]| {
        let held = keys.iter().map(|key| held(10, key, token, 1));
        [held.collect::<Holds>()]
    };
    let fences = [Answer::Fence(1); 2];
    for answers in [None, Some(&fences[..])] {
        let mut asked = request(10, &both, answers);
        asked.is_several = true;
        let life = life(&[&[asked]]);
        assert!(came_back_from_any_instant(&life, &has(&[])).is_ok());
        assert!(came_back_from_any_instant(&life, &has(&["lock:0", "lock:1"])).is_ok());
        assert!(came_back_from_any_instant(&life, &has(&["lock:0"])).is_err());
        assert!(came_back_from_any_instant(&life, &has(&["lock:1"])).is_err());
        assert!(Fences::default().take(&life).is_ok());
    }
    // Two grants of another token have two fences.
    let both = ["lock:0", "lock:1"].map(|key| step(EXCLUSIVE, key, "c0.1", 60_000));
    let life = life(&[&[request(10, &both, Some(&fences))]]);
    assert!(Fences::default().take(&life).is_err());
}

#[test]
fn a_grant_of_several_keys_without_its_transaction_is_torn() {
    let effect = Effect::Hold {
        now_ms: 10,
        mode: Mode::Exclusive,
        token: Token::new(b"c0.1@0+1").unwrap(),
        hold: Hold {
            fence: Fence::new(1).unwrap(),
            deadline: Deadline::from_millis(60_010).unwrap(),
            since: Since::at(10),
        },
    };
    let [first, second] = ["lock:0", "lock:1"].map(|key| file_of(key, &effect));
    let [begin, end] = ["MULTI", "EXEC"].map(|name| packed(&[name]));
    let torn = |file: &[&[u8]]| Account::of(&[file.concat()]).torn.len();
    assert_eq!(torn(&[&begin, &first, &second, &end]), 0);
    assert_eq!(torn(&[&begin, &first, &second]), 0, "nothing of it counts");
    assert_eq!(torn(&[&begin, &first, &end]), 1);
    assert_eq!(torn(&[&first, &second]), 2);
    // What comes later is no grant.
    assert_eq!(torn(&[&begin, &first, &second, &end, &second]), 0);
}

#[test]
fn a_state_mixed_from_two_instants_is_refused() {
    // The second client acquired its lock after the first, and only that one is there.
    let life = life(&[&[took(10, "a", "c0.1", 1)], &[took(20, "b", "c1.1", 2)]]);
    let first = Holds::from([held(10, "a", "c0.1", 1)]);
    let second = Holds::from([held(20, "b", "c1.1", 2)]);
    assert!(came_back_from_any_instant(&life, &[first.clone(), Holds::new()]).is_ok());
    assert!(came_back_from_any_instant(&life, &[Holds::new(), second.clone()]).is_err());
    // The state must not be too old either.
    let seen = [first, Holds::new()];
    let since = |us| instant_that_came_back(&life, &seen, &LOOK_MS, &(us..=u64::MAX));
    assert!(since(15_000).is_ok());
    assert!(since(22_000).is_err());
    let until = |us| instant_that_came_back(&life, &seen, &LOOK_MS, &(0..=us));
    assert!(until(9_000).is_err());
}

#[test]
fn a_wrong_answer_about_the_holder_is_refused() {
    let answer = |what, answer| {
        let asked = request(20, &[step(what, "a", "c0.1", 60_000)], Some(&[answer]));
        let life = life(&[&[took(10, "a", "c0.1", 1), asked]]);
        came_back_from_any_instant(&life, &[Holds::from([held(20, "a", "c0.1", 1)])])
    };
    assert!(answer(What::Renew, Answer::Done(true)).is_ok());
    assert!(answer(What::Renew, Answer::Done(false)).is_err());
    assert!(answer(What::Release, Answer::Done(false)).is_err());
    assert!(answer(EXCLUSIVE, Answer::Null).is_err());
    assert!(answer(EXCLUSIVE, Answer::Fence(2)).is_err());
    let twice = life(&[&[released(10, "a", "c0.1")]]);
    assert!(came_back_from_any_instant(&twice, &[Holds::new()]).is_err());
}

#[test]
fn a_fence_that_repeats_or_falls_over_restarts_is_refused() {
    let mut fences = Fences::default();
    assert!(fences.take(&life(&[&[took(10, "a", "c0.1", 5)]])).is_ok());
    assert_eq!(fences.largest, 5);
    let next = |fence| {
        let mut fences = Fences::default();
        fences.take(&life(&[&[took(10, "a", "c0.1", 5)]])).unwrap();
        fences.take(&life(&[&[took(20, "b", "c0.2", fence)]]))
    };
    assert!(next(6).is_ok());
    assert!(next(5).is_err());
    assert!(next(4).is_err());
    let twice = life(&[&[took(10, "a", "c0.1", 5)], &[took(20, "b", "c1.1", 5)]]);
    assert!(Fences::default().take(&twice).is_err());
}

fn file_of(key: &str, effect: &Effect<'_>) -> Vec<u8> {
    let mut record = Vec::new();
    encode_effect(effect, &mut record);
    packed(&[b"LOCK._APPLY".as_slice(), key.as_bytes(), &record])
}
