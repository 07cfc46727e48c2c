//! Whoever disturbs clients, locks and the server at random, and whoever looks at all locks.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::plan::Fault;
use super::wire::{Field, Wire, PATIENCE};
use crate::harness::{now_ms, Info, Reply};

/// Looks at all locks, again and again.
pub fn watch(field: &Field<'_>) {
    let mut wire = None;
    while !field.is_over() {
        sleep(Duration::from_millis(1));
        wire = wire.or_else(|| field.open());
        let is_there = wire
            .as_mut()
            .is_some_and(|wire| field.look(wire, "pulse").is_ok());
        if !is_there {
            wire = None;
        }
    }
}

pub struct Operator<'f> {
    field: &'f Field<'f>,
    fault: Fault,
    random: StdRng,
    wire: Wire,
}

impl<'f> Operator<'f> {
    pub fn new(field: &'f Field<'f>, fault: Fault) -> Self {
        Self {
            field,
            fault,
            random: StdRng::seed_from_u64(field.seed),
            wire: field.open().expect("a server"),
        }
    }

    pub fn disturb(mut self) {
        while !self.field.is_over() {
            sleep(Duration::from_micros(self.random.random_range(500..15_000)));
            match self.random.random_range(0..100) {
                0..15 => self.hand_on_to_the_dead(),
                _ => self.strike(),
            }
        }
    }

    fn any_key(&mut self) -> String {
        self.field.keys[self.random.random_range(0..self.field.keys.len())].clone()
    }

    fn strike(&mut self) {
        let (key, other) = (self.any_key(), self.any_key());
        let ms: u64 = self.random.random_range(1..40);
        let at = |ms: u64| now_ms() + ms as i64;
        let flush = [
            "FLUSHALL",
            "FLUSHALL ASYNC",
            "FLUSHDB SYNC",
            "FLUSHDB ASYNC",
        ];
        let line = match self.random.random_range(0..100) {
            _ if self.fault == Fault::Flushed && ms < 6 => flush[ms as usize % 4].into(),
            _ if self.fault == Fault::Flushed && ms < 10 => "SWAPDB 0 1".into(),
            0..=24 => {
                let victim = self.any_victim();
                self.any_strike(victim)
            }
            25..=29 => format!("LOCK.CANCEL {key}"),
            30..=39 => format!("DEBUG SLEEP 0.0{:02}", ms / 2),
            40..=54 => format!("DEL {key}"),
            55..=59 => format!("UNLINK {key}"),
            60..=74 => format!("PEXPIREAT {key} {}", at(ms)),
            75..=79 => format!("PEXPIREAT {key} {}", at(100_000)),
            80..=84 => format!("PERSIST {key}"),
            85..=89 => format!("RENAME {key} away"),
            90..=91 if key != other => format!("RENAME {key} {other}"),
            92..=95 => format!("CLIENT PAUSE {ms} ALL"),
            _ => format!("CLIENT PAUSE {ms} WRITE"),
        };
        self.send(&[("op", &line)], &[&key, &other]);
    }

    /// Releases a lock for its holder, and strikes at the client that is granted, in one step.
    fn hand_on_to_the_dead(&mut self) {
        let key = self.any_key();
        let shown = self.look_at(&key);
        let (Some(holder), Some(head)) = (shown.holders.first(), shown.waiters.first()) else {
            return;
        };
        let victim = self.connection_of(&head.token);
        let release = format!("LOCK.RELEASE {key} {}", holder.token);
        let strike = self.any_strike(victim);
        self.send(&[("op", &release), ("op-at-once", &strike)], &[&key]);
    }

    fn look_at(&mut self, key: &str) -> Info {
        let raw = &mut self.wire.raw;
        raw.send_together(&[&["LOCK.INFO", key]]).unwrap();
        Info::of(&raw.reply(PATIENCE).unwrap())
    }

    /// Where any client listens, or one with waiters behind it.
    fn any_victim(&mut self) -> i64 {
        if self.random.random_bool(0.7) {
            let key = self.any_key();
            if let Some(head) = self.look_at(&key).waiters.first() {
                return self.connection_of(&head.token);
            }
        }
        let any = self.random.random_range(0..self.field.connections.len());
        self.field.connections[any].load(Ordering::Relaxed)
    }

    /// That of the client which has made a token.
    fn connection_of(&self, token: &str) -> i64 {
        let number = token
            .split('.')
            .next()
            .and_then(|number| number.parse().ok());
        let number: usize = number.expect("the number of a client");
        self.field.connections[number].load(Ordering::Relaxed)
    }

    fn any_strike(&mut self, victim: i64) -> String {
        match victim {
            0 => "PING".into(), // Not connected yet.
            _ if self.random.random_bool(0.66) => format!("CLIENT KILL ID {victim}"),
            _ => format!("CLIENT UNBLOCK {victim} ERROR"),
        }
    }

    /// Sends commands in one write, and waits for their replies.
    fn send(&mut self, requests: &[(&str, &str)], keys: &[&str]) {
        let field = self.field;
        let mut keys = keys.to_vec();
        keys.dedup();
        let ids = field.send_all(&mut self.wire, requests, 0, &keys);
        for (n, (id, (who, _))) in ids.iter().zip(requests).enumerate() {
            let keys = if n == 0 { &keys[..] } else { &[] };
            field.read_look(&mut self.wire, who, id, keys).unwrap();
            let text = match self.wire.raw.reply(PATIENCE).unwrap() {
                Reply::Int(number) => number.to_string(),
                Reply::Error(error) => error,
                other => format!("{other:?}"),
            };
            field.note(who, "reply", &text);
        }
    }
}
