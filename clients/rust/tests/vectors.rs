//! Plays the scenarios of clients/vectors, which all the adapters have in common.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashMap;
use std::path::Path;
use std::sync::LazyLock;
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use common::{Admin, Server, eventually};
use redis::Value;
use redis_lock_client::{Error, Options, Result};

/// The players of one of the two clients. Its folder has `now`, which waits for what a call of it begins.
macro_rules! players {
    ($library:ident) => {
        use redis_lock_client::$library as library;

        use super::*;

        /// A program with a client of its own, and what it holds.
        struct Actor {
            url: String,
            options: Options,
            locks: library::LockClient,
            guard: Option<library::Guard>,
            fence: u64,
            kept: Option<library::KeepAlive>,
            pending: Option<JoinHandle<(String, Option<library::Guard>)>>,
        }

        struct Play<'a> {
            server: &'a Server,
            admin: Admin,
            is_fallback: bool,
            actors: HashMap<String, Actor>,
        }

        impl Play<'_> {
            fn step(&mut self, words: &[&str]) -> String {
                match words {
                    ["server", words @ ..] => text(&self.admin.run(words)),
                    ["queue", key, count] => {
                        self.admin.await_waiters(key, count.parse().unwrap());
                        String::new()
                    }
                    ["places", key] => self.admin.waiters(key).to_string(),
                    ["gone", key] => {
                        eventually("it ends", || self.admin.int(&["EXISTS", key]) == 0);
                        String::new()
                    }
                    ["calls", command] => {
                        let info = format!("{:?}", self.admin.run(&["INFO", "commandstats"]));
                        let info = info.to_lowercase();
                        let calls = info.split(&format!("cmdstat_{command}:calls=")).nth(1);
                        calls.map_or("0".to_owned(), |calls| {
                            calls.split(',').next().unwrap().to_owned()
                        })
                    }
                    ["rises", one, other] => {
                        assert!(self.fence(one) < self.fence(other));
                        String::new()
                    }
                    ["fence", actor] => self.fence(actor).to_string(),
                    ["pause", ms] => {
                        sleep(time(ms));
                        String::new()
                    }
                    [actor, words @ ..] => self.actor(actor).step(words),
                    [] => String::new(),
                }
            }

            fn actor(&mut self, name: &str) -> &mut Actor {
                let options = Options::default().fallback(self.is_fallback);
                let url = self.server.url();
                self.actors.entry(name.to_owned()).or_insert_with(|| Actor {
                    locks: library::LockClient::open(url.clone(), options.clone()).unwrap(),
                    url,
                    options,
                    guard: None,
                    fence: 0,
                    kept: None,
                    pending: None,
                })
            }

            fn fence(&self, actor: &str) -> u64 {
                self.actors[actor].fence
            }
        }

        impl Actor {
            fn step(&mut self, words: &[&str]) -> String {
                let guard = self.guard.as_ref();
                let answer = match words {
                    ["begin", words @ ..] => {
                        let words: Vec<String> =
                            words.iter().map(|&word| word.to_owned()).collect();
                        let locks = self.locks.clone();
                        self.pending = Some(thread::spawn(move || {
                            let words: Vec<&str> = words.iter().map(String::as_str).collect();
                            outcome(take(&locks, &words))
                        }));
                        return String::new();
                    }
                    ["end"] => {
                        let (said, guard) = self.pending.take().unwrap().join().unwrap();
                        self.holds(guard);
                        return said;
                    }
                    ["release"] => {
                        self.kept = None;
                        let released = now(self.guard.take().unwrap().unlock());
                        released.map(|()| "ok".to_owned())
                    }
                    ["renew"] => now(guard.unwrap().renew()).map(|()| "ok".to_owned()),
                    ["renew", ms] => now(guard.unwrap().extend(time(ms))).map(|()| "ok".to_owned()),
                    ["check"] => now(guard.unwrap().check())
                        .map(|is_held| if is_held { "yes" } else { "no" }.to_owned()),
                    ["exec", name, args @ ..] => {
                        let mut command = redis::cmd(name);
                        command.arg(args);
                        let reply: Result<Value> = now(guard.unwrap().exec(&command));
                        reply.map(|reply| text(&reply))
                    }
                    ["keep"] => {
                        self.kept = Some(guard.unwrap().keep_alive());
                        return String::new();
                    }
                    ["told"] => {
                        let kept = self.kept.as_ref().unwrap();
                        wait_lost(kept);
                        assert!(kept.is_lost());
                        return String::new();
                    }
                    ["once", key, most, least] => once(&self.locks, key, time(most), time(least))
                        .map(|ran| ran.map_or("skipped", |()| "ran").to_owned()),
                    words => {
                        if let Some(linger) = option(words, "linger=") {
                            let options = self.options.clone().linger(time(linger));
                            self.locks =
                                library::LockClient::open(self.url.clone(), options).unwrap();
                        }
                        let (said, guard) = outcome(take(&self.locks, words));
                        self.holds(guard);
                        return said;
                    }
                };
                answer.unwrap_or_else(|error| named(&error))
            }

            fn holds(&mut self, guard: Option<library::Guard>) {
                self.fence = guard.as_ref().map_or(self.fence, library::Guard::fence);
                self.guard = guard;
            }
        }

        fn take(locks: &library::LockClient, words: &[&str]) -> Result<Option<library::Guard>> {
            let names: Vec<&str> = words
                .iter()
                .filter(|word| !word.contains('='))
                .copied()
                .collect();
            let ttl = time(option(words, "ttl=").unwrap_or("30000"));
            let wait = time(option(words, "wait=").unwrap_or("0"));
            match names.as_slice() {
                ["lock", key] => now(locks.lock(key).with_ttl(ttl).lock_timeout(wait)),
                ["read", key] => now(locks.rwlock(key).with_ttl(ttl).read_timeout(wait)),
                ["write", key] => now(locks.rwlock(key).with_ttl(ttl).write_timeout(wait)),
                ["permit", key, permits] => {
                    let semaphore = locks.semaphore(key, permits.parse().unwrap());
                    now(semaphore.with_ttl(ttl).acquire_timeout(wait))
                }
                ["multi", keys @ ..] => {
                    let mut parts = keys.split(|&key| key == "/");
                    let exclusive = locks.multi_lock(parts.next().unwrap());
                    let shared = parts.next().unwrap_or_default();
                    now(exclusive
                        .and_shared(shared)
                        .with_ttl(ttl)
                        .lock_timeout(wait))
                }
                other => panic!("no such step: {other:?}"),
            }
        }

        fn outcome(taken: Result<Option<library::Guard>>) -> (String, Option<library::Guard>) {
            match taken {
                Ok(Some(guard)) => ("held".to_owned(), Some(guard)),
                Ok(None) => ("busy".to_owned(), None),
                Err(error) => (named(&error), None),
            }
        }

        pub(super) fn play() {
            let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors/scenarios.txt");
            let text = std::fs::read_to_string(text).unwrap();
            let server = Server::start();
            let plain = Server::start_without_module();
            let bounded = Server::start_with(&["max-ttl", "2000"]);
            for scenario in text.split("\nscenario ").skip(1) {
                let (name, steps) = scenario.split_once('\n').unwrap();
                let place = name.split_once(" on ").map(|(_, place)| place);
                let at = match place {
                    Some("plain" | "strict") => &plain,
                    Some("bounded") => &bounded,
                    _ => &server,
                };
                let mut admin = at.admin();
                if name.ends_with("needs exec") && !admin.has_exec() {
                    continue;
                }
                admin.run(&["FLUSHALL"]);
                admin.run(&["CONFIG", "RESETSTAT"]);
                let mut play = Play {
                    server: at,
                    admin,
                    is_fallback: place == Some("plain"),
                    actors: HashMap::new(),
                };
                for line in steps.lines().filter(|line| !line.is_empty()) {
                    let words: Vec<&str> = line.split(' ').collect();
                    let (said, want) = match words.as_slice() {
                        [said @ .., "=", want] => (said, Some(*want)),
                        said => (said, None),
                    };
                    let got = play.step(said);
                    assert!(want.is_none_or(|want| got == want), "{name}: {line}: {got}");
                }
            }
        }
    };
}

