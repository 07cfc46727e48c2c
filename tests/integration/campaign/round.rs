//! A round: three servers under load, a fault, and the first new grant after it.
//!
//! The record says `quiet` when all faults have ended, and `over` when clients begin no more work.

use std::fs::{self, OpenOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::RngExt;

use super::clients::{Caller, Scene, Worker, CLIENTS};
use super::journal::Journal;
use super::plan::{Fault, Lag, Mode, Plan};
use crate::harness::{aof, wait_for, Client, Clock, Reply, Server, Setup};

/// Nobody listens there.
const NOWHERE: u16 = 1;

struct Driver<'s, 'p> {
    scene: &'s Scene<'p>,
    servers: Vec<Server>,
    /// That of the first server.
    clock: Clock,
    random: StdRng,
}

pub fn play(plan: &Plan, journal: &Journal) {
    journal.note_at(0, "driver", 0, "round", &plan.told());
    let clock = Clock::ahead_by_us(0);
    let servers = start(plan, &clock);
    let scene = &Scene::new(plan, journal, servers[0].port);
    thread::scope(|scope| {
        // Also if something here fails, because the scope waits for the clients.
        let _over = Over(&scene.is_over);
        for number in 0..CLIENTS {
            scope.spawn(move || Worker::new(scene, number).live());
        }
        scope.spawn(|| scene.watch());
        let mut driver = Driver {
            scene,
            servers,
            clock,
            random: plan.random(0),
        };
        driver.pause(300..700);
        let primary = driver.fail_over();
        driver.note(primary, "quiet", "");
        driver.await_grant(primary);
        // Everybody else is served, too.
        driver.pause(600..1_200);
        driver.note(primary, "over", "");
    });
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A primary and two replicas, whose guards are open.
fn start(plan: &Plan, clock: &Clock) -> Vec<Server> {
    let options = plan.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let start = |number| {
        let setup = Setup::with_module(&options);
        let is_set = number == 0 && plan.fault == Fault::ClockStep;
        let setup = if is_set {
            setup.with_clock(clock)
        } else {
            setup
        };
        Server::start_as(plan.kind, setup)
    };
    let servers: Vec<_> = (0..3).map(start).collect();
    let first = if plan.fault == Fault::Empty {
        NOWHERE
    } else {
        servers[0].port
    };
    follow(&servers[1], first);
    follow(&servers[2], servers[0].port);
    // Those of the replicas end at the same time.
    let mut c = servers[0].client();
    let start = Instant::now();
    while !["open", "off"].contains(&&c.info("lock_guard")[..]) {
        assert!(start.elapsed() < Duration::from_secs(20), "it stays closed");
        sleep(Duration::from_millis(20));
    }
    if first != NOWHERE {
        servers[1].wait_until_link_is_up();
    }
    servers[2].wait_until_link_is_up();
    servers
}

fn follow(server: &Server, port: u16) {
    let line = format!("REPLICAOF 127.0.0.1 {port}");
    server.client().text(&line);
}

impl Driver<'_, '_> {
    fn pause(&mut self, ms: std::ops::Range<u64>) {
        sleep(Duration::from_millis(self.random.random_range(ms)));
    }

    fn note(&self, server: usize, what: &str, text: &str) {
        let port = self.servers[server].port;
        self.scene.journal.note("driver", port, what, text);
    }

    /// Answers the next primary.
    fn fail_over(&mut self) -> usize {
        let plan = self.scene.plan;
        match plan.fault {
            Fault::RestartEmpty | Fault::RestartRdb | Fault::RestartAof => self.restart(),
            Fault::Calm => {
                self.pause(2_000..4_000);
                self.is_promoted(0);
            }
            Fault::Paused => {
                let longest_ms = 2 * plan.max_ttl_ms;
                self.note(0, "stop", "");
                self.servers[0].signal("STOP");
                self.pause(plan.max_ttl_ms / 2..longest_ms);
                self.servers[0].signal("CONT");
                self.is_promoted(0);
            }
            Fault::ClockStep => {
                let ahead_ms = match self.random.random() {
                    true => self.random.random_range(500..3_600_000),
                    false => -self.random.random_range(100..1_000),
                };
                self.note(0, "clock", &ahead_ms.to_string());
                self.clock.set_ahead_by_us(ahead_ms * 1_000);
                self.is_promoted(0);
            }
            Fault::Behind => self.fall_behind_and_die(0, 1),
            Fault::Twice => {
                self.fall_behind_and_die(0, 1);
                // Within C, also of the control.
                self.pause(50..plan.max_ttl_ms);
                // It may still load what the first one has.
                self.fall_behind_and_die(1, 2);
                self.come_back(0, 2);
            }
            Fault::Planned => {
                let to = self.servers[1].port;
                let line = format!("FAILOVER TO 127.0.0.1 {to} TIMEOUT 15000");
                self.servers[0].client().text(&line);
                let mut c = self.servers[1].client();
                wait_for("the replica to lead", || {
                    (c.info("role") == "master").then_some(())
                });
                self.is_promoted(1);
                follow(&self.servers[2], to);
            }
            Fault::Stopped => {
                self.unlink(1);
                // It reads this as soon as it goes on.
                let mut c = self.servers[0].client();
                self.pause(50..300);
                self.note(0, "stop", "");
                self.servers[0].signal("STOP");
                self.pause(0..200);
                let promoting = self.promote(1);
                self.pause_within_slack(promoting);
                self.note(0, "cont", "");
                self.servers[0].signal("CONT");
                self.demote(&mut c, 0, 1);
            }
            Fault::LivesOn => {
                self.unlink(1);
                self.pause(50..300);
                let mut c = self.servers[0].client();
                let promoting = self.promote(1);
                self.pause_within_slack(promoting);
                self.demote(&mut c, 0, 1);
            }
            Fault::Empty => {
                self.kill(0);
                self.promote(1);
            }
            Fault::CutOff => {
                self.unlink(1);
                self.unlink(2);
                self.pause(0..300);
                self.promote(1);
            }
        }
        match plan.fault {
            _ if plan.fault.is_restart() => 0,
            Fault::Twice => 2,
            _ => 1,
        }
    }

    fn restart(&mut self) {
        let dir = self.servers[0].dir().to_path_buf();
        let mut aof_len = 0;
        match self.scene.plan.fault {
            Fault::RestartRdb => {
                self.servers[0].client().text("SAVE");
            }
            Fault::RestartAof => aof_len = fs::metadata(last_part(&dir)).unwrap().len(),
            _ => {}
        }
        self.begin_to_lose();
        self.pause(50..400);
        self.kill(0);
        if aof_len > 0 {
            // It may end within a command.
            let len = aof_len + self.random.random_range(0..60);
            let file = OpenOptions::new().write(true).open(last_part(&dir));
            let file = file.unwrap();
            let whole = file.metadata().unwrap().len();
            file.set_len(len.min(whole)).unwrap();
        }
        self.pause(0..50);
        self.servers[0].start_again();
        self.is_promoted(0);
        for replica in 1..3 {
            follow(&self.servers[replica], self.servers[0].port);
        }
    }

    /// The replica lacks the newest grants, takes over when the primary has died, and the third
    /// server follows it.
    fn fall_behind_and_die(&mut self, primary: usize, replica: usize) {
        let lag = self.scene.plan.lag;
        let mut c = self.servers[replica].client();
        match lag {
            Lag::Unlinked => self.unlink(replica),
            Lag::Stopped => {
                self.note(replica, "stop", "");
                self.servers[replica].signal("STOP");
            }
            Lag::InFlight => {}
        }
        self.begin_to_lose();
        if lag != Lag::InFlight {
            self.pause(100..400);
        }
        self.kill(primary);
        if lag == Lag::Stopped {
            self.servers[replica].signal("CONT");
        }
        self.promote_by(&mut c, replica);
    }

    fn unlink(&mut self, replica: usize) {
        self.note(replica, "unlinked", "");
        follow(&self.servers[replica], NOWHERE);
        self.begin_to_lose();
    }

    fn begin_to_lose(&self) {
        self.scene.is_losing.store(true, Ordering::Relaxed);
    }

    fn kill(&mut self, server: usize) {
        self.note(server, "kill", "");
        self.servers[server].kill();
    }

    /// Starts a killed server as a replica.
    fn come_back(&mut self, server: usize, primary: usize) {
        self.servers[server].start_again();
        follow(&self.servers[server], self.servers[primary].port);
    }

    fn promote(&mut self, replica: usize) -> Instant {
        let mut c = self.servers[replica].client();
        self.promote_by(&mut c, replica)
    }

    fn promote_by(&mut self, c: &mut Client, replica: usize) -> Instant {
        self.note(replica, "promoting", "");
        let promoting = Instant::now();
        // Not while it loads.
        wait_for("the promotion", || {
            (c.call("REPLICAOF NO ONE") == Reply::Simple("OK".into())).then_some(())
        });
        self.is_promoted(replica);
        if replica != 2 {
            follow(&self.servers[2], self.servers[replica].port);
        }
        promoting
    }

    /// Notes which holds the new primary knows, and has the clients go there.
    fn is_promoted(&mut self, server: usize) {
        self.note(server, "promoted", "");
        let port = self.servers[server].port;
        self.scene.move_to(port);
        let mut c = self.servers[server].client();
        for key in c.call("KEYS *").items() {
            let key = String::from_utf8_lossy(key.as_bytes()).into_owned();
            let info = c.call(&format!("LOCK.INFO {key}"));
            // It is free, or no lock.
            if !matches!(info, Reply::Array(_) | Reply::Map(_)) {
                continue;
            }
            for holder in info.field("holders").items() {
                let token = String::from_utf8_lossy(holder.field("token").as_bytes()).into_owned();
                self.note(server, "knows", &token);
            }
        }
    }

    /// An old primary may go on for so long.
    fn pause_within_slack(&mut self, promoting: Instant) {
        let plan = self.scene.plan;
        let latest_ms = plan.mode.slack_ms().map(|ms| ms - 150);
        let latest_ms = latest_ms.unwrap_or(2 * plan.max_ttl_ms);
        let until = Duration::from_millis(self.random.random_range(0..latest_ms));
        sleep(until.saturating_sub(promoting.elapsed()));
    }

    /// From now on the old primary grants nothing.
    fn demote(&mut self, c: &mut Client, old: usize, new: usize) {
        if self.random.random_range(0..3) == 0 {
            self.kill(old);
        } else {
            c.text(&format!("REPLICAOF 127.0.0.1 {}", self.servers[new].port));
        }
        self.note(old, "demoted", "");
    }

    /// Waits at a lock that nobody has held.
    fn await_grant(&self, server: usize) {
        let patience = Duration::from_secs(25);
        let mut caller = Caller::new("probe".into(), self.scene.journal, patience);
        let ttl_ms = self.scene.plan.max_ttl_ms;
        let line = format!("LOCK.ACQUIRE fresh probe {ttl_ms} BLOCK 20000");
        let port = self.servers[server].port;
        thread::scope(|scope| {
            scope.spawn(|| self.await_majority(server));
            wait_for("the first grant", || {
                let reply = caller.ask(port, &line);
                matches!(reply, Some(Reply::Int(_))).then_some(())
            });
        });
    }

    /// Notes when the new primary has heard of a majority, from when on C counts.
    fn await_majority(&self, server: usize) {
        if self.scene.plan.mode != Mode::Quorum || !self.scene.plan.is_guarded {
            return;
        }
        let mut c = self.servers[server].client();
        wait_for("a majority", || {
            (c.info("lock_guard") != "alone").then_some(())
        });
        self.note(server, "heard", "");
    }
}

fn last_part(dir: &std::path::Path) -> std::path::PathBuf {
    aof::parts(dir).pop().expect("an append-only file")
}
