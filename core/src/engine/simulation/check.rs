//! What must hold after each step of the world.

use super::node::Value;
use super::oracle::NaiveRequest;
use super::{channel_of, one_key, Client, Event, Op, Place, Scene, World, FIRST_OF_CHANNELS};
use crate::lock::Mode;
use crate::wait::{Counts, Listener};

impl World {
    pub(super) fn check_events(&mut self, op: Op) {
        let mut real = self.real.memory.events.borrow_mut();
        let expected = &mut self.oracle.events;
        real.sort_unstable();
        expected.sort_unstable();
        let (last_fence, mut new) = (self.last_fence, Vec::new());
        for (real, expected) in real.iter().zip(expected.iter_mut()) {
            let (
                (Event::Granted(fence), Event::Granted(id))
                | (Event::Early(fence), Event::Early(id)),
            ) = ((real.1, &mut expected.1),)
            else {
                continue;
            };
            // A hold keeps its fence; a new hold has one above all before this step.
            let known = *self.fences.entry(*id).or_insert_with(|| {
                assert!(
                    fence > last_fence,
                    "{op:?}: fence {fence} after {last_fence}"
                );
                new.push((*id, fence));
                fence
            });
            self.last_fence = self.last_fence.max(fence);
            *id = known;
        }
        assert_eq!(*real, *expected, "{op:?}: what clients get");
        self.oracle.check_ranks(op, &mut new);
        // A client that has just begun to wait may be next at once.
        let is_answer =
            |event: &&(Client, Event)| event.1 != Event::Waits && event.0 < FIRST_OF_CHANNELS;
        let answers: Vec<_> = real.iter().filter(is_answer).collect();
        let twice = answers.windows(2).any(|two| two[0].0 == two[1].0);
        assert!(!twice, "{op:?}: a client got two answers: {real:?}");
    }

    pub(super) fn check_state(&self, op: Op) {
        for at in self.scene.places() {
            let real = self.real_holds(at);
            let mut expected: Vec<_> = self
                .oracle
                .standing(at, self.scene.now_ms)
                .map(|hold| {
                    (
                        self.fences[&hold.id],
                        hold.token,
                        hold.deadline.min(self.oracle_end(at)),
                    )
                })
                .collect();
            expected.sort_unstable();
            assert_eq!(
                real, expected,
                "{op:?}: the holds of {at:?}: fence, token, end"
            );
            let holds = self.oracle.standing(at, self.scene.now_ms);
            let modes: Vec<Mode> = holds.map(|hold| hold.mode).collect();
            let narrowest = modes.iter().map(|mode| mode.tolerates()).min();
            let values = self.real.values();
            if let (Some(narrowest), Some(Value::Lock(lock, _))) = (narrowest, values.get(&at)) {
                let occupancy = lock.occupancy(self.scene.now());
                let expected = (modes.len(), narrowest);
                let real = (occupancy.holders, occupancy.tolerated);
                assert_eq!(real, expected, "{op:?}: the holders of {at:?}");
                let is_tolerated = modes.len() <= narrowest as usize;
                assert!(is_tolerated, "too many holders: {at:?}");
            }
            let waiters = self.real.machine.registry.waiters(at.db.into(), &[at.name]);
            let real = waiters.map(|waiter| {
                let token = waiter.token.as_bytes()[0];
                (
                    token,
                    waiter.mode,
                    waiter.since_us,
                    waiter.listener.cloned(),
                )
            });
            let expected = self.oracle.queue(at);
            let expected = expected.iter().flat_map(|place| {
                let absent = place.kept.filter(|_| place.is_absent());
                let absent = absent.map(|(mode, _)| (mode, None)).into_iter();
                let listener = |r: &NaiveRequest| match r.is_channel {
                    true => Listener::channel(&channel_of(place.token)),
                    false => Listener::Client(r.client),
                };
                let requests = place.requests.iter().map(|r| (r.mode, Some(listener(r))));
                let all = absent.chain(requests.collect::<Vec<_>>());
                all.map(|(mode, listener)| {
                    let mode = place.mode_at(at, mode);
                    (place.token, mode, place.since_us, listener)
                })
            });
            let (real, expected): (Vec<_>, Vec<_>) = (real.collect(), expected.collect());
            assert_eq!(real, expected, "{op:?}: the queue of {at:?}");
        }
        self.check_due(op);
        if self.settles {
            self.oracle.check_no_deadlock(one_key::K, &self.scene);
        }
    }

