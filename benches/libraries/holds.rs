//! How long the clients hold the lock, how many they are, and what a fair queue would give them.

use std::time::Duration;

/// In milliseconds. `BENCH_HOLDS=0,100` chooses others.
pub const HOLDS_MS: [u64; 4] = [0, 1, 100, 1000];
/// The last hold would make a quick run long.
const QUICK_HOLDS_MS: [u64; 3] = [0, 1, 100];
/// The libraries take the lock for 30 s. A hold must end well before that.
const LONGEST_MS: u64 = 10_000;
/// From this hold on, one number of clients is measured, because a round takes seconds.
const LONG_MS: u64 = 100;
/// From this hold on, there is one round, because it takes half a minute.
const ONE_ROUND_MS: u64 = 1000;

pub const CLIENTS: [usize; 3] = [2, 16, 64];
const CLIENTS_OF_LONG_HOLDS: [usize; 1] = [16];

/// The holds that `BENCH_HOLDS` names, in the order of their length. The text is empty if it is
/// unset.
pub fn chosen(text: &str, quick: bool) -> Result<Vec<u64>, String> {
    if text.trim().is_empty() {
        return Ok(match quick {
            true => QUICK_HOLDS_MS.to_vec(),
            false => HOLDS_MS.to_vec(),
        });
    }
    let parse = |word: &str| {
        let hold_ms = word.parse().ok().filter(|hold_ms| *hold_ms <= LONGEST_MS);
        hold_ms.ok_or_else(|| format!("no hold from 0 to {LONGEST_MS} ms: {word:?}"))
    };
    let words = text.split([',', ' ']).filter(|word| !word.is_empty());
    let mut holds = words.map(parse).collect::<Result<Vec<u64>, String>>()?;
    holds.sort_unstable();
    holds.dedup();
    match holds.is_empty() {
        true => Err(format!("no hold in {text:?}")),
        false => Ok(holds),
    }
}

pub fn clients(hold_ms: u64) -> &'static [usize] {
    match hold_ms < LONG_MS {
        true => &CLIENTS,
        false => &CLIENTS_OF_LONG_HOLDS,
    }
}

pub fn rounds(hold_ms: u64, usual: usize) -> usize {
    match hold_ms < ONE_ROUND_MS {
        true => usual,
        false => 1,
    }
}

/// The length of a round. Each client could have two turns: after one and a half, a perfectly fair
/// queue would have served half of the clients twice, and its index of fairness would be 0.9.
pub fn round_time(hold_ms: u64, clients: usize, shortest: Duration) -> Duration {
    shortest.max(2 * turn_of_all(hold_ms, clients))
}

/// The longest wait in a fair queue that loses no time: each client has the lock once. None for a
/// hold of 0, which has no such time.
pub fn ideal_wait_us(hold_ms: u64, clients: usize) -> Option<f64> {
    let ideal = turn_of_all(hold_ms, clients);
    (!ideal.is_zero()).then_some(ideal.as_micros() as f64)
}

/// The time in which each client holds the lock once.
pub fn turn_of_all(hold_ms: u64, clients: usize) -> Duration {
    Duration::from_millis(hold_ms) * clients as u32
}

/// The hold that the chart shows: 1 ms, or else the shortest.
pub fn charted(holds: &[u64]) -> u64 {
    let shortest = holds.first().copied().unwrap_or(1);
    match holds.contains(&1) {
        true => 1,
        false => shortest,
    }
}
