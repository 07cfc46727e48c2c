//! A cursor over a command's arguments, modelled on `parse.rs` of mini-redis. Every command takes
//! the arguments of its grammar in order, and ends with [`Args::finish`].

use super::Error;
use crate::lock::{Token, TokenError, Ttl};

/// The argument that asks the server to generate the token.
pub(super) const MAKE: &[u8] = b"*";

/// The arguments that are left after the command's name and its key.
#[derive(Debug)]
pub struct Args<I> {
    rest: I,
}

impl<'a, I: Iterator<Item = &'a [u8]>> Args<I> {
    /// A cursor over `rest`.
    pub const fn new(rest: I) -> Self {
        Self { rest }
    }

    /// The next argument, if there is one.
    pub fn optional(&mut self) -> Option<&'a [u8]> {
        self.rest.next()
    }

    /// The next argument.
    #[inline]
    pub fn required(&mut self) -> Result<&'a [u8], Error> {
        self.rest.next().ok_or(Error::Arity)
    }

    /// The value of an option.
    pub fn value(&mut self) -> Result<&'a [u8], Error> {
        self.rest.next().ok_or(Error::MissingValue)
    }

    /// A token.
    pub fn token(&mut self) -> Result<Token<'a>, Error> {
        Token::new(self.required()?).map_err(|error| match error {
            TokenError::Empty => Error::TokenEmpty,
            TokenError::TooLong => Error::TokenTooLong,
        })
    }

    /// The token of an owner that exists. `*` is none: an acquire with it gets another token.
    pub fn owner(&mut self) -> Result<Token<'a>, Error> {
        self.token()
            .and_then(|token| match token.as_bytes() == MAKE {
                true => Err(Error::NoOwner),
                false => Ok(token),
            })
    }

    /// A ttl in milliseconds.
    pub fn ttl(&mut self) -> Result<Ttl, Error> {
        integer(self.required()?)
            .and_then(Ttl::from_millis)
            .ok_or(Error::Ttl)
    }

    /// The end of the arguments.
    #[inline]
    pub fn finish(mut self) -> Result<(), Error> {
        match self.rest.next() {
            None => Ok(()),
            Some(_) => Err(Error::Arity),
        }
    }
}

/// Reads a number that is not negative, in the only form that the server itself accepts: digits,
/// no sign, no space, no leading zero.
#[inline]
pub fn integer(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || (bytes.len() > 1 && bytes.starts_with(b"0")) {
        return None;
    }
    bytes.iter().try_fold(0u64, |number, digit| {
        let digit = digit.wrapping_sub(b'0');
        let shifted = (digit < 10).then(|| number.checked_mul(10)).flatten();
        shifted?.checked_add(digit.into())
    })
}

/// Reads a time in milliseconds, from 0 to that of the longest ttl. Anything else is `error`.
#[inline]
pub(super) fn ms(text: &[u8], error: Error) -> Result<u64, Error> {
    let ms = integer(text).filter(|ms| *ms <= Ttl::MAX_MS);
    ms.ok_or(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_the_server_reads_them() {
        for (text, value) in [
            ("0", Some(0)),
            ("1", Some(1)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("", None),
            ("-1", None),
            ("-0", None),
            ("+1", None),
            ("01", None),
            ("00", None),
            (" 1", None),
            ("1 ", None),
            ("1e3", None),
            ("1.0", None),
            ("0x10", None),
            ("1\0", None),
            ("\u{0661}", None),
        ] {
            assert_eq!(integer(text.as_bytes()), value, "{text:?}");
        }
        assert_eq!(integer(b"\xff"), None);
    }

    #[test]
    fn only_an_acquire_may_leave_the_token_to_the_server() {
        let args = || Args::new([&b"*"[..]].into_iter());
        assert_eq!(args().token().unwrap().as_bytes(), MAKE);
        assert_eq!(args().owner(), Err(Error::NoOwner));
        assert!(Args::new([&b"**"[..]].into_iter()).owner().is_ok());
    }

    #[test]
    fn a_command_must_take_all() {
        let args = || Args::new([&b"a"[..], b"5"].into_iter());
        assert_eq!(args().finish(), Err(Error::Arity));
        let mut all = args();
        assert_eq!(all.token().unwrap().as_bytes(), b"a");
        assert_eq!(all.ttl().unwrap().ms(), 5);
        assert_eq!(all.required(), Err(Error::Arity));
        assert_eq!(all.finish(), Ok(()));
    }
}
