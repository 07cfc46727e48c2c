//! Plays the scenarios of clients/vectors, which all the adapters have in common.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use redis::Value;
use redis_lock_client::{Error, Options, Result};

use super::common::{Admin, BOUND, Proxy, Server, eventually};
use super::{get, is_told, library, ms, now, once, open};

/// What a request comes to, and what is held by then.
type Outcome = (String, Option<library::Guard>);

/// A program with a client of its own, and what it holds.
struct Actor {
    proxy: Proxy,
    locks: library::LockClient,
    guard: Option<library::Guard>,
    fence: u64,
    kept: Option<library::KeepAlive>,
    pending: Option<JoinHandle<Outcome>>,
    /// Hears that its maker has begun, and tells what that returns, or nothing for an error.
    maker: Option<(Receiver<()>, Sender<Option<String>>)>,
    made: Arc<AtomicUsize>,
}

struct Play<'a> {
    server: &'a Server,
    admin: Admin,
    is_fallback: bool,
    actors: HashMap<String, Actor>,
    /// How many makers have begun.
    made: Arc<AtomicUsize>,
}

impl Play<'_> {
    fn step(&mut self, words: &[&str]) -> String {
        match words {
            ["server", words @ ..] => return text(self.admin.run(words)),
            ["queue", key, count] => self.admin.await_waiters(key, count.parse().unwrap()),
            ["places", key] => return self.admin.waiters(key).to_string(),
            ["gone", key] => eventually("it ends", || self.admin.int(&["EXISTS", key]) == 0),
            ["made"] => return self.made.load(SeqCst).to_string(),
            ["lock", name] => {
                let once = self.actor("A").locks.once(name);
                return String::from_utf8_lossy(once.lock_key()).into_owned();
            }
            ["calls", command] => return self.admin.calls(command).to_string(),
            ["rises", one, other] => assert!(self.actors[*one].fence < self.actors[*other].fence),
            ["fence", actor] => return self.actor(actor).fence.to_string(),
            ["pause", ms] => sleep(time(ms)),
            ["busy", ms] => self.keep_busy(time(ms)),
            ["cut", actor] => self.actor(actor).proxy.close(),
            ["join", actor] => self.actor(actor).proxy.open(),
            [actor, words @ ..] => {
                let said = self.actor(actor).step(words);
                return said.unwrap_or_else(|error| named(&error));
            }
            [] => {}
        }
        String::new()
    }

    /// The server runs a script, and has begun to say so. By its own clock it would be longer under
    /// load.
    fn keep_busy(&mut self, time: Duration) {
        self.admin.run(&["CONFIG", "SET", "lua-time-limit", "100"]);
        let [mut runs, mut ends] = [(); 2].map(|()| self.server.admin());
        thread::spawn(move || runs.ask(&["EVAL", "while true do end", "0"]));
        let is_busy = |error: redis::RedisError| error.code() == Some("BUSY");
        eventually("it is busy", || {
            self.admin.ask(&["PING"]).is_err_and(is_busy)
        });
        thread::spawn(move || {
            sleep(time);
            ends.run(&["SCRIPT", "KILL"]);
        });
    }

    fn actor(&mut self, name: &str) -> &mut Actor {
        self.actors.entry(name.to_owned()).or_insert_with(|| {
            let options = Options::default().fallback(self.is_fallback);
            let proxy = Proxy::to(self.server.port);
            Actor {
                locks: open(proxy.url(), options),
                proxy,
                guard: None,
                fence: 0,
                kept: None,
                pending: None,
                maker: None,
                made: Arc::clone(&self.made),
            }
        })
    }
}

impl Actor {
    fn step(&mut self, words: &[&str]) -> Result<String> {
        let guard = self.guard.as_ref();
        let yes_or_no = |is| if is { "yes" } else { "no" }.to_owned();
        match words {
            ["begin", words @ ..] => self.pending = Some(thread::spawn(self.request(words))),
            ["end"] => {
                let outcome = self.pending.take().unwrap().join().unwrap();
                return Ok(self.holds(outcome));
            }
            ["making"] => self.maker.as_ref().unwrap().0.recv_timeout(BOUND).unwrap(),
            ["returns", value] => self.maker_ends(Some((*value).to_owned())),
            ["raises"] => self.maker_ends(None),
            ["keep"] => self.kept = Some(guard.unwrap().keep_alive()),
            ["told"] => {
                let kept = self.kept.as_ref().unwrap();
                assert!(is_told(kept) && kept.is_lost());
            }
            ["renew"] => return Ok(said(now(guard.unwrap().renew()))),
            ["renew", ms] => return Ok(said(now(guard.unwrap().extend(time(ms))))),
            ["believes", ..] => return Ok(yes_or_no(!guard.unwrap().is_lost())),
            ["check"] => return now(guard.unwrap().check()).map(yes_or_no),
            ["exec", name, args @ ..] => {
                let command = redis::cmd(name).arg(args).to_owned();
                return Ok(text(now(guard.unwrap().exec(&command))?));
            }
            ["once", key, most, least] => {
                let times = (*key, most.parse().unwrap(), least.parse().unwrap());
                let ran = once(&self.locks, times, || ())?;
                return Ok(ran.map_or("skipped", |()| "ran").to_owned());
            }
            words => {
                let outcome = self.request(words)();
                return Ok(self.holds(outcome));
            }
        }
        Ok(String::new())
    }

