//! Clients that follow the primary: they acquire locks, hold them for a moment and release them. If
//! the primary is gone or sends them away, they continue at the new one with their tokens. A check
//! of what they saw follows.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::harness::{wait_for, Client, Reply};

/// The state that all clients share.
#[derive(Default)]
pub struct Group {
    /// The port of the current primary, as the test sets it.
    pub primary: AtomicU16,
    /// The server, if any, at which each client confirms by WAIT that a replica has its hold.
    pub sure_with: Option<u16>,
    pub granted: AtomicUsize,
    done: AtomicBool,
}

/// A hold from the view of its owner.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The server that granted it.
    pub port: u16,
    pub key: String,
    pub shared: bool,
    pub fence: i64,
    /// It was requested before at another server, so this may be the reply that was lost then.
    pub again: bool,
    /// A replica had it, confirmed by WAIT.
    pub sure: bool,
    pub asked: Instant,
    pub from: Instant,
    /// The time at which its owner sent the release.
    pub until: Instant,
    /// Whether the owner still held it then.
    pub kept: bool,
}

/// What the clients experienced.
#[derive(Debug, Default)]
pub struct Story {
    pub grants: Vec<Grant>,
    /// The errors that made clients change to the new primary, with their counts.
    pub sent_away: BTreeMap<String, usize>,
}

const CLIENTS: u64 = 8;

/// This is longer than any hold lasts. A release that is lost with a primary delays the other
/// clients by no more than this.
const TTL_MS: u64 = 3_000;

/// The errors after which a client retries elsewhere. During its `FAILOVER`, Valkey 9 may refuse a
/// grant by the timer before it unblocks the waiters: that is `TRYAGAIN`.
const RETRYABLE: [&str; 5] = ["UNBLOCKED", "READONLY", "LOADING", "MASTERDOWN", "TRYAGAIN"];

impl Group {
    pub fn of(port: u16, sure: bool) -> Self {
        Self {
            primary: AtomicU16::new(port),
            sure_with: sure.then_some(port),
            ..Self::default()
        }
    }

    /// Waits until the clients have this many more grants.
    #[track_caller]
    pub fn wait_for_grants(&self, count: usize) {
        let goal = self.granted.load(Ordering::Relaxed) + count;
        wait_for("more grants", || {
            (self.granted.load(Ordering::Relaxed) >= goal).then_some(())
        });
    }

    /// Runs the clients while `act` runs.
    pub fn live<R>(&self, act: impl FnOnce() -> R) -> (Story, R) {
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|n| scope.spawn(move || Member::new(self, n).live()))
                .collect();
            // The clients must also end if it fails.
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
            self.done.store(true, Ordering::Relaxed);
            let mut story = Story::default();
            for client in clients {
                let part: Story = client.join().unwrap();
                story.grants.extend(part.grants);
                for (code, count) in part.sent_away {
                    *story.sent_away.entry(code).or_default() += count;
                }
            }
            match result {
                Ok(result) => (story, result),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

struct Member<'g> {
    group: &'g Group,
    number: u64,
    random: StdRng,
    connection: Option<(u16, Client)>,
    story: Story,
}

impl<'g> Member<'g> {
    fn new(group: &'g Group, number: u64) -> Self {
        Self {
            group,
            number,
            random: StdRng::seed_from_u64(number),
            connection: None,
            story: Story::default(),
        }
    }

    fn live(mut self) -> Story {
        for round in 0.. {
            if self.group.done.load(Ordering::Relaxed) {
                break;
            }
            self.take_and_release(round);
        }
        self.story
    }

    fn take_and_release(&mut self, round: usize) {
        let key = format!("k{}", self.random.random_range(0..3));
        let token = format!("t{}-{round}", self.number);
        let shared = self.random.random_range(0..3) == 0;
        let take = if shared {
            "RWLOCK.RLOCK"
        } else {
            "LOCK.ACQUIRE"
        };
        let line = format!("{take} {key} {token} {TTL_MS} BLOCK 0");
        let (fence, port, asked, again) = self.ask(&line);
        let from = Instant::now();
        self.group.granted.fetch_add(1, Ordering::Relaxed);
        let sure = self.group.sure_with == Some(port) && self.is_replicated(port, &key, &token);
        let pause = self.random.random_range(0..3_000);
        thread::sleep(Duration::from_micros(pause));
        let until = Instant::now();
        let (released, _, _, twice) = self.ask(&format!("LOCK.RELEASE {key} {token}"));
        // A release without a reply may have been executed.
        let kept = released == 1 || twice;
        self.story.grants.push(Grant {
            port,
            key,
            shared,
            fence,
            again,
            sure,
            asked,
            from,
            until,
            kept,
        });
    }

