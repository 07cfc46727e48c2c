//! A hold as far as this process knows of it.

#[cfg(feature = "sync")]
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Mode;
use crate::answer::OwnerAnswer;
use crate::command::{Claim, Place};
use crate::options::{LostLock, Options};

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
    /// The end of the lease before it.
    before: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    Ended,
    Lost,
}

#[derive(Debug)]
struct Inner {
    fence: u64,
    until: Instant,
    last: Instant,
    state: State,
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

/// One hold, shared by its guard and its watchdog.
#[derive(Debug)]
pub(crate) struct Lease {
    inner: Mutex<Inner>,
    changed: Condvar,
    #[cfg(feature = "tokio")]
    notify: tokio::sync::Notify,
}

impl Lease {
    pub(crate) fn new(grant: Grant, ttl: Duration, claim: Claim) -> Self {
        Self {
            inner: Mutex::new(Inner {
                fence: grant.fence,
                until: until(grant.sent, ttl),
                last: grant.sent,
                state: State::Held,
                claim,
                is_unconfirmed: false,
                is_asking: false,
                is_renewing: false,
            }),
            changed: Condvar::new(),
            #[cfg(feature = "tokio")]
            notify: tokio::sync::Notify::new(),
        }
    }

    pub(crate) fn fence(&self) -> u64 {
        self.inner().fence
    }

    pub(crate) fn until(&self) -> Instant {
        self.inner().until
    }

