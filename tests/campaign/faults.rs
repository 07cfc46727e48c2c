//! What happens to a group.

use std::fs::{self, OpenOptions};
use std::thread::sleep;
use std::time::Duration;

use rand::RngExt;

use super::group::Group;
use super::plan::{Fault, Lag, Mode, FRESH_MS, SLACK_MS};
use super::round::Director;
use crate::harness::{aof, disk, module, Client, Setup};

impl Group {
    /// Answers the next primary.
    pub fn play(&mut self, director: &mut Director<'_, '_>) -> usize {
        let plan = director.scene.plan;
        match plan.fault {
            Fault::RestartEmpty | Fault::RestartRdb | Fault::RestartAof => self.restart(director),
            Fault::DiskFull => self.fill_disk(director),
            Fault::Calm => {
                director.pause(2_000..4_000);
                director.is_promoted(self.servers[0].port);
            }
            Fault::Paused => self.stand_still(director),
            Fault::ClockStep => self.step_clock(director),
            Fault::Behind | Fault::Slow | Fault::Speeds => {
                self.fall_behind_and_die(director, 0, 1);
            }
            Fault::Config => {
                self.change_settings(director);
                self.fall_behind_and_die(director, 0, 1);
            }
            Fault::Twice => {
                self.fall_behind_and_die(director, 0, 1);
                // Within C, also of the control.
                director.pause(50..plan.max_ttl_ms);
                // It may still load what the first one has.
                self.fall_behind_and_die(director, 1, 2);
                self.servers[0].start_again();
                self.follow(0, 2);
            }
            Fault::Planned => self.hand_over(director),
            Fault::Upgrade => self.upgrade(director),
            Fault::Stopped => {
                self.unlink(director, 1);
                // It reads this as soon as it goes on.
                let mut c = self.client(0);
                director.pause(50..300);
                self.note(director, 0, "stop", "");
                self.servers[0].signal("STOP");
                director.pause(0..200);
                let promoting = self.promote(director, &mut self.client(1), 1);
                director.pause_within_slack(promoting);
                self.note(director, 0, "cont", "");
                self.servers[0].signal("CONT");
                self.demote(director, &mut c);
            }
            Fault::LivesOn => {
                self.unlink(director, 1);
                director.pause(50..300);
                let promoting = self.promote(director, &mut self.client(1), 1);
                director.pause_within_slack(promoting);
                self.demote(director, &mut self.client(0));
            }
            Fault::Partition => self.part(director),
            Fault::Empty => {
                self.kill(director, 0);
                self.promote(director, &mut self.client(1), 1);
            }
            Fault::CutOff => {
                self.unlink(director, 1);
                self.unlink(director, 2);
                director.pause(0..300);
                self.promote(director, &mut self.client(1), 1);
            }
            fault => unreachable!("{fault:?} is none of a group"),
        }
        match plan.fault {
            _ if plan.fault.is_restart() => 0,
            Fault::Twice => 2,
            _ => 1,
        }
    }

    fn restart(&mut self, director: &mut Director<'_, '_>) {
        let dir = self.servers[0].dir().to_path_buf();
        let mut aof_len = 0;
        match director.scene.plan.fault {
            Fault::RestartRdb => {
                self.client(0).text("SAVE");
            }
            Fault::RestartAof => aof_len = fs::metadata(last_part(&dir)).unwrap().len(),
            _ => {}
        }
        director.begin_to_lose();
        director.pause(50..400);
        self.kill(director, 0);
        if aof_len > 0 {
            // It may end within a command.
            let len = aof_len + director.random.random_range(0..60);
            let file = OpenOptions::new().write(true).open(last_part(&dir));
            let file = file.unwrap();
            let whole = file.metadata().unwrap().len();
            file.set_len(len.min(whole)).unwrap();
        }
        director.pause(0..50);
        self.start_as_primary(director);
    }

    fn start_as_primary(&mut self, director: &Director<'_, '_>) {
        self.servers[0].start_again();
        director.is_promoted(self.servers[0].port);
        for replica in 1..3 {
            self.follow(replica, 0);
        }
    }

    /// The append-only file cannot grow, and the server dies before anybody notices.
    fn fill_disk(&mut self, director: &mut Director<'_, '_>) {
        director.begin_to_lose();
        self.note(director, 0, "disk full", "");
        disk::fill_disk(&self.servers[0]);
        director.pause(100..1_500);
        self.kill(director, 0);
        self.start_as_primary(director);
    }

    fn stand_still(&mut self, director: &mut Director<'_, '_>) {
        let lease_ms = director.scene.plan.max_ttl_ms;
        self.note(director, 0, "stop", "");
        self.servers[0].signal("STOP");
        director.pause(lease_ms / 2..2 * lease_ms);
        self.servers[0].signal("CONT");
        director.is_promoted(self.servers[0].port);
    }

    fn step_clock(&mut self, director: &mut Director<'_, '_>) {
        let random = &mut director.random;
        let ahead_ms = match random.random() {
            true => random.random_range(500..3_600_000),
            false => -random.random_range(100..1_000),
        };
        self.note(director, 0, "clock", &ahead_ms.to_string());
        self.clocks[0].set_ahead_by_us(ahead_ms * 1_000);
        director.is_promoted(self.servers[0].port);
    }

