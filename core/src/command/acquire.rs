//! ```text
//! LOCK.ACQUIRE key token|* ttl [LIMIT n] [BLOCK timeout|NOTIFY timeout channel] [KEEP grace]
//!     [LINGER milliseconds]
//! ```
//! Three commands take a hold. They share this grammar but for LIMIT, and differ in the mode: see
//! [`super::wlock`] and [`super::rlock`].

// Long because: the grammar is described, parsed and tested in one place.

use uuid::fmt::Hyphenated;
use uuid::Uuid;

use super::args::{integer, ms, MAKE};
use super::spec::{Arg, Flag, KeyUse, KeyWords, Spec, NONDETERMINISTIC};
use super::{Args, Error, Reply};
use crate::lock::{Ask, Fence, Mode, Token, Ttl};

/// The description of LOCK.ACQUIRE. The other two commands that take a hold start from it.
pub const SPEC: Spec = Spec {
    name: c"lock.acquire",
    summary:
        c"Takes the exclusive hold of a lock, or one of a limited number, and returns its fence.",
    complexity: c"O(1), and O(log(M)) to wait behind M others.",
    since: c"0.3.0",
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast, Flag::Blocking],
    keys: KeyWords::One(KeyUse::Updates),
    args: &[
        Arg::KEY,
        TOKEN,
        Arg::integer(c"ttl"),
        Arg::integer(c"n").after(c"LIMIT").optional(),
        WAIT,
        GRACE,
        LINGER,
    ],
    tips: NONDETERMINISTIC,
    history: &[],
};

const TOKEN: Arg = Arg::one_of(
    c"token",
    &[Arg::text(c"token"), Arg::pure_token(c"make", c"*")],
);

/// The description of the options that say how a request waits.
pub const WAIT: Arg = Arg::one_of(
    c"wait",
    &[
        Arg::integer(c"timeout").after(c"BLOCK"),
        Arg::block(
            c"notify",
            &[Arg::integer(c"timeout"), Arg::text(c"channel")],
        )
        .after(c"NOTIFY"),
    ],
)
.optional();

/// The description of KEEP.
pub const GRACE: Arg = Arg::integer(c"grace").after(c"KEEP").optional();

/// The description of LINGER.
pub const LINGER: Arg = Arg::integer(c"milliseconds").after(c"LINGER").optional();

/// The description of the same command without LIMIT.
pub const WITHOUT_LIMIT: Spec = Spec {
    args: &[Arg::KEY, TOKEN, Arg::integer(c"ttl"), WAIT, GRACE, LINGER],
    ..SPEC
};

/// What a command of this grammar asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedMode {
    /// A hold of this mode.
    Mode(Mode),
    /// The exclusive hold, or one of as many as LIMIT says.
    Limited,
}

/// What LOCK.ACQUIRE asks for.
pub const WANTED: AskedMode = AskedMode::Limited;

/// A parsed request for a hold.
#[derive(Debug)]
pub struct Acquire<'a> {
    mode: Mode,
    owner: Owner<'a>,
    ttl: Ttl,
    wait: Option<Wait<'a>>,
    keep_ms: Option<u32>,
    linger_ms: Option<u64>,
    result: Option<Asked<'a>>,
}

/// How a request waits that cannot be granted at once, and for how many milliseconds. 0 waits for
/// ever, as in XREAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait<'a> {
    /// Its client is blocked.
    Block(u64),
    /// Its end is published to this channel.
    Notify(u64, &'a [u8]),
}

impl Wait<'_> {
    /// For how many milliseconds it waits.
    pub const fn timeout_ms(self) -> u64 {
        match self {
            Self::Block(ms) | Self::Notify(ms, _) => ms,
        }
    }
}

/// The longest name of a channel in bytes. Each place keeps one, and LOCK.INFO shows it.
const LONGEST_CHANNEL: usize = 1_024;

/// The longest grace of a place: an hour. The setting `max-keep` may say less.
pub const LONGEST_GRACE_MS: u32 = 3_600_000;

