//! The traffic of one server, from a seed: many clients on few locks, which they take in all ways,
//! hold for a moment and give up, properly or not.

use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::log::GUARDED;
use super::wire::{is_impatience, Field, Told, Wire, PATIENCE, SILENCE};
use crate::harness::Reply;

pub const CLIENTS: usize = 64;

/// The number of contended locks. A waiter of the others is woken only by a timer.
const HOT: usize = 4;

pub struct Client<'f> {
    field: &'f Field<'f>,
    number: usize,
    random: StdRng,
    wire: Option<Wire>,
    /// Where it hears of grants.
    ear: Option<Wire>,
    tokens: u64,
}

/// How long a request waits and where, and how long its place outlives it.
#[derive(Clone, Copy, Default)]
struct Stay {
    wait_ms: Option<u64>,
    keep_ms: Option<u64>,
    by_channel: bool,
}

/// A request without a reply yet.
struct Pending {
    who: String,
    wire: Wire,
    /// Where the end of its wait comes, and how long that may take.
    ear: Option<(Wire, Duration)>,
    token: String,
    keys: Vec<String>,
    id: String,
}

/// Locks with the modes that are asked for: the number of holders, 0 for any.
type Asked = Vec<(String, u32)>;

impl<'f> Client<'f> {
    pub fn new(field: &'f Field<'f>, number: usize) -> Self {
        Self {
            field,
            number,
            random: StdRng::seed_from_u64(field.seed ^ ((number as u64 + 1) << 32)),
            wire: None,
            ear: None,
            tokens: 0,
        }
    }

    pub fn live(mut self) {
        while !self.field.is_over() {
            self.tokens += 1;
            let token = format!("{}.{}", self.number, self.tokens);
            match self.random.random_bool(0.15) {
                true => self.take_several_and_give_up(&token),
                false => self.take_and_give_up(&token),
            }
            if self.wire.is_none() {
                // There may be no server for a moment.
                sleep(Duration::from_millis(1));
            }
        }
        self.leave();
    }

