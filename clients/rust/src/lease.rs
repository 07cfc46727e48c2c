//! A hold as far as this process knows of it. Time is an argument of what decides, so that tests
//! need not wait.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::Mode;
use crate::command::Claim;
use crate::driver::locked;

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
    Lost,
}

#[derive(Debug)]
struct Inner {
    fence: u64,
    /// The end of the ttl.
    until: Instant,
    /// When the connection that a hold with linger is bound to was last known to live. The server
    /// ends the hold `linger` after it sees the end of that connection, which is later.
    alive: Instant,
    last: Instant,
    state: State,
    /// The server has answered a release.
    is_released: bool,
    /// A release was sent, and its answer did not come.
    is_release_uncertain: bool,
    claim: Claim,
    /// It was to become a reader's, and no answer has said that it is.
    is_unconfirmed: bool,
    is_asking: bool,
    is_renewing: bool,
}

/// One request of its kind. A late one would undo the next unseen.
pub(crate) struct Asking(Arc<Lease>, fn(&mut Inner) -> &mut bool);

impl Drop for Asking {
    fn drop(&mut self) {
        *self.1(&mut self.0.inner()) = false;
    }
}

/// One hold, shared by its guard and its keeper.
#[derive(Debug)]
pub(crate) struct Lease {
    inner: Mutex<Inner>,
    /// Set where the hold ends with its connection.
    linger: Option<Duration>,
    changed: Condvar,
    #[cfg(feature = "tokio")]
    notify: tokio::sync::Notify,
}