    /// What may also be done in the background.
    fn request(&mut self, words: &[&str]) -> Box<dyn FnOnce() -> Outcome + Send> {
        if let ["get", words @ ..] = words {
            let get = self.get(words);
            return Box::new(move || (get(), None));
        }
        if words == ["release"] {
            self.kept = None;
            let guard = self.guard.take().unwrap();
            return Box::new(move || (said(now(guard.unlock())), Some(guard)));
        }
        if let Some(linger) = option(words, "linger=") {
            let options = Options::default().linger(time(linger));
            self.locks = open(self.proxy.url(), options);
        }
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let locks = self.locks.clone();
        Box::new(move || {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match take(&locks, &words) {
                Ok(Some(guard)) => ("held".to_owned(), Some(guard)),
                Ok(None) => ("busy".to_owned(), None),
                Err(error) => (named(&error), None),
            }
        })
    }

    /// A call of `once`. What it makes is in the words, or it waits to be told.
    fn get(&mut self, words: &[&str]) -> impl FnOnce() -> String + Send + use<> {
        let of = |name, default| time(option(words, name).unwrap_or(default));
        let once = self.locks.once(words[0]);
        let once = once.with_keep(of("keep=", "60000"));
        let once = once.with_early(of("early=", "0"));
        let once = once.with_ttl(of("ttl=", "30000"));
        let once = once.with_wait(of("wait=", "5000"));
        let fails = option(words, "fail=").is_some();
        let value = option(words, "make=").map(str::to_owned);
        let (begins, begun) = channel();
        let (ends, told) = channel();
        self.maker = Some((begun, ends));
        let made = Arc::clone(&self.made);
        move || {
            let mut has_made = false;
            let got: Result<String> = get(&once, |_| {
                made.fetch_add(1, SeqCst);
                let _ = begins.send(());
                let value = match (value, fails) {
                    (None, false) => told.recv_timeout(BOUND).unwrap(),
                    (value, _) => value,
                };
                has_made = value.is_some();
                // No other error of these scenarios is of this kind.
                value.ok_or(Error::NoConversion)
            });
            match got {
                Ok(value) if has_made => format!("made:{value}"),
                Ok(value) => format!("got:{value}"),
                Err(Error::NoConversion) => "failed".to_owned(),
                Err(error) => named(&error),
            }
        }
    }

    fn maker_ends(&self, value: Option<String>) {
        self.maker.as_ref().unwrap().1.send(value).unwrap();
    }

    fn holds(&mut self, (said, guard): Outcome) -> String {
        self.fence = guard.as_ref().map_or(self.fence, library::Guard::fence);
        self.guard = guard;
        said
    }
}

fn take(locks: &library::LockClient, words: &[&str]) -> Result<Option<library::Guard>> {
    let (_, names): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| word.contains('='));
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
            let all = exclusive.and_shared(parts.next().unwrap_or_default());
            now(all.with_ttl(ttl).lock_timeout(wait))
        }
        other => panic!("no such step: {other:?}"),
    }
}

/// Most of them wait most of the time.
#[test]
fn scenarios() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors");
    let read = |name: &str| std::fs::read_to_string(vectors.join(name)).unwrap();
    let text = read("scenarios.txt") + &read("faults.txt") + &read("once.txt");
    let all: Vec<&str> = text.split("\nscenario ").skip(1).collect();
    thread::scope(|scope| {
        for first in 0..4 {
            let some = all.iter().skip(first).step_by(4);
            scope.spawn(|| play(some));
        }
    });
}

fn play<'a>(scenarios: impl Iterator<Item = &'a &'a str>) {
    let server = Server::start();
    let plain = Server::start_without_module();
    let bounded = Server::start_with(&["max-ttl", "2000"]);
    for scenario in scenarios {
        let (name, steps) = scenario.split_once('\n').unwrap();
        let place = name.split_once(" on ").map(|(_, place)| place);
        let at = match place {
            Some("plain" | "strict") => &plain,
            Some("bounded") => &bounded,
            _ => &server,
        };
        let mut admin = at.admin();
        admin.run(&["FLUSHALL"]);
        admin.run(&["CONFIG", "RESETSTAT"]);
        let mut play = Play {
            server: at,
            admin,
            is_fallback: place == Some("plain"),
            actors: HashMap::new(),
            made: Arc::default(),
        };
        let is_step = |line: &&str| !line.is_empty() && !line.starts_with('#');
        for line in steps.lines().filter(is_step) {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                [said @ .., "=", want] => assert_eq!(play.step(said), *want, "{name}: {line}"),
                said => drop(play.step(said)),
            }
        }
    }
}

fn option<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(name))
}

fn said(result: Result<()>) -> String {
    result.map_or_else(|error| named(&error), |()| "ok".to_owned())
}

fn named(error: &Error) -> String {
    match error {
        Error::ModuleMissing(_) => {
            let text = error.to_string();
            let is_told = |words| text.contains(words);
            assert!(is_told("`loadmodule /path") || is_told("in the fallback"));
            "missing".to_owned()
        }
        Error::Cancelled => "cancelled".to_owned(),
        Error::InProgress => "busy".to_owned(),
        Error::NotHeld => "lost".to_owned(),
        Error::TtlTooLong(_) => {
            assert!(error.to_string().contains("`with_ttl`"), "{error}");
            "too-long".to_owned()
        }
        Error::Redis(error) if error.code() == Some("NOPERM") => "denied".to_owned(),
        error => error.to_string(),
    }
}

fn time(text: &str) -> Duration {
    ms(text.parse().unwrap())
}

/// Nobody looks at any other reply.
fn text(reply: Value) -> String {
    redis::from_redis_value(reply).unwrap_or_default()
}
