//! ```text
//! LOCK._APPLY key [token] record
//! ```
//! With a token the record is that token's hold. Without one the record says everything. Empty
//! arguments at the end have no meaning.

use super::spec::{Arg, Flag, KeyUse, KeyWords, Spec};
use super::Error;
use crate::lock::codec::{decode, decode_held, Record};

/// The description of LOCK._APPLY for the server.
pub const SPEC: Spec = Spec {
    name: c"lock._apply",
    summary: c"Carries a decided change to replicas and the append-only file. Refused to clients.",
    complexity: c"As the command whose effect it carries.",
    since: c"0.3.0",
    // Not DenyOom: a replica must follow its primary, and a file must load.
    flags: &[Flag::Write, Flag::DenyScript, Flag::Admin],
    keys: KeyWords::One(KeyUse::Updates),
    args: &[
        Arg::KEY,
        Arg::text(c"token").optional(),
        Arg::text(c"record"),
    ],
    tips: None,
    history: &[],
};

/// Reads the arguments after the key.
pub fn parse<'a>(mut args: impl Iterator<Item = &'a [u8]>) -> Result<Record<'a>, Error> {
    let first = args.next().ok_or(Error::BadEffect)?;
    let second = args.next().filter(|arg| !arg.is_empty());
    if !args.all(<[u8]>::is_empty) {
        return Err(Error::BadEffect);
    }
    let record = match second {
        Some(record) => decode_held(first, record).map(Record::Effect),
        None => decode(first),
    };
    record.map_err(|_| Error::BadEffect)
}
