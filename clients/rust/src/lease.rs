//! A hold as far as this process knows of it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::attempt::OwnerAnswer;
use crate::command::Place;
use crate::options::{LostLock, Options};

/// A grant, and the moment from which its ttl surely runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) fence: u64,
    /// Before the command was sent: the server counts from later.
    pub(crate) sent: Instant,
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
    state: State,
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
    pub(crate) fn new(grant: Grant, ttl: Duration) -> Self {
        Self {
            inner: Mutex::new(Inner {
                fence: grant.fence,
                until: until(grant.sent, ttl),
                state: State::Held,
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

    /// Remembers a renewal that was sent at `sent`, unless the hold is over.
    pub(crate) fn renewed(&self, sent: Instant, ttl: Duration) {
        let mut inner = self.inner();
        if inner.state == State::Held {
            inner.until = until(sent, ttl);
        }
        drop(inner);
        self.wake();
    }

    /// Reads the answer to a renewal that was sent at `sent`. The time until the next one, or `None` if
    /// nothing is held.
    pub(crate) fn after_renewal(
        &self,
        answer: OwnerAnswer,
        sent: Instant,
        (ttl, span): (Duration, Duration),
    ) -> Option<Duration> {
        let has_failed = match answer {
            OwnerAnswer::Done => {
                self.renewed(sent, ttl);
                false
            }
            OwnerAnswer::NotHeld => return None,
            OwnerAnswer::MayPass(error) => failed(&error),
            OwnerAnswer::Failed(error) => failed(&error),
        };
        Some(pause_before_renewal(span, has_failed))
    }

    /// Remembers a conversion, which may have another fence.
    pub(crate) fn converted(&self, grant: Grant, ttl: Duration) {
        self.inner().fence = grant.fence;
        self.renewed(grant.sent, ttl);
    }

    /// Ends it by the will of its owner. False if it was over before.
    pub(crate) fn end(&self) -> bool {
        self.finish(State::Ended)
    }

    /// Ends it against the will of its owner. False if it was over before.
    pub(crate) fn lose(&self) -> bool {
        self.finish(State::Lost)
    }

    /// Ends it against the will of its owner, and tells [`Options::on_lost`].
    pub(crate) fn lose_and_tell(&self, place: &Place, options: &Options) {
        if self.lose() {
            log::warn!("a lock was lost: {:?}", String::from_utf8_lossy(&place.key));
            if let Some(on_lost) = &options.on_lost {
                on_lost(&LostLock {
                    key: place.key.clone(),
                    token: place.token.clone(),
                    fence: self.fence(),
                });
            }
        }
    }

    /// Waits until the hold is over, `time` at most. True if it is over.
    #[cfg(feature = "sync")]
    pub(crate) fn wait_ended(&self, time: Duration) -> bool {
        let inner = self.inner();
        let waited = self
            .changed
            .wait_timeout_while(inner, time, |inner| inner.state == State::Held);
        let (inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        inner.state != State::Held
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

/// A far end for a ttl that the clock cannot count.
fn until(sent: Instant, ttl: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);
    sent.checked_add(ttl.min(FAR)).unwrap_or(sent)
}

fn failed(error: &dyn std::fmt::Display) -> bool {
    log::warn!("a renewal failed: {error}");
    true
}

/// A third of the time within which a watchdog is to renew; less after a failure.
pub(crate) fn pause_before_renewal(span: Duration, failed: bool) -> Duration {
    let parts = if failed { 10 } else { 3 };
    span.checked_div(parts).unwrap_or(span)
}
