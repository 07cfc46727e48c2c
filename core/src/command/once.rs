//! ```text
//! LOCK.ONCE key result token ttl [EARLY milliseconds] [BLOCK timeout|NOTIFY timeout channel]
//!     [KEEP grace] [LINGER milliseconds]
//! ```
//! One client makes a value, and all others that want it wait in the queue of the lock and get it.
//! Ideas: singleflight of Go's x/sync, and the promise of MemoLock.

use super::acquire::{Acquire, Asked, GRACE, LINGER, WAIT};
use super::args::ms;
use super::spec::{Arg, KeyUse, KeyWords, Spec};
use super::{wlock, Args, Error};

/// The description of LOCK.ONCE for the server.
pub const SPEC: Spec = Spec {
    name: c"lock.once",
    summary: c"Returns a result, or the fence of the exclusive hold to the one that is to make it.",
    since: c"0.4.0",
    keys: KeyWords::Two(KeyUse::Updates, KeyUse::Reads),
    args: &[
        Arg::KEY,
        Arg::key(c"result"),
        Arg::text(c"token"),
        Arg::integer(c"ttl"),
        Arg::integer(c"milliseconds").after(c"EARLY").optional(),
        WAIT,
        GRACE,
        LINGER,
    ],
    history: &[],
    ..wlock::SPEC
};

/// The word that is the key of the result.
pub const RESULT_AT: usize = 2;

/// Reads the arguments after the key of the lock.
///
/// # Errors
/// What does not fit the grammar.
pub fn parse<'a>(mut args: Args<impl Iterator<Item = &'a [u8]>>) -> Result<Acquire<'a>, Error> {
    let (name, mut early_ms) = (args.required()?, None);
    let acquire = Acquire::parse_with(wlock::WANTED, args, |option, args| {
        if !option.eq_ignore_ascii_case(b"EARLY") {
            return Err(Error::UnknownOnceOption);
        }
        if early_ms.is_some() {
            return Err(Error::RepeatedOption);
        }
        early_ms = Some(ms(args.value()?, Error::Early)?);
        Ok(())
    })?;
    match acquire.is_made() {
        true => Err(Error::OwnToken),
        false => Ok(acquire.or_result(Asked { name, early_ms })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Mode;

    fn parse_line(line: &str) -> Result<Acquire<'_>, Error> {
        parse(Args::new(line.split(' ').map(str::as_bytes)))
    }

    #[test]
    fn the_grammar() {
        let plain = parse_line("r me 10").unwrap();
        let asked = |early_ms| {
            Some(Asked {
                name: b"r",
                early_ms,
            })
        };
        assert_eq!(
            (plain.result(), plain.ask().mode),
            (asked(None), Mode::Exclusive)
        );
        for line in [
            "r me 10 EARLY 7 BLOCK 5 KEEP 9",
            "r me 10 KEEP 9 BLOCK 5 early 7",
        ] {
            let all = parse_line(line).unwrap();
            assert_eq!(all.result(), asked(Some(7)), "{line}");
            assert_eq!(
                (all.wait().map(|wait| wait.timeout_ms()), all.keep_ms()),
                (Some(5), Some(9))
            );
        }
        for (line, error) in [
            ("r", Error::Arity),
            ("r me", Error::Arity),
            ("r * 10", Error::OwnToken),
            ("r * 10 BLOCK 5", Error::OwnToken),
            ("r me x", Error::Ttl),
            ("r me 10 EARLY", Error::MissingValue),
            ("r me 10 EARLY -1", Error::Early),
            ("r me 10 EARLY 281474976710657", Error::Early),
            ("r me 10 EARLY 1 EARLY 1", Error::RepeatedOption),
            ("r me 10 LIMIT 2", Error::UnknownOnceOption),
        ] {
            assert_eq!(parse_line(line).map(|_| ()), Err(error), "{line}");
        }
    }
}
