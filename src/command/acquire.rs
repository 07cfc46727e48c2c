//! ```text
//! LOCK.ACQUIRE key token ttl [BLOCK timeout]
//! ```
//! Takes the exclusive hold. The reply is the fence, or null when another token holds the lock or waits for it. With BLOCK the
//! client waits in a queue instead, and gets null only after `timeout` milliseconds (0 is for ever). The token `*` has the server
//! make a UUIDv4, and the reply is then `[token, fence]`.
//!
//! The three commands that take a hold have this one grammar and differ in the mode: see [`super::wlock`], [`super::rlock`].

use uuid::fmt::Hyphenated;
use uuid::Uuid;

use super::args::integer;
use super::{Args, Decision, Error, Reply};
use crate::lock::{Ask, FenceClock, Lock, Mode, Now, Refusal, Token, Ttl, Waiting};

/// The mode that LOCK.ACQUIRE asks for.
pub const MODE: Mode = Mode::Exclusive;

/// A parsed request for a hold.
#[derive(Debug)]
pub struct Acquire<'a> {
    mode: Mode,
    owner: Owner<'a>,
    ttl: Ttl,
    block: Option<Timeout>,
}

/// How long to wait: milliseconds, where 0 is for ever, as in XREAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout {
    /// Milliseconds; 0 is for ever.
    pub ms: u64,
}

/// The argument that asks the server to make the token.
const MAKE: &[u8] = b"*";

#[derive(Debug)]
enum Owner<'a> {
    Named(Token<'a>),
    Made([u8; Hyphenated::LENGTH]),
}

impl<'a> Acquire<'a> {
    /// Reads the arguments that follow the key.
    ///
    /// # Errors
    /// When they do not fit the grammar.
    pub fn parse(
        mode: Mode,
        mut args: Args<impl Iterator<Item = &'a [u8]>>,
    ) -> Result<Self, Error> {
        let token = args.token()?;
        let ttl = args.ttl()?;
        let mut block = None;
        while let Some(option) = args.optional() {
            if !option.eq_ignore_ascii_case(b"BLOCK") {
                return Err(Error::UnknownOption);
            }
            if block.is_some() {
                return Err(Error::RepeatedOption);
            }
            let timeout = args.optional().ok_or(Error::MissingValue)?;
            let ms = integer(timeout).filter(|ms| *ms <= Ttl::MAX_MS);
            block = Some(Timeout {
                ms: ms.ok_or(Error::Timeout)?,
            });
        }
        args.finish()?;
        let owner = if token.as_bytes() == MAKE {
            Owner::Made(uuid_v4())
        } else {
            Owner::Named(token)
        };
        Ok(Self {
            mode,
            owner,
            ttl,
            block,
        })
    }

    /// Whether, and how long, the client is willing to wait.
    pub const fn block(&self) -> Option<Timeout> {
        self.block
    }

    /// Decides the request.
    pub fn decide(
        &self,
        lock: Option<&Lock>,
        now: Now,
        waiting: Waiting<'_>,
        fences: &mut FenceClock,
    ) -> Decision<'_> {
        match Lock::acquire(lock, self.ask(), now, waiting, fences) {
            Ok(grant) => Decision::Change {
                effect: grant.effect,
                reply: match &self.owner {
                    Owner::Named(_) => Reply::Fence(grant.fence),
                    Owner::Made(token) => Reply::Made(token, grant.fence),
                },
                had_it: grant.had_it,
            },
            Err(refusal @ (Refusal::Busy | Refusal::BusyUpgrade)) => Decision::Wait(refusal),
            Err(Refusal::Deadlock) => Decision::Same(Reply::Error(Error::Deadlock)),
            Err(Refusal::FencesExhausted) => Decision::Same(Reply::Error(Error::FencesExhausted)),
        }
    }

    /// Whether the server has made the token.
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
        Acquire::parse(MODE, Args::new(args.into_iter()))
    }

    #[test]
    fn the_grammar() {
        let plain = parse(&["me", "10"]).unwrap();
        assert_eq!(
            (plain.token().as_bytes(), plain.block()),
            (&b"me"[..], None)
        );
        let block = |timeout| parse(&["me", "10", "block", timeout]).map(|a| a.block());
        assert_eq!(block("0"), Ok(Some(Timeout { ms: 0 })));
        assert_eq!(block("281474976710656"), Ok(Some(Timeout { ms: 1 << 48 })));
        for bad in ["281474976710657", "-1", "1.5", ""] {
            assert_eq!(block(bad), Err(Error::Timeout), "{bad:?}");
        }
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
        ] {
            assert_eq!(parse(args).map(|_| ()), Err(error), "{args:?}");
        }
    }

    #[test]
    fn a_star_makes_a_new_uuid_each_time() {
        let made = || {
            let acquire = parse(&["*", "10"]).unwrap();
            Uuid::try_parse_ascii(acquire.token().as_bytes()).unwrap()
        };
        let (one, two) = (made(), made());
        assert_ne!(one, two);
        assert_eq!(one.get_version_num(), 4);
    }
}
