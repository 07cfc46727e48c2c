//! The guard where three real sentinels decide who leads. What they and the replicas send to a
//! server goes through a link of its own, and what clients send does not.

use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{figure, wait_for, Client, Kind, Reply, SentinelGroup};

on_servers![
    [redis_7_0 Redis7_0 "nightly", valkey_9 Valkey9 "nightly"]
    sentinels_promote_and_no_two_clients_believe,
];
on_servers![[valkey_9 Valkey9 "nightly"] a_coordinated_failover_of_sentinels_is_over_soon];

const LEASE: Duration = Duration::from_millis(2_000);
const FRESH: Duration = Duration::from_millis(1_000);
/// How late anything may be on a busy machine.
const LATE: Duration = Duration::from_millis(2_000);
const FAILOVER: [&str; 6] = ["guard", "failover", "max-ttl", "2000", "guard-slack", "500"];
const QUORUM: [&str; 6] = ["guard", "quorum", "max-ttl", "2000", "guard-fresh", "1000"];
/// C of the two.
const AFTER_FAILOVER: Duration = Duration::from_millis(2_500);
const IN_QUORUM: Duration = Duration::from_millis(3_120);

/// A replica that leads now.
struct Promoted {
    server: usize,
    /// When it did not lead yet, and when it did.
    between: (Instant, Instant),
}

impl SentinelGroup {
    /// Takes a lock of which nobody else hears, because the primary is cut off. Answers when it was
    /// asked for.
    fn take_and_lose(&self, primary: usize, key: &str, ttl: Duration) -> Instant {
        let mut c = self.client(primary);
        self.links[primary].stall();
        let sent = Instant::now();
        c.int(&format!("LOCK.ACQUIRE {key} first {}", ttl.as_millis()));
        sent
    }

    /// Waits until another server leads, by its own word. All did not before `last`.
    fn wait_for_another_than(&self, old: usize, mut last: Instant) -> Promoted {
        let others = || (0..self.servers.len()).filter(|n| *n != old);
        self.sentinels.wait_for("a promotion", || {
            let begun = Instant::now();
            let server = others().find(|n| self.leads(*n));
            if server.is_none() {
                last = begun;
            }
            Some(Promoted {
                server: server?,
                between: (last, Instant::now()),
            })
        })
    }

    /// Asks the new primary for a lock until it is granted. Sentinels that disagree may promote one
    /// more, and demote the first.
    fn grant(&self, old: usize, key: &str, wait: Duration, last: Instant) -> (Promoted, Instant) {
        loop {
            let new = self.wait_for_another_than(old, last);
            if let Some(at) = new.grant(self, key, wait) {
                return (new, at);
            }
        }
    }

    /// Waits until everybody knows the new primary and follows it, and its guard is open.
    fn settle(&self, primary: usize, replicas: usize) {
        let port = self.links[primary].port;
        self.sentinels.wait_for("the new address", || {
            (self.sentinels.primary() == port).then_some(())
        });
        self.sentinels.wait_for("all to follow", || {
            let online = |n| {
                let replica = self.info(primary, &format!("slave{n}"));
                replica.is_some_and(|replica| replica.contains("state=online"))
            };
            (0..replicas).all(online).then_some(())
        });
        self.sentinels.wait_until_settled(replicas);
        self.client(primary).until_info("lock_guard", "open");
    }
}

impl Promoted {
    /// Asks it for a lock until that is granted, and answers when that was: neither before C, nor
    /// long after it. `None` if it leads no more.
    fn grant(&self, group: &SentinelGroup, key: &str, wait: Duration) -> Option<Instant> {
        let guard = || group.info(self.server, "lock_guard");
        // Where a majority decides, C begins with the first replica that follows.
        let mut begins = self.between;
        wait_for("the first replica", || {
            let begun = Instant::now();
            match &guard()?[..] {
                "promotion" => return Some(()),
                _ if !group.leads(self.server) => return Some(()),
                "alone" => begins.0 = begun,
                _ => {} // It has not heard of its promotion yet.
            }
            begins.1 = Instant::now();
            None
        });
        let line = format!("LOCK.ACQUIRE {key} second 2000 BLOCK 20000");
        let server = &group.servers[self.server];
        let at = loop {
            match server.later(&line).end() {
                Some((Reply::Int(_), _)) => break Instant::now(),
                Some((other, _)) => {
                    assert!(!group.leads(self.server), "{other:?}\n{}", server.log());
                    return None;
                }
                None => {}
            }
        };
        assert!(at - begins.0 > wait, "{:?}", at - begins.0);
        assert!(at - begins.1 < wait + LATE, "{:?}", at - begins.1);
        Some(at)
    }
}

fn sentinels_promote_and_no_two_clients_believe(kind: Kind) {
    // All at once, because most of the time is spent waiting.
    let said = thread::scope(|scope| {
        let all = [failover, quorum, quorum_and_crash, control]
            .map(|story| scope.spawn(move || story(kind)));
        all.map(|story| story.join().unwrap())
    });
    said.iter().for_each(|what| figure(kind, what));
}

