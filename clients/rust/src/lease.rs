//! A hold as far as this process knows of it. Time is an argument of what decides, so that tests
//! need not wait.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use crate::Mode;
use crate::acquire::{PACE, Patience};
use crate::command::{Claim, SHARE};
use crate::driver::{Driver, locked};
use crate::error::{Error, Result};

/// Each lease counts less by this and by 1 %, because clocks differ in speed.
const DRIFT: Duration = Duration::from_millis(2);

/// A grant, and the moment from which its ttl surely runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) fence: u64,
    /// Before the command was sent: the server counts from later.
    pub(crate) sent: Instant,
}

/// A request under way that sets the ttl.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    at: Instant,
    ttl: Duration,
    /// The end of the ttl before it.
    before: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Held,
    /// Its owner has ended it. The server may not have heard of that yet.
    Ended,
    /// The server has answered a release.
    Released,
    Lost,
}

#[derive(Debug)]
pub(crate) struct Inner {
    /// The end of the ttl.
    until: Instant,
    /// Before the last request that the server has granted or renewed. It ends a hold with linger that
    /// much after the end of its connection. If it had seen that before, a renewal would count anew.
    alive: Instant,
    state: State,
    claim: Claim,
    /// It was to become a reader's, and no answer has said that it is.
    is_unconfirmed: bool,
    /// Of those that wait for a change.
    wakers: Vec<Waker>,
}

impl Inner {
    fn renew(&mut self, sent: Instant, ttl: Duration) {
        if self.state == State::Held {
            self.until = until(sent, ttl);
        }
        self.alive = sent.max(self.alive);
    }
}

/// A kind of request of which there is one at a time. A late one would undo the next unseen.
#[derive(Debug, Default)]
pub(crate) struct Turn(Mutex<Arc<()>>);

impl Turn {
    /// Keeps others off until the result is dropped. `None` if there is one.
    pub(crate) fn take(&self) -> Option<Arc<()>> {
        let taken = locked(&self.0);
        (Arc::strong_count(&taken) == 1).then(|| taken.clone())
    }

    /// Waits until there is no other.
    pub(crate) async fn wait<D: Driver>(&self) -> Arc<()> {
        loop {
            if let Some(taken) = self.take() {
                return taken;
            }
            D::pause(PACE).await;
        }
    }
}

/// One hold, shared by its guard and its keeper.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) fence: u64,
    /// Set where the hold ends with its connection.
    linger: Option<Duration>,
    pub(crate) conversion: Turn,
    pub(crate) renewal: Turn,
    /// A release may have reached the server, and its answer has not come.
    pub(crate) is_unheard: AtomicBool,
    inner: Mutex<Inner>,
}

impl Lease {
    pub(crate) fn new(grant: Grant, ttl: Duration, linger: Option<Duration>, claim: Claim) -> Self {
        Self {
            fence: grant.fence,
            linger,
            conversion: Turn::default(),
            renewal: Turn::default(),
            is_unheard: AtomicBool::new(false),
            inner: Mutex::new(Inner {
                until: until(grant.sent, ttl),
                alive: grant.sent,
                state: State::Held,
                claim,
                is_unconfirmed: false,
                wakers: Vec::new(),
            }),
        }
    }

    /// Until when it is surely held.
    pub(crate) fn until(&self) -> Instant {
        self.end(&locked(&self.inner))
    }

    fn end(&self, inner: &Inner) -> Instant {
        let bound = self.linger.map(|linger| until(inner.alive, linger));
        bound.map_or(inner.until, |bound| bound.min(inner.until))
    }

    /// Until when the server may hold it.
    pub(crate) fn end_of_ttl(&self) -> Instant {
        locked(&self.inner).until
    }

    /// How much of the ttl is left; nothing when it is over.
    pub(crate) fn left(&self) -> Duration {
        self.end_of_ttl().saturating_duration_since(Instant::now())
    }

    pub(crate) fn state(&self) -> State {
        locked(&self.inner).state
    }

    /// An error unless the server may hold it: its ttl is not over, though its connection may be.
    pub(crate) fn still_held(&self) -> Result<()> {
        let is_held = self.state() == State::Held && !self.left().is_zero();
        is_held.then_some(()).ok_or(Error::NotHeld)
    }

