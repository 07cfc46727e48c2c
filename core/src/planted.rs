//! Faults on purpose. `make campaign CAMPAIGN_PLANTED=1` builds the module with the feature
//! `fault-injection`, plants one fault after the other, and shows which judge finds it. Without the
//! feature, which no release has, [`planted`] is `false` when the module is compiled.

/// Whether a fault is planted: the one that the environment of the server names.
#[cfg(feature = "fault-injection")]
pub fn planted(fault: &str) -> bool {
    static NAMED: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("REDIS_LOCK_FAULT").ok());
    NAMED.as_deref() == Some(fault)
}

/// Never.
#[cfg(not(feature = "fault-injection"))]
#[inline(always)]
pub const fn planted(_fault: &str) -> bool {
    false
}
