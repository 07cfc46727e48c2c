//! What has grown lately: the growth of a list of numbers in the last minute.
//!
//! The numbers only grow. So nothing is recorded when one of them grows: a window is the difference
//! of two readings. Once in ten seconds the shell reads all numbers and closes a slice, which has
//! the differences that are not 0. A window is the sum of its closed slices and of what has grown
//! since the last one was closed.
//!
//! A minute is the running slice and the five before it, so it is 50 to 60 seconds long.
//!
//! # Memory
//!
//! The last reading takes 8 bytes for each number. A slice takes 8 bytes for each number that has
//! grown in it: no more than it has seen events.
//!
//! Std only. The time is an argument, on a clock that nobody can set.

use std::collections::VecDeque;

/// How long a slice lasts.
const SLICE_US: u64 = 10_000_000;

/// How many slices a minute has, with the running one.
const SLICES: u64 = 6;

/// The growth within ten seconds.
#[derive(Debug)]
struct Slice {
    /// Which ten seconds these are, on the clock.
    number: u64,
    /// By how much each number has grown, by its place in the list.
    growth: Box<[(u32, u32)]>,
}

/// The slices of the last minute.
#[derive(Debug, Default)]
pub(in crate::server) struct Window {
    /// The closed ones, oldest first.
    closed: VecDeque<Slice>,
    /// The number of the running one.
    running: u64,
    /// All numbers at its beginning; those that are missing were 0.
    before: Vec<u64>,
}

impl Window {
    /// Whether the running slice is over, so that [`Window::advance`] has something to do.
    pub(in crate::server) const fn must_advance(&self, now_us: u64) -> bool {
        slice_at(now_us) > self.running
    }

    /// Closes the running slice if it is over. `values` are the numbers now.
    pub(in crate::server) fn advance(&mut self, now_us: u64, values: &[u64]) {
        if !self.must_advance(now_us) {
            return;
        }
        let growth: Box<[_]> = (0..)
            .zip(self.growth(values))
            .filter(|(_, growth)| *growth > 0)
            .map(|(at, growth)| (at, u32::try_from(growth).unwrap_or(u32::MAX)))
            .collect();
        if !growth.is_empty() {
            let number = self.running;
            self.closed.push_back(Slice { number, growth });
        }
        self.running = slice_at(now_us);
        self.before.clear();
        self.before.extend_from_slice(values);
        let first = first_of(self.running);
        while self.closed.front().is_some_and(|old| old.number < first) {
            self.closed.pop_front();
        }
    }

    /// By how much each number has grown in the last minute. `values` are the numbers now, as many
    /// as ever.
    pub(in crate::server) fn growth_at(&self, now_us: u64, values: &[u64]) -> Vec<u64> {
        let first = first_of(slice_at(now_us));
        // The running slice may be old, if nothing has called for long.
        let mut sums: Vec<_> = match self.running >= first {
            true => self.growth(values).collect(),
            false => vec![0; values.len()],
        };
        let closed = self.closed.iter().filter(|slice| slice.number >= first);
        for (at, growth) in closed.flat_map(|slice| &slice.growth) {
            let sum = usize::try_from(*at).ok().and_then(|at| sums.get_mut(at));
            if let Some(sum) = sum {
                *sum = sum.saturating_add((*growth).into());
            }
        }
        sums
    }

    /// Forgets all, and frees its memory. The numbers begin at 0 again.
    pub(in crate::server) fn reset(&mut self) {
        self.closed = VecDeque::new();
        self.before = Vec::new();
    }

    /// By how much each number has grown since the last slice was closed.
    fn growth<'a>(&'a self, values: &'a [u64]) -> impl Iterator<Item = u64> + 'a {
        let before = self.before.iter().copied().chain(std::iter::repeat(0));
        values
            .iter()
            .zip(before)
            .map(|(now, before)| now.saturating_sub(before))
    }
}

const fn slice_at(us: u64) -> u64 {
    us / SLICE_US
}

/// The first slice of the minute whose last one is `last`.
const fn first_of(last: u64) -> u64 {
    last.saturating_add(1).saturating_sub(SLICES)
}

#[cfg(test)]
mod tests {
    use super::*;

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    const SECOND: u64 = 1_000_000;

    /// All events, and the naive sums over them.
    struct Oracle(Vec<(u64, usize)>);

    impl Oracle {
        fn of(&self, now_us: u64, numbers: usize) -> Vec<u64> {
            // From the beginning of a ten of seconds.
            let last = now_us / (10 * SECOND) * 10;
            let from_us = (last + 10).saturating_sub(60) * SECOND;
            let mut sums = vec![0; numbers];
            for (_, at) in self.0.iter().filter(|(us, _)| *us >= from_us) {
                sums[*at] += 1;
            }
            sums
        }
    }

    #[test]
    fn the_window_is_that_of_a_list_of_all_events() {
        for seed in 0..200 {
            let mut rng = StdRng::seed_from_u64(seed);
            let numbers = rng.random_range(1..8);
            let mut values = vec![0; numbers];
            let (mut window, mut oracle) = (Window::default(), Oracle(Vec::new()));
            let mut now_us = rng.random_range(0..100 * SECOND);
            for _ in 0..400 {
                now_us += match rng.random_range(0..20) {
                    0 => rng.random_range(0..80 * SECOND),
                    1..6 => rng.random_range(0..15 * SECOND),
                    6 => SLICE_US - now_us % SLICE_US, // to the first instant of a slice
                    _ => rng.random_range(0..SECOND),
                };
                window.advance(now_us, &values);
                for _ in 0..rng.random_range(0..3) {
                    let at = rng.random_range(0..numbers);
                    values[at] += 1;
                    oracle.0.push((now_us, at));
                }
                if rng.random_bool(0.01) {
                    window.reset();
                    oracle.0.clear();
                    values.fill(0);
                }
                let expected = oracle.of(now_us, numbers);
                let is = window.growth_at(now_us, &values);
                assert_eq!(is, expected, "seed {seed} at {now_us}");
                // Later, without a call in between, what is old is left out as well.
                let later = now_us + rng.random_range(0..70 * SECOND);
                let expected = oracle.of(later, numbers);
                assert_eq!(window.growth_at(later, &values), expected, "seed {seed}");
            }
        }
    }

    #[test]
    fn a_late_call_counts_for_the_slice_that_was_running() {
        let mut window = Window::default();
        window.advance(5 * SECOND, &[0]);
        // Ten events, and nobody has called for a quarter of a minute.
        window.advance(25 * SECOND, &[10]);
        assert_eq!(window.growth_at(59 * SECOND, &[10]), [10]);
        assert_eq!(window.growth_at(60 * SECOND, &[10]), [0]);
    }

    #[test]
    fn memory_has_a_bound() {
        let mut window = Window::default();
        let mut values = vec![0; 1000];
        for second in 0..10_000 {
            window.advance(second * SECOND, &values);
            values.iter_mut().for_each(|value| *value += 1);
        }
        assert_eq!(window.closed.len() as u64, SLICES - 1);
        assert!(window.closed.iter().all(|slice| slice.growth.len() <= 1000));
        window.advance(20_000 * SECOND, &values);
        assert!(window.closed.is_empty());
    }
}
