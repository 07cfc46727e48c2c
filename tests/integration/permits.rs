//! LIMIT as a recipe: an exact sliding-window rate limiter.

use std::thread;

use crate::harness::{Client, Kind, Reply, Server};

on_every_server![never_more_grants_in_a_window_than_the_limit];

const CLIENTS: usize = 4;

/// `LOCK.ACQUIRE api * 1000 LIMIT 10 BLOCK 5000`, which nobody releases.
fn never_more_grants_in_a_window_than_the_limit(kind: Kind) {
    const LIMIT: usize = 10;
    const WINDOW_US: i64 = 1_000_000;
    const EACH: usize = 9;
    let server = Server::start(kind);
    server.client().until_fences_follow_the_clock();
    let ask = |mut c: Client| -> Vec<i64> {
        let fences = (0..EACH).map(|_| {
            let made = c.call("LOCK.ACQUIRE api * 1000 LIMIT 10 BLOCK 20000");
            match made.items() {
                [_, Reply::Int(fence)] => *fence,
                _ => panic!("{made:?}"),
            }
        });
        fences.collect()
    };
    let mut fences: Vec<i64> = thread::scope(|scope| {
        let clients = [(); CLIENTS].map(|()| scope.spawn(|| ask(server.client())));
        clients
            .into_iter()
            .flat_map(|c| c.join().unwrap())
            .collect()
    });
    fences.sort_unstable();
    assert_eq!(fences.len(), CLIENTS * EACH);
    // A fence is the server's clock in microseconds at the grant, or later than that by as many as there were grants in one.
    let grants = CLIENTS * EACH;
    for window in fences.windows(LIMIT + 1) {
        let took = window[LIMIT] - window[0];
        assert!(
            took > WINDOW_US - grants as i64,
            "{took} for {} grants",
            LIMIT + 1
        );
    }
    // It is used, too: the first ten came at once.
    assert!(fences[LIMIT - 1] - fences[0] < WINDOW_US, "{fences:?}");
}
