//! Many clients on one lock of a server with threads for its input and output, of which some leave
//! at any moment. With LINGER none stays a holder, also where it leaves in the turn of its grant.
//! No hold here lasts less than a minute, so a single one would block the test. (The campaign has the
//! same without such threads.)

use std::thread;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::harness::{wait_for, Kind, Server};

on_every_server![disconnected_clients_keep_no_lock_with_io_threads];

const LEAVING: u64 = 24;
const STAYING: u64 = 8;
const ROUNDS: u64 = 25;

fn disconnected_clients_keep_no_lock_with_io_threads(kind: Kind) {
    let options = ["--io-threads", "3", "--io-threads-do-reads", "yes"];
    let server = &Server::start_with(kind, &options);
    thread::scope(|scope| {
        for n in 0..LEAVING {
            scope.spawn(move || leave_at_any_moment(server, n));
        }
        for n in 0..STAYING {
            scope.spawn(move || wait_and_release(server, n));
        }
    });
    let mut c = server.client();
    wait_for("the lock to be free", || {
        (c.int("EXISTS k") == 0).then_some(())
    });
    assert_eq!(server.blocked_clients(), 0);
}

/// Leaves at any moment.
fn leave_at_any_moment(server: &Server, n: u64) {
    let mut random = SmallRng::seed_from_u64(n);
    for round in 0..ROUNDS {
        let token = format!("leaver-{n}-{round}");
        let mut client = server.raw();
        let command = ["LOCK.ACQUIRE", "RWLOCK.RLOCK"][usize::from(random.random_bool(0.5))];
        client.send(&format!("{command} k {token} 60000 BLOCK 0 LINGER 0"));
        thread::sleep(Duration::from_micros(random.random_range(0..4_000)));
        client.leave();
        let reply = client.line();
        assert!(reply.is_none_or(|line| line.starts_with(':')));
    }
}

/// Waits for the lock and releases it, every time.
fn wait_and_release(server: &Server, n: u64) {
    let mut client = server.client();
    for round in 0..ROUNDS {
        let token = format!("stayer-{n}-{round}");
        assert!(client.int(&format!("LOCK.ACQUIRE k {token} 60000 BLOCK 0")) > 0);
        assert_eq!(client.int(&format!("LOCK.RELEASE k {token}")), 1);
    }
}
