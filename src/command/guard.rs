//! ```text
//! LOCK._GUARD left longest wait clock followers
//! ```
//! The words are the fields of [`Beat`]. `left` is `-1` where nobody knows, and `followers` are as
//! in `127.0.0.1:6380=120 127.0.0.1:6381=80`. It is not written to the append-only file.

use super::args::integer;
use super::spec::{Arg, Flag, KeyWords, Spec};
use super::{apply, Args, Error};
use crate::lock::Deadline;

/// The description of LOCK._GUARD for the server.
pub const SPEC: Spec = Spec {
    name: c"lock._guard",
    summary: c"Tells replicas of the guard of their primary. Refused to clients.",
    complexity: c"O(1)",
    since: c"0.3.0",
    flags: &[Flag::DenyScript, Flag::Admin, Flag::Fast],
    keys: KeyWords::None,
    args: &[
        Arg::text(c"left"),
        Arg::text(c"longest"),
        Arg::text(c"wait"),
        Arg::text(c"clock"),
        Arg::text(c"followers"),
    ],
    ..apply::SPEC
};

/// What a primary tells its replicas of its guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// How long it lasts yet, in milliseconds. `None` if nobody knows.
    pub left_ms: Option<u64>,
    /// The longest lease that there may be, in milliseconds.
    pub longest_ms: u64,
    /// How long a guard lasts after a promotion, in milliseconds.
    pub wait_ms: u64,
    /// The wall clock of the primary, in microseconds.
    pub clock_us: u64,
    /// The replicas that count for a majority.
    pub followers: Vec<Follower>,
}

/// A replica that counts for a majority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follower {
    /// Its address.
    pub name: Box<[u8]>,
    /// For how many milliseconds nothing newer of it is known.
    pub ago_ms: u64,
}

impl Beat {
    /// The followers as the command says them.
    pub fn said_followers(&self) -> Vec<u8> {
        let said = |one: &Follower| {
            let ago = format!("={}", one.ago_ms);
            [&*one.name, ago.as_bytes()].concat()
        };
        let all: Vec<_> = self.followers.iter().map(said).collect();
        all.join(&b' ')
    }
}

/// Reads the arguments.
pub fn parse<'a>(mut args: Args<impl Iterator<Item = &'a [u8]>>) -> Result<Beat, Error> {
    let (left, longest, wait) = (args.required()?, args.required()?, args.required()?);
    let (clock, followers) = (args.required()?, args.required()?);
    args.finish()?;
    let number = |word| integer(word).ok_or(Error::BadEffect);
    // The server's file keeps these times, and cannot be loaded with longer ones.
    let time_ms = |word| match number(word)? {
        ms if ms <= Deadline::MAX_MS => Ok(ms),
        _ => Err(Error::BadEffect),
    };
    Ok(Beat {
        left_ms: match left {
            b"-1" => None,
            left => Some(time_ms(left)?),
        },
        longest_ms: time_ms(longest)?,
        wait_ms: time_ms(wait)?,
        clock_us: number(clock)?,
        followers: followers_of(followers).ok_or(Error::BadEffect)?,
    })
}

fn followers_of(said: &[u8]) -> Option<Vec<Follower>> {
    let all = said.split(|byte| *byte == b' ');
    let all = all.filter(|one| !one.is_empty());
    all.map(|one| {
        let mut parts = one.rsplitn(2, |byte| *byte == b'=');
        let (ago_ms, name) = (integer(parts.next()?)?, parts.next()?.into());
        Some(Follower { name, ago_ms })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn followers_are_read_as_they_are_said() {
        let follower = |name: &[u8], ago_ms| Follower {
            name: name.into(),
            ago_ms,
        };
        for followers in [
            vec![],
            vec![follower(b"::1:6380", 0), follower(b"a=b:1", 250)],
        ] {
            let beat = Beat {
                left_ms: None,
                longest_ms: 0,
                wait_ms: 0,
                clock_us: 0,
                followers,
            };
            let read = followers_of(&beat.said_followers());
            assert_eq!(read, Some(beat.followers));
        }
        assert_eq!(followers_of(b"::1:6380"), None);
        assert_eq!(followers_of(b"::1:6380=x"), None);
    }
}
