//! Servers that cannot reach one another, while clients reach all of them.
//!
//! Each server of a group has an address of its own, by which the others know it. The kernel drops
//! what goes from one to the other, by rules of a network namespace in which nothing else runs:
//! `make campaign` makes one. Clients use 127.0.0.1.

use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

const SERVERS: usize = 3;

/// Mended when it is dropped.
pub struct Partition {
    number: u8,
}

impl Partition {
    pub fn new() -> Self {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        let partition = Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
        };
        partition.mend();
        partition
    }

    /// Whether these rules can be made here, and concern nobody else.
    pub fn is_possible() -> bool {
        let rules = Command::new("ip").arg("rule").output();
        rules.is_ok_and(|rules| {
            let rules = String::from_utf8_lossy(&rules.stdout).into_owned();
            rules.starts_with("10:\tfrom all lookup local")
        })
    }

    pub fn address(&self, server: usize) -> String {
        format!("127.1.{}.{}", self.number, server + 1)
    }

    /// How a server is started that has its address.
    pub fn options(&self, server: usize) -> Vec<String> {
        let address = &*self.address(server);
        let words = [
            "--bind",
            address,
            "127.0.0.1",
            "--bind-source-addr",
            address,
        ];
        ["--protected-mode", "no"]
            .into_iter()
            .chain(words)
            .map(str::to_string)
            .collect()
    }

    /// Drops what the one sends to the other.
    pub fn cut(&self, from: usize, to: usize) {
        let (from, to) = (self.address(from), self.address(to));
        let status = Command::new("ip")
            .args(["rule", "add", "pref", "5", "from", &from, "to", &to])
            .arg("blackhole")
            .status();
        assert!(status.is_ok_and(|status| status.success()), "ip rule add");
    }

    pub fn mend(&self) {
        for from in 0..SERVERS {
            for to in 0..SERVERS {
                let (from, to) = (self.address(from), self.address(to));
                // There may be none.
                let rule = ["rule", "del", "pref", "5", "from", &from, "to", &to];
                Command::new("ip").args(rule).output().ok();
            }
        }
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.mend();
    }
}
