use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use super::inner::Inner;
use crate::answer::{OwnerAnswer, owner_answer};
use crate::command::Claim;
use crate::lease::{Lease, pause_before_renewal};

/// Renews a hold in a thread of its own until it is dropped. It releases nothing.
#[must_use = "the renewals end when this is dropped"]
#[derive(Debug)]
pub struct KeepAlive {
    lease: Arc<Lease>,
    stop: Arc<Stop>,
}

#[derive(Debug, Default)]
struct Stop {
    is_stopped: Mutex<bool>,
    changed: Condvar,
}

impl KeepAlive {
    pub(super) fn start(watch: Watch) -> Self {
        let stop = Arc::new(Stop::default());
        let lease = watch.lease.clone();
        let watched = stop.clone();
        let started = thread::Builder::new()
            .name("redis-lock keep-alive".to_owned())
            .spawn(move || watch.run(&watched));
        if let Err(error) = started {
            // The lease ends by itself then, and `is_lost` says so.
            log::error!("nothing renews a lock: {error}");
        }
        Self { lease, stop }
    }

    /// Whether the hold is over.
    pub fn is_lost(&self) -> bool {
        self.lease.is_lost()
    }

    /// Waits until the hold is over or released, `timeout` at most. True if it is over or released.
    pub fn wait_lost(&self, timeout: std::time::Duration) -> bool {
        self.lease.wait_ended(timeout)
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        *self
            .stop
            .is_stopped
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.changed.notify_all();
    }
}

/// The hold that is watched.
pub(super) struct Watch {
    pub(super) inner: Arc<Inner>,
    pub(super) place: Arc<crate::command::Place>,
    pub(super) lease: Arc<Lease>,
    pub(super) claim: Claim,
    pub(super) ttl: std::time::Duration,
}

impl Watch {
    fn run(&self, stop: &Stop) {
        let inner = &self.inner;
        let span = inner
            .options
            .renewal_span(self.ttl, inner.support.is_fallback());
        let mut pause = pause_before_renewal(span, false);
        loop {
            let left = self.lease.until().saturating_duration_since(Instant::now());
            if left.is_zero() {
                return self.lease.lose_and_tell(&self.place, &inner.options);
            }
            if stop.wait(pause.min(left)) || self.lease.is_ended() {
                return;
            }
            let left = self.lease.until().saturating_duration_since(Instant::now());
            // Of no use after the end of the lease. A timeout of 0 would be an error.
            let timeout = inner.options.answer_time(self.ttl).min(left);
            if timeout.is_zero() {
                continue;
            }
            let sent = self.lease.sends(self.ttl);
            let answer = self.renew(timeout);
            match self.lease.after_renewal(answer, sent, span) {
                Some(next) => pause = next,
                None => {
                    let was_held = !self.lease.is_ended();
                    self.lease.lose_and_tell(&self.place, &inner.options);
                    if was_held {
                        inner.give_up(&self.place, self.ttl);
                    }
                    return;
                }
            }
        }
    }

    /// Renews each key once.
    fn renew(&self, timeout: std::time::Duration) -> OwnerAnswer {
        let inner = &self.inner;
        for command in self.place.renew(self.ttl, inner.support.is_fallback()) {
            let answer = owner_answer(inner.ask(&command, timeout));
            if !matches!(answer, OwnerAnswer::Done) {
                return answer;
            }
        }
        if !inner.lingers() || self.lease.is_ended() {
            return OwnerAnswer::Done;
        }
        match inner.rebind(&self.place, &self.claim, self.lease.fence(), self.ttl) {
            true => OwnerAnswer::Done,
            false => OwnerAnswer::NotHeld,
        }
    }
}

impl Stop {
    /// Waits for `time`. True as soon as it is stopped.
    fn wait(&self, time: std::time::Duration) -> bool {
        let is_stopped = self
            .is_stopped
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(is_stopped, time, |is_stopped| !*is_stopped);
        let (is_stopped, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *is_stopped
    }
}
