//! Commands that another module runs while a key is opened that has expired, in the middle of a
//! command or of a turn of the timer. Whatever they are: who was told of a hold has it until it
//! ends, nobody has one of whom nobody was told, and several keys are taken together or not at all.

use std::collections::BTreeMap;

use super::drivers::{take, Dice};
use super::node::{Node, Value};
use super::{at, Client, Event, Keys, Limits, Place, Request};
use crate::lock::effort;
use crate::lock::Mode::{self, Exclusive, Shared};
use crate::lock::Token;
use Limits::{Forever, NoWait};

const KEYS: u8 = 3;
const TOKENS: u8 = 4;

/// What clients know.
struct World {
    node: Node,
    dice: Dice,
    asked: BTreeMap<Client, (Vec<Place>, Request)>,
    /// The holds that clients were told of: their fences and ends.
    held: BTreeMap<(Place, u8), (u64, u64)>,
    reacted: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let node = Node::new(true);
        node.memory.linger_ms.set(None);
        Self {
            node,
            dice: Dice::new(seed),
            asked: BTreeMap::new(),
            held: BTreeMap::new(),
            reacted: 0,
        }
    }

    fn now_ms(&self) -> u64 {
        self.node.memory.scene.get().now_ms
    }

    fn client(&mut self, places: Vec<Place>, what: Request) -> Client {
        let client = Client::try_from(self.asked.len()).unwrap() + 1;
        self.asked.insert(client, (places, what));
        client
    }

    fn place(&mut self) -> Place {
        at(0, self.dice.below(KEYS))
    }

    fn request(&mut self, limits: Limits) -> Request {
        let token = b'a' + self.dice.below(TOKENS);
        if self.dice.below(4) == 0 {
            return Request::Release(token);
        }
        let (mode, ttl) = (self.mode(), u64::from(self.dice.below(4)) + 1);
        take(mode, token, ttl, limits)
    }

    fn mode(&mut self) -> Mode {
        [Exclusive, Shared][usize::from(self.dice.below(2))]
    }

    fn limits(&mut self) -> Limits {
        [NoWait, Forever][usize::from(self.dice.below(2))]
    }

    fn step(&mut self) {
        let mut reactions = Vec::new();
        for _ in 0..self.dice.below(4) {
            let (place, what) = (self.place(), self.request(NoWait));
            reactions.push((self.client(vec![place], what), place, what));
        }
        let planned = reactions.len();
        self.node.memory.reactions.replace(reactions);
        match self.dice.below(8) {
            0 => self.node.memory.go_on(1),
            1 => drop(self.node.run_timer()),
            2..=4 => {
                let limits = self.limits();
                let (place, what) = (self.place(), self.request(limits));
                let client = self.client(vec![place], what);
                self.node.command(client, place, what);
            }
            _ => self.take_all(),
        }
        let left = self.node.memory.reactions.borrow().len();
        self.reacted += u64::try_from(planned - left).unwrap();
        self.learn();
        self.check();
    }

    fn take_all(&mut self) {
        let mut keys = [0, 1, 2].map(|name| Some((at(0, name), self.mode())));
        keys.rotate_left(usize::from(self.dice.below(KEYS)));
        if self.dice.below(2) == 0 {
            keys[2] = None;
        }
        let keys = Keys(keys);
        let (limits, token) = (self.limits(), b'a' + self.dice.below(TOKENS));
        let ttl = u64::from(self.dice.below(4)) + 1;
        let what = take(Exclusive, token, ttl, limits);
        let client = self.client(keys.iter().map(|(at, _)| at).collect(), what);
        self.node.take_all(client, keys, what);
    }

    /// What clients were told in this step.
    fn learn(&mut self) {
        let now_ms = self.now_ms();
        for (client, event) in self.node.memory.events.take() {
            let (places, what) = &self.asked[&client];
            for place in places {
                let at = (*place, what.token());
                match (event, what) {
                    (Event::Granted(fence), Request::Take { ttl, .. }) => {
                        self.held.insert(at, (fence, now_ms + ttl));
                    }
                    (Event::Done(true), Request::Release(_)) => drop(self.held.remove(&at)),
                    _ => {}
                }
            }
        }
        let in_flight = self.node.memory.in_flight.borrow().clone();
        for (client, _) in in_flight {
            self.node.end_delivery(client, true);
        }
        self.held.retain(|_, (_, ends_ms)| *ends_ms >= now_ms);
    }

    fn check(&self) {
        let now = self.node.memory.scene.get().now();
        let mut there = BTreeMap::new();
        for (place, value) in self.node.values().iter() {
            let Value::Lock(lock, _) = value else {
                continue;
            };
            for token in (0..TOKENS).map(|n| b'a' + n) {
                let name = [token];
                if let Some((_, hold)) = lock.hold_of(Token::new(&name).unwrap(), now) {
                    let hold = (hold.fence.get(), hold.deadline.ms());
                    there.insert((*place, token), hold);
                }
            }
        }
        assert_eq!(there, self.held);
    }
}

#[test]
fn commands_that_run_while_keys_are_opened() {
    let (runs, mut reacted) = (effort::runs(4_000), 0);
    for seed in 0..runs {
        let mut world = World::new(seed);
        for step in 0..200 {
            let before = world.held.clone();
            let is_fine = super::enumerate::is_fine(|| world.step());
            assert!(is_fine, "seed {seed}, step {step}, before: {before:?}");
        }
        reacted += world.reacted;
    }
    assert!(reacted > runs * 5, "{reacted}");
    println!("{runs} histories of 200 steps, {reacted} commands of other modules");
}
