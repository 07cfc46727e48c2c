use super::*;

#[test]
fn a_deadlock_that_is_heard_ends_the_wait() {
    let ended = heard(Event::Deadlock, Instant::now());
    assert!(matches!(ended, Verdict::Failed(Error::Deadlock(_))));
}