/// The result that a request takes in place of a hold (LOCK.ONCE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked<'a> {
    /// Its key.
    pub name: &'a [u8],
    /// It is early when it lives for so many milliseconds or fewer.
    pub early_ms: Option<u64>,
}

#[derive(Debug)]
enum Owner<'a> {
    Named(Token<'a>),
    Made([u8; Hyphenated::LENGTH]),
}

impl<'a> Acquire<'a> {
    /// Reads the arguments after the key.
    pub fn parse(
        wanted: AskedMode,
        args: Args<impl Iterator<Item = &'a [u8]>>,
    ) -> Result<Self, Error> {
        let unknown = match wanted {
            AskedMode::Limited => Error::UnknownOption,
            AskedMode::Mode(_) => Error::UnknownRwOption,
        };
        Self::parse_with(wanted, args, |_, _| Err(unknown))
    }

    /// The same for a command with options of its own, which `read_other` reads.
    pub(super) fn parse_with<I: Iterator<Item = &'a [u8]>>(
        wanted: AskedMode,
        mut args: Args<I>,
        mut read_other: impl FnMut(&'a [u8], &mut Args<I>) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let token = args.token()?;
        let ttl = args.ttl()?;
        let (mut limited, mut wait, mut keep_ms, mut linger_ms) = (None, None, None, None);
        while let Some(option) = args.optional() {
            let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
            if is(b"BLOCK") || is(b"NOTIFY") {
                let is_again = wait.is_some_and(|wait| match wait {
                    Wait::Block(_) => is(b"BLOCK"),
                    Wait::Notify(..) => is(b"NOTIFY"),
                });
                if is_again {
                    return Err(Error::RepeatedOption);
                }
                if wait.is_some() {
                    return Err(Error::ContradictingOptions);
                }
                let timeout = ms(args.value()?, Error::Timeout)?;
                wait = Some(match is(b"BLOCK") {
                    true => Wait::Block(timeout),
                    false => Wait::Notify(timeout, channel(args.value()?)?),
                });
            } else if is(b"LIMIT") && wanted == AskedMode::Limited {
                if limited.is_some() {
                    return Err(Error::RepeatedOption);
                }
                limited = Some(limited_mode(args.value()?)?);
            } else if is(b"KEEP") {
                if keep_ms.is_some() {
                    return Err(Error::RepeatedOption);
                }
                keep_ms = Some(grace_ms(args.value()?)?);
            } else if is(b"LINGER") {
                if linger_ms.is_some() {
                    return Err(Error::RepeatedOption);
                }
                linger_ms = Some(ms(args.value()?, Error::Linger)?);
            } else {
                read_other(option, &mut args)?;
            }
        }
        args.finish()?;
        let mode = match wanted {
            AskedMode::Mode(mode) => mode,
            AskedMode::Limited => limited.unwrap_or(Mode::Exclusive),
        };
        let owner = if token.as_bytes() != MAKE {
            Owner::Named(token)
        } else if keep_ms.is_some() || matches!(wait, Some(Wait::Notify(..))) {
            return Err(Error::GeneratedToken);
        } else {
            Owner::Made(uuid_v4())
        };
        Ok(Self {
            mode,
            owner,
            ttl,
            wait,
            keep_ms,
            linger_ms,
            result: None,
        })
    }

    /// The same, answered by a result in place of the hold.
    pub(super) fn or_result(self, result: Asked<'a>) -> Self {
        Self {
            result: Some(result),
            ..self
        }
    }

