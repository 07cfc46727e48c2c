//! What a guard by a majority costs: the same requests to a primary with two replicas, with the
//! guard open and without one.
//!
//! A beat is sent four times a second. So each count is of thousands of requests, and what comes
//! with the acknowledgements of the replicas is taken out.

use crate::callgrind::Counted;
use crate::harness::Kind;
use crate::instruction_steps::{hand_offs, KEYS};
use crate::load::{key, token, Requests};

const ROUNDS: usize = 5;
const WARM_UP: usize = 1;
/// How often the keys get each command in a round.
const TIMES: usize = 40;
const HANDED_ON: usize = 500;

pub const PAIR: &str = "LOCK.ACQUIRE + LOCK.RELEASE";
pub const QUORUM: [&str; 4] = ["guard", "quorum", "max-ttl", "1000"];

/// The instructions of each request by round, with these arguments of the module.
pub fn count(kind: Kind, guard: &[&str]) -> Vec<(&'static str, Vec<f64>)> {
    let mut counted = Counted::start_with_replicas(kind, guard);
    let take = |n: usize| format!("LOCK.ACQUIRE {} {} 60000", key(n), token(n));
    let give = |n: usize| format!("LOCK.RELEASE {} {}", key(n), token(n));
    let refused = |n: usize| format!("LOCK.ACQUIRE {} {} 60000", key(n), token(n + 1));
    let renew = |n: usize| format!("LOCK.RENEW {} {} 60000", key(n), token(n));
    let all = |line: &dyn Fn(usize) -> String| (0..KEYS).map(line).collect::<Vec<_>>();
    let often = |lines: &[String]| Requests::of(vec![lines; TIMES].concat());
    let pairs = often(&[all(&take), all(&give)].concat());
    let (refused, renewals) = (often(&all(&refused)), often(&all(&renew)));
    let [_, (hand_off, _, by)] = hand_offs();
    let names = [PAIR, "LOCK.ACQUIRE, refused", "LOCK.RENEW", hand_off];
    let mut counts = names.map(|name| (name, Vec::new()));
    for round in 0..WARM_UP + ROUNDS {
        let mut of = |requests: &Requests| {
            counted.instructions();
            let tally = counted.run(requests);
            assert_eq!(tally.errors, 0);
            counted.instructions() / requests.len() as f64
        };
        let pair = 2.0 * of(&pairs);
        of(&Requests::of(all(&take)));
        let figures = [pair, of(&refused), of(&renewals)];
        of(&Requests::of(all(&give)));
        let figures = figures
            .into_iter()
            .chain([counted.hand_off(HANDED_ON, &by)]);
        for ((_, rounds), figure) in counts.iter_mut().zip(figures) {
            if round >= WARM_UP {
                rounds.push(figure);
            }
        }
    }
    counts.to_vec()
}
