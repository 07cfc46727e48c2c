//! A million waiters without a connection (NOTIFY), on one key and on as many keys: they enter, are
//! granted, time out and are given up, and the server is emptied under them.

use std::thread;
use std::time::{Duration, Instant};

use crate::harness::Kind;
use crate::load::{key, token, Connection, Requests};
use crate::places::Keys;
use crate::report::Report;
use crate::scale::{kinds, sized, Cost, Scene, COLUMNS, MEASURE};
use crate::Run;

const WAITERS: usize = 1_000_000;
/// The longest wait for a million waiters to go.
const PATIENCE: Duration = Duration::from_secs(240);
/// The part of the waiters that a work is done to where each is asked for.
const PART: usize = 10;

/// The waiters of a server, on one key or on as many.
struct Crowd {
    scene: Scene,
    /// Receives all messages.
    subscriber: Connection,
    count: usize,
    queues: usize,
    /// How long they took to enter.
    entered_in: Duration,
    costs: Vec<(Cost, bool)>,
}

impl Crowd {
    fn form(kind: Kind, count: usize, keys: Keys) -> Self {
        let scene = Scene::start(kind);
        Self {
            subscriber: subscribe(&scene),
            scene,
            count,
            queues: if keys == Keys::One { 1 } else { count },
            entered_in: Duration::ZERO,
            costs: Vec::new(),
        }
    }

    fn measure(
        &mut self,
        what: &str,
        count: usize,
        messages: usize,
        work: impl FnOnce(&mut Scene),
    ) {
        let Self {
            scene, subscriber, ..
        } = self;
        let cost = scene.measure(what, count, |scene| {
            thread::scope(|scope| {
                let received = scope.spawn(|| subscriber.receive(messages).yes);
                work(scene);
                assert_eq!(received.join().unwrap(), messages);
            });
        });
        self.costs.push((cost, true));
    }

    /// All hold, or wait. The waiters are those from `queues` on.
    fn hold(&mut self) {
        let (scene, queues) = (&mut self.scene, self.queues);
        scene.send(queues, |n| {
            format!("LOCK.ACQUIRE {} {} 60000000", key(n), token(n))
        });
    }

    fn enter(&mut self, command: &str, timeout_ms: impl Fn(usize) -> u128) {
        let queues = self.queues;
        self.scene.send(self.count, |n| {
            let (key, token, ms) = (key(n % queues), token(queues + n), timeout_ms(n));
            format!("{command} {key} {token} 60000000 NOTIFY {ms} grants")
        });
        assert_eq!(self.waiters(), self.count);
    }

    fn waiters(&mut self) -> usize {
        waiters(&mut self.scene)
    }

    fn ask(&mut self, line: &str) {
        self.measure(line, 1, 0, |scene| drop(scene.fixture.control.call(line)));
    }

    /// Nobody waits, and nothing is held.
    fn empty(&mut self) {
        let queues = self.queues;
        let waiting = self.waiters();
        if waiting > 0 {
            thread::scope(|scope| {
                let subscriber = &mut self.subscriber;
                scope.spawn(move || subscriber.receive(waiting));
                self.scene
                    .send(queues, |n| format!("LOCK.CANCEL {}", key(n)));
                wait_until(&mut self.scene, |scene| waiters(scene) == 0);
            });
        }
        self.scene.send(1, |_| "FLUSHALL SYNC".into());
    }
}

fn subscribe(scene: &Scene) -> Connection {
    let mut subscriber = Connection::to(scene.fixture.server.port);
    subscriber.send(Requests::of(["SUBSCRIBE grants".into()]).bytes());
    assert_eq!(subscriber.receive(1).yes, 1);
    subscriber
}

fn waiters(scene: &mut Scene) -> usize {
    scene.fixture.control.info("lock_waiters").parse().unwrap()
}

fn wait_until(scene: &mut Scene, condition: impl Fn(&mut Scene) -> bool) {
    let begin = Instant::now();
    while !condition(scene) {
        assert!(begin.elapsed() < PATIENCE, "they do not go");
        thread::sleep(Duration::from_millis(20));
    }
}

pub fn measure(with: &Run) {
    let title = "1,000,000 waiters without a connection";
    let mut report = Report::new("scale-waiters", title, with.quick);
    report.say(MEASURE);
    let count = sized(with, WAITERS);
    let mut rows = Vec::new();
    for kind in kinds(with) {
        for keys in [Keys::One, Keys::Own] {
            let mut crowd = Crowd::form(kind, count, keys);
            come_and_go(&mut crowd, keys);
            for (cost, is_ours) in &crowd.costs {
                cost.figures(&mut report, kind, keys.name(), *is_ours);
                rows.push(cost.row(kind, keys.name()));
            }
        }
    }
    report.say(&format!(
        "{count} waiters have one channel, and are on one key, or each on a key of its own. FLUSHALL of as many strings shows what is the server's own."
    ));
    report.table(&COLUMNS, &rows);
    report.write();
}