    /// What it takes in place of the hold.
    pub const fn result(&self) -> Option<Asked<'a>> {
        self.result
    }

    /// How the request waits; `None` if it does not.
    pub const fn wait(&self) -> Option<Wait<'a>> {
        self.wait
    }

    /// For how many milliseconds its place outlives its listener; `None` if it does not.
    pub const fn keep_ms(&self) -> Option<u32> {
        self.keep_ms
    }

    /// Whether it waits, or leaves a place, if it is not granted at once.
    pub const fn may_stay(&self) -> bool {
        self.wait.is_some() || self.keep_ms.is_some()
    }

    /// For how many milliseconds the hold outlives its connection; `None` if the two are not bound.
    pub const fn linger_ms(&self) -> Option<u64> {
        self.linger_ms
    }

    /// The reply where it is granted under this fence.
    pub const fn reply(&self, fence: Fence) -> Reply<'_> {
        match &self.owner {
            Owner::Named(_) => Reply::Fence(fence),
            Owner::Made(token) => Reply::Pair(token, fence),
        }
    }

    /// Whether the server generated the token.
    pub const fn is_made(&self) -> bool {
        matches!(self.owner, Owner::Made(_))
    }

    /// The request as the core wants it.
    pub fn ask(&self) -> Ask<'_> {
        Ask {
            mode: self.mode,
            token: self.token(),
            ttl: self.ttl,
        }
    }

    fn token(&self) -> Token<'_> {
        match &self.owner {
            Owner::Named(token) => *token,
            Owner::Made(uuid) => Token::from_uuid(uuid),
        }
    }
}

fn channel(name: &[u8]) -> Result<&[u8], Error> {
    let is_short = name.len() <= LONGEST_CHANNEL;
    is_short.then_some(name).ok_or(Error::ChannelTooLong)
}

fn limited_mode(text: &[u8]) -> Result<Mode, Error> {
    let n = integer(text).and_then(|n| u32::try_from(n).ok());
    n.and_then(Mode::of_limit).ok_or(Error::Limit)
}

fn grace_ms(text: &[u8]) -> Result<u32, Error> {
    let ms = integer(text).filter(|ms| *ms > 0).ok_or(Error::Grace)?;
    let ms = u32::try_from(ms).ok();
    ms.filter(|ms| *ms <= LONGEST_GRACE_MS)
        .ok_or(Error::GraceTooLong)
}

