//! ```text
//! LOCK.MACQUIRE numkeys key [key ...] token|* ttl [MODES EXCLUSIVE|SHARED [EXCLUSIVE|SHARED ...]] [BLOCK timeout|NOTIFY timeout channel] [KEEP grace] [LINGER milliseconds]
//! ```
//! While the request waits it holds nothing. It has a place in the queue of each key, and is
//! granted when it is the first in all of them and all locks admit it. So requests for several keys
//! wait for each other in one order only, and none starves.

use super::acquire::{self, Acquire, AskedMode};
use super::args::integer;
use super::spec::{Arg, Flag, KeyUse, KeyWords, Spec, NONDETERMINISTIC};
use super::{Args, Error};
use crate::lock::{Fence, Hold, Mode};

/// The description of LOCK.MACQUIRE for the server.
pub const SPEC: Spec = Spec {
    name: c"lock.macquire",
    summary:
        c"Takes the holds of several locks in one step, or none, and returns one fence for all.",
    complexity: c"O(N) for N keys, and O(N*log(M)) to wait behind M others.",
    since: c"0.3.0",
    flags: &[Flag::Write, Flag::DenyOom, Flag::Blocking],
    keys: KeyWords::Counted {
        key_use: KeyUse::Updates,
        count_at: COUNT_AT,
    },
    args: &[
        Arg::integer(c"numkeys"),
        Arg::KEY.multiple(),
        Arg::one_of(
            c"token",
            &[Arg::text(c"token"), Arg::pure_token(c"make", c"*")],
        ),
        Arg::integer(c"ttl"),
        Arg::one_of(
            c"mode",
            &[
                Arg::pure_token(c"exclusive", c"EXCLUSIVE"),
                Arg::pure_token(c"shared", c"SHARED"),
            ],
        )
        .after(c"MODES")
        .multiple()
        .optional(),
        acquire::WAIT,
        acquire::GRACE,
        acquire::LINGER,
    ],
    tips: NONDETERMINISTIC,
    history: &[],
};

/// The word that is the number of keys. The keys come right after it.
pub const COUNT_AT: i32 = 1;

/// The most keys of a request.
pub const MOST_KEYS: usize = 128;

/// A parsed request for several holds.
#[derive(Debug)]
pub struct Macquire<'a> {
    keys: Vec<&'a [u8]>,
    /// One for each key; empty without MODES.
    modes: Vec<Mode>,
    acquire: Acquire<'a>,
}

/// What a token has of a key that it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Has {
    /// This hold.
    Hold(Mode, Hold),
    /// Nothing, and it can have the key now.
    NothingFree,
    /// Nothing, and others hold the key or wait for it.
    NothingBusy,
}

/// What is to be done about a request for several keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllOrNone {
    /// The token holds all of them under this fence: the deadlines are set anew.
    Again(Fence),
    /// It gets all of them.
    Grant,
    /// It waits, if it said so.
    Wait,
    /// It holds some of them, or holds them otherwise.
    Partial,
}

impl<'a> Macquire<'a> {
    /// Reads the arguments after the name of the command.
    pub fn parse(mut args: Args<impl Iterator<Item = &'a [u8]>>) -> Result<Self, Error> {
        let count = key_count(args.required()?).ok_or(Error::KeyCount)?;
        let mut keys = Vec::with_capacity(count);
        for _ in 0..count {
            keys.push(args.required()?);
        }
        let mut modes = Vec::new();
        let acquire =
            Acquire::parse_with(AskedMode::Mode(Mode::Exclusive), args, |option, args| {
                if !option.eq_ignore_ascii_case(b"MODES") {
                    return Err(Error::UnknownOptionOfSeveral);
                }
                if !modes.is_empty() {
                    return Err(Error::RepeatedOption);
                }
                for _ in 0..count {
                    modes.push(args.optional().and_then(mode_of).ok_or(Error::Modes)?);
                }
                Ok(())
            })?;
        if has_twice(keys.clone()) {
            return Err(Error::KeyTwice);
        }
        Ok(Self {
            keys,
            modes,
            acquire,
        })
    }

    /// The keys, each with the mode in which it is asked for.
    pub fn keys(&self) -> impl Iterator<Item = (&'a [u8], Mode)> + Clone + '_ {
        let keys = self.keys.iter().enumerate();
        keys.map(|(at, key)| (*key, self.mode_at(at)))
    }

    /// The rest of the request, which is as that of LOCK.ACQUIRE. Its mode does not matter.
    pub const fn acquire(&self) -> &Acquire<'a> {
        &self.acquire
    }

    /// Decides the request by what its token has of each key.
    pub fn decide(&self, all: impl Iterator<Item = Has>) -> AllOrNone {
        let (mut fence, mut held, mut is_same, mut is_free) = (None, 0_usize, true, true);
        for (at, has) in all.enumerate() {
            match has {
                Has::Hold(mode, hold) => {
                    held = held.saturating_add(1);
                    is_same &= mode == self.mode_at(at);
                    is_same &= *fence.get_or_insert(hold.fence) == hold.fence;
                }
                Has::NothingFree => {}
                Has::NothingBusy => is_free = false,
            }
        }
        match fence {
            Some(fence) if is_same && held == self.keys.len() => AllOrNone::Again(fence),
            Some(_) => AllOrNone::Partial,
            None if is_free => AllOrNone::Grant,
            None => AllOrNone::Wait,
        }
    }

