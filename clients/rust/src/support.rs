//! The abilities of the server, learned from its answers.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::Mode;
use crate::command::Claim;
use crate::error::{Error, Result};
use crate::options::Options;

/// The ways of waiting that the server has refused. All are tried until then.
#[derive(Debug, Default)]
pub(crate) struct Support {
    /// Chosen once, by the first answer: whether the server has no module, and the options allow to do
    /// without.
    is_fallback: OnceLock<bool>,
    without_notify: AtomicBool,
}

impl Support {
    pub(crate) fn is_fallback(&self) -> bool {
        self.is_fallback.get() == Some(&true)
    }

    pub(crate) fn has_module(&self) {
        let _ = self.is_fallback.set(false);
    }

    /// Whether to go on without the module, which the server does not have. Says so once.
    pub(crate) fn falls_back(&self, options: &Options) -> bool {
        if options.fallback && self.is_fallback.set(true).is_ok() {
            say(
                options,
                "the server has no redis-lock module, so locks are taken by SET NX and Lua: there is no \
                 fair queue, no fence, no readers-writers, no counted or several locks, no guarded \
                 commands, no linger, and an eviction or a failover can end a hold early",
            );
        }
        self.is_fallback()
    }

    /// An error if the fallback has no such claim, or no release that waits for a time.
    pub(crate) fn refuse(&self, claim: &Claim, at_least: Option<Duration>) -> Result<()> {
        let what = match claim {
            _ if !self.is_fallback() => return Ok(()),
            _ if at_least.is_some() => "a least time",
            Claim::Lock | Claim::RwLock(Mode::Exclusive) => return Ok(()),
            Claim::RwLock(_) => "a share",
            Claim::Permit(_) => "a permit",
            Claim::All(_) => "a lock of several keys",
            Claim::Once(..) => "a result that is made once",
        };
        Err(Error::not_in_fallback(what))
    }

    pub(crate) fn notify(&self) -> bool {
        !self.without_notify.load(Relaxed)
    }

    /// Remembers that NOTIFY is refused to this user or on this server, and says so once.
    pub(crate) fn is_without_notify(&self, options: &Options, why: &str) {
        if !self.without_notify.swap(true, Relaxed) {
            let text = format!("waiting by NOTIFY is not possible, so connections wait: {why}");
            say(options, &text);
        }
    }
}

fn say(options: &Options, text: &str) {
    tracing::warn!("{text}");
    if let Some(on_fallback) = &options.on_fallback {
        on_fallback(text);
    }
}