impl Lease {
    pub(crate) fn new(
        grant: Grant,
        ttl: Duration,
        linger: Option<Duration>,
        claim: Claim,
    ) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Inner {
                fence: grant.fence,
                until: until(grant.sent, ttl),
                alive: grant.sent,
                last: grant.sent,
                state: State::Held,
                is_released: false,
                is_release_uncertain: false,
                claim,
                is_unconfirmed: false,
                is_asking: false,
                is_renewing: false,
            }),
            linger,
            changed: Condvar::new(),
            #[cfg(feature = "tokio")]
            notify: tokio::sync::Notify::new(),
        })
    }

    pub(crate) fn fence(&self) -> u64 {
        self.inner().fence
    }

    /// Until when it is surely held.
    pub(crate) fn until(&self) -> Instant {
        self.end_of(&self.inner())
    }

    fn end_of(&self, inner: &Inner) -> Instant {
        let bound = self.linger.map(|linger| until(inner.alive, linger));
        bound.map_or(inner.until, |bound| bound.min(inner.until))
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

    /// Keeps other requests for a mode off until the result is dropped. `None` if there is one.
    pub(crate) fn asks(self: &Arc<Self>) -> Option<Asking> {
        self.alone(|inner| &mut inner.is_asking)
    }

    /// Keeps other renewals off until the result is dropped. `None` if there is one.
    pub(crate) fn renews(self: &Arc<Self>) -> Option<Asking> {
        self.alone(|inner| &mut inner.is_renewing)
    }

    fn alone(self: &Arc<Self>, kind: fn(&mut Inner) -> &mut bool) -> Option<Asking> {
        let is_other = std::mem::replace(kind(&mut self.inner()), true);
        (!is_other).then(|| Asking(self.clone(), kind))
    }

    /// Whether the server may hold it: its ttl is not over, though its connection may be.
    pub(crate) fn may_be_held(&self) -> bool {
        let inner = self.inner();
        inner.state == State::Held && Instant::now() < inner.until
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost_at(Instant::now())
    }

    fn is_lost_at(&self, now: Instant) -> bool {
        let inner = self.inner();
        match inner.state {
            State::Held => now >= self.end_of(&inner),
            State::Lost => true,
            State::Ended => false,
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.inner().state != State::Held
    }

    /// Remembers that a renewal is sent now. One that shortens the lease counts, whatever becomes of
    /// its answer.
    pub(crate) fn sends(&self, ttl: Duration) -> Sent {
        let mut inner = self.inner();
        let sent = Sent {
            at: Instant::now(),
            ttl,
            before: inner.until,
        };
        inner.until = inner.until.min(until(sent.at, ttl));
        inner.last = sent.at;
        drop(inner);
        self.wake();
        sent
    }

    /// Remembers that a renewal was answered. False if the ttl was over by then: it stays so.
    pub(crate) fn renewed(&self, sent: Sent, is_bound: bool) -> bool {
        if Instant::now() >= sent.before {
            return false;
        }
        let mut inner = self.inner();
        // Another one may have overtaken it.
        if inner.state == State::Held && inner.last == sent.at {
            inner.until = until(sent.at, sent.ttl);
        }
        if is_bound {
            inner.alive = inner.alive.max(sent.at);
        }
        drop(inner);
        self.wake();
        true
    }

    /// Remembers a conversion. False if the ttl was over by then: it stays so.
    pub(crate) fn converted(&self, grant: Grant, ttl: Duration, mode: Mode) -> bool {
        let mut inner = self.inner();
        let is_held = inner.state == State::Held && Instant::now() < inner.until;
        if is_held {
            inner.claim = Claim::RwLock(mode);
            inner.is_unconfirmed = false;
            inner.until = until(grant.sent, ttl);
            if grant.is_bound {
                inner.alive = inner.alive.max(grant.sent);
            }
        }
        drop(inner);
        self.wake();
        is_held
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
        self.inner().state == State::Ended
    }

    /// Ends it against the will of its owner. False if it was over before.
    pub(crate) fn lose(&self) -> bool {
        self.finish(State::Lost)
    }

    /// Whether there may be something left to release.
    pub(crate) fn is_to_release(&self) -> bool {
        let inner = self.inner();
        inner.state != State::Lost && !inner.is_released
    }

    /// Remembers that the server has answered a release: there is nothing to release any more.
    pub(crate) fn is_released_now(&self) {
        self.inner().is_released = true;
    }

    pub(crate) fn is_released(&self) -> bool {
        self.inner().is_released
    }

    /// Remembers whether the answer to a release was lost, in this try or in one before.
    pub(crate) fn is_release_uncertain(&self, was_lost: bool) -> bool {
        let mut inner = self.inner();
        inner.is_release_uncertain |= was_lost;
        inner.is_release_uncertain
    }

    /// Ends a wait for a shorter lease.
    pub(crate) fn stop(&self, is_stopped: &AtomicBool) {
        let inner = self.inner();
        is_stopped.store(true, Relaxed);
        drop(inner);
        self.wake();
    }

    fn is_shorter(&self, inner: &Inner, until: Instant, is_stopped: &AtomicBool) -> bool {
        inner.state != State::Held || self.end_of(inner) < until || is_stopped.load(Relaxed)
    }

    /// Waits until the hold is over, ends before `until`, or `is_stopped`; `time` at most.
    #[cfg(feature = "sync")]
    pub(crate) fn wait_shorter(&self, until: Instant, time: Duration, is_stopped: &AtomicBool) {
        let goes_on = |inner: &mut Inner| !self.is_shorter(inner, until, is_stopped);
        drop(self.changed.wait_timeout_while(self.inner(), time, goes_on));
    }

    /// Waits until the hold is over, its time included, `time` at most. True if it is over.
    #[cfg(feature = "sync")]
    pub(crate) fn wait_ended(&self, time: Duration) -> bool {
        let start = Instant::now();
        while !self.is_lost() && !self.is_ended() {
            let patience = time.saturating_sub(start.elapsed());
            if patience.is_zero() {
                return false;
            }
            let end = self.until();
            let left = end.saturating_duration_since(Instant::now());
            self.wait_shorter(end, left.min(patience), &AtomicBool::new(false));
        }
        true
    }

    /// Waits until the hold is over, ends before `until`, or `is_stopped`.
    #[cfg(feature = "tokio")]
    pub(crate) async fn shorter(&self, until: Instant, is_stopped: &AtomicBool) {
        loop {
            let notified = self.notify.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if self.is_shorter(&self.inner(), until, is_stopped) {
                return;
            }
            notified.await;
        }
    }

    /// Waits until the hold is ended or lost, its time included.
    #[cfg(feature = "tokio")]
    pub(crate) async fn lost(&self) {
        let is_stopped = AtomicBool::new(false);
        while !self.is_lost() && !self.is_ended() {
            let end = self.until();
            let shorter = self.shorter(end, &is_stopped);
            let _ = tokio::time::timeout_at(end.into(), shorter).await;
        }
    }

    fn finish(&self, state: State) -> bool {
        let mut inner = self.inner();
        let was_held = inner.state == State::Held;
        if was_held {
            inner.state = state;
        }
        drop(inner);
        self.wake();
        was_held
    }

    fn wake(&self) {
        self.changed.notify_all();
        #[cfg(feature = "tokio")]
        self.notify.notify_waiters();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        locked(&self.inner)
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