fn uuid_v4() -> [u8; Hyphenated::LENGTH] {
    let mut text = [0; Hyphenated::LENGTH];
    Uuid::new_v4().hyphenated().encode_lower(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse<'a>(args: &[&'a str]) -> Result<Acquire<'a>, Error> {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        Acquire::parse(WANTED, Args::new(args.into_iter()))
    }

    #[test]
    fn the_grammar() {
        let plain = parse(&["me", "10"]).unwrap();
        assert_eq!(
            (plain.token().as_bytes(), plain.wait(), plain.keep_ms()),
            (&b"me"[..], None, None)
        );
        let block = |timeout| parse(&["me", "10", "block", timeout]).map(|a| a.wait());
        let blocks = |ms| Ok(Some(Wait::Block(ms)));
        assert_eq!(block("0"), blocks(0));
        assert_eq!(block("281474976710656"), blocks(1 << 48));
        for bad in ["281474976710657", "-1", "1.5", ""] {
            assert_eq!(block(bad), Err(Error::Timeout), "{bad:?}");
            let notify = parse(&["me", "10", "NOTIFY", bad, "c"]);
            assert_eq!(notify.map(|_| ()), Err(Error::Timeout), "{bad:?}");
        }
        let both = parse(&["me", "10", "Keep", "3600000", "nOtify", "5", "a channel"]).unwrap();
        assert_eq!(both.keep_ms(), Some(3_600_000));
        let notify = Wait::Notify(5, b"a channel");
        assert_eq!(both.wait(), Some(notify));
        for (len, is_right) in [(0, true), (1_024, true), (1_025, false)] {
            let name = "c".repeat(len);
            let notify = parse(&["me", "10", "NOTIFY", "5", &name]).map(|_| ());
            let right = is_right.then_some(()).ok_or(Error::ChannelTooLong);
            assert_eq!(notify, right, "{len}");
        }
        let limited = |n| parse(&["me", "10", "limit", n]).map(|acquire| acquire.ask().mode);
        assert_eq!(limited("1"), Ok(Mode::Exclusive));
        assert_eq!(limited("2"), Ok(Mode::of_limit(2).unwrap()));
        assert_eq!(limited("2147483647").unwrap().tolerates(), 2_147_483_647);
        for bad in ["0", "2147483648", "4294967295", "-1", "", "x"] {
            assert_eq!(limited(bad), Err(Error::Limit), "{bad:?}");
        }
        let writer = [&b"me"[..], b"10", b"LIMIT", b"2"].into_iter();
        let writer = Acquire::parse(AskedMode::Mode(Mode::Exclusive), Args::new(writer));
        assert_eq!(writer.map(|_| ()), Err(Error::UnknownRwOption));
        let long = parse(&["me", "10", "KEEP", "3600001"]);
        assert_eq!(long.map(|_| ()), Err(Error::GraceTooLong));
        for bad in ["0", "-1", "", "x"] {
            let keep = parse(&["me", "10", "KEEP", bad]);
            assert_eq!(keep.map(|_| ()), Err(Error::Grace), "{bad:?}");
        }
    }

    #[test]
    fn what_does_not_fit_the_grammar() {
        for (args, error) in [
            (&[][..], Error::Arity),
            (&["me"], Error::Arity),
            (&["", "10"], Error::TokenEmpty),
            (&["me", "0"], Error::Ttl),
            (&["me", "281474976710657"], Error::Ttl),
            (&["me", "10", "NX"], Error::UnknownOption),
            (&["me", "10", "BLOCK"], Error::MissingValue),
            (
                &["me", "10", "BLOCK", "1", "BLOCK", "1"],
                Error::RepeatedOption,
            ),
            (&["me", "10", "BLOCK", "1", "2"], Error::UnknownOption),
            (&["me", "10", "KEEP"], Error::MissingValue),
            (&["me", "10", "LINGER"], Error::MissingValue),
            (
                &["me", "10", "LINGER", "1", "LINGER", "1"],
                Error::RepeatedOption,
            ),
            (&["me", "10", "NOTIFY", "1"], Error::MissingValue),
            (&["me", "10", "LIMIT"], Error::MissingValue),
            (
                &["me", "10", "LIMIT", "2", "LIMIT", "2"],
                Error::RepeatedOption,
            ),
            (
                &["me", "10", "NOTIFY", "1", "c", "NOTIFY", "1", "c"],
                Error::RepeatedOption,
            ),
            (
                &["me", "10", "KEEP", "1", "KEEP", "1"],
                Error::RepeatedOption,
            ),
            (
                &["me", "10", "BLOCK", "1", "NOTIFY", "1", "c"],
                Error::ContradictingOptions,
            ),
            (
                &["me", "10", "NOTIFY", "1", "c", "BLOCK", "1"],
                Error::ContradictingOptions,
            ),
            (&["*", "10", "KEEP", "1"], Error::GeneratedToken),
            (&["*", "10", "NOTIFY", "1", "c"], Error::GeneratedToken),
        ] {
            assert_eq!(parse(args).map(|_| ()), Err(error), "{args:?}");
        }
    }

    #[test]
    fn linger_takes_any_time() {
        let linger = |ms| parse(&["*", "10", "linger", ms]).map(|a| a.linger_ms());
        assert_eq!(linger("0"), Ok(Some(0)));
        assert_eq!(linger("281474976710656"), Ok(Some(1 << 48)));
        for bad in ["281474976710657", "-1", "1.5", "", "x"] {
            assert_eq!(linger(bad), Err(Error::Linger), "{bad:?}");
        }
        assert_eq!(parse(&["me", "10"]).unwrap().linger_ms(), None);
    }

    #[test]
    fn a_star_generates_a_new_uuid_each_time() {
        let made = || {
            let acquire = parse(&["*", "10"]).unwrap();
            Uuid::try_parse_ascii(acquire.token().as_bytes()).unwrap()
        };
        let (one, two) = (made(), made());
        assert_ne!(one, two);
        assert_eq!(one.get_version_num(), 4);
    }
}
