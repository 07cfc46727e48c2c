//! Many clients on a few locks, while a test disturbs their server. Each client waits for a lock,
//! and releases it again.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use super::super::harness::{figure, Client, Reply, Server};

pub struct LoadClients {
    clients: usize,
    rounds: usize,
    locks: Vec<Lock>,
    fences: Mutex<HashSet<i64>>,
    at_work: AtomicUsize,
    /// Releases that found no hold.
    lost: AtomicUsize,
}

/// The lock from the view of the clients.
#[derive(Default)]
struct Lock {
    taken: AtomicBool,
    fence: AtomicI64,
}

impl LoadClients {
    pub fn new(clients: usize, rounds: usize, locks: usize) -> Self {
        Self {
            clients,
            rounds,
            locks: (0..locks).map(|_| Lock::default()).collect(),
            fences: Mutex::default(),
            at_work: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
        }
    }

    /// The total number of acquisitions.
    pub fn holds(&self) -> usize {
        self.clients * self.rounds
    }

    /// Runs on a server where no hold can be lost: no two clients hold a lock at once. `disturb` is
    /// called at most `times` times in a row, until all clients have finished. Returns the number
    /// of calls.
    pub fn run(&self, server: &Server, times: usize, disturb: impl FnMut(usize)) -> usize {
        let times = self.play(server, true, times, disturb);
        assert_eq!(self.lost.load(Ordering::Relaxed), 0, "holds lost");
        times
    }

    /// The same, and reports how often it did `what`.
    pub fn report(&self, server: &Server, what: &str, times: usize, disturb: impl FnMut(usize)) {
        let times = self.run(server, times, disturb);
        let holds = self.holds();
        let told = format!("{times} {what} under {holds} holds, none lost");
        figure(server.kind, &told);
    }

    /// Runs where holds may be lost. Returns the number of disturbances and of lost holds.
    pub fn run_with_losses(&self, server: &Server, disturb: impl FnMut(usize)) -> (usize, usize) {
        let times = self.play(server, false, usize::MAX, disturb);
        (times, self.lost.load(Ordering::Relaxed))
    }

    fn play(
        &self,
        server: &Server,
        alone: bool,
        times: usize,
        mut disturb: impl FnMut(usize),
    ) -> usize {
        let mut disturbed = 0;
        self.at_work.store(self.clients, Ordering::SeqCst);
        thread::scope(|scope| {
            for n in 0..self.clients {
                scope.spawn(move || {
                    // The disturbance also ends if this client panics.
                    let _leaving = Leaving(&self.at_work);
                    self.work(&mut server.client(), n, alone);
                });
            }
            while disturbed < times && self.at_work.load(Ordering::SeqCst) > 0 {
                disturb(disturbed);
                disturbed += 1;
            }
        });
        assert_eq!(server.blocked_clients(), 0);
        let mut c = server.client();
        for n in 0..self.locks.len() {
            assert_eq!(c.call(&format!("LOCK.INFO k{n}")), Reply::Nil);
        }
        disturbed
    }

    fn work(&self, c: &mut Client, n: usize, alone: bool) {
        for round in 0..self.rounds {
            let at = (n + round) % self.locks.len();
            let (lock, token) = (&self.locks[at], format!("t{n}-{round}"));
            let fence = insist(c, &format!("LOCK.ACQUIRE k{at} {token} 600000 BLOCK 0"));
            assert!(self.fences.lock().unwrap().insert(fence), "{fence} twice");
            if alone {
                assert!(!lock.taken.swap(true, Ordering::SeqCst), "two are inside");
                let before = lock.fence.swap(fence, Ordering::SeqCst);
                assert!(fence > before, "{fence} after {before}");
                lock.taken.store(false, Ordering::SeqCst);
            }
            let released = insist(c, &format!("LOCK.RELEASE k{at} {token}"));
            if released == 0 {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Retries while the server is busy.
fn insist(c: &mut Client, line: &str) -> i64 {
    loop {
        match c.call(line) {
            Reply::Int(n) => return n,
            Reply::Error(error) if error.starts_with("BUSY") => {
                thread::sleep(Duration::from_millis(1));
            }
            other => panic!("{line}: {other:?}"),
        }
    }
}

struct Leaving<'a>(&'a AtomicUsize);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