    pub(crate) fn is_lost(&self) -> bool {
        let inner = locked(&self.inner);
        match inner.state {
            State::Held => Instant::now() >= self.end(&inner),
            state => state == State::Lost,
        }
    }

    /// The way in which it is held now.
    pub(crate) fn claim(&self) -> Claim {
        locked(&self.inner).claim.clone()
    }

    /// Remembers that it is to become a reader's. That counts without an answer, too: others may
    /// read from now on.
    pub(crate) fn becomes_reader(&self) {
        let mut inner = locked(&self.inner);
        (inner.claim, inner.is_unconfirmed) = (SHARE.clone(), true);
    }

    /// Whether the server may have it as a writer's yet, or may read the request for a share later.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        locked(&self.inner).is_unconfirmed
    }

    /// Remembers that a renewal is sent now. One that shortens the lease counts, whatever becomes of
    /// its answer.
    pub(crate) fn sends(&self, ttl: Duration) -> Sent {
        self.change(|inner| {
            let (at, before) = (Instant::now(), inner.until);
            inner.until = before.min(until(at, ttl));
            Sent { at, ttl, before }
        })
    }

    /// Remembers that a renewal was answered, as `converted` does.
    pub(crate) fn renewed(&self, sent: Sent) -> bool {
        let is_held = Instant::now() < sent.before;
        if is_held {
            self.change(|inner| inner.renew(sent.at, sent.ttl));
        }
        is_held
    }

    /// Remembers a conversion. False if the ttl was over by then: it stays so.
    pub(crate) fn converted(&self, mode: Mode, sent: Instant, ttl: Duration) -> bool {
        self.change(|inner| {
            let is_held = inner.state == State::Held && Instant::now() < inner.until;
            if is_held {
                (inner.claim, inner.is_unconfirmed) = (Claim::RwLock(mode), false);
                inner.renew(sent, ttl);
            }
            is_held
        })
    }

    /// The ttl of a conversion, which shortens no lease.
    pub(crate) fn ttl_to_keep(&self, ttl: Duration) -> Duration {
        let asked = self.left().saturating_add(DRIFT).mul_f64(100.0 / 99.0);
        ttl.max(asked)
    }

    /// Ends a hold, or one that its owner has ended, in this state. False if that was over before.
    pub(crate) fn finish(&self, state: State) -> bool {
        self.change(|inner| {
            let change = (inner.state, state);
            let is_next = matches!(change, (State::Held, _) | (State::Ended, State::Released));
            if is_next {
                inner.state = state;
            }
            is_next
        })
    }

    /// Waits until the hold is over, ends before `end`, or `is_stopped`.
    pub(crate) async fn shorter(&self, end: Instant, is_stopped: &AtomicBool) {
        poll_fn(move |context| {
            let mut inner = locked(&self.inner);
            let is_shorter = inner.state != State::Held || self.end(&inner) < end;
            if is_shorter || is_stopped.load(Relaxed) {
                return Poll::Ready(());
            }
            let wakes = |waker: &Waker| waker.will_wake(context.waker());
            if !inner.wakers.iter().any(wakes) {
                inner.wakers.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Waits until the hold is ended or lost, its ttl included. False if `time` is over before.
    pub(crate) async fn lost<D: Driver>(&self, time: Duration) -> bool {
        let patience = Patience::of(time);
        let is_stopped = AtomicBool::new(false);
        while !self.is_lost() && self.state() == State::Held {
            if patience.is_over() {
                return false;
            }
            let end = self.until();
            let time = end.saturating_duration_since(Instant::now());
            D::within(patience.bounded(time), self.shorter(end, &is_stopped)).await;
        }
        true
    }

    /// Changes it, and wakes those that wait for that.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = locked(&self.inner);
        let changed = change(&mut inner);
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
        changed
    }
}

/// The end of a lease whose request was sent then. A far one for a ttl that the clock cannot count.
pub(crate) fn until(sent: Instant, ttl: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);
    let sure = ttl.min(FAR).mul_f64(0.99);
    sent.checked_add(sure.saturating_sub(DRIFT)).unwrap_or(sent)
}

#[cfg(test)]
mod tests;
