//! The abilities of the server, learned from its answers.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::options::Options;

/// The ways of waiting that the server has refused. All are tried until then.
#[derive(Debug, Default)]
pub(crate) struct Support {
    without_keep: AtomicBool,
    at_least: AtomicBool,
    #[cfg(feature = "tokio")]
    without_notify: AtomicBool,
}

impl Support {
    pub(crate) fn keep(&self) -> bool {
        !self.without_keep.load(Relaxed)
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn notify(&self) -> bool {
        !self.without_notify.load(Relaxed)
    }

    /// Whether the server is known to have ATLEAST.
    pub(crate) fn at_least(&self) -> bool {
        self.at_least.load(Relaxed)
    }

    pub(crate) fn has_at_least(&self) {
        self.at_least.store(true, Relaxed);
    }

    /// Remembers that the server has neither KEEP nor NOTIFY, and says so once.
    pub(crate) fn is_old(&self, options: &Options) {
        #[cfg(feature = "tokio")]
        self.without_notify.store(true, Relaxed);
        if !self.without_keep.swap(true, Relaxed) {
            say(
                options,
                "the server's redis-lock module is older than 0.2: a waiter loses its place in the queue \
                 at the end of each slice and with its connection",
            );
        }
    }

    /// Remembers that NOTIFY is refused to this user or on this server, and says so once.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_without_notify(&self, options: &Options, why: &str) {
        if !self.without_notify.swap(true, Relaxed) {
            let text = format!("waiting by NOTIFY is not possible, so connections wait: {why}");
            say(options, &text);
        }
    }
}

fn say(options: &Options, text: &str) {
    log::warn!("{text}");
    if let Some(on_fallback) = &options.on_fallback {
        on_fallback(text);
    }
}
