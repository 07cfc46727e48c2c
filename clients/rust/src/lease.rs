//! A hold as far as this process knows of it. Time is an argument of what decides, so that tests
//! need not wait.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use crate::Mode;
use crate::attempt::Patience;
use crate::command::Claim;
use crate::driver::{Driver, locked};

/// Each lease counts less by this and by 1 %, because clocks differ in speed.
const DRIFT: Duration = Duration::from_millis(2);

/// A grant, and the moment from which its ttl surely runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) fence: u64,
    /// Before the command was sent: the server counts from later.
    pub(crate) sent: Instant,
    /// Whether the answer came by the connection that the hold is bound to.
    pub(crate) is_bound: bool,
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
enum State {
    Held,
    /// Its owner has ended it. The server may not have heard of that yet.
    Ended,
    /// The server has answered a release.
    Released,
    Lost,
}

#[derive(Debug)]
struct Inner {
    fence: u64,
    /// The end of the ttl.
    until: Instant,
    /// Set where the hold ends with its connection.
    linger: Option<Duration>,
    /// When the connection that a hold with linger is bound to was last known to live. The server
    /// ends the hold `linger` after it sees the end of that connection, which is later.
    alive: Instant,
    state: State,
    /// A release was sent, and its answer did not come.
    is_release_uncertain: bool,
    claim: Claim,
    /// It was to become a reader's, and no answer has said that it is.
    is_unconfirmed: bool,
    under_way: Vec<Kind>,
    /// Of those that wait for a change.
    wakers: Vec<Waker>,
}

impl Inner {
    /// Until when it is surely held.
    fn end(&self) -> Instant {
        let bound = self.linger.map(|linger| until(self.alive, linger));
        bound.map_or(self.until, |bound| bound.min(self.until))
    }

    /// Whether the server may hold it: its ttl is not over, though its connection may be.
    fn may_be_held(&self) -> bool {
        self.state == State::Held && Instant::now() < self.until
    }
}

/// Requests of which there is one at a time. A late one would undo the next unseen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Conversion,
    Renewal,
}

/// A request that is under way until this is dropped.
pub(crate) struct Asking(Arc<Lease>, Kind);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.inner().under_way.retain(|kind| *kind != self.1);
    }
}

/// One hold, shared by its guard and its keeper.
#[derive(Debug)]
pub(crate) struct Lease(Mutex<Inner>);

