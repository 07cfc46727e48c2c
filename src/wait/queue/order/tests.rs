//! Random changes of the tree against a list.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::wait::slab::Slab;

/// What [`Order::ahead_of`] and [`Order::last_permit_ahead_of`] have to answer.
fn naive(all: &[Entry], end: Ticket) -> (Sum, Option<PlaceId>, Option<PlaceId>) {
    let ahead: Vec<&Entry> = all.iter().filter(|entry| entry.ticket < end).collect();
    let run = ahead.iter().take_while(|entry| entry.part != Part::STOPS);
    let run: Vec<&Entry> = run.copied().collect();
    let counted = run.iter().filter(|entry| entry.part != Part::ELSEWHERE);
    let counted: Vec<_> = counted.collect();
    let is_permit = |entry: &Entry| Sum::of(entry.part).has_permit();
    let last = counted.iter().rposition(|entry| is_permit(entry));
    let limits = counted.iter().filter_map(|entry| entry.part.tolerates());
    let sum = Sum {
        absent: counted.len() as u32,
        limit: limits.min().unwrap_or(Mode::ANY),
        ahead_of_last: last.unwrap_or(0) as u32,
        stops: false,
    };
    let last = ahead.iter().rev().find(|entry| is_permit(entry));
    let stop = ahead.get(run.len());
    (sum, stop.map(|entry| entry.id), last.map(|entry| entry.id))
}

fn check(order: &Order, all: &[Entry], end: Ticket) {
    let (sum, stop, last) = naive(all, end);
    assert_eq!(order.ahead_of(end), (sum, stop));
    assert_eq!(order.last_permit_ahead_of(end).map(|entry| entry.id), last);
    let ids = |entry: Entry| entry.id;
    let backwards: Vec<_> = order.ahead_of_in_turn(end).map(ids).collect();
    let ahead = all.iter().rev().filter(|entry| entry.ticket < end);
    assert_eq!(backwards, ahead.copied().map(ids).collect::<Vec<_>>());
    let mut first = all.iter().filter(|entry| Sum::of(entry.part).is_no_share());
    assert_eq!(order.first_but_shares(), first.next().copied().map(ids));
    let known = all.iter().find(|entry| entry.ticket == end);
    let known = known.copied().map(ids);
    assert_eq!(order.get(end).map(ids), known);
}

#[test]
fn random_changes_are_as_those_of_a_list() {
    let parts = [Mode::Shared.tolerates(), 2, 3, 1_000];
    let parts = parts.map(|n| Part::of_absent(Mode::of_limit(n).unwrap_or(Mode::Shared)));
    let (mut slab, mut deepest) = (Slab::default(), 0);
    let ids: Vec<PlaceId> = (0..4_000).map(|n| slab.insert(n).unwrap()).collect();
    for seed in 0..60 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut order, mut all) = (Order::default(), Vec::<Entry>::new());
        let (most, stops) = (rng.random_range(1..600), rng.random_range(0..40));
        let mut last_ticket = 1;
        for (step, id) in ids.iter().copied().enumerate().take(3_000) {
            let part = match rng.random_range(0..200) {
                n if n < stops => Part::STOPS,
                n if n < 60 => Part::ELSEWHERE,
                n => parts[n % parts.len()],
            };
            // It grows, then shrinks, then grows again.
            let grows = all.len() < most && (step / 1_000 != 1 || rng.random_bool(0.3));
            let at = rng.random_range(0..=all.len());
            match rng.random_range(0..3) {
                0 if at < all.len() => {
                    all[at].part = part;
                    order.set(all[at].ticket, part);
                }
                1 | 2 if grows => {
                    last_ticket += rng.random_range(1..4);
                    // Few come back at an earlier ticket.
                    let early = Ticket(rng.random_range(1..=last_ticket));
                    let is_early = rng.random_bool(0.3);
                    let is_free = !all.iter().any(|entry| entry.ticket == early);
                    let ticket = match is_early && is_free {
                        true => early,
                        false => Ticket(last_ticket),
                    };
                    if all.iter().any(|entry| entry.ticket == ticket) {
                        continue;
                    }
                    let entry = Entry { ticket, id, part };
                    all.insert(all.partition_point(|e| e.ticket < ticket), entry);
                    order.insert(entry);
                }
                _ if at < all.len() => {
                    let entry = all.remove(at);
                    assert_eq!(order.remove(entry.ticket).map(|e| e.id), Some(entry.id));
                    assert!(order.remove(entry.ticket).is_none());
                }
                _ => {}
            }
            assert_eq!(order.len(), all.len());
            if step % 16 == 0 {
                deepest = deepest.max(order.assert_tight().1);
                let end = Ticket(rng.random_range(0..=last_ticket + 1));
                check(&order, &all, end);
                check(&order, &all, Ticket(u64::MAX));
            }
        }
    }
    assert!(deepest > 1, "no tree of three levels");
}
