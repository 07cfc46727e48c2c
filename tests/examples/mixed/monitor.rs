//! The order in which a server received the commands for one lock, as MONITOR shows it.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Listens until the server ends.
pub struct Monitor(Arc<Mutex<Seen>>);

/// An acquisition from its request to its release.
#[derive(Clone)]
pub struct Turn {
    /// The number of the command that took the place in the queue, or the lock if it was free.
    pub arrived: usize,
    pub addresses: HashSet<String>,
}

/// A token that has asked and has not released.
#[derive(Clone, Default)]
pub struct Waiting {
    pub addresses: HashSet<String>,
    /// The commands that waited in the server.
    pub slices: usize,
    asked: usize,
    arrived: Option<usize>,
}

#[derive(Default)]
struct Seen {
    commands: usize,
    waiting: HashMap<String, Waiting>,
    /// In the order of the releases. The lock is exclusive, so that is the order of the grants.
    turns: Vec<Turn>,
}

impl Monitor {
    pub fn of(port: u16, lock: &'static str) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        let mut lines = BufReader::new(stream);
        lines.get_mut().write_all(b"MONITOR\r\n").unwrap();
        let mut answer = String::new();
        lines.read_line(&mut answer).unwrap();
        assert_eq!(answer.trim_end(), "+OK");
        let seen = Arc::new(Mutex::new(Seen::default()));
        thread::spawn({
            let seen = Arc::clone(&seen);
            move || {
                for line in lines.lines().map_while(Result::ok) {
                    seen.lock().unwrap().read(&line, lock);
                }
            }
        });
        Self(seen)
    }

    pub fn turns(&self) -> Vec<Turn> {
        self.0.lock().unwrap().turns.clone()
    }

    pub fn waiting(&self) -> Vec<Waiting> {
        self.0.lock().unwrap().waiting.values().cloned().collect()
    }
}

impl Seen {
    /// Reads `+1700000000.000000 [0 127.0.0.1:50000] "LOCK.ACQUIRE" "key" "token" …`.
    fn read(&mut self, line: &str, lock: &str) {
        let Some((head, command)) = line.split_once("] ") else {
            return;
        };
        let address = head.rsplit(' ').next().unwrap_or_default();
        let words: Vec<_> = command
            .split(' ')
            .map(|word| word.trim_matches('"'))
            .collect();
        let [name, key, token, options @ ..] = words.as_slice() else {
            return;
        };
        if *key != lock {
            return;
        }
        self.commands += 1;
        match name.to_ascii_uppercase().as_str() {
            "LOCK.ACQUIRE" => self.asked(address, token, options),
            "LOCK.RELEASE" => self.released(token),
            _ => {}
        }
    }

    fn asked(&mut self, address: &str, token: &str, options: &[&str]) {
        let has = |name: &str| {
            options
                .iter()
                .any(|option| option.eq_ignore_ascii_case(name))
        };
        let waits = has("BLOCK") || has("NOTIFY");
        let waiting = self.waiting.entry(token.to_string()).or_default();
        waiting.addresses.insert(address.to_string());
        waiting.slices += usize::from(waits);
        // Without these words it has no place unless it is granted at once.
        waiting.asked = self.commands;
        if waits || has("KEEP") {
            waiting.arrived.get_or_insert(self.commands);
        }
    }

    fn released(&mut self, token: &str) {
        if let Some(waiting) = self.waiting.remove(token) {
            self.turns.push(Turn {
                arrived: waiting.arrived.unwrap_or(waiting.asked),
                addresses: waiting.addresses,
            });
        }
    }
}