fn come_and_go(crowd: &mut Crowd, keys: Keys) {
    let (count, queues) = (crowd.count, crowd.queues);
    crowd.scene.send(4_096, |_| "PING".into());
    if keys == Keys::Own {
        strings(crowd);
    }
    crowd.hold();
    // They enter.
    let line = |n: usize| {
        let (key, token) = (key(n % queues), token(queues + n));
        format!("LOCK.ACQUIRE {key} {token} 60000000 NOTIFY 0 grants")
    };
    let begin = Instant::now();
    crowd.measure("enter", count, 0, |scene| scene.send(count, line));
    crowd.entered_in = begin.elapsed();
    assert_eq!(crowd.waiters(), count);
    for line in ["LOCK.INFO", "LOCK.TOP", "LOCK.LOG", "INFO"] {
        match line {
            "LOCK.INFO" => {
                crowd.ask(&format!("LOCK.INFO {}", key(0)));
                crowd.ask(&format!("LOCK.INFO {} WAITERS {WAITERS}", key(0)));
            }
            "INFO" => crowd.ask("INFO everything"),
            line => {
                crowd.ask(line);
                crowd.ask(&format!("{line} {WAITERS}"));
            }
        }
    }
    // Some are granted: the holder releases, and on one key the one who was granted as well.
    let some = count / PART;
    crowd.measure("granted", some, some, |scene| {
        scene.send(some, |n| {
            format!("LOCK.RELEASE {} {}", key(n % queues), token(n))
        });
    });
    // The place of a token, anywhere in the queue.
    let anywhere = |n: usize| count - 1 - n * (PART - 2);
    crowd.measure("given up, each by LOCK.CANCEL", some, some, |scene| {
        scene.send(some, |n| {
            let n = anywhere(n);
            format!(
                "LOCK.CANCEL {} TOKEN {}",
                key(n % queues),
                token(queues + n)
            )
        });
    });
    let left = crowd.waiters();
    assert_eq!(left, count - 2 * some);
    if keys == Keys::One {
        crowd.measure("given up, all by one LOCK.CANCEL", left, left, |scene| {
            scene.send(1, |_| format!("LOCK.CANCEL {}", key(0)));
            wait_until(scene, |scene| waiters(scene) == 0);
        });
    }
    crowd.empty();
    time_out(crowd);
    flush(crowd);
    if keys == Keys::One {
        readers(crowd);
    }
    unheard(crowd);
    demotion(crowd);
}

/// As many strings, for comparison.
fn strings(crowd: &mut Crowd) {
    let count = crowd.count;
    let set = |n: usize| format!("SET {} {} NX PX 60000000", key(n), token(n));
    let costs = [
        crowd
            .scene
            .measure("SET, strings", count, |scene| scene.send(count, set)),
        crowd.scene.measure("FLUSHALL, strings", count, |scene| {
            scene.send(1, |_| "FLUSHALL SYNC".into());
        }),
    ];
    crowd.costs.extend(costs.map(|cost| (cost, false)));
}

/// All time out within one second.
fn time_out(crowd: &mut Crowd) {
    let count = crowd.count;
    crowd.hold();
    // The machine may have more to do than before.
    let headroom = 3 * crowd.entered_in + Duration::from_secs(2);
    let first = Instant::now() + headroom;
    crowd.enter("LOCK.ACQUIRE", |n| {
        let left = first.saturating_duration_since(Instant::now());
        left.as_millis().max(1) + (n * 7919 % 1000) as u128
    });
    thread::sleep(first.saturating_duration_since(Instant::now()));
    crowd.measure("time out within 1 s", count, count, |scene| {
        wait_until(scene, |scene| waiters(scene) == 0);
    });
    crowd.empty();
}

/// FLUSHALL: whoever is first at its key is granted it.
fn flush(crowd: &mut Crowd) {
    let (count, queues) = (crowd.count, crowd.queues);
    crowd.hold();
    crowd.enter("LOCK.ACQUIRE", |_| 0);
    crowd.measure("FLUSHALL", count, queues, |scene| {
        scene.send(1, |_| "FLUSHALL SYNC".into());
        wait_until(scene, |scene| waiters(scene) == count - queues);
    });
    // The server itself frees all keys in one turn, and then the memory of those before.
    crowd.costs.last_mut().unwrap().1 = false;
    crowd.empty();
}

/// Readers wait for a writer, and are all granted by its release.
fn readers(crowd: &mut Crowd) {
    let count = crowd.count;
    crowd.hold();
    crowd.enter("RWLOCK.RLOCK", |_| 0);
    crowd.measure("granted at once, all readers", count, count, |scene| {
        scene.send(1, |_| format!("LOCK.RELEASE {} {}", key(0), token(0)));
        wait_until(scene, |scene| waiters(scene) == 0);
    });
    crowd.empty();
}

/// The one who listens is gone.
fn unheard(crowd: &mut Crowd) {
    let count = crowd.count;
    crowd.hold();
    crowd.enter("LOCK.ACQUIRE", |_| 0);
    crowd.subscriber = Connection::to(crowd.scene.fixture.server.port);
    let none = "PUBSUB NUMSUB grants";
    wait_until(&mut crowd.scene, |scene| {
        scene.fixture.control.call(none).items()[1].as_int() == 0
    });
    crowd.measure("end, because nobody listens", count, 0, |scene| {
        scene.send(1, |_| format!("LOCK.RELEASE {} {}", key(0), token(0)));
        wait_until(scene, |scene| waiters(scene) == 0);
    });
}

/// The server becomes a replica, and sends all waiters away.
fn demotion(crowd: &mut Crowd) {
    let count = crowd.count;
    crowd.subscriber = subscribe(&crowd.scene);
    crowd.hold();
    crowd.enter("LOCK.ACQUIRE", |_| 0);
    crowd.measure("sent away by REPLICAOF", count, count, |scene| {
        scene.send(1, |_| "REPLICAOF 127.0.0.1 1".into());
        wait_until(scene, |scene| waiters(scene) == 0);
    });
    crowd.scene.fixture.control.call("REPLICAOF NO ONE");
    crowd.empty();
}
