//! Medians, spreads and ratios of measurements.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The median of several rounds, with the smallest and the largest.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Spread {
    pub fn of(values: &[f64]) -> Self {
        assert!(!values.is_empty(), "nothing was measured");
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
            _ => sorted[middle],
        };
        Self {
            median,
            low: sorted[0],
            high: sorted[sorted.len() - 1],
        }
    }

    /// Ours divided by theirs, round by round, because a disturbance affects both sides of a round.
    pub fn of_ratios(ours: &[f64], theirs: &[f64]) -> Self {
        let pairs = ours.iter().zip(theirs);
        Self::of(
            &pairs
                .map(|(ours, theirs)| ours / theirs)
                .collect::<Vec<_>>(),
        )
    }

    /// The interquartile range of the ratios, in which a few disturbed rounds do not show.
    pub fn middle_half_of_ratios(ours: &[f64], theirs: &[f64]) -> (f64, f64) {
        let mut ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
        assert!(!ratios.is_empty(), "nothing was measured");
        ratios.sort_by(f64::total_cmp);
        let quarter = ratios.len() / 4;
        (ratios[quarter], ratios[ratios.len() - 1 - quarter])
    }

    /// `1.02 (0.98 to 1.10)`
    pub fn shown(&self, digits: usize) -> String {
        let Self { median, low, high } = self;
        format!("{median:.digits$} ({low:.digits$} to {high:.digits$})")
    }
}

/// Jain's index of fairness: 1 if all clients got the same, 1/n if one client got everything.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (squares * shares.len() as f64)
}

/// Durations, with a precision of three digits.
pub struct Latency(Histogram<u64>);

impl Latency {
    pub fn new() -> Self {
        Self(Histogram::new(3).expect("three digits"))
    }

    pub fn record(&mut self, duration: Duration) {
        self.record_us(duration.as_nanos() as f64 / 1000.0);
    }

    pub fn record_us(&mut self, us: f64) {
        self.0
            .record((us * 1000.0).max(0.0) as u64)
            .expect("a duration");
    }

    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("histograms of one kind");
    }

    /// In microseconds: 0.5 is the median, 1 the maximum.
    pub fn at(&self, share: f64) -> f64 {
        self.0.value_at_quantile(share) as f64 / 1000.0
    }
}

/// A duration in microseconds, printed with three digits and a suitable unit.
pub fn shown_us(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{:.2} s", us / 1e6),
        us if us >= 1e4 => format!("{:.1} ms", us / 1e3),
        us if us >= 1e3 => format!("{:.2} ms", us / 1e3),
        us => format!("{us:.0} µs"),
    }
}
