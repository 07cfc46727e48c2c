//! What a lock costs a primary in a cluster of so many shards, in instructions.

use crate::callgrind::{Counted, HandOff};
use crate::fixture::Fixture;
use crate::harness::{Client, Kind, Setup};
use crate::load::{token, Requests};
use crate::shards::{give_slots, introduce, node, wait_until_it_serves, OPTIONS};
use crate::Run;

/// In a slot that the first shard has, whatever their number.
const TAG: &str = "{lock:10}";
const BATCH: usize = 48;
const PAIRS: usize = 8 * BATCH;
const HAND_OFFS: usize = 200;
const RESIDENT: usize = 3_000;

/// The instructions of a pair, 16 in a pipeline, and of a hand-off.
pub fn count(with: &Run, kind: Kind, size: usize) -> [f64; 2] {
    let (mut counted, _others) = cluster(kind, size);
    let resident = (0..RESIDENT).map(|n| format!("SET {TAG}resident:{n} x PX 3600000"));
    counted.run(&Requests::of(resident));
    counted.resume();
    counted.prepare(0, 0);
    let by = HandOff {
        take: |n| format!("LOCK.ACQUIRE {TAG}lock {} 60000 BLOCK 0", token(n)),
        give: |n| format!("LOCK.RELEASE {TAG}lock {}", token(n)),
    };
    let hand_offs = with.size(HAND_OFFS).next_multiple_of(2);
    pairs(&mut counted, BATCH);
    counted.hand_off(2, &by);
    counted.instructions();
    let count = with.size(PAIRS).next_multiple_of(BATCH);
    pairs(&mut counted, count);
    let pair = counted.instructions() / count as f64;
    [pair, counted.hand_off(hand_offs, &by)]
}

fn pairs(counted: &mut Counted, count: usize) {
    let lines = |line: &dyn Fn(usize) -> String| Requests::of((0..BATCH).map(line));
    let take = lines(&|n| format!("LOCK.ACQUIRE {TAG}{n} {} 60000", token(n)));
    let give = lines(&|n| format!("LOCK.RELEASE {TAG}{n} {}", token(n)));
    for _ in 0..count / BATCH {
        for requests in [&take, &give] {
            assert_eq!(counted.run(requests).yes, BATCH);
        }
    }
}

/// A counted primary, which is paused, and the others. They hardly ever call on each other, because
/// their messages would count.
fn cluster(kind: Kind, size: usize) -> (Counted, Vec<Fixture>) {
    let mut counted = Counted::start_with(kind, &OPTIONS);
    counted.pause();
    let start = |_| Fixture::start_as(kind, Setup::with_module(&[]), &OPTIONS);
    let mut others: Vec<_> = (1..size).map(start).collect();
    let mut first = Client::connect(counted.port());
    give_slots(&mut first, 0, size);
    for (n, other) in others.iter_mut().enumerate() {
        give_slots(&mut other.control, n + 1, size);
    }
    let all = others.iter_mut().map(node);
    introduce(std::iter::once((counted.port(), &mut first)).chain(all));
    wait_until_it_serves(&mut first);
    let clients = others.iter_mut().map(|other| &mut other.control);
    for client in clients.chain([&mut first]) {
        client.text("CONFIG SET cluster-node-timeout 3600000");
        client.text("CONFIG SET hz 1");
    }
    (counted, others)
}
