//! What has happened: LOCK.TOP CONTENDED and LOCK.LOG.

use super::lock::Place;

/// A key, and how much its locks were waited for since the start or LOCK.RESETSTAT.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Contended {
    pub(crate) place: Place,
    pub(crate) waits: u64,
    pub(crate) waited_ms: u64,
    pub(crate) longest_ms: u64,
    /// By how much `waited_ms` may be too high.
    pub(crate) error_ms: u64,
}

/// A held lock that a command or eviction has taken from its key. None is what the server does not
/// know.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Forced {
    /// Unix time.
    pub(crate) time_ms: u64,
    pub(crate) age_ms: u64,
    /// The time of day on this machine, `HH:MM:SS`.
    pub(crate) clock: String,
    pub(crate) db: Option<u64>,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) token: Option<Vec<u8>>,
    pub(crate) fence: Option<u64>,
    pub(crate) holders: Option<u64>,
    /// The texts have no control bytes any more.
    pub(crate) by: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) address: Option<String>,
    pub(crate) client: Option<u64>,
    pub(crate) name: Option<String>,
}

/// None if it was not asked for; a sentence where the server cannot tell.
pub(crate) type Asked<T> = Option<Result<Vec<T>, String>>;
