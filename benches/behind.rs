//! Whether the cost of a command grows with the absent permits, or the waiting conversions, of its lock.

use crate::callgrind::Counted;
use crate::fixture::WITHOUT_LIMITS;
use crate::harness::Kind;
use crate::load::{token, Requests};

/// The fewest places that are compared.
const FEW: usize = 10;
/// A round may take half as many instructions again as another one, by how its commands share turns
/// of the event loop. The least of so many hardly varies.
const ROUNDS: usize = 15;
const BATCH: usize = 48;
const MOST: usize = i32::MAX as usize;

/// Instructions of a command behind so many places, and behind the smallest number of them.
pub struct Behind {
    pub name: String,
    pub against: Option<String>,
    pub rounds: Vec<f64>,
}

#[derive(Clone, Copy)]
enum Places {
    Permits,
    Conversions,
}

impl Places {
    fn name(self) -> &'static str {
        match self {
            Self::Permits => "absent permits",
            Self::Conversions => "absent conversions",
        }
    }

    /// How many of them a lock is asked with. It has 10,000 absent places or 1,000 conversions at most.
    fn counts(self) -> [usize; 3] {
        match self {
            Self::Permits => [FEW, 1_000, 10_000],
            Self::Conversions => [FEW, 100, 1_000],
        }
    }

    /// Takes `count` places on a key. Their turn has come where they are permits, and comes when one more holder has gone where they are
    /// conversions.
    fn form(self, counted: &mut Counted, key: &str, count: usize) {
        let owner = token(usize::MAX);
        let ask = |n, limit| {
            let token = token(n);
            format!("LOCK.ACQUIRE {key} {token} 3600000 LIMIT {limit}")
        };
        let keep = |limit| (0..count).map(move |n| format!("{} KEEP 3600000", ask(n, limit)));
        let before = match self {
            Self::Permits => Requests::of([format!("LOCK.ACQUIRE {key} {owner} 3600000")]),
            Self::Conversions => Requests::of((0..=count).map(|n| ask(n, MOST))),
        };
        assert_eq!(counted.run(&before).yes, before.len());
        let places = match self {
            Self::Permits => Requests::of(keep(MOST)),
            Self::Conversions => Requests::of(keep(count)),
        };
        assert_eq!(counted.run(&places).no, count);
        if let Self::Permits = self {
            let release = Requests::of([format!("LOCK.RELEASE {key} {owner}")]);
            assert_eq!(counted.run(&release).yes, 1);
        }
    }
}

pub fn count(kind: Kind) -> Vec<Behind> {
    let mut counted = Counted::start_with(kind, &WITHOUT_LIMITS);
    let mut all = Vec::new();
    for places in [Places::Permits, Places::Conversions] {
        for count in places.counts() {
            counted.pause();
            let key = format!("{}:{count}", places.name().replace(' ', "-"));
            places.form(&mut counted, &key, count);
            counted.resume();
            counted.instructions();
            let (mut acquires, mut renewals) = (Vec::new(), Vec::new());
            for round in 0..=ROUNDS {
                let new = |n| token(count + 1 + round * BATCH + n);
                let acquire = |n| format!("LOCK.ACQUIRE {key} {} 3600000 LIMIT {MOST}", new(n));
                acquires.push(cost(&mut counted, (0..BATCH).map(acquire)));
                let holder = |n| match places {
                    Places::Permits => new(n),
                    Places::Conversions => token((round * BATCH + n) * 7919 % count),
                };
                let renew = |n| format!("LOCK.RENEW {key} {} 3600000", holder(n));
                renewals.push(cost(&mut counted, (0..BATCH).map(renew)));
            }
            for (command, mut rounds) in [("LOCK.ACQUIRE", acquires), ("LOCK.RENEW", renewals)] {
                rounds.remove(0); // Warming up.
                let name = |count| format!("{command}, behind {count} {}", places.name());
                // All conversions of a lock are looked at whenever it is served.
                let is_compared = count > FEW && matches!(places, Places::Permits);
                let against = is_compared.then(|| name(FEW));
                let name = name(count);
                all.push(Behind {
                    name,
                    against,
                    rounds,
                });
            }
        }
    }
    all
}

fn cost(counted: &mut Counted, lines: impl Iterator<Item = String>) -> f64 {
    let requests = Requests::of(lines);
    let tally = counted.run(&requests);
    assert_eq!(tally.errors, 0);
    counted.instructions() / requests.len() as f64
}
