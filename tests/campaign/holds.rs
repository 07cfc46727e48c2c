//! The judge of holds. A hold lasts until its owner ends it or its time is over, as long as no fault
//! comes between. After that, nobody may use it: not for a renewal, a check, a command or a release.

use super::requests::{Answer, Finding, History, Request};

/// By how much the clocks of a server and of the journal may differ within a lease, and a
/// hundredth of the lease.
const APART_US: u64 = 10_000;

/// After a promotion a hold does not count in its last second.
const LAST_SECOND_US: u64 = 1_000_000;

/// What is known of a token's hold at one server.
#[derive(Clone, Copy, Default)]
struct Known {
    /// The server, and when it has said so.
    of: Option<(u16, u64)>,
    /// Until when it has a hold at least. 0: nobody knows.
    at_least_us: u64,
    /// From when on it certainly has none, if its end is known.
    ended_us: Option<u64>,
}

pub fn holds(history: &History<'_>) -> Vec<Finding> {
    let by_token = history.by_token();
    by_token
        .values()
        .filter_map(|all| of_token(history, all))
        .collect()
}

/// The first contradiction among the requests of a token.
fn of_token(history: &History<'_>, all: &[&Request<'_>]) -> Option<Finding> {
    let mut known = Known::default();
    for one in all {
        let (to, said_us) = known.of.unwrap_or((0, 0));
        let is_known = to == one.to && history.is_calm(said_us, one.ended_us);
        if !is_known {
            known = Known::default();
        }
        let uses = !one.is_acquire();
        let was_lost = uses && one.ended_us < known.at_least_us && is_refused(history, one);
        let ended = known.ended_us.filter(|us| one.sent_us > *us);
        let is_obeyed =
            uses && is_known && ended.is_some() && matches!(one.answer, Answer::Number(1..));
        if was_lost || is_obeyed {
            let what = match was_lost {
                true => "was refused although its owner had the lock",
                false => "was carried out although its owner had the lock no more",
            };
            return Some(Finding {
                judge: "holds",
                key: one.key.into(),
                tokens: vec![one.token.into()],
                from_us: said_us.min(one.sent_us),
                until_us: one.ended_us,
                text: format!("{} of {} {what}", one.command, one.token),
            });
        }
        known = after(history, known, one);
    }
    None
}

/// A renewal, a check or a release that finds no hold, or a command that is not carried out.
fn is_refused(history: &History<'_>, one: &Request<'_>) -> bool {
    let is_no_hold = match one.command {
        "LOCK.RENEW" | "LOCK.RELEASE" => one.answer == Answer::Number(0),
        "LOCK.CHECK" => one.answer == Answer::Nil,
        _ => false,
    };
    is_no_hold && history.is_calm(one.sent_us, one.ended_us)
}

fn after(history: &History<'_>, known: Known, one: &Request<'_>) -> Known {
    let lease_us = one.ttl_ms.unwrap_or(0) * 1_000;
    let (from_us, until_us) = (one.sent_us, one.ended_us);
    let of = Some((one.to, one.sent_us));
    if !history.is_calm(from_us, until_us) {
        return Known::default();
    }
    match (one.command, one.answer) {
        _ if one.is_acquire() => match one.answer {
            Answer::Number(_) => has_hold(history, of, (from_us, until_us), lease_us),
            _ => Known::default(),
        },
        ("LOCK.RENEW", Answer::Number(1)) => has_hold(history, of, (from_us, until_us), lease_us),
        // It may be in its last second, and is there for its release.
        ("LOCK.RENEW", Answer::Number(_)) | ("LOCK.CHECK", Answer::Nil)
            if from_us > history.first_fault_us() =>
        {
            Known::default()
        }
        ("LOCK.RENEW" | "LOCK.RELEASE", Answer::Number(_)) | ("LOCK.CHECK", Answer::Nil) => Known {
            of,
            at_least_us: 0,
            ended_us: Some(until_us),
        },
        ("LOCK.RENEW" | "LOCK.RELEASE", _) => Known::default(),
        _ => known,
    }
}

fn has_hold(
    history: &History<'_>,
    of: Option<(u16, u64)>,
    (from_us, until_us): (u64, u64),
    lease_us: u64,
) -> Known {
    let apart_us = APART_US + lease_us / 100;
    let unsure_us = match from_us > history.first_fault_us() {
        true => apart_us + LAST_SECOND_US,
        false => apart_us,
    };
    Known {
        of,
        at_least_us: (from_us + lease_us).saturating_sub(unsure_us),
        ended_us: Some(until_us + lease_us + apart_us),
    }
}
