//! The lock: taken by waiting in the server's queue, known to be ours by our own clock, and kept
//! alive by a watchdog.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Cmd, RedisResult};

use crate::link::{may_pass, Link, PAUSE};

/// How long the server may take beyond the time that it was told to wait.
const GRACE: Duration = Duration::from_secs(1);

/// How long the server keeps the place in the queue while no connection waits at it. Longer than a
/// reconnect takes, and short, because a worker that died delays those behind it by this.
const KEEP: Duration = Duration::from_secs(5);

/// Taken off each lease, besides 1 % of it.
const DRIFT: Duration = Duration::from_millis(2);

pub struct Lock {
    pub key: String,
    /// The name of this attempt. Whoever sends it again gets the same hold.
    pub token: String,
    pub ttl: Duration,
    /// With other readers, instead of alone.
    pub shared: bool,
}

impl Lock {
    /// Waits in line, `block` at the longest. `None` when the time has passed.
    pub fn acquire(&self, link: &mut Link, block: Duration) -> RedisResult<Option<Lease>> {
        let deadline = Instant::now() + block;
        loop {
            // 0 would be for ever.
            let left = deadline.saturating_duration_since(Instant::now());
            let mut command = self.command(match self.shared {
                true => "RWLOCK.RLOCK",
                false => "LOCK.ACQUIRE",
            });
            command.arg(millis(self.ttl)).arg("BLOCK");
            command.arg(millis(left).max(1));
            command.arg("KEEP").arg(millis(KEEP));
            let failure = match link.call::<Option<u64>>(&command, deadline + GRACE) {
                Ok(None) => None,
                // How old the grant is, nobody knows: the reply may have waited for a process that
                // was stopped. A renewal tells whether it still stands, and from when on its time
                // can be counted.
                Ok(Some(fence)) => match self.renew(link, Instant::now() + self.ttl) {
                    Ok(Some(ends)) => return Ok(Some(Lease::new(fence, ends))),
                    Ok(None) => None,
                    Err(error) => Some(error),
                },
                Err(error) => Some(error),
            };
            if let Some(error) = failure {
                if !may_pass(&error) {
                    return Err(error);
                }
                eprintln!("acquire: {error}");
                thread::sleep(PAUSE.min(left));
            }
            if Instant::now() >= deadline {
                // The place would be in the way of others for its grace, and a grant that we were
                // not told of for its whole ttl.
                self.release(link, Instant::now() + GRACE).ok();
                return Ok(None);
            }
        }
    }

    /// Renews; answers the new end, counted from before it was asked for and less 1 % and 2 ms,
    /// because clocks differ in speed, or `None` when the lock is lost. Tries until `deadline`.
    fn renew(&self, link: &mut Link, deadline: Instant) -> RedisResult<Option<Instant>> {
        let mut command = self.command("LOCK.RENEW");
        command.arg(millis(self.ttl));
        self.insist(link, deadline, |link, until| {
            let sent = Instant::now();
            let renewed: bool = link.call(&command, until)?;
            Ok(renewed.then_some(sent + self.ttl * 99 / 100 - DRIFT))
        })
    }

    /// Whether the lock was still ours. Tries until `deadline`.
    pub fn release(&self, link: &mut Link, deadline: Instant) -> RedisResult<bool> {
        let command = self.command("LOCK.RELEASE");
        self.insist(link, deadline, |link, until| link.call(&command, until))
    }

    /// A reply that does not come within a third of the ttl is not worth waiting for: there is
    /// still time to ask on a new connection.
    fn insist<T>(
        &self,
        link: &mut Link,
        deadline: Instant,
        mut ask: impl FnMut(&mut Link, Instant) -> RedisResult<T>,
    ) -> RedisResult<T> {
        loop {
            match ask(link, deadline.min(Instant::now() + self.ttl / 3)) {
                Err(error) if may_pass(&error) && Instant::now() + PAUSE < deadline => {
                    eprintln!("again: {error}");
                    thread::sleep(PAUSE);
                }
                answer => return answer,
            }
        }
    }

    fn command(&self, name: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(&self.key).arg(&self.token);
        command
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A hold on the lock, as far as this process can know.
pub struct Lease {
    /// Larger than that of every earlier owner: what the resource is shown with each write.
    pub fence: u64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    ends: Instant,
    is_over: bool,
}

/// The lock is not ours any more, and nothing may be done in its name.
#[derive(Debug)]
pub struct Lost;

impl Lease {
    fn new(fence: u64, ends: Instant) -> Self {
        let is_over = false;
        Self {
            fence,
            state: Mutex::new(State { ends, is_over }),
            changed: Condvar::new(),
        }
    }

    /// Until when the lock is ours, unless renewed: to be asked before every step of the work.
    pub fn check(&self) -> Result<Instant, Lost> {
        self.pause(Duration::ZERO)
    }

    /// Waits; returns at once when the lock is lost.
    pub fn pause(&self, span: Duration) -> Result<Instant, Lost> {
        let end = Instant::now() + span;
        let mut state = self.state();
        loop {
            let now = Instant::now();
            if now >= state.ends {
                self.end(&mut state, "lost its time has passed");
            }
            if state.is_over {
                return Err(Lost);
            }
            if now >= end {
                return Ok(state.ends);
            }
            let next = end.min(state.ends) - now;
            let waited = self.changed.wait_timeout(state, next);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    /// Renews at a third of the ttl until the lease is over. On a connection of its own: the work
    /// may be waiting on the other.
    pub fn keep(&self, lock: &Lock, link: &mut Link) {
        while let Ok(ends) = self.pause(lock.ttl / 3) {
            let renewed = lock.renew(link, ends);
            let mut state = self.state();
            match renewed {
                _ if state.is_over => return,
                // After a long stop the lease may have ended: then it stays so.
                Ok(Some(ends)) if Instant::now() < state.ends => {
                    state.ends = ends;
                    println!("renewed");
                }
                Ok(Some(_)) => self.end(&mut state, "lost its time has passed"),
                Ok(None) => self.end(&mut state, "lost a renewal answered 0"),
                Err(error) => self.end(&mut state, &format!("lost no renewal in time: {error}")),
            }
        }
    }

    /// Ends the lease before the release is sent, so that no renewal comes behind it.
    pub fn close(&self) -> Result<(), Lost> {
        self.check()?;
        self.finish(&mut self.state());
        Ok(())
    }

    /// Ends the lease because the resource has seen a newer fence.
    pub fn refuse(&self) -> Lost {
        self.end(&mut self.state(), &format!("refused {}", self.fence));
        Lost
    }

    /// Says once how it ended: whoever finds it out first.
    fn end(&self, state: &mut State, event: &str) {
        if !state.is_over {
            println!("{event}");
            self.finish(state);
        }
    }

    fn finish(&self, state: &mut State) {
        state.is_over = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
