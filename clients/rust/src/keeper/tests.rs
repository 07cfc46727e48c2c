use super::*;

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
