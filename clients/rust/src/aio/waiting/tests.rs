use super::*;
use std::time::Instant;

#[test]
fn what_is_heard_grants_ends_or_has_it_ask_again() {
    let sent = Instant::now();
    let granted = heard(Event::Granted(7), sent);
    assert!(matches!(granted, Verdict::Granted(grant) if grant.fence == 7));
    for event in [
        Event::Timeout,
        Event::TryAgain,
        Event::WrongType,
        Event::Other,
    ] {
        assert!(matches!(heard(event, sent), Verdict::AskAgain(_)));
    }
    let ended = heard(Event::Deadlock, sent);
    assert!(matches!(ended, Verdict::Failed(Error::Deadlock(_))));
    let ended = heard(Event::Cancelled, sent);
    assert!(matches!(ended, Verdict::Failed(Error::Cancelled)));
}
