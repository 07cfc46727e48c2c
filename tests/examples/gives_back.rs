//! Workers that leave without having read of their grant: what they may hold is given back, and not left to its ttl.

use std::time::Duration;

use crate::bed::{Bed, Program};
use crate::events::Event;
use crate::harness::wait_for;
use crate::proxy::{Fate, Proxy};

/// The programs that do it so far; the rest hold until their ttl is over.
mod go_redis {
    use super::*;

    #[test]
    fn gives_back_when_it_gives_up() {
        if let Some(program) = Program::find("go", "go-redis") {
            super::gives_back_when_it_gives_up(Bed::with(program));
        }
    }

    #[test]
    fn gives_back_when_it_is_interrupted() {
        if let Some(program) = Program::find("go", "go-redis") {
            super::gives_back_when_it_is_interrupted(Bed::with(program));
        }
    }
}

/// Longer than anything here takes: the connection stays, and says nothing.
const NEVER: Duration = Duration::from_secs(60);

fn gives_back_when_it_gives_up(mut bed: Bed) {
    let proxy = Proxy::to(bed.server.port, Fate::Late(NEVER));
    let options = "--ttl 60000 --block 400 --writes 1 --pause 10 --token T";
    let ended = bed.worker_on(proxy.port, options).finish();
    assert!(proxy.caught().is_some(), "nothing was granted");
    assert_eq!(ended.events.last().unwrap().1, Event::GaveUp);
    bed.assert_free();
}

fn gives_back_when_it_is_interrupted(mut bed: Bed) {
    let proxy = Proxy::to(bed.server.port, Fate::Late(NEVER));
    let options = "--ttl 60000 --block 30000 --writes 1 --pause 10 --token T";
    let mut worker = bed.worker_on(proxy.port, options);
    wait_for("a grant", || proxy.caught());
    worker.interrupt();
    wait_for("the worker to end", || worker.has_ended().then_some(()));
    bed.assert_free();
}
