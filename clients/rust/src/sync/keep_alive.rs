use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use super::inner::{Blocking, now};
use crate::hold::Hold;
use crate::lease::Lease;

/// Renews a hold in a thread of its own until it is dropped. Its drop releases nothing.
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
    pub(super) fn start(hold: Hold<Blocking>) -> Self {
        let stop = Arc::new(Stop::default());
        let lease = hold.lease.clone();
        let watched = stop.clone();
        let started = thread::Builder::new()
            .name("redis-lock keep-alive".to_owned())
            .spawn(move || watch(&hold, &watched));
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

fn watch(hold: &Hold<Blocking>, stop: &Stop) {
    let lease = &hold.lease;
    let mut pause = hold.first_pause();
    loop {
        let left = lease.left();
        if left.is_zero() {
            return lose(hold);
        }
        if stop.wait(pause.min(left)) || lease.is_ended() {
            return;
        }
        let left = lease.left();
        // Of no use after the end of the lease. A timeout of 0 would be an error.
        let timeout = hold.engine.options.answer_time(hold.ttl).min(left);
        if timeout.is_zero() {
            continue;
        }
        let sent = lease.sends(hold.ttl);
        let answer = now(hold.renew_once(timeout));
        match hold.after_renewal(answer, sent) {
            Some(next) => pause = next,
            None => return lose(hold),
        }
    }
}

fn lose(hold: &Hold<Blocking>) {
    if hold.tell_lost() {
        now(hold.engine.give_up(&hold.place, hold.ttl));
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