mod blocking {
    players!(sync);

    fn now<T>(done: T) -> T {
        done
    }

    fn wait_lost(kept: &library::KeepAlive) {
        assert!(kept.wait_lost(common::BOUND));
    }

    fn once(
        locks: &library::LockClient,
        key: &str,
        most: Duration,
        least: Duration,
    ) -> Result<Option<()>> {
        locks.run_once(key, most, least, |_| ())
    }
}

mod asynchronous {
    players!(aio);

    pub(super) static RUNTIME: LazyLock<tokio::runtime::Runtime> =
        LazyLock::new(|| tokio::runtime::Runtime::new().unwrap());

    fn now<F: Future>(done: F) -> F::Output {
        RUNTIME.block_on(done)
    }

    fn wait_lost(kept: &library::KeepAlive) {
        now(async { tokio::time::timeout(common::BOUND, kept.lost()).await }).unwrap();
    }

    fn once(
        locks: &library::LockClient,
        key: &str,
        most: Duration,
        least: Duration,
    ) -> Result<Option<()>> {
        now(locks.run_once(key, most, least, async |_| ()))
    }
}

#[test]
fn scenarios() {
    blocking::play();
}

#[test]
fn scenarios_of_tasks() {
    // Clients are made, and begin to renew, within it.
    let _entered = asynchronous::RUNTIME.enter();
    asynchronous::play();
}

fn option<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(name))
}

fn named(error: &Error) -> String {
    match error {
        Error::ModuleMissing(_) => "missing".to_owned(),
        Error::Cancelled => "cancelled".to_owned(),
        Error::NotHeld => "lost".to_owned(),
        Error::TtlTooLong(_) => "too-long".to_owned(),
        error => error.to_string(),
    }
}

fn time(ms: &str) -> Duration {
    Duration::from_millis(ms.parse().unwrap())
}

fn text(reply: &Value) -> String {
    match reply {
        Value::Int(number) => number.to_string(),
        Value::Okay => "OK".to_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        reply => format!("{reply:?}"),
    }
}
