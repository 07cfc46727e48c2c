//! Payloads with random damage, or forged by someone who knows the format.

use rand::rngs::StdRng;
use rand::RngExt;

use super::payload::{sealed, Payload, FOOTER};

/// The part of a payload that was changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Damage {
    /// The module's record. The envelope is adapted to it.
    Record,
    /// The envelope as well. Only the footer is adapted.
    Envelope,
    /// Any byte, including the footer.
    Any,
}

pub fn damaged(rng: &mut StdRng, seeds: &[Vec<u8>]) -> (Damage, Vec<u8>) {
    let seed = &seeds[rng.random_range(0..seeds.len())];
    match rng.random_range(0..10) {
        0..6 => {
            let mut payload = Payload::read(seed);
            // Most numbers precede the first token.
            let reach = match rng.random_bool(0.5) {
                true => 3 + 26,
                false => payload.record.len(),
            };
            mutate(rng, &mut payload.record, 0, reach);
            (Damage::Record, payload.write())
        }
        6..9 => {
            let mut body = seed[..seed.len() - FOOTER].to_vec();
            let footer = seed[body.len()..].to_vec();
            // The first byte belongs to the server. It is the type.
            let reach = match rng.random_bool(0.5) {
                true => 16,
                false => body.len(),
            };
            mutate(rng, &mut body, 1, reach);
            (Damage::Envelope, sealed(body, [footer[0], footer[1]]))
        }
        _ => {
            let mut bytes = seed.clone();
            mutate(rng, &mut bytes, 0, seed.len());
            (Damage::Any, bytes)
        }
    }
}

/// Changes one to three bytes between `from` and `reach`.
fn mutate(rng: &mut StdRng, bytes: &mut Vec<u8>, from: usize, reach: usize) {
    for _ in 0..rng.random_range(1..4) {
        let end = reach.min(bytes.len());
        if end <= from {
            return;
        }
        let at = rng.random_range(from..end);
        match rng.random_range(0..8) {
            0 | 1 => bytes[at] = rng.random(),
            2 | 3 => bytes[at] ^= 1 << rng.random_range(0..8),
            4 => bytes.truncate(at),
            5 => bytes.insert(at, rng.random()),
            6 => bytes[at..end].fill(0xff),
            _ => {
                // A part twice: another hold, possibly the same one.
                let piece = bytes[at..].to_vec();
                bytes.extend(piece);
            }
        }
    }
}
