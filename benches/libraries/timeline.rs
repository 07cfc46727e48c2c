//! How a lock was shared, read from the lines of a driver.

use crate::stats::Latency;

/// A line of a driver: `CLIENT ASKED_US GRANTED_US RELEASED_US`, on one clock from the common
/// start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Acquisition {
    client: usize,
    asked_us: u64,
    granted_us: u64,
    released_us: u64,
}

impl Acquisition {
    fn parse(line: &str, clients: usize) -> Option<Self> {
        let words: Option<Vec<u64>> = line.split(' ').map(|word| word.parse().ok()).collect();
        let [client, asked_us, granted_us, released_us] = words?[..] else {
            return None;
        };
        let client = usize::try_from(client).ok()?;
        let is_possible = client < clients && asked_us <= granted_us && granted_us <= released_us;
        is_possible.then_some(Self {
            client,
            asked_us,
            granted_us,
            released_us,
        })
    }
}

/// How a lock was shared during the first seconds after the start.
pub struct Timeline {
    pub acquisitions: f64,
    /// Acquisitions by another client than the previous holder.
    pub hand_offs: f64,
    /// The acquisitions of each client.
    pub taken: Vec<f64>,
    /// The waits, including those still in progress with their age. Otherwise a client that never
    /// gets the lock would not count.
    pub waits: Latency,
}

impl Timeline {
    /// Grants later than `end_us` are ignored: some drivers let every client finish, others do not.
    pub fn of(lines: &str, clients: usize, end_us: u64) -> Result<Self, String> {
        let mut all = Vec::new();
        for line in lines.lines() {
            let acquisition = Acquisition::parse(line, clients);
            all.push(acquisition.ok_or_else(|| format!("no acquisition: {line:?}"))?);
        }
        all.retain(|acquisition| acquisition.granted_us < end_us);
        all.sort_by_key(|acquisition| acquisition.granted_us);

        let mut taken = vec![0.0; clients];
        let mut free_since = vec![0; clients];
        let mut waits = Latency::new();
        let mut hand_offs = 0.0;
        let mut last = None;
        for acquisition in &all {
            let client = acquisition.client;
            taken[client] += 1.0;
            free_since[client] = acquisition.released_us;
            waits.record_us((acquisition.granted_us - acquisition.asked_us) as f64);
            if last.is_some_and(|last| last != client) {
                hand_offs += 1.0;
            }
            last = Some(client);
        }
        for since in free_since {
            if since < end_us {
                waits.record_us((end_us - since) as f64);
            }
        }
        Ok(Self {
            acquisitions: all.len() as f64,
            hand_offs,
            taken,
            waits,
        })
    }

    /// The number of clients that never got the lock.
    pub fn starved(&self) -> f64 {
        self.taken.iter().filter(|taken| **taken == 0.0).count() as f64
    }
}