    /// Sends a request to the current primary until there is a reply, and follows a change of the
    /// primary. Returns the server, the time of the request, and whether earlier servers were
    /// asked.
    fn ask(&mut self, line: &str) -> (i64, u16, Instant, bool) {
        let mut again = false;
        loop {
            let port = self.group.primary.load(Ordering::Relaxed);
            let connected = self.connection.take().filter(|(to, _)| *to == port);
            let client = connected.or_else(|| Some((port, Client::try_connect(port)?)));
            let Some((port, mut client)) = client else {
                self.send_away("no connection");
                continue;
            };
            let asked = Instant::now();
            match client.try_call(line) {
                Ok(Reply::Int(n)) => {
                    self.connection = Some((port, client));
                    return (n, port, asked, again);
                }
                Ok(Reply::Error(error)) => {
                    let code = RETRYABLE.iter().find(|code| error.starts_with(**code));
                    self.send_away(code.unwrap_or_else(|| panic!("{line}: {error}")));
                }
                Ok(other) => panic!("{line}: {other:?}"),
                Err(_) => self.send_away("broken connection"),
            }
            again = true;
        }
    }

    fn send_away(&mut self, code: &str) {
        *self.story.sent_away.entry(code.to_string()).or_default() += 1;
        // Until the new primary is known.
        thread::sleep(Duration::from_millis(5));
    }

    /// WAIT covers the writes of this connection. A grant to a waiter is written by another
    /// client's command. A renewal is a write of its own.
    fn is_replicated(&mut self, port: u16, key: &str, token: &str) -> bool {
        let Some((to, client)) = &mut self.connection else {
            return false;
        };
        let renew = format!("LOCK.RENEW {key} {token} {TTL_MS}");
        *to == port
            && [renew.as_str(), "WAIT 1 1000"]
                .iter()
                .all(|line| client.try_call(line).is_ok_and(|n| n == Reply::Int(1)))
    }
}

impl Story {
    /// Fails the test unless all fences from `new` are larger than all from `old`. Returns the
    /// number of each.
    #[track_caller]
    pub fn assert_fences_grow(&self, old: u16, new: u16) -> (usize, usize) {
        let of = |port| self.grants.iter().filter(move |grant| grant.port == port);
        let last = of(old).max_by_key(|grant| grant.fence).expect("a grant");
        // A repeated request may return the fence that the old server gave.
        let mut fresh = of(new).filter(|grant| !grant.again).peekable();
        assert!(fresh.peek().is_some(), "nothing was granted anew");
        for grant in fresh {
            assert!(grant.fence > last.fence, "{grant:?} after {last:?}");
        }
        // The same hold keeps its fence. No two holds share one except readers granted with one
        // token.
        let mut by_fence = BTreeMap::new();
        for grant in &self.grants {
            let before = by_fence.insert(grant.fence, grant);
            assert!(before.is_none(), "{grant:?} and {before:?}");
        }
        (of(old).count(), of(new).count())
    }

    /// Fails the test if two clients held one lock at the same time. `lost` decides for which holds
    /// this is expected.
    #[track_caller]
    pub fn assert_one_holder(&self, lost: impl Fn(&Grant) -> bool) {
        let mut grants: Vec<_> = self.grants.iter().filter(|grant| !lost(grant)).collect();
        grants.sort_by_key(|grant| grant.from);
        for (n, one) in grants.iter().enumerate() {
            for other in &grants[n + 1..] {
                let apart = other.key != one.key || other.from > one.until;
                let both_read = one.shared && other.shared;
                assert!(apart || both_read, "{one:?} and {other:?}");
            }
        }
        for grant in &grants {
            assert!(grant.kept, "{grant:?} was lost");
        }
    }

    /// Fails the test if a server granted a request that was sent after this instant.
    #[track_caller]
    pub fn assert_nothing_granted(&self, by: u16, after: Instant) {
        let late = self.grants.iter().find(|g| g.port == by && g.asked > after);
        assert!(late.is_none(), "{late:?}");
    }
}
