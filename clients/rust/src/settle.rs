//! What a future or a guard that is dropped leaves to be done.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::command::Place;
use crate::driver::{Driver, Engine};
use crate::error::Error;
use crate::hold::Hold;
use crate::lease::{Asking, until};

enum Leftover<D: Driver> {
    /// The place is given up, and what was granted unseen is released.
    Request(Arc<Place>, Duration),
    /// The hold is released.
    Release(Hold<D>),
    /// The hold becomes a reader's, and the place of an upgrade is given up.
    ///
    /// No other conversion of the hold begins before that.
    Reader(Hold<D>, Asking),
}

/// Does when it is dropped what a future has left to do.
pub(crate) struct Settle<D: Driver> {
    engine: Arc<Engine<D>>,
    runtime: D::Runtime,
    leftover: Option<Leftover<D>>,
}

impl<D: Driver> Settle<D> {
    pub(crate) fn request(engine: &Arc<Engine<D>>, place: &Arc<Place>, ttl: Duration) -> Self {
        Self {
            engine: engine.clone(),
            runtime: D::runtime(),
            leftover: Some(Leftover::Request(place.clone(), ttl)),
        }
    }

    pub(crate) fn release(hold: &Hold<D>) -> Self {
        Self::of(hold, Leftover::Release(hold.clone()))
    }

    pub(crate) fn reader(hold: &Hold<D>, asking: Asking) -> Self {
        Self::of(hold, Leftover::Reader(hold.clone(), asking))
    }

    fn of(hold: &Hold<D>, leftover: Leftover<D>) -> Self {
        Self {
            engine: hold.engine.clone(),
            runtime: hold.runtime.clone(),
            leftover: Some(leftover),
        }
    }

    pub(crate) fn disarm(&mut self) {
        self.leftover = None;
    }
}

impl<D: Driver> Drop for Settle<D> {
    fn drop(&mut self) {
        let Some(leftover) = self.leftover.take() else {
            return;
        };
        let engine = self.engine.clone();
        D::settle(self.engine.clone(), &self.runtime, async move {
            match leftover {
                Leftover::Request(place, ttl) => engine.give_up(&place.without_job(), ttl).await,
                Leftover::Release(hold) => release(&hold).await,
                Leftover::Reader(hold, _asking) => {
                    if let Err(error) = hold.restore_reader().await {
                        tracing::warn!(%error, "a hold could not become a reader's");
                    }
                }
            }
        });
    }
}

async fn release<D: Driver>(hold: &Hold<D>) {
    let released = match D::BLOCKS {
        true => {
            let time = hold.engine.options.answer_time(hold.ttl);
            hold.release_within((time, until(Instant::now(), time)))
                .await
        }
        false => hold.release().await,
    };
    match released {
        Ok(()) => {}
        Err(Error::NotHeld) => tracing::warn!("a lock was lost before its guard was dropped"),
        Err(error) => tracing::warn!(%error, "a lock could not be released"),
    }
}
