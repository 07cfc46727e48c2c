//! The one format behind RDB, DUMP, AOF, replication and the digest: bytes to locks and effects,
//! and back.
//!
//! ```text
//! record  = version:u8 | kind:u8 | body        the version is the lowest that can say the body
//!
//! state   (kind 1)  mode | hold*               one if exclusive; by rising (fence, token) if shared
//!      version 2:   (mode | hold)*             by rising (fence, token), one of them counted
//!      version 3:   the same, one of them lingers
//! hold    (kind 2)  now_ms:u64 | mode | hold
//! release (kind 3)  now_ms:u64 | token
//! cap     (kind 4)  deadline_ms:u64
//! fence   (kind 5)  fence:u64                  the largest fence that a server has given
//! held    (kind 6)  now_ms:u64 | mode | numbers         the token is sent beside the record
//! leases  (kind 7)  fence:u64 | longest_ms:u64 | wait_ms:u64      version 3; no fence is 0
//!
//! hold    = numbers | token
//! numbers = fence:u64 | deadline_ms:u64 | since_ms:u64
//! mode    = 1 exclusive | 2 shared | 3 limit:u32 counted, from 2 to 2^31 - 1, since version 2
//!           + 128 where the hold lingers, in version 3 only
//! token   = length:u16 | bytes                 1 to 512 bytes
//! ```
//! Integers are little-endian. `codec/version.rs` has the rule by which versions are added.
//!
//! Decoding is total. Any bytes give either a value that could have been encoded, or a
//! [`DecodeError`]. The decoder allocates nothing for a length that the input itself does not fill.
//! One value has one encoding, so that equal locks have equal bytes on every server.

mod input;
mod manner;
mod version;

use self::input::Input;
pub use self::input::Leases;
use self::manner::mode_byte;
pub use self::version::DecodeError;
use self::version::Version;
use super::effect::Effect;
use super::fence::Fence;
use super::hold::{Hold, Mode};
use super::state::Lock;
use super::token::Token;

/// The newest version of the format that this release knows. A record may be in an older one: each
/// is written in the lowest version that can say it.
pub const LATEST_VERSION: u8 = Version::LATEST.byte();

/// The length of the longest record of an effect, in bytes: a `hold` with the longest token.
pub const MAX_EFFECT_LEN: usize = 2 + 8 + MAX_MODE_LEN + 3 * 8 + 2 + Token::MAX_LEN;

const STATE: u8 = 1;
const HOLD: u8 = 2;
const RELEASE: u8 = 3;
const CAP: u8 = 4;
const FENCE: u8 = 5;
const HELD: u8 = 6;
const LEASES: u8 = 7;

/// The length of the longest mode, in bytes: a limit after its own byte.
const MAX_MODE_LEN: usize = 1 + 4;

/// The length of the longest `held` record, in bytes.
const MAX_HELD_LEN: usize = 2 + 8 + MAX_MODE_LEN + 3 * 8;

/// A decoded record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A whole lock, from an RDB or a rewritten AOF.
    State(Lock),
    /// A change of a lock.
    Effect(Effect<'a>),
    /// The largest fence that a server has given.
    Fence(Fence),
    /// The same of a server with a guard, and what it knows of leases.
    Leases(Leases),
}

/// Reads one record.
///
/// # Errors
/// When the bytes are not exactly one record, in the version that it needs, with every number
/// within its bounds.
pub fn decode(bytes: &[u8]) -> Result<Record<'_>, DecodeError> {
    let mut input = Input::new(bytes)?;
    let record = match input.u8()? {
        STATE => Record::State(input.state()?),
        HOLD => {
            let now_ms = input.time_ms()?;
            let manner = input.manner()?;
            let (token, hold) = input.hold(manner)?;
            let mode = manner.mode;
            Record::Effect(Effect::Hold {
                now_ms,
                mode,
                token,
                hold,
            })
        }
        RELEASE => Record::Effect(Effect::Release {
            now_ms: input.time_ms()?,
            token: input.token()?,
        }),
        CAP => Record::Effect(Effect::Cap {
            deadline: input.deadline()?,
        }),
        FENCE => Record::Fence(input.fence()?),
        LEASES => Record::Leases(input.leases()?),
        _ => return Err(DecodeError),
    };
    input.finish()?;
    Ok(record)
}

/// Whether the bytes, which could not be decoded, are a record of a version that only later
/// releases know. All kinds of records tell it by their first byte.
pub fn is_of_later_version(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|byte| *byte > LATEST_VERSION)
}

/// Reads a `held` record and the token that is sent beside it.
///
/// # Errors
/// When `token` is not a token, or `record` is not exactly one `held` record, in the version that
/// it needs, with every number within its bounds.
pub fn decode_held<'a>(token: &'a [u8], record: &[u8]) -> Result<Effect<'a>, DecodeError> {
    let mut input = Input::new(record)?;
    if input.u8()? != HELD {
        return Err(DecodeError);
    }
    let now_ms = input.time_ms()?;
    let manner = input.manner()?;
    let effect = Effect::Hold {
        now_ms,
        mode: manner.mode,
        token: Token::new(token).map_err(|_| DecodeError)?,
        hold: input.hold_without_token(manner)?,
    };
    input.finish()?;
    Ok(effect)
}

