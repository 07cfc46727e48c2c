//! Renews a hold until it is told to stop, or the hold is over.

use std::fmt;
use std::marker::PhantomData;
use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::driver::Driver;
use crate::hold::Hold;
use crate::lease::{Lease, Sent};
use crate::options::LostLock;
use crate::replies::{Binding, OwnerAnswer, is_unanswered, owner_answer};

/// The longest pause after a renewal that failed, with TRYAGAIN for instance.
const SOON: Duration = Duration::from_millis(200);

/// Renews a hold beside the program until it is dropped. Its drop releases nothing.
#[must_use = "the renewals end when this is dropped"]
pub struct KeepAlive<D: Driver> {
    pub(crate) lease: Arc<Lease>,
    is_stopped: Arc<AtomicBool>,
    of: PhantomData<D>,
}

impl<D: Driver> KeepAlive<D> {
    pub(crate) fn start(hold: Hold<D>) -> Self {
        let lease = hold.lease.clone();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let runtime = hold.runtime.clone();
        let keeper = Keeper {
            hold,
            is_stopped: is_stopped.clone(),
        };
        D::keep(&runtime, keeper.run());
        Self {
            lease,
            is_stopped,
            of: PhantomData,
        }
    }

    /// Whether the hold is over.
    pub fn is_lost(&self) -> bool {
        self.lease.is_lost()
    }
}

impl<D: Driver> fmt::Debug for KeepAlive<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_lost = self.is_lost();
        f.debug_struct("KeepAlive")
            .field("is_lost", &is_lost)
            .finish_non_exhaustive()
    }
}

impl<D: Driver> Drop for KeepAlive<D> {
    fn drop(&mut self) {
        self.lease.stop(&self.is_stopped);
    }
}

struct Keeper<D: Driver> {
    hold: Hold<D>,
    is_stopped: Arc<AtomicBool>,
}

impl<D: Driver> Keeper<D> {
    async fn run(self) {
        let hold = &self.hold;
        if self.keep().await || !hold.lease.lose() {
            return;
        }
        let lost = LostLock {
            key: hold.place.key.clone(),
            token: hold.place.token.clone(),
            fence: hold.lease.fence(),
        };
        let key = String::from_utf8_lossy(&lost.key);
        tracing::warn!(parent: &hold.span, %key, fence = lost.fence, "a lock was lost");
        if let Some(on_lost) = hold.engine.options.on_lost.clone() {
            D::tell(move || on_lost(&lost));
        }
        // A renewal without an answer may reach the server yet.
        hold.engine.give_up(&hold.place, hold.ttl).await;
    }

    /// Renews until it is stopped. False if the hold is over against the will of its owner.
    async fn keep(&self) -> bool {
        let (hold, lease) = (&self.hold, &self.hold.lease);
        let is_over = || self.is_stopped.load(Relaxed) || lease.is_ended();
        let (mut pause, mut has_failed) = (pause_before_renewal(self.span(), false), false);
        while !is_over() {
            let until = lease.until();
            let Some(time) = pause_until(until, pause, Instant::now()) else {
                return false;
            };
            D::pause_of_keeper(lease, until, time, &self.is_stopped).await;
            // Its owner may have made it shorter than this pause.
            if is_over() || lease.until() < until {
                continue;
            }
            // Its owner may renew or release it now.
            let Some(_renewing) = lease.renews() else {
                pause = pause_before_renewal(self.span(), false);
                continue;
            };
            if is_over() {
                break;
            }
            let sent = lease.sends(hold.ttl);
            // Of no use after the end of the lease, however long a connection takes.
            let Some(answer) = D::until(lease.until(), self.renew()).await else {
                continue;
            };
            match next_pause(lease, answer, sent, (self.span(), has_failed)) {
                Some((next, failed)) => (pause, has_failed) = (next, failed),
                None => return false,
            }
        }
        true
    }

    /// The time within which it is to renew.
    fn span(&self) -> Duration {
        let linger = self.hold.engine.linger();
        linger.map_or(self.hold.ttl, |linger| linger.min(self.hold.ttl))
    }

    /// Renews each key once. Whether it was bound to the connection that has answered, too.
    async fn renew(&self) -> (OwnerAnswer, bool) {
        let (hold, engine) = (&self.hold, &self.hold.engine);
        // An answer is of no use after the end of the lease. A timeout of 0 would be an error.
        let time = || {
            let left = hold.lease.until().saturating_duration_since(Instant::now());
            let left = left.max(Duration::from_millis(1));
            engine.options.answer_time(hold.ttl).min(left)
        };
        for command in hold.place.renew(hold.ttl, engine.support.is_fallback()) {
            let answer = owner_answer(D::send_of_owner(engine, from_ref(&command), time()).await);
            if !matches!(answer, OwnerAnswer::Done) {
                return (answer, false);
            }
        }
        if hold.lease.is_ended() {
            return (OwnerAnswer::Done, false);
        }
        match hold.rebound(hold.ttl, time()).await {
            Binding::Over => (OwnerAnswer::NotHeld, false),
            binding => (OwnerAnswer::Done, binding == Binding::Bound),
        }
    }
}

/// Reads the answer to a renewal. The time until the next one, and whether this one has failed; or
/// `None` if nothing is held.
fn next_pause(
    lease: &Lease,
    (answer, is_bound): (OwnerAnswer, bool),
    sent: Sent,
    (span, had_failed): (Duration, bool),
) -> Option<(Duration, bool)> {
    let error = match answer {
        OwnerAnswer::Done if lease.renewed(sent, is_bound) => {
            return Some((pause_before_renewal(span, !is_bound), false));
        }
        OwnerAnswer::Done | OwnerAnswer::NotHeld => return None,
        OwnerAnswer::MayPass(error) | OwnerAnswer::Failed(error) => error,
    };
    tracing::warn!(%error, "a renewal failed");
    // A connection that was cut is found out by its first use, so the next one is made at once.
    let is_cut = !had_failed && is_unanswered(&error) && !error.is_timeout();
    let pause = match is_cut {
        true => Duration::ZERO,
        false => pause_before_renewal(span, true),
    };
    Some((pause, true))
}

/// A third of the time within which to renew; less after a failure.
fn pause_before_renewal(span: Duration, failed: bool) -> Duration {
    match failed {
        true => SOON.min(span.checked_div(10).unwrap_or(span)),
        false => span.checked_div(3).unwrap_or(span),
    }
}

/// The part of a pause that what is left of the lease allows. `None` if nothing is left.
fn pause_until(until: Instant, pause: Duration, now: Instant) -> Option<Duration> {
    let left = until.saturating_duration_since(now);
    let third = pause_before_renewal(left, false).max(Duration::from_millis(1));
    (!left.is_zero()).then(|| pause.min(third))
}
