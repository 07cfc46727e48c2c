//! Renews a hold until it is told to stop, or the hold is over.

use std::fmt;
use std::marker::PhantomData;
use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use redis::RedisResult;

use crate::driver::Driver;
use crate::hold::Hold;
use crate::lease::Lease;
use crate::options::LostLock;
use crate::replies::{Binding, is_unanswered, owner_answer};

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
        let linger = hold.engine.linger();
        let span = linger.map_or(hold.ttl, |linger| linger.min(hold.ttl));
        let [usual, soon] = [third(span), SOON.min(span.checked_div(10).unwrap_or(span))];
        let (mut pause, mut has_failed) = (usual, false);
        while !is_over() {
            let until = lease.until();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let time = pause.min(third(left).max(Duration::from_millis(1)));
            D::pause_of_keeper(lease, until, time, &self.is_stopped).await;
            // Its owner may have made it shorter than this pause.
            if is_over() || lease.until() < until {
                continue;
            }
            // Its owner may renew or release it now.
            let Some(_renewing) = lease.renews() else {
                pause = usual;
                continue;
            };
            if is_over() {
                break;
            }
            let sent = lease.sends(hold.ttl);
            // Of no use after the end of the lease, however long a connection takes.
            let Some(renewed) = D::until(lease.until(), self.renew()).await else {
                continue;
            };
            let error = match renewed {
                Ok(Some(is_bound)) if lease.renewed(sent, is_bound) => {
                    (pause, has_failed) = (if is_bound { usual } else { soon }, false);
                    continue;
                }
                Ok(_) => return false,
                Err(error) => error,
            };
            tracing::warn!(%error, "a renewal failed");
            // A connection that was cut is found out by its first use, so the next one is made at
            // once.
            let is_cut = !has_failed && is_unanswered(&error) && !error.is_timeout();
            (pause, has_failed) = (if is_cut { Duration::ZERO } else { soon }, true);
        }
        true
    }

    /// Renews each key once. Whether it was bound to the connection that has answered, or `None` if
    /// it is not held.
    async fn renew(&self) -> RedisResult<Option<bool>> {
        let (hold, engine) = (&self.hold, &self.hold.engine);
        // An answer is of no use after the end of the lease. A timeout of 0 would be an error.
        let time = || {
            let left = hold.lease.until().saturating_duration_since(Instant::now());
            let left = left.max(Duration::from_millis(1));
            engine.options.answer_time(hold.ttl).min(left)
        };
        for command in hold.place.renew(hold.ttl, engine.support.is_fallback()) {
            if !owner_answer(D::send_of_owner(engine, from_ref(&command), time()).await)? {
                return Ok(None);
            }
        }
        if hold.lease.is_ended() {
            return Ok(Some(false));
        }
        let binding = hold.rebound(hold.ttl, time()).await;
        Ok((binding != Binding::Over).then_some(binding == Binding::Bound))
    }
}

fn third(time: Duration) -> Duration {
    time.checked_div(3).unwrap_or(time)
}
