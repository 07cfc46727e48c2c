//! Workers of all languages and raw clients take one lock in turns: the adapters in `clients/` as
//! they are by default.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::fixture::kind;
use crate::harness::{Client, Server};

mod driver;
mod monitor;
mod raw;

use driver::{chosen, Driver};
use monitor::{Monitor, Turn};
use raw::RawClients;

const LOCK: &str = "lock:mixed";

const HOLD: Duration = Duration::from_millis(100);

/// The clients of each adapter. One waits while the other holds the lock.
const CLIENTS: usize = 2;

const RAW_CLIENTS: usize = 3;

/// The turns that each adapter takes with every client after all slices have ended.
const TURNS: usize = 3;

/// A virtual machine starts, or the longest slice ends: 30 s, that of Go.
const LIMIT: Duration = Duration::from_secs(90);

/// An adapter whose slice ends without `KEEP` goes to the end of the queue, and this test fails.
#[test]
fn workers_of_all_languages_are_served_in_order_of_arrival() {
    let adapters = chosen();
    let server = Server::start(kind());
    let mut field = Field::on(&server);
    // One after the other: the first takes the lock itself to warm up.
    for adapter in adapters {
        field.add_user(&adapter.name());
        field.drivers.push(Driver::start(adapter, server.port));
    }
    let raw = RawClients::start(server.port, RAW_CLIENTS);

    let _long = raw::ask(server.port, "long");
    field.wait_until("every adapter to wait for more than a slice", |field| {
        field.drivers.iter().all(|driver| {
            let sliced = |waiting: &monitor::Waiting| waiting.slices > 1;
            let waiting = field.waiting_of(&driver.name);
            waiting.len() == CLIENTS && waiting.iter().all(sliced)
        })
    });
    let before = field.monitor.turns().len();
    field.control.call(&format!("LOCK.RELEASE {LOCK} long"));
    field.wait_until("everybody to take turns", |field| {
        let turns = field.monitor.turns();
        let mut names: Vec<_> = field.drivers.iter().map(|d| d.name.as_str()).collect();
        names.push(raw::NAME);
        let taken = |name: &str| {
            let turns = turns[before..].iter();
            turns.filter(|turn| field.owner_of(turn) == name).count()
        };
        names.iter().all(|name| taken(name) >= TURNS * CLIENTS)
    });

    let turns = field.monitor.turns();
    for pair in turns.windows(2) {
        assert!(
            pair[0].arrived < pair[1].arrived,
            "{} was served before {}, which had come first:\n{}",
            field.owner_of(&pair[0]),
            field.owner_of(&pair[1]),
            field.story(&turns)
        );
    }
    println!("{}", field.summary(&turns));
    field.drivers.clear();
    drop(server);
    raw.join();
}

/// A server, those who contend for its lock, and what is seen of them.
struct Field {
    monitor: Monitor,
    control: Client,
    drivers: Vec<Driver>,
    /// The users of the connections, by address.
    users: HashMap<String, String>,
}

impl Field {
    fn on(server: &Server) -> Self {
        Self {
            monitor: Monitor::of(server.port, LOCK),
            control: server.client(),
            drivers: Vec::new(),
            users: HashMap::new(),
        }
    }

    /// Each adapter is a user of its own, which tells its connections from those of others.
    fn add_user(&mut self, name: &str) {
        let line = format!("ACL SETUSER {name} on nopass ~* &* +@all");
        assert_eq!(self.control.text(&line), "OK");
    }

    #[track_caller]
    fn wait_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        loop {
            self.learn_users();
            if condition(self) {
                return;
            }
            for driver in &mut self.drivers {
                driver.assert_runs();
            }
            assert!(
                start.elapsed() < LIMIT,
                "waited in vain for {what}:\n{}",
                self.story(&self.monitor.turns())
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn learn_users(&mut self) {
        for line in self.control.text("CLIENT LIST").lines() {
            let field = |name: &str| {
                let mut words = line.split(' ');
                words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
            };
            if let (Some(address), Some(user)) = (field("addr"), field("user")) {
                self.users.insert(address.to_string(), user.to_string());
            }
        }
    }

    fn user_of(&self, addresses: &HashSet<String>) -> &str {
        let mut users = addresses
            .iter()
            .filter_map(|address| self.users.get(address));
        users.next().map_or("?", String::as_str)
    }

    fn owner_of(&self, turn: &Turn) -> &str {
        self.user_of(&turn.addresses)
    }

    fn waiting_of(&self, name: &str) -> Vec<monitor::Waiting> {
        let mut waiting = self.monitor.waiting();
        waiting.retain(|waiting| self.user_of(&waiting.addresses) == name);
        waiting
    }

    /// The last turns: who took them, and when each had asked.
    fn story(&self, turns: &[Turn]) -> String {
        let tell = |turn: &Turn| {
            let owner = self.owner_of(turn);
            format!("  {owner}, asked by command {}", turn.arrived)
        };
        let last = turns.len().saturating_sub(60);
        let lines: Vec<_> = turns[last..].iter().map(tell).collect();
        lines.join("\n")
    }

    fn summary(&self, turns: &[Turn]) -> String {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for turn in turns {
            let owner = self.owner_of(turn);
            match counts.iter_mut().find(|(name, _)| *name == owner) {
                Some((_, count)) => *count += 1,
                None => counts.push((owner, 1)),
            }
        }
        let counts: Vec<_> = counts
            .iter()
            .map(|(n, count)| format!("{n} {count}"))
            .collect();
        format!("{} grants in order: {}", turns.len(), counts.join(", "))
    }
}