    fn mode_at(&self, at: usize) -> Mode {
        self.modes.get(at).copied().unwrap_or(Mode::Exclusive)
    }
}

fn has_twice(mut keys: Vec<&[u8]>) -> bool {
    keys.sort_unstable();
    let mut pairs = keys.windows(2);
    pairs.any(|two| matches!(two, [one, other] if one == other))
}

/// The number of keys, from the word that says it.
pub fn key_count(word: &[u8]) -> Option<usize> {
    let count = integer(word).and_then(|count| usize::try_from(count).ok())?;
    (1..=MOST_KEYS).contains(&count).then_some(count)
}

fn mode_of(word: &[u8]) -> Option<Mode> {
    let mut modes = [Mode::Exclusive, Mode::Shared].into_iter();
    modes.find(|mode| word.eq_ignore_ascii_case(mode.name().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{Deadline, Since};
    use Mode::{Exclusive, Shared};

    fn parse<'a>(line: &'a str) -> Result<Macquire<'a>, Error> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        Macquire::parse(Args::new(words.into_iter()))
    }

    #[test]
    fn the_grammar() {
        let plain = parse("2 b a me 10").unwrap();
        let keys: Vec<_> = plain.keys().collect();
        assert_eq!(keys, [(&b"b"[..], Exclusive), (b"a", Exclusive)]);
        assert_eq!(plain.acquire().ask().token.as_bytes(), b"me");
        for line in [
            "2 b a me 10 MODES shared EXCLUSIVE BLOCK 5 KEEP 7",
            "2 b a me 10 KEEP 7 BLOCK 5 modes SHARED exclusive",
            "2 b a me 10 BLOCK 5 MODES SHARED exclusive KEEP 7",
        ] {
            let all = parse(line).unwrap();
            let modes: Vec<_> = all.keys().map(|(_, mode)| mode).collect();
            assert_eq!(modes, [Shared, Exclusive], "{line}");
            assert_eq!(all.acquire().keep_ms(), Some(7), "{line}");
            assert_eq!(all.acquire().wait().map(|wait| wait.timeout_ms()), Some(5));
        }
        let most: Vec<String> = (0..MOST_KEYS).map(|n| format!("k{n}")).collect();
        let most = format!("128 {} me 10", most.join(" "));
        assert_eq!(parse(&most).unwrap().keys().count(), MOST_KEYS);
        // A channel may have the name of an option.
        let channel = parse("1 a me 10 NOTIFY 0 MODES").unwrap();
        assert!(channel.acquire().wait().is_some());
    }

    #[test]
    fn what_does_not_fit_the_grammar() {
        for (line, error) in [
            ("0 a me 10", Error::KeyCount),
            ("-1 a me 10", Error::KeyCount),
            ("x a me 10", Error::KeyCount),
            ("129 a me 10", Error::KeyCount),
            ("99999999999999999999 a me 10", Error::KeyCount),
            ("3 a me 10", Error::Arity),
            ("2 a me 10", Error::Arity),
            ("2 a a me 10", Error::KeyTwice),
            ("3 a b a me 10 BLOCK 0", Error::KeyTwice),
            ("1 a me x", Error::Ttl),
            ("1 a me 10 MODES", Error::Modes),
            ("2 a b me 10 MODES SHARED", Error::Modes),
            ("2 a b me 10 MODES SHARED BLOCK 5", Error::Modes),
            ("1 a me 10 MODES READ", Error::Modes),
            (
                "1 a me 10 MODES SHARED SHARED",
                Error::UnknownOptionOfSeveral,
            ),
            ("1 a me 10 MODES SHARED MODES SHARED", Error::RepeatedOption),
            ("1 a me 10 LIMIT 5", Error::UnknownOptionOfSeveral),
            ("1 a me 10 BLOCK 1 NOTIFY 1 c", Error::ContradictingOptions),
            ("1 a * 10 KEEP 5", Error::GeneratedToken),
        ] {
            assert_eq!(parse(line).map(|_| ()), Err(error), "{line}");
        }
    }

    #[test]
    fn all_or_none() {
        let hold = |mode, fence| {
            let hold = Hold {
                fence: Fence::new(fence).unwrap(),
                deadline: Deadline::from_millis(5).unwrap(),
                since: Since::at(1),
            };
            Has::Hold(mode, hold)
        };
        let (free, busy) = (Has::NothingFree, Has::NothingBusy);
        let both = parse("2 a b me 10 MODES SHARED EXCLUSIVE").unwrap();
        let again = AllOrNone::Again(Fence::new(7).unwrap());
        for (has, verdict) in [
            ([free, free], AllOrNone::Grant),
            ([free, busy], AllOrNone::Wait),
            ([busy, free], AllOrNone::Wait),
            ([hold(Shared, 7), hold(Exclusive, 7)], again),
            ([hold(Shared, 7), hold(Exclusive, 8)], AllOrNone::Partial),
            ([hold(Exclusive, 7), hold(Exclusive, 7)], AllOrNone::Partial),
            ([hold(Shared, 7), free], AllOrNone::Partial),
            ([busy, hold(Exclusive, 7)], AllOrNone::Partial),
        ] {
            assert_eq!(both.decide(has.into_iter()), verdict, "{has:?}");
        }
    }
}
