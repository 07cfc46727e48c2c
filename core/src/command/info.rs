//! ```text
//! LOCK.INFO key [HOLDERS n] [WAITERS n]
//! ```

use super::args::integer;
use super::spec::{Arg, Change, Flag, KeyUse, KeyWords, Spec, NONDETERMINISTIC};
use super::{Args, Error};
use crate::lock::{Deadline, Hold, Lock, Mode, Now, Occupancy, TokenText};

/// The description of LOCK.INFO for the server.
pub const SPEC: Spec = Spec {
    name: c"lock.info",
    summary: c"Returns who holds a lock and who waits for it.",
    complexity: c"O(H+N*log(N)+M) for H holds, and N holders and M waiters in the reply.",
    since: c"0.3.0",
    flags: &[Flag::ReadOnly],
    keys: KeyWords::One(KeyUse::Reads),
    args: &[
        Arg::KEY,
        Arg::integer(c"n").after(c"HOLDERS").optional(),
        Arg::integer(c"n").after(c"WAITERS").optional(),
    ],
    tips: NONDETERMINISTIC,
    history: &[
        Change {
            since: c"0.4.0",
            what: c"Waiters have the field result.",
        },
        Change {
            since: c"0.4.0",
            what: c"The field guard is shown also where nobody waits.",
        },
    ],
};

/// How many holders, and how many waiters, are shown where the request says no number.
const DEFAULT: usize = 1_000;

/// How many waiters are shown in one reply, whatever the request says. A reply with a million would
/// keep the server from everybody else. Holders have no such bound, because clients decide by them.
const MOST_WAITERS: usize = 20_000;

/// How many are shown at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Holders.
    pub holders: usize,
    /// Waiters.
    pub waiters: usize,
}

/// Reads the arguments after the key.
pub fn parse<'a>(mut args: Args<impl Iterator<Item = &'a [u8]>>) -> Result<Shown, Error> {
    let (mut holders, mut waiters) = (None, None);
    while let Some(option) = args.optional() {
        let shown = if option.eq_ignore_ascii_case(b"HOLDERS") {
            &mut holders
        } else if option.eq_ignore_ascii_case(b"WAITERS") {
            &mut waiters
        } else {
            return Err(Error::UnknownInfoOption);
        };
        let n = args.optional().and_then(integer).ok_or(Error::ShownCount)?;
        if shown.replace(n).is_some() {
            return Err(Error::RepeatedOption);
        }
    }
    let count = |n: Option<u64>| n.map_or(DEFAULT, |n| usize::try_from(n).unwrap_or(usize::MAX));
    Ok(Shown {
        holders: count(holders),
        waiters: count(waiters).min(MOST_WAITERS),
    })
}

/// The reply for a lock, but for its waiters.
#[derive(Debug)]
pub struct Info<'a> {
    /// The mode of its holds: counted, with the smallest limit, if one of them has a limit. `None`
    /// between the end of the last hold and the next grant.
    pub mode: Option<Mode>,
    /// The first of the live holds, in the order of their grants. None ends after the key.
    pub holders: Vec<(TokenText<'a>, Hold)>,
    /// The number of all live holds.
    pub holder_count: usize,
    /// The number of all waiters.
    pub waiter_count: usize,
    /// For how many milliseconds no new grant is made, where nobody holds the lock.
    pub guard_ms: Option<u64>,
}

impl<'a> Info<'a> {
    /// Looks at `shown` holders of a lock whose key ends at `key_deadline`. An `EXPIRE` may have
    /// set it before the deadlines of the holds. `None` if the lock is free, and nobody waits, and
    /// nothing keeps it from being granted.
    pub fn of(
        lock: Option<&'a Lock>,
        key_deadline: Option<Deadline>,
        shown: usize,
        waiter_count: usize,
        guard_ms: Option<u64>,
        now: Now,
    ) -> Option<Self> {
        let is_over = |deadline: Deadline| deadline.is_over(now.ms());
        let lock = lock.filter(|_| !key_deadline.is_some_and(is_over));
        let occupancy = lock.map_or(Occupancy::NONE, |lock| lock.occupancy(now));
        if occupancy.holders == 0 && waiter_count == 0 && guard_ms.is_none() {
            return None;
        }
        let first = lock.into_iter();
        let first = first.flat_map(|lock| lock.first_live_holds(shown, now));
        let first = first.map(|(token, _, hold)| {
            let deadline = key_deadline.map_or(hold.deadline, |key| key.min(hold.deadline));
            (token, Hold { deadline, ..hold })
        });
        Some(Self {
            mode: occupancy.mode(),
            holders: first.collect(),
            holder_count: occupancy.holders,
            waiter_count,
            guard_ms: guard_ms.filter(|_| occupancy.holders == 0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_of(words: &[&str]) -> Result<Shown, Error> {
        parse(Args::new(words.iter().map(|word| word.as_bytes())))
    }

    #[test]
    fn the_grammar() {
        for (words, holders, waiters) in [
            (&[][..], 1_000, 1_000),
            (&["HOLDERS", "5"], 5, 1_000),
            (&["waiters", "0"], 1_000, 0),
            (&["WAITERS", "7", "Holders", "0"], 0, 7),
            (&["HOLDERS", "18446744073709551615"], usize::MAX, 1_000),
            (&["WAITERS", "18446744073709551615"], 1_000, 20_000),
        ] {
            assert_eq!(parse_of(words), Ok(Shown { holders, waiters }), "{words:?}");
        }
        for (words, error) in [
            (&["HOLDERS"][..], Error::ShownCount),
            (&["WAITERS", "HOLDERS", "1"], Error::ShownCount),
            (&["WAITERS", "-1"], Error::ShownCount),
            (&["HOLDERS", "01"], Error::ShownCount),
            (&["HOLDERS", "1", "holders", "1"], Error::RepeatedOption),
            (&["BLOCK", "1"], Error::UnknownInfoOption),
            (&["HOLDERS", "1", "2"], Error::UnknownInfoOption),
        ] {
            assert_eq!(parse_of(words), Err(error), "{words:?}");
        }
    }
}
