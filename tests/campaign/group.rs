//! A primary and two replicas on loopback, of which the driver promotes one.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rand::RngExt;

use super::partition::Partition;
use super::plan::{Fault, Plan, CLOCKS_APART_MS};
use super::round::{Director, Stage};
use crate::harness::{disk, other_build, setting, Client, Clock, CutLink, Server, Setup};

/// Nobody listens there.
const NOWHERE: u16 = 1;

pub struct Group {
    pub servers: Vec<Server>,
    pub clocks: Vec<Clock>,
    /// How servers reach one another, if not by loopback.
    pub partition: Option<Partition>,
    /// Through these the replicas follow the first primary, if they are slow.
    links: Vec<CutLink>,
}

impl Stage for Group {
    fn start(plan: &Plan) -> Self {
        let mut random = plan.random(u64::from(u16::MAX));
        let partition = (plan.fault == Fault::Partition).then(Partition::new);
        let clocks: Vec<_> = (0..3).map(|_| Clock::ahead_by_us(0)).collect();
        if plan.fault == Fault::Speeds {
            for clock in &clocks {
                // Those of two servers differ by less than a second and by less than one percent.
                let most_us = CLOCKS_APART_MS as i64 * 1_000 / 2;
                clock.set_ahead_by_us(random.random_range(-most_us..most_us));
                clock.set_speed(random.random_range(-4_500..4_500));
            }
        }
        let start = |number: usize| {
            let mut options = plan.options();
            if let Some(partition) = &partition {
                options.extend(partition.options(number));
            }
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            let setup = match plan.fault {
                Fault::Upgrade => earlier_build(&options),
                _ => Setup::with_module(&options),
            };
            let setup = match plan.fault {
                Fault::ClockStep | Fault::Speeds => setup.with_clock(&clocks[number]),
                Fault::DiskFull => disk::without_signal(setup),
                _ => setup,
            };
            Server::start_as(plan.kind, setup)
        };
        let servers: Vec<_> = (0..3).map(start).collect();
        let links = match plan.fault {
            Fault::Slow => (1..3).map(|_| CutLink::to(servers[0].port)).collect(),
            _ => Vec::new(),
        };
        for link in &links {
            link.delay_ms(random.random_range(20..250));
        }
        let group = Self {
            servers,
            clocks,
            partition,
            links,
        };
        group.settle(plan);
        group
    }

    fn primary(&self) -> u16 {
        self.servers[0].port
    }

    fn fail_over(&mut self, director: &mut Director<'_, '_>) -> u16 {
        let next = self.play(director);
        self.servers[next].port
    }
}

/// What the servers have before an upgrade. A build without the guard does not know its settings.
fn earlier_build(options: &[&str]) -> Setup {
    match setting::<PathBuf>("CAMPAIGN_BEFORE") {
        Some(path) => {
            let of_server = options.iter().position(|option| option.starts_with("--"));
            let of_server = &options[of_server.unwrap_or(options.len())..];
            Setup::with_module_at(&path, of_server)
        }
        None => Setup::with_module_at(&other_build(), options),
    }
}

impl Group {
    /// Waits until the replicas follow and the guards are open.
    fn settle(&self, plan: &Plan) {
        match plan.fault {
            Fault::Empty => self.servers[1].follow_port(NOWHERE),
            _ => self.follow(1, 0),
        }
        self.follow(2, 0);
        if plan.fault == Fault::DiskFull {
            disk::leave_room_for_logs(&self.servers[0]);
        }
        // Those of the replicas end at the same time.
        self.await_guard(0);
        if plan.fault != Fault::Empty {
            self.servers[1].wait_until_link_is_up();
        }
        self.servers[2].wait_until_link_is_up();
    }

    pub fn await_guard(&self, server: usize) {
        let mut c = self.client(server);
        let start = Instant::now();
        // An earlier build may have none.
        let is_closed = |info: &str| {
            let mut lines = info.lines();
            let guard = lines.find_map(|line| line.strip_prefix("lock_guard:"));
            guard.is_some_and(|guard| !["open", "off"].contains(&guard))
        };
        while is_closed(&c.text("INFO lock")) {
            assert!(start.elapsed() < Duration::from_secs(20), "it stays closed");
            sleep(Duration::from_millis(20));
        }
    }

    pub fn client(&self, server: usize) -> Client {
        self.servers[server].client()
    }

    pub fn follow(&self, replica: usize, primary: usize) {
        let (address, mut port) = self.address(primary);
        match self.links.get(replica.wrapping_sub(1)) {
            Some(link) if primary == 0 => port = link.port,
            _ => {}
        }
        let line = format!("REPLICAOF {address} {port}");
        self.client(replica).text(&line);
    }

    /// By which other servers know it.
    pub fn address(&self, server: usize) -> (String, u16) {
        let address = match &self.partition {
            Some(partition) => partition.address(server),
            None => "127.0.0.1".into(),
        };
        (address, self.servers[server].port)
    }

    pub fn unlink(&self, director: &Director<'_, '_>, replica: usize) {
        self.note(director, replica, "unlinked", "");
        self.servers[replica].follow_port(NOWHERE);
        director.begin_to_lose();
    }

    pub fn note(&self, director: &Director<'_, '_>, server: usize, what: &str, text: &str) {
        director.note(self.servers[server].port, what, text);
    }

    pub fn kill(&mut self, director: &Director<'_, '_>, server: usize) {
        self.note(director, server, "kill", "");
        self.servers[server].kill();
    }

    /// The third server follows.
    pub fn promote(&self, director: &Director<'_, '_>, c: &mut Client, replica: usize) -> Instant {
        let promoting = director.promote(c, self.servers[replica].port);
        if replica != 2 {
            self.follow(2, replica);
        }
        promoting
    }
}
