//! A worker that does nothing without its lock: see README.md beside it.

// To be copied, and a library's then.
#[allow(unreachable_pub)]
mod link;
#[allow(unreachable_pub)]
mod lock;

use std::error::Error;
use std::num::ParseIntError;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use link::{may_pass, Link, PAUSE};
use lock::{Lease, Lock, Lost};
use redis::{Cmd, FromRedisValue, RedisError};

/// The resource refuses a write with an older fence than the newest that it has seen.
const RESOURCE: &str = include_str!("../../resource.lua");

/// How long one reply of the resource may take before we ask again on a new connection.
const REPLY: Duration = Duration::from_secs(2);

/// Works under a lock, and only as long as it has it.
#[derive(Parser)]
struct Options {
    /// The client that asks the server
    #[arg(value_parser = ["redis"])]
    variant: String,
    #[arg(long)]
    url: String,
    /// The key of the lock
    #[arg(long)]
    lock: String,
    /// The key of what it protects
    #[arg(long)]
    resource: String,
    /// How long the lock lasts without being renewed
    #[arg(long, value_name = "MS", value_parser = millis)]
    ttl: Duration,
    /// How long to wait for the lock
    #[arg(long, value_name = "MS", value_parser = millis)]
    block: Duration,
    #[arg(long)]
    writes: usize,
    /// Between two writes
    #[arg(long, value_name = "MS", value_parser = millis)]
    pause: Duration,
    /// Take the lock as a reader
    #[arg(long)]
    shared: bool,
    /// The name of the owner; a new one unless told
    #[arg(long)]
    token: Option<String>,
}

fn millis(text: &str) -> Result<Duration, ParseIntError> {
    text.parse().map(Duration::from_millis)
}

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => {
            // By itself it would end with 2, which says here that the lock was not to be had in time.
            let _ = error.print();
            return ExitCode::from(u8::from(error.use_stderr()));
        }
    };
    match run(&options) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(1)
        }
    }
}

fn run(options: &Options) -> Result<u8, Box<dyn Error>> {
    // Two connections: one for the lock, which may wait in the server, and one for the work, which
    // must not wait behind it.
    let mut locks = Link::to(&options.url)?;
    let mut link = Link::to(&options.url)?;
    let lock = Lock {
        key: options.lock.clone(),
        token: options
            .token
            .clone()
            .unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
        ttl: options.ttl,
        shared: options.shared,
    };
    let Some(lease) = lock.acquire(&mut locks, options.block)? else {
        println!("gave-up");
        return Ok(2);
    };
    println!("granted {}", lease.fence);
    let worked = thread::scope(|scope| {
        scope.spawn(|| lease.keep(&lock, &mut locks));
        let worked = work(options, &lock, &lease, &mut link);
        // Whatever came of the work: or the watchdog would go on for nobody.
        let ours = lease.close();
        worked.and_then(|()| Ok(ours?))
    });
    // Also of a lock that is lost, as far as we know: the server knows better, and ends nothing but
    // our own hold.
    let released = lock.release(&mut locks, Instant::now() + lock.ttl);
    match worked {
        Ok(()) => {
            let still_ours = released?;
            println!("released {}", u8::from(still_ours));
            Ok(if still_ours { 0 } else { 3 })
        }
        Err(Stop::Lost) => Ok(3),
        Err(Stop::Failed(error)) => Err(error.into()),
    }
}

fn work(options: &Options, lock: &Lock, lease: &Lease, link: &mut Link) -> Result<(), Stop> {
    for number in 1..=options.writes {
        if lock.shared {
            let mut read = redis::cmd("HGET");
            read.arg(&options.resource).arg("writes");
            let value: Option<u64> = step(lease, link, &read)?;
            println!("read {}", value.unwrap_or(0));
        } else {
            let mut write = redis::cmd("EVAL");
            write.arg(RESOURCE).arg(1).arg(&options.resource);
            write.arg(lease.fence).arg(&lock.token);
            let accepted: bool = step(lease, link, &write)?;
            if !accepted {
                return Err(lease.refuse().into());
            }
            println!("wrote {number}");
        }
        if number < options.writes {
            lease.pause(options.pause)?;
        }
    }
    Ok(())
}

/// One step of the work, begun only while the lock is ours, and sent again after a lost connection
/// as long as it is.
fn step<T: FromRedisValue>(lease: &Lease, link: &mut Link, command: &Cmd) -> Result<T, Stop> {
    loop {
        let ends = lease.check()?;
        match link.call(command, ends.min(Instant::now() + REPLY)) {
            Ok(answer) => return Ok(answer),
            Err(error) if may_pass(&error) => {
                eprintln!("work: {error}");
                lease.pause(PAUSE)?;
            }
            Err(error) => return Err(Stop::Failed(error)),
        }
    }
}

/// Why the work stopped before its end.
enum Stop {
    Lost,
    Failed(RedisError),
}

impl From<Lost> for Stop {
    fn from(_: Lost) -> Self {
        Stop::Lost
    }
}