    /// How much of it is left; nothing when it is over.
    pub(crate) fn left(&self) -> Duration {
        self.until().saturating_duration_since(Instant::now())
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

    pub(crate) fn is_held(&self) -> bool {
        let inner = self.inner();
        inner.state == State::Held && Instant::now() < inner.until
    }

    pub(crate) fn is_lost(&self) -> bool {
        let inner = self.inner();
        match inner.state {
            State::Held => Instant::now() >= inner.until,
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

    /// Remembers that a renewal was answered. False if the lease was over by then: it stays so.
    pub(crate) fn renewed(&self, sent: Sent) -> bool {
        if Instant::now() >= sent.before {
            return false;
        }
        let mut inner = self.inner();
        // Another one may have overtaken it.
        if inner.state == State::Held && inner.last == sent.at {
            inner.until = until(sent.at, sent.ttl);
        }
        drop(inner);
        self.wake();
        true
    }

    /// Reads the answer to a renewal. The time until the next one, or `None` if nothing is held.
    pub(crate) fn after_renewal(
        &self,
        answer: OwnerAnswer,
        sent: Sent,
        span: Duration,
    ) -> Option<Duration> {
        let has_failed = match answer {
            OwnerAnswer::Done if self.renewed(sent) => false,
            OwnerAnswer::Done | OwnerAnswer::NotHeld => return None,
            OwnerAnswer::MayPass(error) => failed(&error),
            OwnerAnswer::Failed(error) => failed(&error),
        };
        Some(pause_before_renewal(span, has_failed))
    }

    /// How long to wait before a renewal is sent again that the server could not answer yet. `None`
    /// if the lease is over by now.
    pub(crate) fn pause_to_try_again(&self) -> Option<Duration> {
        let left = self.left();
        (!left.is_zero()).then(|| SOON.min(left))
    }

    /// Remembers a conversion. False if the lease was over by then: it stays so.
    pub(crate) fn converted(&self, grant: Grant, ttl: Duration, mode: Mode) -> bool {
        let mut inner = self.inner();
        let is_held = inner.state == State::Held && Instant::now() < inner.until;
        if is_held {
            inner.claim = Claim::RwLock(mode);
            inner.is_unconfirmed = false;
            inner.until = until(grant.sent, ttl);
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

    /// Ends it by the will of its owner. False if it was over before.
    pub(crate) fn end(&self) -> bool {
        self.finish(State::Ended)
    }

    /// Ends it against the will of its owner. False if it was over before.
    pub(crate) fn lose(&self) -> bool {
        self.finish(State::Lost)
    }

    /// Ends it against the will of its owner, and tells [`Options::on_lost`]. False if it was over
    /// before.
    pub(crate) fn lose_and_tell(&self, place: &Place, options: &Options) -> bool {
        let was_held = self.lose();
        if was_held {
            log::warn!("a lock was lost: {:?}", String::from_utf8_lossy(&place.key));
            if let Some(on_lost) = &options.on_lost {
                on_lost(&LostLock {
                    key: place.key.clone(),
                    token: place.token.clone(),
                    fence: self.fence(),
                });
            }
        }
        was_held
    }

    /// Waits until the hold is over, its time included, `time` at most. True if it is over.
    #[cfg(feature = "sync")]
    pub(crate) fn wait_ended(&self, time: Duration) -> bool {
        let start = Instant::now();
        let mut inner = self.inner();
        loop {
            let left = inner.until.saturating_duration_since(Instant::now());
            if inner.state != State::Held || left.is_zero() {
                return true;
            }
            let patience = time.saturating_sub(start.elapsed());
            if patience.is_zero() {
                return false;
            }
            // A renewal makes it longer, and wakes this.
            let waited = self.changed.wait_timeout(inner, left.min(patience));
            (inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until the hold is over, ends before `until`, or `is_stopped`; `time` at most. False if
    /// the time passed.
    #[cfg(feature = "sync")]
    pub(crate) fn wait_shorter(
        &self,
        until: Instant,
        time: Duration,
        is_stopped: &AtomicBool,
    ) -> bool {
        let goes_on = |inner: &mut Inner| {
            inner.state == State::Held && inner.until >= until && !is_stopped.load(Relaxed)
        };
        let waited = self
            .changed
            .wait_timeout_while(self.inner(), time, goes_on)
            .unwrap_or_else(PoisonError::into_inner);
        !waited.1.timed_out()
    }

    /// Ends a wait for a shorter lease.
    #[cfg(feature = "sync")]
    pub(crate) fn stop(&self, is_stopped: &AtomicBool) {
        let inner = self.inner();
        is_stopped.store(true, Relaxed);
        drop(inner);
        self.wake();
    }

    /// Waits until the hold is over, or ends before `until`.
    #[cfg(feature = "tokio")]
    pub(crate) async fn shorter(&self, until: Instant) {
        loop {
            let notified = self.notify.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if self.is_ended() || self.until() < until {
                return;
            }
            notified.await;
        }
    }

    /// Waits until the hold is ended or lost, its time included.
    #[cfg(feature = "tokio")]
    pub(crate) async fn lost(&self) {
        loop {
            let notified = self.notify.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if self.is_lost() || self.is_ended() {
                return;
            }
            let _ = tokio::time::timeout_at(self.until().into(), notified).await;
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
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Each lease counts less by this and by 1 %, because clocks differ in speed.
const DRIFT: Duration = Duration::from_millis(2);

/// The longest pause after a renewal that failed, with TRYAGAIN for instance.
const SOON: Duration = Duration::from_millis(200);

/// The end of a lease whose request was sent then. A far one for a ttl that the clock cannot count.
pub(crate) fn until(sent: Instant, ttl: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);
    let ttl = ttl.min(FAR);
    let sure = ttl.saturating_sub(ttl.checked_div(100).unwrap_or(ttl));
    sent.checked_add(sure.saturating_sub(DRIFT)).unwrap_or(sent)
}

fn failed(error: &dyn std::fmt::Display) -> bool {
    log::warn!("a renewal failed: {error}");
    true
}

/// A third of the time within which a watchdog is to renew; less after a failure.
pub(crate) fn pause_before_renewal(span: Duration, failed: bool) -> Duration {
    match failed {
        true => SOON.min(span.checked_div(10).unwrap_or(span)),
        false => span.checked_div(3).unwrap_or(span),
    }
}
