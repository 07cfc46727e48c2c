//! Prints what the clients of one process believe they hold, while servers fail over.
//!
//! ```sh
//! beliefs PORT KEYS KEY CLIENTS TTL_MS HOLD_MS
//! ```
//!
//! Each client is a thread. It takes one of so many locks, KEY0, KEY1, …, keeps it alive for so
//! long, unlocks it, and begins again until the process is ended. It prints a line for each hold,
//! `LOCK TOKEN FENCE FROM_US UNTIL_US`, by the machine's monotonic clock. UNTIL is when it was last
//! seen not to be lost. It says `start` on stderr.

use std::thread;
use std::time::{Duration, Instant};

use redis_lock_client::{Options, sync};

type Error = Box<dyn std::error::Error + Send + Sync>;

const PAUSE: Duration = Duration::from_millis(5);
const AFTER_AN_ERROR: Duration = Duration::from_millis(50);

fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [port, keys, key, clients, ttl_ms, hold_ms] = &words[..] else {
        return Err("usage: beliefs PORT KEYS KEY CLIENTS TTL_MS HOLD_MS".into());
    };
    let (keys, clients): (usize, usize) = (keys.parse()?, clients.parse()?);
    let ttl = Duration::from_millis(ttl_ms.parse()?);
    let hold = Duration::from_millis(hold_ms.parse()?);
    let options = Options::default().ttl(ttl);
    let locks = &sync::LockClient::open(format!("redis://127.0.0.1:{port}"), options)?;
    eprintln!("start");
    thread::scope(|scope| {
        for client in 0..clients {
            scope.spawn(move || {
                for turn in client.. {
                    let name = format!("{key}{}", turn * 7 % keys);
                    if let Err(error) = take(locks, &name, hold) {
                        eprintln!("{error}");
                        thread::sleep(AFTER_AN_ERROR);
                    }
                }
            });
        }
    });
    Ok(())
}

fn take(locks: &sync::LockClient, name: &str, hold: Duration) -> Result<(), Error> {
    let guard = locks.lock(name).lock()?;
    let (begun, start) = (now_us()?, Instant::now());
    let mut until = begun;
    let keep_alive = guard.keep_alive();
    loop {
        // The guard is looked at after the clock, so that it was held at that time.
        let now = now_us()?;
        if start.elapsed() >= hold || guard.is_lost() {
            break;
        }
        until = now;
        thread::sleep(PAUSE);
    }
    drop(keep_alive);
    let token = String::from_utf8_lossy(guard.token());
    println!("{name} {token} {} {begun} {until}", guard.fence());
    guard.unlock()?;
    Ok(())
}

/// The standard library tells its reading of CLOCK_MONOTONIC in no other way:
/// `Instant { tv_sec: 812, tv_nsec: 1200300 }`.
fn now_us() -> Result<u64, Error> {
    let text = format!("{:?}", Instant::now());
    let number = |name: &str| -> Option<u64> {
        let (_, rest) = text.split_once(name)?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    let (sec, nsec) = (number("tv_sec: "), number("tv_nsec: "));
    let us = sec
        .zip(nsec)
        .map(|(sec, nsec)| sec * 1_000_000 + nsec / 1_000);
    us.ok_or_else(|| format!("no monotonic clock in {text}").into())
}