    fn is_one_of(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    fn any_key(&mut self) -> String {
        let all = self.field.keys.len();
        let key = match self.is_one_of(60) {
            true => self.random.random_range(0..HOT),
            false => self.random.random_range(HOT..all),
        };
        self.field.keys[key].clone()
    }

    fn any_mode(&mut self) -> u32 {
        match self.is_one_of(65) {
            true => self.random.random_range(0..2),
            false => self.random.random_range(1..5),
        }
    }

    fn take_and_give_up(&mut self, token: &str) {
        let (key, mode) = (self.any_key(), self.any_mode());
        let keep_ms = self.any_grace();
        if !self.take(vec![(key.clone(), mode)], token, keep_ms) {
            // Its place stays for its grace, unless it is given up.
            if keep_ms.is_some() && self.is_one_of(30) {
                self.release(&key, token);
            }
            return;
        }
        for _ in 0..self.random.random_range(0..3) {
            self.think();
            match self.random.random_range(0..14) {
                // Renewed, asked for again or converted, which may mean to wait.
                0..=3 => self.renew(&key, token),
                4..=5 => {
                    let line = self.acquire(&[(key.clone(), mode)], token, Stay::default(), None);
                    self.ask(&line, &[&key], token);
                }
                6..=9 => self.write_guarded(&key, token),
                _ => {
                    let other = self.any_mode();
                    self.take(vec![(key.clone(), other)], token, None);
                }
            }
        }
        self.think();
        match self.random.random_range(0..100) {
            0..=1 => {} // Forgotten: it expires.
            2..=6 => self.leave(),
            7..=11 => [(); 2].iter().for_each(|()| self.release(&key, token)),
            12..=19 => {
                self.release(&key, token);
                self.write_guarded(&key, token); // As an owner that is late.
            }
            _ => self.release(&key, token),
        }
    }

    /// Takes two or three locks at once, and then perhaps one more, which can close a cycle of waits.
    fn take_several_and_give_up(&mut self, token: &str) {
        let (mut asked, count) = (Asked::new(), self.random.random_range(2..4));
        while asked.len() < count {
            let key = self.any_key();
            if asked.iter().all(|(other, _)| *other != key) {
                asked.push((key, self.random.random_range(0..2)));
            }
        }
        let keep_ms = self.any_grace();
        if !self.take(asked.clone(), token, keep_ms) {
            if keep_ms.is_some() && self.is_one_of(30) {
                self.release(&asked[0].0, token);
            }
            return;
        }
        self.think();
        self.write_guarded(&asked[0].0, token);
        let other = self.any_key();
        if self.is_one_of(40) && asked.iter().all(|(key, _)| *key != other) {
            let mode = self.random.random_range(0..2);
            if self.take(vec![(other.clone(), mode)], token, None) {
                self.think();
                self.release(&other, token);
            }
        }
        if self.is_one_of(6) {
            return self.leave();
        }
        for (key, _) in &asked {
            if self.is_one_of(20) {
                self.renew(key, token);
            }
            self.think();
            self.release(key, token);
        }
    }

    /// Asks until it has the locks or gives up. With KEEP it waits in slices.
    fn take(&mut self, asked: Asked, token: &str, keep_ms: Option<u64>) -> bool {
        let wait_ms = match (keep_ms, self.random.random_range(0..100)) {
            (Some(_), _) => Some(self.random.random_range(0..30)).filter(|ms| *ms > 0),
            (_, 0..=14) => None,
            (_, 15..=34) => Some(0),
            (_, 35..=59) => Some(self.random.random_range(1..30)),
            _ => Some(self.random.random_range(1..600)),
        };
        let mut stay = Stay {
            wait_ms,
            keep_ms,
            // Nobody waits for ever by a channel: the server does not notice that a client has gone.
            by_channel: wait_ms.is_some_and(|ms| ms > 0) && self.is_one_of(35),
        };
        for _ in 0..if keep_ms.is_some() { 6 } else { 3 } {
            let vanishes = self.is_one_of(if stay.by_channel { 20 } else { 10 });
            let patience = match vanishes {
                true => Duration::from_micros(self.random.random_range(0..30_000)),
                false => PATIENCE,
            };
            let told = self.ask_for(&asked, token, stay, patience);
            match told {
                Told::Number => return true,
                Told::Gone => {}
                // It has a place, and asks again.
                Told::Nil if stay.keep_ms.is_some() => {
                    self.think();
                    if self.is_one_of(20) {
                        stay.keep_ms = None;
                    }
                }
                _ => return false,
            }
            let gives_up = self.is_one_of(if stay.keep_ms.is_some() { 15 } else { 40 });
            if self.field.is_over() || gives_up {
                return false;
            }
        }
        false
    }

    fn ask_for(&mut self, asked: &Asked, token: &str, stay: Stay, patience: Duration) -> Told {
        let keys: Vec<&str> = asked.iter().map(|(key, _)| &key[..]).collect();
        let field = self.field;
        let ear = match stay.by_channel {
            true => match self
                .ear
                .take_if(|ear| field.is_open(ear))
                .or_else(|| field.listen())
            {
                Some(ear) => Some(ear),
                None => return Told::Gone,
            },
            false => None,
        };
        // Two requests with one token, at two connections.
        if !stay.by_channel && self.is_one_of(3) {
            let line = self.acquire(asked, token, stay, None);
            let who = format!("c{}b", self.number);
            let first = self
                .field
                .open()
                .map(|wire| self.start(&who, &line, &keys, token, wire, None));
            let line = self.acquire(asked, token, stay, None);
            let told = self.ask_within(&line, &keys, token, None, patience);
            let wire = first.and_then(|first| self.finish(first, PATIENCE).1);
            wire.into_iter().for_each(|wire| self.field.close(wire));
            return told;
        }
        let line = self.acquire(asked, token, stay, ear.as_ref().map(|ear| ear.connection));
        let until = Duration::from_millis(stay.wait_ms.unwrap_or(0)) + SILENCE;
        let ear = ear.map(|ear| (ear, until));
        self.ask_within(&line, &keys, token, ear, patience)
    }

    fn acquire(
        &mut self,
        asked: &[(String, u32)],
        token: &str,
        stay: Stay,
        ear: Option<i64>,
    ) -> String {
        let ttl_ms = self.any_ttl_ms();
        let mut line = match asked {
            [(key, 0)] => format!("RWLOCK.RLOCK {key} {token} {ttl_ms}"),
            [(key, 1)] if self.is_one_of(50) => format!("RWLOCK.WLOCK {key} {token} {ttl_ms}"),
            [(key, 1)] => format!("LOCK.ACQUIRE {key} {token} {ttl_ms}"),
            [(key, limit)] => format!("LOCK.ACQUIRE {key} {token} {ttl_ms} LIMIT {limit}"),
            several => {
                let keys: Vec<&str> = several.iter().map(|(key, _)| &key[..]).collect();
                let modes = several
                    .iter()
                    .map(|(_, mode)| ["SHARED", "EXCLUSIVE"][*mode as usize]);
                let (count, keys) = (keys.len(), keys.join(" "));
                let modes = modes.collect::<Vec<_>>().join(" ");
                format!("LOCK.MACQUIRE {count} {keys} {token} {ttl_ms} MODES {modes}")
            }
        };
        match (stay.wait_ms, ear) {
            (Some(ms), None) => line += &format!(" BLOCK {ms}"),
            (Some(ms), Some(ear)) => line += &format!(" NOTIFY {ms} ear:{ear}"),
            (None, _) => {}
        }
        if let Some(ms) = stay.keep_ms {
            line += &format!(" KEEP {ms}");
        }
        // LINGER binds the connection that asked, and not the one that listens.
        match self.random.random_range(0..100) {
            0..=19 if ear.is_none() => line += " LINGER 0",
            20..=29 if ear.is_none() => {
                line += &format!(" LINGER {}", self.random.random_range(1..40))
            }
            _ => {}
        }
        line
    }

    fn any_ttl_ms(&mut self) -> u64 {
        let range = match self.random.random_range(0..20) {
            0..=1 => 1..20,
            2..=15 => 20..60,
            16..=18 => 60..300,
            _ => 300..2_000,
        };
        self.random.random_range(range)
    }

    fn any_grace(&mut self) -> Option<u64> {
        match self.random.random_range(0..100) {
            0..=1 => Some(self.random.random_range(40..200)),
            2..=19 => Some(self.random.random_range(1..40)),
            _ => None,
        }
    }

    fn renew(&mut self, key: &str, token: &str) {
        let ttl_ms = self.any_ttl_ms();
        self.ask(&format!("LOCK.RENEW {key} {token} {ttl_ms}"), &[key], token);
    }

    fn release(&mut self, key: &str, token: &str) {
        let at_least = match self.is_one_of(10) {
            true => format!(" ATLEAST {}", self.random.random_range(0..30)),
            false => String::new(),
        };
        self.ask(
            &format!("LOCK.RELEASE {key} {token}{at_least}"),
            &[key],
            token,
        );
    }

    /// Writes only if the hold stands, or asks whether it does.
    fn write_guarded(&mut self, key: &str, token: &str) {
        let line = match self.is_one_of(70) {
            true => format!("LOCK.EXEC {key} {token} INCR {GUARDED}{key}"),
            false => format!("LOCK.CHECK {key} {token}"),
        };
        self.ask(&line, &[key], token);
    }

    /// Works with what it holds for a moment.
    fn think(&mut self) {
        let us = match self.random.random_range(0..12) {
            0 => self.random.random_range(0..20_000),
            _ => self.random.random_range(0..1_500),
        };
        if us > 300 {
            sleep(Duration::from_micros(us));
        }
    }

    /// Closes its connection without a word.
    fn leave(&mut self) {
        if let Some(wire) = self.wire.take() {
            self.field.close(wire);
        }
    }

    fn ask(&mut self, line: &str, keys: &[&str], token: &str) {
        self.ask_within(line, keys, token, None, PATIENCE);
    }

    fn ask_within(
        &mut self,
        line: &str,
        keys: &[&str],
        token: &str,
        ear: Option<(Wire, Duration)>,
        patience: Duration,
    ) -> Told {
        let Some(wire) = self.wire.take().or_else(|| self.field.open()) else {
            return Told::Gone;
        };
        let who = format!("c{}", self.number);
        let pending = self.start(&who, line, keys, token, wire, ear);
        let (told, wire) = self.finish(pending, patience);
        self.wire = wire;
        told
    }

    fn start(
        &mut self,
        who: &str,
        line: &str,
        keys: &[&str],
        token: &str,
        mut wire: Wire,
        ear: Option<(Wire, Duration)>,
    ) -> Pending {
        let listens = ear
            .as_ref()
            .map_or(wire.connection, |(ear, _)| ear.connection);
        self.field.connections[self.number].store(listens, Ordering::Relaxed);
        let id = self.field.send(&mut wire, who, line, listens, keys);
        Pending {
            who: who.into(),
            wire,
            ear,
            token: token.into(),
            keys: keys.iter().map(ToString::to_string).collect(),
            id,
        }
    }

    /// Waits for the end of a request. The connection, if it can be used again.
    fn finish(&mut self, pending: Pending, patience: Duration) -> (Told, Option<Wire>) {
        let Pending {
            who,
            mut wire,
            ear,
            token,
            keys,
            id,
        } = pending;
        let field = self.field;
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let own = if ear.is_some() { PATIENCE } else { patience };
        let reply = match field.read_look(&mut wire, &who, &id, &keys) {
            Ok(_) => wire.raw.reply(own),
            Err(error) => Err(error),
        };
        match (reply, ear) {
            (Ok(Reply::Simple(_)), Some((ear, longest))) => {
                (self.hear(&who, ear, &token, patience, longest), Some(wire))
            }
            (Ok(reply), ear) => {
                self.ear = ear.map(|(ear, _)| ear).or(self.ear.take());
                (field.told(&who, &reply), Some(wire))
            }
            (Err(error), None) if is_impatience(&error) && patience < PATIENCE => {
                field.vanish(&who, wire);
                (Told::Gone, None)
            }
            // Somebody has struck before it was known where the client listens.
            (Err(_), Some((ear, _))) => {
                field.vanish(&who, ear);
                (Told::Gone, None)
            }
            (Err(error), None) => {
                // A silence has no answer in the record.
                if !is_impatience(&error) {
                    field.note(&who, "reply", "lost");
                }
                (Told::Gone, None)
            }
        }
    }

    /// The end of a wait by a channel: a message, or the client vanishes first.
    fn hear(
        &mut self,
        who: &str,
        mut ear: Wire,
        token: &str,
        patience: Duration,
        longest: Duration,
    ) -> Told {
        let until = Instant::now() + patience.min(longest);
        loop {
            match ear
                .raw
                .reply(until.saturating_duration_since(Instant::now()))
            {
                Ok(message) => {
                    let text = message.items()[2].to_text();
                    let words: Vec<&str> = text.split(' ').collect();
                    let [event, fence, _, _, to] = words[..] else {
                        panic!("{text}");
                    };
                    if to != token {
                        continue; // It is for an earlier one.
                    }
                    self.ear = Some(ear);
                    let reply = match event {
                        "granted" => Reply::Int(fence.parse().unwrap()),
                        "timeout" => Reply::Nil,
                        event => Reply::Error(format!("{} by a message", event.to_uppercase())),
                    };
                    return self.field.told(who, &reply);
                }
                Err(error) if !is_impatience(&error) => {
                    self.field.note(who, "reply", "lost");
                    return Told::Gone;
                }
                Err(_) if patience < longest => {
                    self.field.vanish(who, ear);
                    return Told::Gone;
                }
                Err(_) => return Told::Gone,
            }
        }
    }
}
