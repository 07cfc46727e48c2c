use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::inner::Inner;
use crate::answer::{OwnerAnswer, owner_answer};
use crate::command::{Claim, Place};
use crate::lease::{Lease, pause_before_renewal};

/// Renews a hold in a task of its own until it is dropped. It releases nothing.
#[must_use = "the renewals end when this is dropped"]
#[derive(Debug)]
pub struct KeepAlive {
    lease: Arc<Lease>,
    task: AbortHandle,
}

impl KeepAlive {
    pub(super) fn start(watch: Watch) -> Self {
        let runtime = watch.inner.runtime.clone();
        Self {
            lease: watch.lease.clone(),
            task: runtime.spawn(watch.run()).abort_handle(),
        }
    }

    /// Whether the hold is over.
    pub fn is_lost(&self) -> bool {
        self.lease.is_lost()
    }

    /// Waits until the hold is over or released.
    pub async fn lost(&self) {
        self.lease.lost().await;
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The hold that is watched.
pub(super) struct Watch {
    pub(super) inner: Arc<Inner>,
    pub(super) place: Arc<Place>,
    pub(super) lease: Arc<Lease>,
    pub(super) claim: Claim,
    pub(super) ttl: Duration,
}

impl Watch {
    async fn run(self) {
        let inner = &self.inner;
        let span = inner
            .options
            .renewal_span(self.ttl, inner.support.is_fallback());
        let mut pause = pause_before_renewal(span, false);
        while !self.lease.is_ended() {
            let left = self.lease.until().saturating_duration_since(Instant::now());
            if left.is_zero() {
                return self.lease.lose_and_tell(&self.place, &inner.options);
            }
            sleep(pause.min(left)).await;
            let sent = self.lease.sends(self.ttl);
            // Of no use after the end of the lease, however long a connection takes.
            let end = self.lease.until();
            let Ok(answer) = tokio::time::timeout_at(end.into(), self.renew()).await else {
                continue;
            };
            match self.lease.after_renewal(answer, sent, span) {
                Some(next) => pause = next,
                None => {
                    let was_held = !self.lease.is_ended();
                    self.lease.lose_and_tell(&self.place, &inner.options);
                    if was_held {
                        inner.give_up(&self.place, self.ttl).await;
                    }
                    return;
                }
            }
        }
    }

    /// Renews each key once.
    async fn renew(&self) -> OwnerAnswer {
        let inner = &self.inner;
        let time = inner.options.answer_time(self.ttl);
        for command in self.place.renew(self.ttl, inner.support.is_fallback()) {
            let answer = owner_answer(inner.ask(&command, time).await);
            if !matches!(answer, OwnerAnswer::Done) {
                return answer;
            }
        }
        if !inner.lingers() || self.lease.is_ended() {
            return OwnerAnswer::Done;
        }
        let fence = self.lease.fence();
        let bound = inner.rebind(&self.place, &self.claim, fence, self.ttl);
        match bound.await {
            true => OwnerAnswer::Done,
            false => OwnerAnswer::NotHeld,
        }
    }
}
