//! The judges of those who wait. **Fairness**: whoever was seen in the queue is granted before
//! whoever came later. **Liveness**: an answer comes when its time is over, and no lock stays free
//! while somebody waits for it.

use std::collections::BTreeMap;

use super::requests::{Answer, Finding, History, Request};

/// How late an answer may be, and for how long a lock may stay free while somebody waits. A loaded
/// machine stalls for more than half of it.
const LATE_US: u64 = 1_000_000;

/// How long an answer may be on its way.
const ANSWERED_US: u64 = 50_000;

/// By then a server has noticed that a connection is gone.
const NOTICED_US: u64 = 150_000;

/// Who was seen in a queue, and was passed.
pub fn fairness(history: &History<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for seen in &history.queued {
        for (n, token) in seen.tokens.iter().enumerate() {
            let is_there = |one: &&Request<'_>| {
                one.token == *token
                    && (one.to, one.key) == (seen.to, seen.key)
                    && one.sent_us < seen.at_us
                    && one.ended_us > seen.at_us
            };
            let Some(first) = history.requests.iter().find(is_there) else {
                continue;
            };
            // A place that was taken by an earlier request may have another end.
            if asked_before(history, first) {
                continue;
            }
            let behind = |one: &&Request<'_>| {
                // An earlier request of the token is not the one that was seen.
                let was_seen =
                    one.ended_us > seen.at_us && seen.tokens[n + 1..].contains(&one.token);
                let is_behind = one.sent_us > seen.at_us || was_seen;
                one.token != *token
                    && one.is_acquire()
                    && (one.to, one.key) == (seen.to, seen.key)
                    && is_behind
                    && passed(first, one)
                    && !asked_before(history, one)
            };
            for later in history.requests.iter().filter(behind) {
                let tokens = vec![first.token.to_string(), later.token.to_string()];
                if found.iter().any(|known| known.tokens == tokens) {
                    continue;
                }
                let (was, came) = (first.token, later.token);
                found.push(Finding {
                    judge: "fairness",
                    key: first.key.into(),
                    tokens,
                    from_us: first.sent_us,
                    until_us: later.ended_us.max(first.ended_us),
                    text: format!("{came} was granted before {was}, which was ahead of it"),
                });
            }
        }
    }
    found
}

/// A holder that asks again goes ahead of others, and so does a place that is taken up again.
fn asked_before(history: &History<'_>, request: &Request<'_>) -> bool {
    let mut all = history.requests.iter();
    all.any(|one| one.token == request.token && one.sent_us < request.sent_us)
}

/// Whether the later one was granted while the first one was certainly in the queue.
fn passed(first: &Request<'_>, later: &Request<'_>) -> bool {
    let Answer::Number(later_fence) = later.answer else {
        return false;
    };
    match first.answer {
        // Fences rise at one server.
        Answer::Number(fence) => later_fence < fence,
        Answer::Nil | Answer::Lost | Answer::Open => {
            // The server's clock may be faster.
            let block_us = first.block_ms.unwrap_or(0) * 1_000;
            let until_us = first.blocks_until_us() - block_us / 100;
            later.ended_us < first.ended_us.min(until_us)
        }
        Answer::Error => false,
    }
}

/// Answers that did not come, and locks that stayed free.
pub fn liveness(history: &History<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut waits: BTreeMap<(&str, u16), Vec<(u64, u64)>> = BTreeMap::new();
    for waiting in &history.requests {
        if waiting.block_ms.is_none() {
            continue;
        }
        let due_us = waiting.blocks_until_us();
        let is_late = waiting.answer != Answer::Error && waiting.ended_us > due_us + LATE_US;
        if is_late
            && history.is_calm(waiting.sent_us, waiting.ended_us)
            && history.was_prompt(waiting.to, due_us, waiting.ended_us)
        {
            found.push(Finding {
                judge: "liveness",
                key: waiting.key.into(),
                tokens: vec![waiting.token.into()],
                from_us: waiting.sent_us,
                until_us: waiting.ended_us,
                text: format!(
                    "{} got no answer when its time was over, only {} ms later",
                    waiting.token,
                    (waiting.ended_us - due_us) / 1_000
                ),
            });
        }
        if let Some(from_us) = granting_from_us(history, waiting) {
            let from_us = from_us.max(waiting.sent_us);
            let until_us = waiting.ended_us.min(due_us);
            if from_us < until_us {
                let here = waits.entry((waiting.key, waiting.to)).or_default();
                here.push((from_us, until_us));
            }
        }
    }
    // A majority may be late for a moment, and nobody is granted meanwhile. The requests of an
    // adapter are not in the journal, so nobody knows when it has the lock.
    if !history.needs_majority && !history.has_adapter {
        let free = waits
            .iter()
            .flat_map(|((key, to), waits)| free_meanwhile(history, key, *to, waits));
        found.extend(free);
    }
    found
}

