use super::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_lease_with_linger_is_over_linger_after_the_last_renewal() {
    let (fence, start) = (7, Instant::now() - seconds(30));
    let (grant, linger) = (Grant { fence, sent: start }, Some(seconds(60)));
    let lease = Lease::new(grant, seconds(600), linger, Claim::Lock);
    assert_eq!(lease.until(), until(start, seconds(60)));
    // The server may hold it for its ttl.
    assert!(lease.still_held().is_ok());
    let sent = lease.sends(seconds(600));
    assert!(lease.renewed(sent));
    assert_eq!(lease.until(), until(sent.at, seconds(60)));
    let converted = sent.at + seconds(1);
    assert!(lease.converted(Mode::Shared, converted, seconds(600)));
    assert_eq!(lease.until(), until(converted, seconds(60)));
}

#[test]
fn milliseconds_are_rounded_up_and_never_0() {
    use crate::command::millis;

    assert_eq!(millis(Duration::ZERO), 1);
    assert_eq!(millis(Duration::from_micros(1_001)), 2);
    assert_eq!(millis(Duration::MAX), 1 << 48);
}
