//! A sentinel that accepts connections and is silent, before one that answers.

use std::net::TcpListener;
use std::time::Instant;

use redis_lock_client::{Options, Sentinel, aio, sync};

use super::common::{Admin, BOUND, Sentinels, eventually};
use super::{ms, runtime, waits_for};

/// Its connections are made by the system, and nobody reads what comes.
fn with_a_silent_one(sentinels: &Sentinels) -> (TcpListener, Sentinel) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let [_, sentinel] = sentinels.addresses();
    let silent_url = format!("redis://{}", silent.local_addr().unwrap());
    let sentinel = Sentinel::new([silent_url, sentinel], "locks").unwrap();
    (silent, sentinel)
}

/// Ends the connections over which locks were asked for, and none of the sentinel's own.
fn cut(primary: &mut Admin) {
    let list: String = redis::from_redis_value(primary.run(&["CLIENT", "LIST"])).unwrap();
    for client in list.lines().filter(|client| client.contains(" cmd=lock.")) {
        let id = client.split(['=', ' ']).nth(1).unwrap();
        primary.run(&["CLIENT", "KILL", "ID", id]);
    }
}

#[test]
fn silent_sentinel_keeps_no_task_from_a_lock_or_a_renewal() {
    let sentinels = Sentinels::start();
    let (_silent, sentinel) = with_a_silent_one(&sentinels);
    let mut primary = sentinels.servers[0].admin();
    let runtime = runtime();
    let open = |sentinel| aio::LockClient::sentinel(sentinel, Options::default().ttl(ms(6_000)));
    runtime.block_on(async {
        let locks = open(sentinel).unwrap();
        // At the same moment, as one of them finds the primary for all.
        let (one, other) = (locks.lock("one"), locks.lock("other"));
        let (one, other) = tokio::join!(one.lock_timeout(BOUND), other.lock_timeout(BOUND));
        let held = [one, other].map(|held| held.unwrap().unwrap());
        let kept = held.each_ref().map(|held| held.keep_alive());
        let ends = held.each_ref().map(|held| held.valid_until());
        cut(&mut primary);
        eventually("both are renewed by another connection", || {
            held.iter()
                .zip(ends)
                .all(|(held, end)| held.valid_until() > end)
        });
        assert!(!kept.iter().any(|kept| kept.is_lost()));
        waits_for((&locks, &locks), &mut primary, "waited").await;
    });
}

#[test]
fn silent_sentinel_costs_threads_its_time_once() {
    let sentinels = Sentinels::start();
    let (_silent, sentinel) = with_a_silent_one(&sentinels);
    let mut primary = sentinels.servers[0].admin();
    let locks = sync::LockClient::sentinel(sentinel, Options::default());
    locks.lock("k").lock().unwrap().unlock().unwrap();
    cut(&mut primary);
    let begin = Instant::now();
    locks.lock("k").lock().unwrap().unlock().unwrap();
    // An answer that does not come takes 2 s.
    assert!(begin.elapsed() < ms(2_000), "{:?}", begin.elapsed());
}
