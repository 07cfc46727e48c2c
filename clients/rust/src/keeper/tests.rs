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
    let span = ms(3_000);
    let next =
        |answer, is_bound| next_pause(&lease, (answer, is_bound), lease.sends(ms(60_000)), span);
    assert_eq!(next(OwnerAnswer::Done, true), Some(ms(1_000)));
    // It is held, and its end is near unless it is bound again.
    assert_eq!(next(OwnerAnswer::Done, false), Some(SOON));
    let busy = crate::replies::tests::server_error("BUSY a script runs");
    assert_eq!(next(OwnerAnswer::MayPass(busy), false), Some(SOON));
    assert_eq!(next(OwnerAnswer::NotHeld, false), None);
}
