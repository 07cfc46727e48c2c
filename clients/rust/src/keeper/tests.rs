use super::*;
use crate::command::Claim;
use crate::lease::Grant;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn it_renews_at_a_third_and_sooner_after_a_failure() {
    assert_eq!(pause_before_renewal(ms(30_000), false), ms(10_000));
    assert_eq!(pause_before_renewal(ms(30_000), true), SOON);
    assert_eq!(pause_before_renewal(ms(900), true), ms(90));
}

#[test]
fn it_renews_in_time_for_what_is_left() {
    let now = Instant::now();
    assert_eq!(pause_until(now + ms(300), ms(9_000), now), Some(ms(100)));
    assert_eq!(pause_until(now + ms(60_000), ms(900), now), Some(ms(900)));
    assert_eq!(pause_until(now, ms(9_000), now), None);
}

#[test]
fn an_answer_ends_it_or_says_when_to_renew_next() {
    let grant = Grant {
        fence: 7,
        sent: Instant::now(),
        is_bound: true,
    };
    let lease = Lease::new(grant, ms(60_000), Some(ms(30_000)), Claim::Lock);
    let next = |answer, is_bound, had_failed| {
        let sent = lease.sends(ms(60_000));
        next_pause(&lease, (answer, is_bound), sent, (ms(3_000), had_failed))
    };
    let cut = || {
        let error = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        OwnerAnswer::MayPass(error.into())
    };
    assert_eq!(
        next(OwnerAnswer::Done, true, true),
        Some((ms(1_000), false))
    );
    // It is held, and its end is near unless it is bound again.
    assert_eq!(next(OwnerAnswer::Done, false, false), Some((SOON, false)));
    let busy = crate::replies::tests::server_error("BUSY a script runs");
    assert_eq!(
        next(OwnerAnswer::MayPass(busy), false, false),
        Some((SOON, true))
    );
    // Another connection is made at once, and the next ones are not.
    assert_eq!(next(cut(), false, false), Some((Duration::ZERO, true)));
    assert_eq!(next(cut(), false, true), Some((SOON, true)));
    assert_eq!(next(OwnerAnswer::NotHeld, false, false), None);
}
