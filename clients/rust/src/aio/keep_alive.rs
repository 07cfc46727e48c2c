use std::sync::Arc;

use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::inner::Tasks;
use super::settle::Settle;
use crate::hold::Hold;
use crate::lease::Lease;

/// Renews a hold in a task of its own until it is dropped. Its drop releases nothing.
#[must_use = "the renewals end when this is dropped"]
#[derive(Debug)]
pub struct KeepAlive {
    lease: Arc<Lease>,
    task: AbortHandle,
}

impl KeepAlive {
    pub(super) fn start(hold: Hold<Tasks>) -> Self {
        let runtime = hold.engine.wire.runtime.clone();
        Self {
            lease: hold.lease.clone(),
            task: runtime.spawn(watch(hold)).abort_handle(),
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

async fn watch(hold: Hold<Tasks>) {
    keep(&hold).await;
    if hold.tell_lost() {
        // Not here: the drop of the `KeepAlive` ends this task.
        drop(Settle::release(&hold));
    }
}

/// Renews until it is over.
async fn keep(hold: &Hold<Tasks>) {
    let lease = &hold.lease;
    let mut pause = hold.first_pause();
    while !lease.is_ended() {
        let until = lease.until();
        let Some(time) = hold.pause_until(until, pause) else {
            return;
        };
        tokio::select! {
            () = sleep(time) => {}
            // Its owner may make it shorter than this pause.
            () = lease.shorter(until) => continue,
        }
        // Its owner may renew or release it now.
        let Some(renewing) = lease.renews() else {
            pause = hold.first_pause();
            continue;
        };
        if lease.is_ended() {
            return;
        }
        let sent = lease.sends(hold.ttl);
        // Of no use after the end of the lease, however long a connection takes.
        let renewal = tokio::time::timeout_at(lease.until().into(), hold.renew_once());
        let Ok(answer) = renewal.await else {
            continue;
        };
        drop(renewing);
        match hold.after_renewal(answer, sent) {
            Some(next) => pause = next,
            None => return,
        }
    }
}
