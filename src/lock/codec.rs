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
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn hold(fence: u64) -> Hold {
        Hold {
            fence: Fence::new(fence).unwrap(),
            deadline: Deadline::from_millis(1_000 + fence % 10).unwrap(),
            since_ms: 1_000,
        }
    }

    fn token(bytes: &[u8]) -> Token<'_> {
        Token::new(bytes).unwrap()
    }

    fn three_readers() -> Lock {
        let mut lock = Lock::new(Mode::Shared, token(b"a"), hold(7));
        lock.put(Mode::Shared, token(b"\0\r\n\xff"), hold(5));
        lock.put(Mode::Shared, token(&[b'x'; 512]), hold(9));
        lock
    }

    fn effect_bytes(effect: &Effect<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        encode_effect(effect, &mut out);
        out
    }

    #[test]
    fn states_come_back() {
        for lock in [
            three_readers(),
            Lock::new(Mode::Exclusive, token(b"me"), hold(1)),
            Lock::new(Mode::Shared, token(b"me"), hold(Fence::MAX)),
        ] {
            let bytes = encode_state(&lock);
            assert_eq!(decode(&bytes), Ok(Record::State(lock)));
        }
    }

    #[test]
    fn effects_come_back() {
        let long = [0xffu8; 512];
        for effect in [
            Effect::Hold {
                now_ms: 17,
                mode: Mode::Shared,
                token: token(&long),
                hold: hold(3),
            },
            Effect::Release {
                now_ms: Deadline::MAX_MS,
                token: token(b"\0"),
            },
            Effect::Cap {
                deadline: Deadline::from_millis(0).unwrap(),
            },
        ] {
            let bytes = effect_bytes(&effect);
            assert!(bytes.len() <= MAX_EFFECT_LEN);
            assert_eq!(decode(&bytes), Ok(Record::Effect(effect)));
        }
        let fence = Fence::new(Fence::MAX).unwrap();
        assert_eq!(decode(&encode_fence(fence)), Ok(Record::Fence(fence)));
    }

    #[test]
    fn a_hold_comes_back_with_the_token_beside_it() {
        let record = encode_held(17, Mode::Shared, &hold(3));
        let effect = Effect::Hold {
            now_ms: 17,
            mode: Mode::Shared,
            token: token(b"me"),
            hold: hold(3),
        };
        assert_eq!(decode_held(b"me", &record), Ok(effect));
        assert_eq!(decode_held(b"", &record), Err(DecodeError));
        assert_eq!(decode_held(&[b'x'; 513], &record), Err(DecodeError));
        // Alone it says nothing, and what says all by itself wants no token.
        assert_eq!(decode(&record), Err(DecodeError));
        assert_eq!(decode_held(b"me", &effect_bytes(&effect)), Err(DecodeError));
        for end in 0..record.len() {
            assert_eq!(decode_held(b"me", &record[..end]), Err(DecodeError));
        }
        for (at, bad) in [(0, 2), (1, 2), (9, 0xff), (10, 3), (18, 0xff), (26, 0xff)] {
            let mut record = record;
            record[at] = bad;
            assert_eq!(decode_held(b"me", &record), Err(DecodeError), "{at}");
        }
        assert_eq!(
            decode_held(b"me", &[&record[..], b"\0"].concat()),
            Err(DecodeError)
        );
    }

    #[test]
    fn the_order_of_arrival_does_not_show() {
        let mut other = Lock::new(Mode::Shared, token(&[b'x'; 512]), hold(9));
        other.put(Mode::Shared, token(b"a"), hold(7));
        other.put(Mode::Shared, token(b"\0\r\n\xff"), hold(5));
        assert_eq!(encode_state(&other), encode_state(&three_readers()));
    }

    #[test]
    fn what_could_not_have_been_written_is_refused() {
        let exclusive = encode_state(&Lock::new(Mode::Exclusive, token(b"me"), hold(1)));
        let body = &exclusive[3..];
        let refused = |bytes: &[u8]| assert_eq!(decode(bytes), Err(DecodeError), "{bytes:?}");
        refused(&[]);
        refused(&[VERSION]);
        refused(&[VERSION, STATE, EXCLUSIVE]); // no hold
        refused(&[&[VERSION + 1, STATE, EXCLUSIVE], body].concat());
        refused(&[&[VERSION, 0, EXCLUSIVE], body].concat());
        refused(&[&[VERSION, STATE, 3], body].concat());
        refused(&[&exclusive[..], body].concat()); // two exclusive holds
        refused(&[&[VERSION, STATE, SHARED], body, body].concat()); // a token twice
        refused(&[&exclusive[..], b"\0"].concat());
        for end in 0..exclusive.len() {
            refused(&exclusive[..end]);
        }
        let mut zero_fence = exclusive.clone();
        zero_fence[3..11].fill(0);
        refused(&zero_fence);
        let mut huge_deadline = exclusive.clone();
        huge_deadline[11..19].fill(0xff);
        refused(&huge_deadline);
        let mut long_token = exclusive[..27].to_vec();
        long_token.extend(513u16.to_le_bytes());
        long_token.extend([b'x'; 513]);
        refused(&long_token);
    }

    #[test]
    fn any_bytes_are_decoded_or_refused_and_mean_one_thing() {
        const RUNS: usize = 300_000;
        let mut rng = StdRng::seed_from_u64(0x6c6f_636b);
        let seeds = [
            encode_state(&three_readers()),
            encode_state(&Lock::new(Mode::Exclusive, token(b"me"), hold(1))),
            effect_bytes(&Effect::Release {
                now_ms: 5,
                token: token(b"me"),
            }),
            encode_fence(Fence::new(12).unwrap()).to_vec(),
        ];
        let mut accepted = 0;
        for _ in 0..RUNS {
            let mut bytes = seeds[rng.random_range(0..seeds.len())].clone();
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..bytes.len());
                match rng.random_range(0..4) {
                    0 => bytes[at] = rng.random(),
                    1 => bytes[at] ^= 1 << rng.random_range(0..8),
                    2 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, rng.random()),
                }
            }
            // What is accepted must be written back as the same bytes: there is one encoding of a value.
            let again = match decode(&bytes) {
                Err(DecodeError) => continue,
                Ok(Record::State(lock)) => encode_state(&lock),
                Ok(Record::Effect(effect)) => effect_bytes(&effect),
                Ok(Record::Fence(fence)) => encode_fence(fence).to_vec(),
            };
            assert_eq!(again, bytes);
            accepted += 1;
        }
        assert!(
            accepted > RUNS / 20,
            "only {accepted} mutants were accepted"
        );
    }
}
