//! A worker that does nothing without its lock: see README.md beside it.

// To be copied, and a library's then.
#[allow(unreachable_pub)]
mod link;
#[allow(unreachable_pub)]
mod lock;

use std::error::Error;
use std::process::ExitCode;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use link::{may_pass, Link, PAUSE};
use lock::{Lease, Lock, Lost};
use redis::{Cmd, FromRedisValue, RedisError};

/// The resource refuses a write with an older fence than the newest that it has seen.
const RESOURCE: &str = include_str!("../../resource.lua");

/// How long one reply of the resource may take before we ask again on a new connection.
const REPLY: Duration = Duration::from_secs(2);

const USAGE: &str = "worker redis --url URL --lock KEY --resource KEY --ttl MS --block MS --writes N --pause MS [--shared] [--token T]";

fn main() -> ExitCode {
    match Options::of_command_line().and_then(|options| run(&options)) {
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
    let lock = &options.lock;
    let Some(lease) = lock.acquire(&mut locks, options.block)? else {
        println!("gave-up");
        return Ok(2);
    };
    println!("granted {}", lease.fence);
    let worked = thread::scope(|scope| {
        scope.spawn(|| lease.keep(lock, &mut locks));
        let worked = work(options, &lease, &mut link);
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

fn work(options: &Options, lease: &Lease, link: &mut Link) -> Result<(), Stop> {
    for number in 1..=options.writes {
        if options.lock.shared {
            let mut read = redis::cmd("HGET");
            read.arg(&options.resource).arg("writes");
            let value: Option<u64> = step(lease, link, &read)?;
            println!("read {}", value.unwrap_or(0));
        } else {
            let mut write = redis::cmd("EVAL");
            write.arg(RESOURCE).arg(1).arg(&options.resource);
            write.arg(lease.fence).arg(&options.lock.token);
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

struct Options {
    url: String,
    lock: Lock,
    resource: String,
    block: Duration,
    writes: usize,
    pause: Duration,
}

impl Options {
    fn of_command_line() -> Result<Self, Box<dyn Error>> {
        let words: Vec<String> = std::env::args().skip(1).collect();
        if words.first().is_none_or(|variant| variant != "redis") {
            return Err(USAGE.into());
        }
        let millis = |name| Ok::<_, Box<dyn Error>>(Duration::from_millis(value(&words, name)?));
        Ok(Self {
            url: value(&words, "--url")?,
            lock: Lock {
                key: value(&words, "--lock")?,
                token: match words.iter().any(|word| word == "--token") {
                    true => value(&words, "--token")?,
                    false => uuid::Uuid::new_v4().to_string(),
                },
                ttl: millis("--ttl")?,
                shared: words.iter().any(|word| word == "--shared"),
            },
            resource: value(&words, "--resource")?,
            block: millis("--block")?,
            writes: value(&words, "--writes")?,
            pause: millis("--pause")?,
        })
    }
}

/// What stands behind an option.
fn value<T: FromStr>(words: &[String], option: &str) -> Result<T, String> {
    let mut pairs = words.windows(2);
    let value = pairs.find_map(|pair| (pair[0] == option).then(|| pair[1].parse().ok()));
    let value = value.flatten();
    value.ok_or_else(|| format!("{option} is missing or wrong\nusage: {USAGE}"))
}
