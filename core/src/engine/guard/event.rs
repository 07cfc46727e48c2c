//! What callbacks see that matters to the guard.

use super::doubt::Reason;
use super::quorum::Replicas;
use super::settings::Settings;
use crate::command::guard::Beat;
use crate::lock::Now;

/// What callbacks note of the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardEvent {
    /// Something after which leases may be missing, and when, on the clock that goes on while the
    /// machine is suspended. The settings are those of that time: they may change before the note
    /// is read.
    Began(Reason, u64, Settings),
    /// The settings have changed.
    SettingsChanged,
    /// This server follows a primary anew.
    Linked,
    /// The primary of this server has told of its guard, and when, by both clocks.
    Heard(Beat, u64, Now),
    /// A lease has come from elsewhere that has so many milliseconds left, and when.
    LongLease(u64, u64),
    /// A replica has come or gone.
    Replicas(Replicas, u64),
    /// The primary before has come back as this replica, by a partial resynchronization.
    OldPrimaryIsBack(Box<[u8]>, u64),
}
