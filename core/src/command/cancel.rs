//! ```text
//! LOCK.CANCEL key [TOKEN token]
//! ```

use super::spec::{Arg, Flag, KeyUse, KeyWords, Spec};
use super::{Args, Error};
use crate::lock::Token;

/// The description of LOCK.CANCEL for the server.
pub const SPEC: Spec = Spec {
    name: c"lock.cancel",
    summary: c"Ends the waits and the places of a lock, or those of one token.",
    complexity: c"O(N*log(M)) for N requests and places that end, of M that wait.",
    since: c"0.3.0",
    // Not DenyOom: it makes room.
    flags: &[Flag::Write],
    keys: KeyWords::One(KeyUse::Updates),
    args: &[Arg::KEY, Arg::text(c"token").after(c"TOKEN").optional()],
    tips: None,
    history: &[],
};

/// Reads the arguments after the key: whose waits are to end. `None` is everybody's.
pub fn parse<'a>(
    mut args: Args<impl Iterator<Item = &'a [u8]>>,
) -> Result<Option<Token<'a>>, Error> {
    let Some(option) = args.optional() else {
        return Ok(None);
    };
    if !option.eq_ignore_ascii_case(b"TOKEN") {
        return Err(Error::UnknownCancelOption);
    }
    let token = args.owner()?;
    args.finish()?;
    Ok(Some(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<Vec<u8>>, Error> {
        let words = line.split(' ').filter(|word| !word.is_empty());
        let token = parse(Args::new(words.map(str::as_bytes)))?;
        Ok(token.map(|token| token.as_bytes().to_vec()))
    }

    #[test]
    fn the_grammar() {
        assert_eq!(parsed(""), Ok(None));
        assert_eq!(parsed("TOKEN a"), Ok(Some(b"a".to_vec())));
        assert_eq!(parsed("token token"), Ok(Some(b"token".to_vec())));
        assert_eq!(parsed("TOKEN"), Err(Error::Arity));
        assert_eq!(parsed("TOKEN a b"), Err(Error::Arity));
        assert_eq!(parsed("a"), Err(Error::UnknownCancelOption));
        assert_eq!(
            parsed(&format!("TOKEN {}", "x".repeat(513))),
            Err(Error::TokenTooLong)
        );
    }
}
