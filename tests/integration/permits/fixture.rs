//! What the tests of permits have in common.

use crate::harness::{wait_for, Client, Reply};

/// Takes a permit for a minute, which must be granted at once. Returns its fence.
#[track_caller]
pub fn permit(c: &mut Client, key: &str, token: &str, limit: i64) -> i64 {
    c.int(&format!("LOCK.ACQUIRE {key} {token} 60000 LIMIT {limit}"))
}

/// Waits until a fence is the server's clock in microseconds. A server that has just started gives fences ahead of it.
#[track_caller]
pub fn until_fences_follow_the_clock(c: &mut Client) {
    wait_for("fences to follow the clock", || {
        let fence = c.int("LOCK.ACQUIRE clock me 60000 LIMIT 1");
        c.int("LOCK.RELEASE clock me");
        (u64::try_from(fence).unwrap() <= c.now_us()).then_some(())
    });
}

/// Sends a request that must be answered null.
#[track_caller]
pub fn refused(c: &mut Client, line: &str) {
    assert_eq!(c.call(line), Reply::Nil, "{line}");
}

/// The mode of a lock as LOCK.INFO shows it.
#[track_caller]
pub fn mode(c: &mut Client, key: &str) -> String {
    c.mode(key)
}
