//! Bytes <-> locks and effects: the one format behind RDB, DUMP, AOF, replication and the digest.
//!
//! ```text
//! record  = version:u8 (1) | kind:u8 | body
//! state   (kind 1)  mode:u8 | hold*            one hold if exclusive, else at least one, by rising (fence, token)
//! hold    (kind 2)  now_ms:u64 | mode:u8 | hold
//! release (kind 3)  now_ms:u64 | token
//! cap     (kind 4)  deadline_ms:u64
//! fence   (kind 5)  fence:u64                  the largest fence given, of a whole server
//! held    (kind 6)  now_ms:u64 | mode:u8 | fence:u64 | deadline_ms:u64 | since_ms:u64      a hold whose token is sent beside it
//! hold    = fence:u64 | deadline_ms:u64 | since_ms:u64 | token
//! mode    = 1 exclusive | 2 shared
//! token   = length:u16 | bytes                 1 to 512 bytes
//! ```
//! Integers are little-endian. Decoding is total: any bytes give a value that could have been encoded, or a
//! [`DecodeError`]; nothing is allocated on the word of a length that the input itself does not fill. One value has one encoding,
//! so that equal locks have equal bytes on every server.

use super::effect::Effect;
use super::fence::Fence;
use super::state::{Hold, Lock, Mode};
use super::time::Deadline;
use super::token::Token;

/// The format's version: the first byte of every record.
pub const VERSION: u8 = 1;

/// The longest record of an effect in bytes: a `hold` with the longest token.
pub const MAX_EFFECT_LEN: usize = 2 + 8 + 1 + 3 * 8 + 2 + Token::MAX_LEN;

const STATE: u8 = 1;
const HOLD: u8 = 2;
const RELEASE: u8 = 3;
const CAP: u8 = 4;
const FENCE: u8 = 5;
const HELD: u8 = 6;

/// The length of a record `held`.
pub const HELD_LEN: usize = 2 + 8 + 1 + 3 * 8;

const EXCLUSIVE: u8 = 1;
const SHARED: u8 = 2;

/// The bytes are not a record of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError;

/// What a record can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A whole lock, as an AOF rewrite or an RDB has it.
    State(Lock),
    /// A change of a lock.
    Effect(Effect<'a>),
    /// The largest fence that a server gave.
    Fence(Fence),
}

/// Reads one record.
///
/// # Errors
/// When the bytes are not exactly one record of this version with every number in its bounds.
pub fn decode(bytes: &[u8]) -> Result<Record<'_>, DecodeError> {
    let mut input = Input { rest: bytes };
    if input.u8()? != VERSION {
        return Err(DecodeError);
    }
    let record = match input.u8()? {
        STATE => Record::State(input.state()?),
        HOLD => {
            let now_ms = input.time()?;
            let mode = input.mode()?;
            let (token, hold) = input.hold()?;
            Record::Effect(Effect::Hold {
                now_ms,
                mode,
                token,
                hold,
            })
        }
        RELEASE => Record::Effect(Effect::Release {
            now_ms: input.time()?,
            token: input.token()?,
        }),
        CAP => Record::Effect(Effect::Cap {
            deadline: input.deadline()?,
        }),
        FENCE => Record::Fence(input.fence()?),
        _ => return Err(DecodeError),
    };
    if !input.rest.is_empty() {
        return Err(DecodeError);
    }
    Ok(record)
}

/// Whether the bytes, which could not be decoded, are in a format of a later version of this module.
pub fn is_of_later_version(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|version| *version > VERSION)
}

/// Reads a record `held` and the token that stands beside it.
///
/// # Errors
/// When the token is not one, or the record is not exactly one `held` of this version with every number in its bounds.
pub fn decode_held<'a>(token: &'a [u8], record: &[u8]) -> Result<Effect<'a>, DecodeError> {
    let mut input = Input { rest: record };
    if input.array()? != [VERSION, HELD] {
        return Err(DecodeError);
    }
    let effect = Effect::Hold {
        now_ms: input.time()?,
        mode: input.mode()?,
        token: Token::new(token).map_err(|_| DecodeError)?,
        hold: input.hold_without_token()?,
    };
    if !input.rest.is_empty() {
        return Err(DecodeError);
    }
    Ok(effect)
}

/// Writes a whole lock. `O(n log n)` in its holds.
pub fn encode_state(lock: &Lock) -> Vec<u8> {
    let holders = lock.holders();
    let tokens: usize = holders
        .iter()
        .map(|(token, _)| token.as_token().as_bytes().len())
        .sum();
    let per_hold = holders.len().saturating_mul(3 * 8 + 2);
    let mut out = Vec::with_capacity(per_hold.saturating_add(tokens).saturating_add(3));
    out.extend_from_slice(&[VERSION, STATE, mode_byte(lock.mode())]);
    for (token, hold) in holders {
        put_hold(&mut out, token.as_token(), &hold);
    }
    out
}

