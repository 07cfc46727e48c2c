//! Random histories of a whole server, and of one key. They shrink to the shortest one that fails.

use proptest::collection::vec;
use proptest::prelude::*;

use super::drivers::keep;
use super::one_key::{releases, GRACE, K};
use super::*;

fn place() -> impl Strategy<Value = Place> {
    (0..DBS, 0..NAMES).prop_map(|(db, name)| at(db, name))
}

fn mode() -> impl Strategy<Value = Mode> {
    let limit = (2..5_u32).prop_map(|n| Mode::of_limit(n).unwrap());
    prop_oneof![1 => Just(Mode::Exclusive), 2 => Just(Mode::Shared), 1 => limit]
}

fn limits() -> impl Strategy<Value = Limits> {
    prop_oneof![
        2 => Just(Limits::Forever),
        1 => Just(Limits::NoWait),
        1 => (1..20_u64).prop_map(Limits::Until),
        1 => Just(Limits::Notify),
        1 => (1..20_u64).prop_map(Limits::NotifyUntil),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let (token, ttl) = (0..5_u8, 1..30_u64);
    let grace = prop_oneof![Just(0), 1..20_u32];
    let take = (mode(), token.clone(), ttl.clone(), limits(), grace);
    prop_oneof![
        6 => take.prop_map(|(mode, token, ttl, limits, grace)| keep(mode, token, ttl, limits, grace)),
        3 => token.clone().prop_map(Request::Release),
        1 => (token.clone(), ttl.clone()).prop_map(|(token, ms)| Request::ReleaseLater(token, ms)),
        1 => token.clone().prop_map(Request::Check),
        1 => token.clone().prop_map(Request::Exec),
        1 => (token, ttl).prop_map(|(token, ttl)| Request::Renew(token, ttl)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => (place(), request()).prop_map(|(place, request)| Op::Ask(place, request)),
        3 => (0..9_usize).prop_map(Op::KillWaiter),
        3 => (0..9_usize).prop_map(Op::Lose),
        6 => (0..9_usize).prop_map(Op::Deliver),
        2 => (0..9_usize).prop_map(Op::Disconnect),
        8 => (1..9_u64).prop_map(Op::Tick),
        1 => (-20..20_i64).prop_map(Op::SetClock),
        6 => Just(Op::Timer),
        2 => place().prop_map(Op::Delete),
        1 => place().prop_map(Op::Overwrite),
        1 => (place(), 0..NAMES).prop_map(|(from, to)| Op::Rename(from, at(from.db, to))),
        1 => (place(), 0..DBS).prop_map(|(from, to)| Op::Rename(from, at(to, from.name))),
        1 => Just(Op::SwapDbs(0, 1)),
        1 => (0..=EVERY_DB).prop_map(Op::Flush),
        1 => place().prop_map(Op::Persist),
        1 => (place(), 1..20_u64).prop_map(|(place, ms)| Op::Expire(place, ms)),
        1 => Just(Op::ExpireCycle),
        1 => any::<bool>().prop_map(Op::Demote),
        3 => Just(Op::Promote),
        1 => (0..NAMES, any::<bool>()).prop_map(|(slot, deletes)| Op::SlotGoes(slot, deletes)),
        3 => (0..NAMES).prop_map(Op::SlotComes),
        1 => any::<bool>().prop_map(Op::RefuseWrites),
        1 => any::<bool>().prop_map(Op::PauseWrites),
        1 => any::<bool>().prop_map(Op::Subscribe),
    ]
}

/// A step of one key.
fn op_of_one_key() -> impl Strategy<Value = Op> {
    let (token, ttl) = (b'a'..b'f', 1..12_u64);
    let how = prop_oneof![
        3 => Just((Limits::Forever, 0)),
        1 => Just((Limits::NoWait, 0)),
        1 => Just((Limits::Forever, GRACE)),
        1 => Just((Limits::NoWait, GRACE)),
    ];
    let ask = (how, mode_of_one_key(), token.clone(), ttl.clone());
    prop_oneof![
        8 => ask.prop_map(|(how, mode, token, ttl)| Op::Ask(K, keep(mode, token, ttl, how.0, how.1))),
        5 => token.clone().prop_map(releases),
        1 => (token.clone(), ttl.clone()).prop_map(|(token, ttl)| Op::Ask(K, Request::Renew(token, ttl))),
        2 => (0..8_usize).prop_map(|n| Op::KillAt(K, n)),
        4 => (1..6_u64).prop_map(Op::Tick),
        1 => Just(Op::Delete(K)),
        1 => (token.clone(), token, ttl).prop_map(|(a, b, ttl)| Op::Restore(K, [a, b], ttl)),
    ]
}

fn mode_of_one_key() -> impl Strategy<Value = Mode> {
    let limit = (2..6_u32).prop_map(|n| Mode::of_limit(n).unwrap());
    prop_oneof![1 => Just(Mode::Exclusive), 2 => Just(Mode::Shared), 1 => limit]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn any_history_is_as_the_oracle_says(says_who_listens in any::<bool>(), history in vec(op(), 1..80)) {
        let mut world = World::new(says_who_listens);
        history.into_iter().for_each(|op| world.step(op));
    }
    #[test]
    fn any_history_of_one_key_is_as_the_oracle_says(history in vec(op_of_one_key(), 1..60)) {
        let mut world = World::of_one_key();
        history.into_iter().for_each(|op| world.step(op));
    }
}

/// Time passes between two looks at the clock in a turn of the timer.
#[derive(Clone, Debug)]
struct Turn {
    after_ms: u64,
    looks: u32,
}

fn op_between_turns() -> impl Strategy<Value = Op> {
    let keys = (mode(), mode()).prop_map(|(one, other)| {
        let two = [Some((at(0, 0), one)), Some((at(0, 1), other)), None];
        Keys(two)
    });
    let take = (0..5_u8, 1..30_u64, limits());
    let take = take.prop_map(|(token, ttl, limits)| keep(Mode::Exclusive, token, ttl, limits, 0));
    prop_oneof![
        12 => (0..NAMES, request()).prop_map(|(name, request)| Op::Ask(at(0, name), request)),
        2 => (keys, take).prop_map(|(keys, take)| Op::AskAll(keys, take)),
        1 => (0..NAMES).prop_map(|name| Op::Delete(at(0, name))),
        1 => (0..NAMES, 1..20_u64).prop_map(|(name, ms)| Op::Expire(at(0, name), ms)),
    ]
}

fn turn() -> impl Strategy<Value = Turn> {
    (0..5_u64, 1..6_u32).prop_map(|(after_ms, looks)| Turn { after_ms, looks })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    /// Whatever a turn sees first and last, a look at all keys after it finds nothing to do.
    #[test]
    fn nobody_is_forgotten_while_time_passes(history in vec((op_between_turns(), turn()), 1..60)) {
        let mut node = Node::new(true);
        let mut client = 0;
        for (op, turn) in history {
            client += 1;
            match op {
                Op::Ask(at, request) => node.command(client, at, request),
                Op::AskAll(keys, request) => node.take_all(client, keys, request),
                Op::Delete(at) if node.look_up(at) => node.delete(at),
                Op::Expire(at, ms) => {
                    let end_ms = node.memory.scene.get().now_ms + ms;
                    node.set_end(at, Some(end_ms));
                }
                _ => {}
            }
            node.memory.go_on(turn.after_ms);
            node.memory.looks_left.set(Some(turn.looks));
            node.machine.looked_us = 0;
            node.run_timer();
            node.memory.looks_left.set(None);
            node.run_timer();
            let granted = node.memory.in_flight.borrow().clone();
            granted.iter().for_each(|(client, _)| node.end_delivery(*client, true));
            node.settle();
            let mut looked_at = node.clone();
            looked_at.memory.events.take();
            for at in node.memory.scene.get().places() {
                looked_at.machine.registry.mark_anyway(at.db.into(), &[at.name]);
            }
            looked_at.run_timer();
            let late = looked_at.memory.events.take();
            prop_assert!(late.is_empty(), "{late:?} is forgotten after {op:?}, {turn:?}");
        }
    }
}

/// A message that nobody receives ends the places of its channel at every key. Those behind them
/// come before the command in which that was noticed.
#[test]
fn who_stood_behind_an_unheard_place_comes_before_the_next_command() {
    let (key, other) = (at(0, 0), at(0, 1));
    let ask = |at, mode, token, limits| Op::Ask(at, keep(mode, token, 60, limits, 0));
    let mut world = World::new(false);
    for op in [
        ask(key, Mode::Shared, 0, Limits::NoWait),
        ask(key, Mode::Exclusive, 1, Limits::Notify),
        ask(key, Mode::Shared, 2, Limits::Forever),
        ask(other, Mode::Exclusive, 0, Limits::NoWait),
        ask(other, Mode::Exclusive, 3, Limits::NotifyUntil(1)),
        Op::Subscribe(false),
        Op::Tick(1),
        ask(key, Mode::Shared, 4, Limits::NoWait),
    ] {
        world.step(op);
    }
    let is_granted = |(_, event): &(Client, Event)| matches!(event, Event::Granted(_));
    let events = world.real.memory.events.borrow();
    assert!(
        events.len() == 2 && events.iter().all(is_granted),
        "{events:?}"
    );
}
