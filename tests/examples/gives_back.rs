//! Workers that end before they read their grant. Their hold must be released and not left to its
//! ttl.

use std::time::Duration;

use crate::events::Event;
use crate::fixture::Fixture;
use crate::harness::wait_for;
use crate::proxy::{Fate, Proxy};

with_every_worker![leaves_nothing_when_nobody_answers];

/// A program that stays alive for a moment after an interrupt. The others end with the signal.
mod go_redis_interrupted {
    use crate::fixture::{Fixture, Program};

    #[test]
    fn gives_back_when_it_is_interrupted() {
        let program = Program::find("go", "go-redis");
        super::gives_back_when_it_is_interrupted(Fixture::with(program));
    }
}

/// Longer than anything here takes: the connection stays open, but delivers nothing.
const NEVER: Duration = Duration::from_secs(60);

/// It releases, or asks once more with its token and receives its fence.
fn leaves_nothing_when_nobody_answers(mut fixture: Fixture) {
    let proxy = Proxy::to(fixture.server.port, Fate::Late(NEVER));
    let options = "--ttl 60000 --block 400 --writes 1 --pause 10 --token T";
    let ended = fixture.worker_on(proxy.port, options).finish();
    assert!(proxy.caught().is_some(), "nothing was granted");
    let last = ended.events.last().unwrap().1.clone();
    assert!(
        matches!(last, Event::GaveUp | Event::Released(true)),
        "{last:?}"
    );
    fixture.assert_free();
}

fn gives_back_when_it_is_interrupted(mut fixture: Fixture) {
    let proxy = Proxy::to(fixture.server.port, Fate::Late(NEVER));
    let options = "--ttl 60000 --block 30000 --writes 1 --pause 10 --token T";
    let mut worker = fixture.worker_on(proxy.port, options);
    wait_for("a grant", || proxy.caught());
    worker.interrupt();
    wait_for("the worker to end", || worker.has_ended().then_some(()));
    fixture.assert_free();
}