/// While somebody waits, one after the other, the lock stays free, as far as anybody can tell.
fn free_meanwhile(
    history: &History<'_>,
    key: &str,
    to: u16,
    waits: &[(u64, u64)],
) -> Option<Finding> {
    let by_token = history.by_token();
    let here = by_token.values().filter(|all| all[0].key == key);
    let held = here.map(|all| (from_when_us(all), may_hold_until_us(history, all)));
    let mut held: Vec<(u64, u64)> = held.collect();
    held.sort_unstable();
    let mut waited: Option<(u64, u64)> = None;
    for (from_us, until_us) in waits.iter().chain([&(u64::MAX, u64::MAX)]) {
        match &mut waited {
            Some((_, end_us)) if *from_us <= *end_us => *end_us = (*until_us).max(*end_us),
            _ => {
                let (begin_us, end_us) = waited.unwrap_or_default();
                let gap = gap(&held, begin_us, end_us).filter(|(from_us, until_us)| {
                    history.is_calm(*from_us, *until_us)
                        && history.was_prompt(to, *from_us, *until_us)
                });
                if let Some((free_us, until_us)) = gap {
                    let ms = (until_us - free_us) / 1_000;
                    return Some(Finding {
                        judge: "liveness",
                        key: key.into(),
                        tokens: Vec::new(),
                        from_us: free_us,
                        until_us,
                        text: format!("{key} stayed free for {ms} ms while others waited for it"),
                    });
                }
                waited = Some((*from_us, *until_us));
            }
        }
    }
    None
}

/// A time between these instants in which nobody holds.
fn gap(held: &[(u64, u64)], begin_us: u64, end_us: u64) -> Option<(u64, u64)> {
    let mut free_us = begin_us;
    for (from_us, until_us) in held.iter().chain([&(end_us, end_us)]) {
        let from_us = (*from_us).min(end_us);
        if from_us > free_us + LATE_US {
            return Some((free_us, from_us));
        }
        free_us = free_us.max(*until_us);
    }
    None
}

/// When a token may have its first hold. One that has waited had none before it was told, but for
/// the time of the answer.
fn from_when_us(all: &[&Request<'_>]) -> u64 {
    let first = all[0];
    match first.answer {
        Answer::Number(_) => first
            .ended_us
            .saturating_sub(ANSWERED_US)
            .max(first.sent_us),
        _ => first.sent_us,
    }
}

/// From when on a server grants what is asked for, around the request: before the first fault, and
/// after the first new grant that follows the last one.
fn granting_from_us(history: &History<'_>, waiting: &Request<'_>) -> Option<u64> {
    if waiting.ended_us < history.first_fault_us() {
        return Some(0);
    }
    let (to, promoted_us) = history.promoted?;
    let since_us = history.quiet_us?.max(promoted_us);
    let is_new = |one: &&Request<'_>| {
        let is_granted = one.is_acquire() && matches!(one.answer, Answer::Number(_));
        one.to == to && is_granted && one.ended_us > since_us && !asked_before(history, one)
    };
    let granted = history.requests.iter().filter(is_new);
    let first_us = granted.map(|one| one.ended_us).min()?;
    (waiting.to == to).then_some(first_us)
}

/// Until when a token may hold the lock, by all that it has asked.
fn may_hold_until_us(history: &History<'_>, all: &[&Request<'_>]) -> u64 {
    let mut until_us = 0;
    for (n, one) in all.iter().enumerate() {
        let lease_us = one.ttl_ms.unwrap_or(0) * 1_000;
        match (one.command, one.answer) {
            ("LOCK.RELEASE", Answer::Number(_)) => until_us = one.ended_us,
            (_, Answer::Nil) => {}
            (_, Answer::Lost) if one.is_acquire() && is_gone(history, one, &all[n + 1..]) => {
                until_us = until_us.max(one.ended_us + NOTICED_US);
            }
            _ if one.ttl_ms.is_some() => until_us = until_us.max(one.ended_us + lease_us),
            _ => {}
        }
    }
    until_us
}

/// Whether a request whose client has gone cannot have been granted: by the time that the server
/// knew it, another one held the lock alone all the while.
fn is_gone(history: &History<'_>, lost: &Request<'_>, later: &[&Request<'_>]) -> bool {
    if later.iter().any(|one| one.is_acquire()) {
        return false;
    }
    let until_us = lost.ended_us + NOTICED_US;
    let holds = |all: &Vec<&Request<'_>>| {
        let grants = |one: &&Request<'_>| {
            one.is_acquire() && !one.is_shared() && matches!(one.answer, Answer::Number(_))
        };
        let first = all[0];
        let is_left = all.iter().any(|one| {
            let is_other = one.command == "LOCK.RELEASE" || one.is_shared();
            one.sent_us <= until_us && is_other
        });
        let lease_us = first.ttl_ms.unwrap_or(0) * 1_000;
        let holds_alone = Some(first).filter(|one| grants(one)).is_some();
        holds_alone
            && (first.key, first.to) == (lost.key, lost.to)
            && first.token != lost.token
            && first.ended_us < lost.ended_us
            && first.sent_us + lease_us > until_us
            && !is_left
    };
    history.by_token().values().any(holds)
}