/// Writes an effect after what `out` has.
pub fn encode_effect(effect: &Effect<'_>, out: &mut Vec<u8>) {
    match effect {
        Effect::Hold {
            now_ms,
            mode,
            token,
            hold,
        } => {
            out.extend_from_slice(&[VERSION, HOLD]);
            out.extend_from_slice(&now_ms.to_le_bytes());
            out.push(mode_byte(*mode));
            put_hold(out, *token, hold);
        }
        Effect::Release { now_ms, token } => {
            out.extend_from_slice(&[VERSION, RELEASE]);
            out.extend_from_slice(&now_ms.to_le_bytes());
            put_token(out, *token);
        }
        Effect::Cap { deadline } => {
            out.extend_from_slice(&[VERSION, CAP]);
            out.extend_from_slice(&deadline.ms().to_le_bytes());
        }
    }
}

/// Writes the record `held` of a hold whose token is sent beside it.
pub fn encode_held(now_ms: u64, mode: Mode, hold: &Hold) -> [u8; HELD_LEN] {
    let mut out = [0; HELD_LEN];
    let (head, numbers) = out.split_at_mut(2 + 8 + 1);
    head.copy_from_slice(&{
        let [a, b, c, d, e, f, g, h] = now_ms.to_le_bytes();
        [VERSION, HELD, a, b, c, d, e, f, g, h, mode_byte(mode)]
    });
    let values = [hold.fence.get(), hold.deadline.ms(), hold.since_ms];
    for (place, value) in numbers.as_chunks_mut().0.iter_mut().zip(values) {
        *place = u64::to_le_bytes(value);
    }
    out
}

/// Writes the largest fence that a server gave.
pub fn encode_fence(fence: Fence) -> [u8; 10] {
    let [a, b, c, d, e, f, g, h] = fence.get().to_le_bytes();
    [VERSION, FENCE, a, b, c, d, e, f, g, h]
}

const fn mode_byte(mode: Mode) -> u8 {
    match mode {
        Mode::Exclusive => EXCLUSIVE,
        Mode::Shared => SHARED,
    }
}

fn put_hold(out: &mut Vec<u8>, token: Token<'_>, hold: &Hold) {
    out.extend_from_slice(&hold.fence.get().to_le_bytes());
    out.extend_from_slice(&hold.deadline.ms().to_le_bytes());
    out.extend_from_slice(&hold.since_ms.to_le_bytes());
    put_token(out, token);
}

fn put_token(out: &mut Vec<u8>, token: Token<'_>) {
    let bytes = token.as_bytes();
    // A token has at most 512 bytes, so this conversion cannot be cut short.
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
}

struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(DecodeError)?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(DecodeError)?;
        self.rest = rest;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    fn deadline(&mut self) -> Result<Deadline, DecodeError> {
        Deadline::from_millis(self.u64()?).ok_or(DecodeError)
    }

    /// An instant, under the same bound as a deadline.
    fn time(&mut self) -> Result<u64, DecodeError> {
        self.deadline().map(Deadline::ms)
    }

    fn fence(&mut self) -> Result<Fence, DecodeError> {
        Fence::new(self.u64()?).ok_or(DecodeError)
    }

    fn mode(&mut self) -> Result<Mode, DecodeError> {
        match self.u8()? {
            EXCLUSIVE => Ok(Mode::Exclusive),
            SHARED => Ok(Mode::Shared),
            _ => Err(DecodeError),
        }
    }

    fn token(&mut self) -> Result<Token<'a>, DecodeError> {
        let len = self.array().map(u16::from_le_bytes)?;
        Token::new(self.take(len.into())?).map_err(|_| DecodeError)
    }

    fn hold(&mut self) -> Result<(Token<'a>, Hold), DecodeError> {
        let hold = self.hold_without_token()?;
        Ok((self.token()?, hold))
    }

    fn hold_without_token(&mut self) -> Result<Hold, DecodeError> {
        Ok(Hold {
            fence: self.fence()?,
            deadline: self.deadline()?,
            since_ms: self.time()?,
        })
    }

    fn state(&mut self) -> Result<Lock, DecodeError> {
        let mode = self.mode()?;
        let (token, hold) = self.hold()?;
        let mut lock = Lock::new(mode, token, hold);
        let mut holds: usize = 1;
        let mut last = (hold.fence, token);
        while !self.rest.is_empty() {
            let (token, hold) = self.hold()?;
            // Only one order is written, so any other is not ours.
            if mode == Mode::Exclusive || (hold.fence, token) <= last {
                return Err(DecodeError);
            }
            last = (hold.fence, token);
            lock.put(mode, token, hold);
            holds = holds.saturating_add(1);
        }
        // A token that came twice has taken its own place.
        if lock.len() != holds {
            return Err(DecodeError);
        }
        Ok(lock)
    }
}

#[cfg(test)]
mod tests;