/// Writes a whole lock. `O(n log n)` in the number of its holds.
pub fn encode_state(lock: &Lock) -> Vec<u8> {
    let holds = lock.holds();
    let tokens: usize = holds
        .iter()
        .map(|(token, ..)| token.as_token().as_bytes().len())
        .sum();
    let per_hold = holds.len().saturating_mul(MAX_MODE_LEN + 3 * 8 + 2);
    let mut out = Vec::with_capacity(per_hold.saturating_add(tokens).saturating_add(3));
    let needed = holds
        .iter()
        .map(|(_, mode, hold)| Version::needed_by_hold(*mode, hold));
    let version = needed.max().unwrap_or(Version::V1);
    out.extend_from_slice(&[version.byte(), STATE]);
    let has_one_mode = version == Version::V1;
    if has_one_mode {
        out.push(mode_byte(lock.mode(), false));
    }
    for (token, mode, hold) in holds {
        if !has_one_mode {
            put_manner(&mut out, mode, &hold);
        }
        put_hold(&mut out, token.as_token(), &hold);
    }
    out
}

/// Appends an effect to `out`.
pub fn encode_effect(effect: &Effect<'_>, out: &mut Vec<u8>) {
    match effect {
        Effect::Hold {
            now_ms,
            mode,
            token,
            hold,
        } => {
            let version = Version::needed_by_hold(*mode, hold);
            out.extend_from_slice(&[version.byte(), HOLD]);
            out.extend_from_slice(&now_ms.to_le_bytes());
            put_manner(out, *mode, hold);
            put_hold(out, *token, hold);
        }
        Effect::Release { now_ms, token } => {
            out.extend_from_slice(&[Version::V1.byte(), RELEASE]);
            out.extend_from_slice(&now_ms.to_le_bytes());
            put_token(out, *token);
        }
        Effect::Cap { deadline } => {
            out.extend_from_slice(&[Version::V1.byte(), CAP]);
            out.extend_from_slice(&deadline.ms().to_le_bytes());
        }
    }
}

/// A `held` record.
#[derive(Clone, Copy, Debug)]
pub struct HeldRecord {
    bytes: [u8; MAX_HELD_LEN],
    len: usize,
}

impl HeldRecord {
    /// The record.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Writes the `held` record of a hold whose token is sent beside it.
#[inline]
pub fn encode_held(now_ms: u64, mode: Mode, hold: &Hold) -> HeldRecord {
    let version = Version::needed_by_hold(mode, hold).byte();
    let mut bytes = [0; MAX_HELD_LEN];
    let (head, rest) = bytes.split_at_mut(2 + 8 + 1);
    head.copy_from_slice(&{
        let [a, b, c, d, e, f, g, h] = now_ms.to_le_bytes();
        [
            version,
            HELD,
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
            mode_byte(mode, hold.since.lingers()),
        ]
    });
    let (rest, unused) = match mode.limit() {
        Some(limit) => {
            let (field, numbers) = rest.split_at_mut(4);
            field.copy_from_slice(&limit.get().to_le_bytes());
            (numbers, 0)
        }
        None => (rest, 4),
    };
    let values = [hold.fence.get(), hold.deadline.ms(), hold.since.ms()];
    for (field, value) in rest.chunks_exact_mut(8).zip(values) {
        field.copy_from_slice(&u64::to_le_bytes(value));
    }
    let len = MAX_HELD_LEN.saturating_sub(unused);
    HeldRecord { bytes, len }
}

/// Writes the largest fence that a server has given.
pub fn encode_fence(fence: Fence) -> [u8; 10] {
    let [a, b, c, d, e, f, g, h] = fence.get().to_le_bytes();
    [Version::V1.byte(), FENCE, a, b, c, d, e, f, g, h]
}

/// Writes what a server with a guard saves beside its locks.
pub fn encode_leases(leases: &Leases) -> Vec<u8> {
    let fence = leases.fence.map_or(0, Fence::get);
    let numbers = [fence, leases.longest_ms, leases.wait_ms].map(u64::to_le_bytes);
    [&[Version::V3.byte(), LEASES], numbers.as_flattened()].concat()
}

fn put_manner(out: &mut Vec<u8>, mode: Mode, hold: &Hold) {
    out.push(mode_byte(mode, hold.since.lingers()));
    if let Some(limit) = mode.limit() {
        out.extend_from_slice(&limit.get().to_le_bytes());
    }
}

fn put_hold(out: &mut Vec<u8>, token: Token<'_>, hold: &Hold) {
    out.extend_from_slice(&hold.fence.get().to_le_bytes());
    out.extend_from_slice(&hold.deadline.ms().to_le_bytes());
    out.extend_from_slice(&hold.since.ms().to_le_bytes());
    put_token(out, token);
}

fn put_token(out: &mut Vec<u8>, token: Token<'_>) {
    let bytes = token.as_bytes();
    // A token has at most 512 bytes, so the conversion always succeeds.
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod counted;
#[cfg(test)]
mod lingering;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
