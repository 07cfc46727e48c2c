use super::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn held(sent: Instant, linger: Option<Duration>) -> Arc<Lease> {
    let grant = Grant {
        fence: 7,
        sent,
        is_bound: true,
    };
    Lease::new(grant, seconds(600), linger, Claim::Lock)
}

#[test]
fn a_lease_with_linger_is_over_linger_after_its_connection_was_known_to_live() {
    let start = Instant::now() - seconds(30);
    let lease = held(start, Some(seconds(60)));
    assert!(!lease.is_lost_at(start + seconds(59)));
    assert!(lease.is_lost_at(start + seconds(60)));
    assert!(lease.may_be_held(), "the server may hold it for its ttl");
    // A renewal that another connection answers says nothing of the one that it is bound to.
    let sent = lease.sends(seconds(600));
    assert!(lease.renewed(sent, false));
    assert!(lease.is_lost_at(start + seconds(60)));
    let sent = lease.sends(seconds(600));
    assert!(lease.renewed(sent, true));
    assert_eq!(lease.until(), until(sent.at, seconds(60)));
    let converted = Grant {
        fence: 7,
        sent: sent.at + seconds(1),
        is_bound: true,
    };
    assert!(lease.converted(converted, seconds(600), Mode::Shared));
    assert_eq!(lease.until(), until(converted.sent, seconds(60)));
}

#[test]
fn without_linger_only_the_ttl_counts() {
    let start = Instant::now();
    let lease = held(start, None);
    assert!(!lease.is_lost_at(start + seconds(593)));
    assert!(lease.is_lost_at(start + seconds(600)));
}

#[test]
fn a_renewal_that_is_answered_after_the_ttl_revives_nothing() {
    let lease = held(Instant::now(), None);
    let sent = lease.sends(seconds(600));
    assert!(!lease.renewed_at(sent, true, sent.before));
    // One that shortens it counts without an answer.
    let sent = lease.sends(seconds(5));
    assert_eq!(lease.until(), until(sent.at, seconds(5)));
}

#[test]
fn a_release_that_failed_is_remembered() {
    let lease = held(Instant::now(), None);
    assert!(lease.end() && !lease.is_released() && !lease.is_lost());
    assert!(!lease.is_release_uncertain(false) && lease.is_release_uncertain(true));
    assert!(lease.is_release_uncertain(false) && lease.end());
    lease.is_released_now();
    assert!(lease.is_released());
    let lease = held(Instant::now(), None);
    assert!(lease.lose() && !lease.end() && lease.is_lost());
}

#[test]
fn milliseconds_are_rounded_up_and_never_0() {
    use crate::command::millis;

    assert_eq!(millis(Duration::ZERO), 1);
    assert_eq!(millis(Duration::from_micros(1_001)), 2);
    assert_eq!(millis(Duration::MAX), 1 << 48);
}
