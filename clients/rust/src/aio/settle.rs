use std::sync::Arc;
use std::time::Duration;

use super::inner::{Inner, Tasks};
use crate::attempt::Patience;
use crate::command::{Claim, Place};
use crate::error::Result;
use crate::hold::Hold;
use crate::lease::{Asking, Grant};

/// Asks until the lock is granted or the patience is over. Leaves nothing behind without a grant,
/// also if the future is dropped.
pub(super) async fn acquire(
    inner: &Arc<Inner>,
    place: &Arc<Place>,
    claim: &Claim,
    ttl: Duration,
    patience: Patience,
) -> Result<Option<Grant>> {
    let mut settle = Settle::new(inner, place, ttl, Leftover::Request);
    let granted = inner.acquire(place, claim, ttl, patience).await;
    settle.disarm();
    granted
}

/// The work that is left if a future is dropped before its end.
enum Leftover {
    /// The place is given up, and what was granted unseen is released.
    Request,
    /// The hold is released.
    Release,
    /// The hold becomes a reader's, and the place of an upgrade is given up.
    ///
    /// No other conversion of the hold begins before that.
    Reader(Hold<Tasks>, Asking),
    Nothing,
}

/// Does in a task what a future that was dropped has left to do.
pub(super) struct Settle {
    inner: Arc<Inner>,
    place: Arc<Place>,
    ttl: Duration,
    leftover: Leftover,
}

impl Settle {
    fn new(inner: &Arc<Inner>, place: &Arc<Place>, ttl: Duration, leftover: Leftover) -> Self {
        Self {
            inner: inner.clone(),
            place: place.clone(),
            ttl,
            leftover,
        }
    }

    pub(super) fn release(hold: &Hold<Tasks>) -> Self {
        Self::new(&hold.engine, &hold.place, hold.ttl, Leftover::Release)
    }

    pub(super) fn reader(hold: &Hold<Tasks>, asking: Asking) -> Self {
        let leftover = Leftover::Reader(hold.clone(), asking);
        Self::new(&hold.engine, &hold.place, hold.ttl, leftover)
    }

    pub(super) fn disarm(&mut self) {
        self.leftover = Leftover::Nothing;
    }
}

impl Drop for Settle {
    fn drop(&mut self) {
        let leftover = std::mem::replace(&mut self.leftover, Leftover::Nothing);
        if matches!(leftover, Leftover::Nothing) {
            return;
        }
        let (inner, place, ttl) = (self.inner.clone(), self.place.clone(), self.ttl);
        self.inner.wire.runtime.spawn(async move {
            match leftover {
                Leftover::Request => inner.give_up(&place.without_job(), ttl).await,
                Leftover::Release => inner.give_up(&place, ttl).await,
                Leftover::Reader(hold, _asking) => {
                    if let Err(error) = hold.restore_reader().await {
                        log::warn!("a hold could not become a reader's: {error}");
                    }
                }
                Leftover::Nothing => {}
            }
        });
    }
}