    /// The replica lacks the newest grants, takes over when the primary has died, and the third
    /// server follows it.
    fn fall_behind_and_die(
        &mut self,
        director: &mut Director<'_, '_>,
        primary: usize,
        replica: usize,
    ) {
        let plan = director.scene.plan;
        // What is on a slow link has been sent, and is lost.
        let lag = match plan.fault {
            Fault::Slow => Lag::InFlight,
            _ => plan.lag,
        };
        let mut c = self.client(replica);
        match lag {
            Lag::Unlinked => self.unlink(director, replica),
            Lag::Stopped => {
                self.note(director, replica, "stop", "");
                self.servers[replica].signal("STOP");
            }
            Lag::InFlight => {}
        }
        director.begin_to_lose();
        if lag != Lag::InFlight || plan.fault == Fault::Slow {
            director.pause(100..400);
        }
        self.kill(director, primary);
        if lag == Lag::Stopped {
            self.servers[replica].signal("CONT");
        }
        self.promote(director, &mut c, replica);
    }

    /// Other modes and other leases while clients go on, and in the end those of the plan.
    fn change_settings(&self, director: &mut Director<'_, '_>) {
        let plan = director.scene.plan;
        for step in 0..4 {
            let mode = match step {
                3 => plan.mode,
                _ => [Mode::Restart, Mode::Failover, Mode::Quorum]
                    [director.random.random_range(0..3)],
            };
            let max_ttl_ms = match step {
                3 => plan.max_ttl_ms,
                _ => director.random.random_range(1_000..=plan.max_ttl_ms),
            };
            let setting = match plan.is_guarded {
                // A majority that is given up while it is closed makes `failover` wait, with its
                // slack. A longer lease that `quorum` begins with makes it wait, with what is fresh.
                true => format!(
                    "lock.guard-slack {SLACK_MS} lock.guard-fresh {FRESH_MS} lock.guard {} \
                     lock.max-ttl {max_ttl_ms}",
                    mode.name()
                ),
                false => format!("lock.max-ttl {max_ttl_ms}"),
            };
            for server in 0..3 {
                self.note(director, server, "settings", &setting);
                let line = format!("CONFIG SET {setting}");
                self.client(server).ok(&line);
            }
            director.pause(50..400);
        }
    }

    /// `FAILOVER`.
    fn hand_over(&mut self, director: &mut Director<'_, '_>) {
        let to = self.servers[1].port;
        let line = format!("FAILOVER TO 127.0.0.1 {to} TIMEOUT 15000");
        self.note(director, 0, "failover", "");
        self.client(0).text(&line);
        let mut c = self.client(1);
        c.until_info("role", "master");
        director.is_promoted(to);
        self.follow(2, 1);
    }

    /// The replicas first, then a planned failover, then the old primary.
    fn upgrade(&mut self, director: &mut Director<'_, '_>) {
        for replica in [1, 2] {
            self.start_upgraded(director, replica, 0);
            director.pause(50..300);
        }
        self.hand_over(director);
        // It does not start again within five seconds: docs/FAILOVER.md.
        sleep(Duration::from_millis(5_100));
        self.start_upgraded(director, 0, 1);
    }

    fn start_upgraded(&mut self, director: &Director<'_, '_>, server: usize, primary: usize) {
        self.note(director, server, "upgrade", "");
        let options = director.scene.plan.options();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let server_with_it = &mut self.servers[server];
        server_with_it.shut_down();
        server_with_it.start_again_as(Setup::with_module_at(&module(), &options));
        self.follow(server, primary);
        self.servers[server].wait_until_link_is_up();
    }

    /// Nothing goes from one server to the other, or nothing back, or both.
    fn part(&mut self, director: &mut Director<'_, '_>) {
        let ways = director.random.random_range(1..=3);
        self.note(director, 0, "parted", &ways.to_string());
        let partition = self.partition.as_ref().expect("addresses");
        for other in [1, 2] {
            if ways & 1 > 0 {
                partition.cut(0, other);
            }
            if ways & 2 > 0 {
                partition.cut(other, 0);
            }
        }
        director.begin_to_lose();
        director.pause(50..500);
        let promoting = self.promote(director, &mut self.client(1), 1);
        director.pause_within_slack(promoting);
        partition.mend();
        self.note(director, 0, "mended", "");
        self.demote(director, &mut self.client(0));
    }

    /// From now on the old primary grants nothing.
    fn demote(&mut self, director: &mut Director<'_, '_>, c: &mut Client) {
        if director.random.random_range(0..3) == 0 {
            self.kill(director, 0);
        } else {
            // By a connection that a server which stood still reads as soon as it goes on.
            let (address, port) = self.address(1);
            c.text(&format!("REPLICAOF {address} {port}"));
        }
        self.note(director, 0, "demoted", "");
    }
}

fn last_part(dir: &std::path::Path) -> std::path::PathBuf {
    aof::parts(dir).pop().expect("an append-only file")
}
