//! Holds that are to end early, because their connection was lost or nobody has heard of them.

use std::num::NonZeroU64;

use crate::lock::{CompactToken, Deadline, Effect, Fence, Hold, Lock, Now, TokenBuf};
use crate::rules::grant::Granted;
use crate::rules::keys::Keys;
use crate::rules::place::Listener;

/// A grant on its way to a client that has waited. It travels with the reply: the module keeps no
/// list of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// To whom it was granted.
    pub token: CompactToken,
    /// The fence of its holds.
    pub fence: Fence,
    /// The keys.
    pub keys: Keys,
    /// Whether the token has got new holds: one that was converted stays.
    pub is_new: bool,
    /// For how long these stay if nobody hears of them (KEEP), in milliseconds; 0 is not at all.
    pub keep_ms: u32,
    /// The connection to which they are bound (LINGER).
    pub bound_to: Option<NonZeroU64>,
}

impl<L> Granted<L> {
    /// The client, and what goes to it with the reply. `None` where a channel has heard.
    pub fn into_delivery(self) -> Option<(L, Delivery)> {
        let Some(Listener::Client(client)) = self.removed.listener else {
            return None;
        };
        let delivery = Delivery {
            token: self.removed.token,
            fence: self.grant.hold.fence,
            keys: self.removed.keys,
            is_new: !self.grant.had_it,
            keep_ms: self.keep_ms,
            bound_to: self.removed.linger.map(|linger| linger.client),
        };
        Some((client, delivery))
    }
}

/// A hold that is to end early, because its connection was lost or nobody has heard of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Whose it is.
    pub token: TokenBuf,
    /// Its fence: whatever has another one is another hold.
    pub fence: Fence,
    /// When it is to end.
    pub end: LostEnd,
}

/// When a hold is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostEnd {
    /// Its connection was lost: at this instant, in milliseconds since the Unix epoch; 0 is at
    /// once.
    At(u64),
    /// Nobody has heard of it: so many milliseconds after this is carried out; 0 is at once.
    Unheard(u32),
}

impl LostEnd {
    pub(super) fn ms(self, now: Now) -> u64 {
        match self {
            Self::At(ms) => ms,
            Self::Unheard(0) => 0,
            Self::Unheard(keep_ms) => now.ms().saturating_add(keep_ms.into()),
        }
    }
}

impl Lost {
    /// Brings the deadline forward of the hold in its lock, under a key that ends at
    /// `key_deadline`. The second value is the hold if it ends now. `None` if there is nothing to
    /// change.
    pub fn end(
        &self,
        lock: &Lock,
        key_deadline: Option<Deadline>,
        now: Now,
    ) -> Option<(Effect<'_>, Option<Hold>)> {
        let token = self.token.as_token();
        let (_, hold) = lock.hold_of(token, now)?;
        if hold.fence != self.fence {
            return None;
        }
        let ends_at_ms = self.end.ms(now);
        if ends_at_ms < now.ms() {
            let (effect, hold) = lock.release(token, now)?;
            return Some((effect, Some(hold)));
        }
        let ends_at = Deadline::from_millis(ends_at_ms.min(Deadline::MAX_MS))?;
        if ends_at >= hold.deadline {
            return None;
        }
        Some((lock.shorten(token, ends_at, key_deadline, now)?, None))
    }
}
