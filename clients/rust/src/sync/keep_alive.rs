use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use super::inner::{Blocking, now};
use crate::hold::Hold;
use crate::lease::Lease;

/// Renews a hold in a thread of its own until it is dropped. Its drop releases nothing.
#[must_use = "the renewals end when this is dropped"]
#[derive(Debug)]
pub struct KeepAlive {
    lease: Arc<Lease>,
    is_stopped: Arc<AtomicBool>,
}

impl KeepAlive {
    pub(super) fn start(hold: Hold<Blocking>) -> Self {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let lease = hold.lease.clone();
        let watched = is_stopped.clone();
        let started = thread::Builder::new()
            .name("redis-lock keep-alive".to_owned())
            .spawn(move || watch(&hold, &watched));
        if let Err(error) = started {
            // The lease ends by itself then, and `is_lost` says so.
            log::error!("nothing renews a lock: {error}");
        }
        Self { lease, is_stopped }
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
        self.lease.stop(&self.is_stopped);
    }
}

fn watch(hold: &Hold<Blocking>, is_stopped: &AtomicBool) {
    let lease = &hold.lease;
    let is_over = || is_stopped.load(Relaxed) || lease.is_ended();
    let mut pause = hold.first_pause();
    loop {
        let until = lease.until();
        let Some(time) = hold.pause_until(until, pause) else {
            return lose(hold);
        };
        // Its owner may make it shorter than this pause.
        let is_shorter = lease.wait_shorter(until, time, is_stopped);
        if is_over() {
            return;
        }
        if is_shorter {
            continue;
        }
        // Its owner may renew or release it now.
        let Some(renewing) = lease.renews() else {
            pause = hold.first_pause();
            continue;
        };
        if is_over() {
            return;
        }
        let sent = lease.sends(hold.ttl);
        let answer = now(hold.renew_once());
        drop(renewing);
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