    fn oracle_end(&self, at: Place) -> u64 {
        let end = self.oracle.ends.iter().find(|(place, _)| *place == at);
        end.map_or(u64::MAX, |(_, end)| *end)
    }

    /// Fence, token and end of all holds that stand.
    fn real_holds(&self, at: Place) -> Vec<(u64, u8, u64)> {
        let values = self.real.values();
        let Some(Value::Lock(lock, end)) = values.get(&at) else {
            return Vec::new();
        };
        let end = end.map_or(u64::MAX, |end| end.ms());
        let holders = lock.holders().into_iter();
        let holds = holders.map(|(token, hold)| {
            let token = token.as_token().as_bytes()[0];
            (hold.fence.get(), token, hold.deadline.ms().min(end))
        });
        holds
            .filter(|(.., end)| *end >= self.scene.now_ms)
            .collect()
    }

    /// The schedule is exact about timeouts, and never too late for a grant. Nothing is left when
    /// nobody waits.
    fn check_due(&self, op: Op) {
        let due = self.real.machine.registry.due();
        let has_timer_run = self.settles || matches!(op, Op::Timer);
        let places = &self.oracle.places;
        let requests = places.iter().flat_map(|place| &place.requests);
        let timeouts = requests.filter_map(|request| request.times_out_at_us);
        let absent = places.iter().filter(|place| place.is_absent());
        let timeouts = timeouts.chain(absent.map(|place| place.until_us));
        let waiting = places.len();
        let registry = &self.real.machine.registry;
        // The places that have ended with a database are still there until the timer comes to them.
        if !registry.is_behind() {
            let next = timeouts.min();
            assert_eq!(due.times_out_at_us, next, "{op:?}: the next timeout");
            assert_eq!(registry.len(), waiting);
            assert_eq!(registry.counts(), self.expected_counts(), "{op:?}");
        }
        assert!(registry.is_tight(), "{op:?}: a table keeps what is over");
        if waiting == 0 && !registry.is_behind() {
            assert_eq!(due.wakes_at_ms, None, "{op:?}: a wake for nobody");
            assert_eq!(registry.waited_key_count(), 0);
        }
        if !has_timer_run || !self.scene.is_primary || !self.scene.may_write() {
            return;
        }
        assert!(!self.real.is_due(), "{op:?}: work is left");
        for at in self.without_ttl.iter().filter(|at| self.scene.serves(**at)) {
            let forgotten = matches!(self.real.values().get(at), Some(Value::Lock(_, None)));
            assert!(!forgotten, "{op:?}: {at:?} has no ttl");
        }
        self.check_wake(due.wakes_at_ms);
    }

    /// Lets time alone pass for the oracle: the wake must not be later than the first that it
    /// brings about.
    fn check_wake(&self, wakes_at_ms: Option<u64>) {
        if self.oracle.places.iter().all(|place| place.is_absent()) {
            return;
        }
        let holds = self.oracle.holds.iter().map(|hold| hold.deadline);
        let ends = holds.chain(self.oracle.ends.iter().map(|(_, end)| *end));
        let mut ends: Vec<u64> = ends.filter(|end| *end >= self.scene.now_ms).collect();
        ends.sort_unstable();
        ends.dedup();
        let mut future = self.oracle.clone();
        for end in ends {
            future.events.clear();
            for at in self.scene.places() {
                let now_ms = end + 1;
                future.serve(
                    at,
                    &Scene {
                        now_ms,
                        ..self.scene
                    },
                );
            }
            if !future.events.is_empty() {
                let is_early = wakes_at_ms.is_some_and(|wake| wake <= end + 1);
                assert!(is_early, "wakes at {wakes_at_ms:?}, needed at {}", end + 1);
                return;
            }
        }
        let absent = self.oracle.places.iter().any(|place| place.is_absent());
        let unheard = !self.scene.has_subscribers;
        assert!(
            absent || unheard,
            "nobody is ever granted: {:#?}",
            self.oracle
        );
    }

    fn expected_counts(&self) -> Counts {
        let mut counts = Counts::default();
        for place in &self.oracle.places {
            let blocked = place.requests.iter().any(|r| !r.is_channel);
            match (place.is_absent(), blocked) {
                (true, _) => counts.absent += 1,
                (_, true) => counts.clients += 1,
                (_, false) => counts.channels += 1,
            }
            counts.requests += place.requests.len() as u32;
        }
        counts
    }
}