/// The sentinels have the primary itself hand over, so it comes back at once and lacks nothing.
fn a_coordinated_failover_of_sentinels_is_over_soon(kind: Kind) {
    for options in [FAILOVER, QUORUM] {
        let group = SentinelGroup::start(kind, &options);
        let begun = Instant::now();
        group.sentinels.fail_over("COORDINATED");
        let new = group.wait_for_another_than(0, begun);
        wait_for("the end of the guard", || {
            (group.info(new.server, "lock_guard")? == "open").then_some(())
        });
        let pause = new.between.0.elapsed();
        assert!(pause < LATE, "{pause:?}");
        group.client(new.server).int("LOCK.ACQUIRE k me 2000");
    }
}

fn failover(kind: Kind) -> String {
    let mut group = SentinelGroup::start(kind, &FAILOVER);
    let (primary, planned) = planned(&group, 0, AFTER_FAILOVER);
    let killed = killed(&mut group, primary, AFTER_FAILOVER);
    format!("failover: {planned}; {killed}")
}

fn quorum(kind: Kind) -> String {
    let group = SentinelGroup::start(kind, &QUORUM);
    let (primary, planned) = planned(&group, 0, IN_QUORUM);
    format!("quorum: {planned}; {}", cut_off(&group, primary))
}

fn quorum_and_crash(kind: Kind) -> String {
    let mut group = SentinelGroup::start(kind, &QUORUM);
    format!("quorum: {}", killed(&mut group, 0, IN_QUORUM))
}

/// SENTINEL FAILOVER: nobody dies, and the old primary may grant for a moment yet.
fn planned(group: &SentinelGroup, old: usize, wait: Duration) -> (usize, String) {
    let begun = Instant::now();
    group.sentinels.fail_over("");
    let (last, promoted) = group.wait_for_another_than(old, begun).between;
    let sent = Instant::now();
    let mut c = group.client(old);
    let is_lost = matches!(c.call("LOCK.ACQUIRE planned first 2000"), Reply::Int(_));
    let (new, at) = group.grant(old, "planned", wait, last);
    assert!(!is_lost || at > sent + LEASE, "{:?}", at - sent);
    // It says when it granted something for the last time.
    group.sentinels.wait_for("the old primary to follow", || {
        (!group.leads(old)).then_some(())
    });
    let (pause, led) = (at - promoted, promoted.elapsed());
    group.settle(new.server, 2);
    let said = format!(
        "SENTINEL FAILOVER: {} ms without grants, the old primary led for {} ms more{}",
        pause.as_millis(),
        led.as_millis(),
        if is_lost { " and granted" } else { "" },
    );
    (new.server, said)
}

/// kill -9 right after a grant of which no replica knows.
fn killed(group: &mut SentinelGroup, old: usize, wait: Duration) -> String {
    let sent = group.take_and_lose(old, "killed", LEASE);
    group.servers[old].kill();
    let (new, at) = group.grant(old, "killed", wait, sent);
    assert!(at > sent + LEASE, "{:?}", at - sent);
    format!("kill -9: {}", said(&new, sent, at))
}

fn said(new: &Promoted, sent: Instant, at: Instant) -> String {
    let [promoted, granted] = [new.between.1, at].map(|at| (at - sent).as_millis());
    format!("promoted after {promoted} ms, granted after {granted} ms")
}

/// The old primary lives on with its clients, without its replicas and without the sentinels.
fn cut_off(group: &SentinelGroup, old: usize) -> String {
    let mut holder = group.client(old);
    let begun = group.take_and_lose(old, "cut-off", LEASE);
    let mut believes_until = begun + LEASE;
    let stopped = thread::scope(|scope| {
        let holder = scope.spawn(|| {
            wait_for("the old primary to stop", || {
                let sent = Instant::now();
                match holder.call("LOCK.RENEW cut-off first 2000") {
                    Reply::Int(1) => believes_until = sent + LEASE,
                    Reply::Error(error) if error.starts_with("TRYAGAIN") => return Some(sent),
                    other => panic!("{other:?}"),
                }
                None
            })
        });
        holder.join().unwrap()
    });
    assert!(stopped - begun < FRESH + LATE, "{:?}", stopped - begun);
    let refused = |c: &mut Client| c.call("LOCK.ACQUIRE free me 2000") == Reply::Nil;
    assert!(refused(&mut holder));
    let (new, at) = group.grant(old, "cut-off", IN_QUORUM, begun);
    assert!(at > believes_until, "{:?}", believes_until - at);
    assert!(refused(&mut holder) && group.leads(old));
    let stopped = (stopped - begun).as_millis();
    let said = said(&new, begun, at);
    format!("cut off: the old one stopped after {stopped} ms, {said}")
}

/// Without a guard two clients have the lock: of an old primary that lives on, and of one that dies,
/// too.
fn control(kind: Kind) -> String {
    let group = SentinelGroup::start(kind, &[]);
    let lease = Duration::from_secs(20);
    let sent = group.take_and_lose(0, "k", lease);
    let new = group.wait_for_another_than(0, sent);
    let second = || {
        let mut c = Client::try_connect(group.servers[new.server].port)?;
        c.try_call("LOCK.ACQUIRE k second 20000").ok()
    };
    let second = wait_for("a second grant", second);
    assert!(matches!(second, Reply::Int(_)), "{second:?}");
    let at = Instant::now();
    assert_eq!(group.client(0).int("LOCK.RENEW k first 20000"), 1);
    assert!(at < sent + lease, "{:?}", at - sent);
    format!("without a guard: {}", said(&new, sent, at))
}