impl Lease {
    pub(crate) fn new(
        grant: Grant,
        ttl: Duration,
        linger: Option<Duration>,
        claim: Claim,
    ) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Inner {
            fence: grant.fence,
            until: until(grant.sent, ttl),
            linger,
            alive: grant.sent,
            state: State::Held,
            is_release_uncertain: false,
            claim,
            is_unconfirmed: false,
            under_way: Vec::new(),
            wakers: Vec::new(),
        })))
    }

    pub(crate) fn fence(&self) -> u64 {
        self.inner().fence
    }

    /// Until when it is surely held.
    pub(crate) fn until(&self) -> Instant {
        self.inner().end()
    }

    /// Until when the server may hold it.
    pub(crate) fn end_of_ttl(&self) -> Instant {
        self.inner().until
    }

    /// How much of the ttl is left; nothing when it is over.
    pub(crate) fn left(&self) -> Duration {
        self.end_of_ttl().saturating_duration_since(Instant::now())
    }

    /// The way in which it is held now.
    pub(crate) fn claim(&self) -> Claim {
        self.inner().claim.clone()
    }

    /// Remembers that it is to become a reader's. That counts without an answer, too: others may
    /// read from now on.
    pub(crate) fn becomes_reader(&self) {
        let mut inner = self.inner();
        inner.claim = Claim::RwLock(Mode::Shared);
        inner.is_unconfirmed = true;
    }

    /// Whether the server may have it as a writer's yet, or may read the request for a share later.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.inner().is_unconfirmed
    }

    /// Keeps other requests of this kind off until the result is dropped. `None` if there is one.
    pub(crate) fn alone(self: &Arc<Self>, kind: Kind) -> Option<Asking> {
        let mut inner = self.inner();
        if inner.under_way.contains(&kind) {
            return None;
        }
        inner.under_way.push(kind);
        Some(Asking(self.clone(), kind))
    }

    pub(crate) fn may_be_held(&self) -> bool {
        self.inner().may_be_held()
    }

    pub(crate) fn is_lost(&self) -> bool {
        let inner = self.inner();
        match inner.state {
            State::Held => Instant::now() >= inner.end(),
            State::Lost => true,
            State::Ended | State::Released => false,
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.inner().state != State::Held
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

    /// Remembers that a renewal was answered. False if the ttl was over by then: it stays so.
    pub(crate) fn renewed(&self, sent: Sent, is_bound: bool) -> bool {
        if Instant::now() >= sent.before {
            return false;
        }
        self.change(|inner| {
            if inner.state == State::Held {
                inner.until = until(sent.at, sent.ttl);
            }
            if is_bound {
                inner.alive = inner.alive.max(sent.at);
            }
        });
        true
    }

    /// Remembers a conversion. False if the ttl was over by then: it stays so.
    pub(crate) fn converted(&self, grant: Grant, ttl: Duration, mode: Mode) -> bool {
        self.change(|inner| {
            let is_held = inner.may_be_held();
            if is_held {
                inner.claim = Claim::RwLock(mode);
                inner.is_unconfirmed = false;
                inner.until = until(grant.sent, ttl);
                if grant.is_bound {
                    inner.alive = inner.alive.max(grant.sent);
                }
            }
            is_held
        })
    }

    /// The ttl of a conversion, which shortens no lease.
    pub(crate) fn ttl_to_keep(&self, ttl: Duration) -> Duration {
        let left = self.left();
        let asked = left.saturating_add(DRIFT).mul_f64(100.0 / 99.0);
        ttl.max(asked)
    }

    /// Ends it by the will of its owner. False if it was lost before.
    pub(crate) fn end(&self) -> bool {
        self.finish(State::Ended);
        self.inner().state != State::Lost
    }

    /// Ends it against the will of its owner. False if it was over before.
    pub(crate) fn lose(&self) -> bool {
        self.finish(State::Lost)
    }

    fn finish(&self, state: State) -> bool {
        self.change(|inner| {
            let was_held = inner.state == State::Held;
            if was_held {
                inner.state = state;
            }
            was_held
        })
    }

    /// Whether there may be something left to release.
    pub(crate) fn is_to_release(&self) -> bool {
        matches!(self.inner().state, State::Held | State::Ended)
    }

    /// Remembers that the server has answered a release: there is nothing to release any more.
    pub(crate) fn is_released_now(&self) {
        let mut inner = self.inner();
        if inner.state == State::Ended {
            inner.state = State::Released;
        }
    }

    pub(crate) fn is_released(&self) -> bool {
        self.inner().state == State::Released
    }

    /// Remembers whether the answer to a release was lost, in this try or in one before.
    pub(crate) fn is_release_uncertain(&self, was_lost: bool) -> bool {
        let mut inner = self.inner();
        inner.is_release_uncertain |= was_lost;
        inner.is_release_uncertain
    }

    /// Ends a wait for a shorter lease.
    pub(crate) fn stop(&self, is_stopped: &AtomicBool) {
        self.change(|_| is_stopped.store(true, Relaxed));
    }

    /// Waits until the hold is over, ends before `end`, or `is_stopped`.
    pub(crate) fn shorter(
        &self,
        end: Instant,
        is_stopped: &AtomicBool,
    ) -> impl Future<Output = ()> {
        poll_fn(move |context| {
            let mut inner = self.inner();
            let is_shorter = inner.state != State::Held || inner.end() < end;
            if is_shorter || is_stopped.load(Relaxed) {
                return Poll::Ready(());
            }
            let wakes = |waker: &Waker| waker.will_wake(context.waker());
            if !inner.wakers.iter().any(wakes) {
                inner.wakers.push(context.waker().clone());
            }
            Poll::Pending
        })
    }

    /// Waits until the hold is ended or lost, its time included. False if the patience is over
    /// before.
    pub(crate) async fn lost<D: Driver>(&self, patience: Patience) -> bool {
        let is_stopped = AtomicBool::new(false);
        while !self.is_lost() && !self.is_ended() {
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
    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.inner();
        let changed = change(&mut inner);
        let wakers = std::mem::take(&mut inner.wakers);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
        changed
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        locked(&self.0)
    }
}

/// The end of a lease whose request was sent then. A far one for a ttl that the clock cannot count.
pub(crate) fn until(sent: Instant, ttl: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);
    let ttl = ttl.min(FAR);
    let sure = ttl.saturating_sub(ttl.checked_div(100).unwrap_or(ttl));
    sent.checked_add(sure.saturating_sub(DRIFT)).unwrap_or(sent)
}

#[cfg(test)]
mod tests;
