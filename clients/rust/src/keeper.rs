//! Renews a hold until it is told to stop, or the hold is over.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::driver::Driver;
use crate::hold::{Effort, Hold};
use crate::lease::{Lease, State};
use crate::options::LostLock;
use crate::replies::Binding;

/// The longest pause after a renewal that failed, with TRYAGAIN or a connection that was cut.
const SOON: Duration = Duration::from_millis(200);

/// Renews a hold beside the program until it is dropped. Its drop releases nothing.
#[derive(Debug)]
#[must_use = "the renewals end when this is dropped"]
pub struct KeepAlive<D: Driver> {
    pub(crate) lease: Arc<Lease>,
    is_stopped: Arc<AtomicBool>,
    of: PhantomData<D>,
}

impl<D: Driver> KeepAlive<D> {
    pub(crate) fn start(hold: &Hold<D>) -> Self {
        let is_stopped = Arc::<AtomicBool>::default();
        let keeper = run(hold.clone(), is_stopped.clone());
        D::keep(&hold.runtime, Box::pin(keeper));
        Self {
            lease: hold.lease.clone(),
            is_stopped,
            of: PhantomData,
        }
    }

    /// Whether the hold is over.
    pub fn is_lost(&self) -> bool {
        self.lease.is_lost()
    }
}

impl<D: Driver> Drop for KeepAlive<D> {
    fn drop(&mut self) {
        self.lease.change(|_| self.is_stopped.store(true, Relaxed));
    }
}

async fn run<D: Driver>(hold: Hold<D>, is_stopped: Arc<AtomicBool>) {
    if keep(&hold, &is_stopped).await || !hold.lease.finish(State::Lost) {
        return;
    }
    let lost = LostLock {
        key: hold.place.key().to_vec(),
        token: hold.place.token.clone(),
        fence: hold.lease.fence,
    };
    let key = String::from_utf8_lossy(&lost.key);
    tracing::warn!(parent: &hold.span, %key, fence = lost.fence, "a lock was lost");
    if let Some(on_lost) = hold.engine.options.on_lost.clone() {
        D::tell(move || (on_lost.0)(&lost));
    }
    // A renewal without an answer may reach the server yet.
    hold.engine.give_up(&hold.place, hold.ttl).await;
}

/// Renews until it is stopped. False if the hold is over against the will of its owner.
async fn keep<D: Driver>(hold: &Hold<D>, is_stopped: &AtomicBool) -> bool {
    let lease = &hold.lease;
    let is_over = || is_stopped.load(Relaxed) || lease.state() != State::Held;
    let linger = hold.engine.linger();
    let span = linger.map_or(hold.ttl, |linger| linger.min(hold.ttl));
    let (usual, soon) = (span.div_f64(3.0), SOON.min(span.div_f64(10.0)));
    let mut pause = usual;
    loop {
        let until = lease.until();
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return is_over();
        }
        let time = pause.min(left.div_f64(3.0).max(Duration::from_millis(1)));
        D::within(time, lease.shorter(until, is_stopped)).await;
        let renewing = lease.renewal.take();
        if is_over() {
            return true;
        }
        // Its owner may have made it shorter than this pause, or may renew it now.
        if lease.until() < until || renewing.is_none() {
            continue;
        }
        let sent = lease.sends(hold.ttl);
        // An answer is of no use after the end of the lease, however long a connection takes. A
        // timeout of 0 would be an error.
        let left = lease.until().saturating_duration_since(Instant::now());
        let left = left.max(Duration::from_millis(1));
        let once = hold.engine.effort(hold.ttl, Instant::now());
        let time = once.time.min(left);
        let renewed = hold.renewed(hold.ttl, Effort { time, ..once });
        pause = match D::within(left, renewed).await {
            None => continue,
            Some(Ok(Binding::Bound)) if lease.renewed(sent) => usual,
            Some(Ok(Binding::NotBound)) if lease.renewed(sent) => soon,
            Some(Ok(_)) => return false,
            Some(Err(error)) => {
                tracing::warn!(%error, "a renewal failed");
                soon
            }
        };
    }
}
