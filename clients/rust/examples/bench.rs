//! Lets N clients of one process contend for a lock, as the drivers of the other languages do.
//!
//! ```sh
//! ./bench redis-lock --url redis://127.0.0.1:6379 --lock KEY --clients N --hold-ms H --seconds S
//! ./bench --list
//! ```
//!
//! Each client acquires, holds and releases until the seconds have passed: a thread by `sync`, or a
//! task by `aio`, all with one `LockClient` at its defaults. It prints a line for each acquisition,
//! `CLIENT ASKED_US GRANTED_US RELEASED_US`. At the start of the clock it says `start` on stderr.

use std::thread;
use std::time::{Duration, Instant};

use redis_lock_client::{Options, aio, sync};

type Error = Box<dyn std::error::Error + Send + Sync>;

struct Settings {
    url: String,
    key: String,
    clients: usize,
    hold: Duration,
    time: Duration,
}

fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str, default: &str| {
        let at = words.iter().position(|word| word == name);
        let word = at.and_then(|at| words.get(at + 1));
        word.map_or(default.to_owned(), String::clone)
    };
    let settings = Settings {
        url: option("--url", "redis://127.0.0.1:6379"),
        key: option("--lock", "lock:bench"),
        clients: option("--clients", "8").parse()?,
        hold: Duration::from_millis(option("--hold-ms", "1").parse()?),
        time: Duration::try_from_secs_f64(option("--seconds", "5").parse()?)?,
    };
    let turns = match words.first().map(String::as_str) {
        Some("redis-lock") => threads(&settings)?,
        Some("redis-lock-tokio") => tokio::runtime::Runtime::new()?.block_on(tasks(&settings))?,
        Some("--list") => vec!["redis-lock\nredis-lock-tokio".to_owned()],
        _ => return Err("usage: bench redis-lock|redis-lock-tokio [OPTION…], or --list".into()),
    };
    println!("{}", turns.join("\n"));
    Ok(())
}

fn threads(settings: &Settings) -> Result<Vec<String>, Error> {
    let locks = sync::LockClient::open(settings.url.as_str(), Options::default())?;
    let lock = locks.lock(&settings.key);
    // Connects.
    locks.lock(format!("{}:0", settings.key)).lock()?.unlock()?;
    let start = start();
    let now = || start.elapsed().as_micros();
    let contend = &|client| -> Result<Vec<String>, Error> {
        let mut turns = Vec::new();
        while start.elapsed() < settings.time {
            let asked = now();
            let guard = lock.lock()?;
            let granted = now();
            thread::sleep(settings.hold);
            guard.unlock()?;
            turns.push(format!("{client} {asked} {granted} {}", now()));
        }
        Ok(turns)
    };
    thread::scope(|scope| {
        let clients = (0..settings.clients).map(|client| scope.spawn(move || contend(client)));
        let clients: Vec<_> = clients.collect();
        let mut turns = Vec::new();
        for client in clients {
            turns.extend(client.join().map_err(|_| "a client panicked")??);
        }
        Ok(turns)
    })
}

async fn tasks(settings: &Settings) -> Result<Vec<String>, Error> {
    let locks = aio::LockClient::open(settings.url.as_str(), Options::default())?;
    let first = locks.lock(format!("{}:0", settings.key)).lock().await?;
    first.unlock().await?;
    let (start, time, hold) = (start(), settings.time, settings.hold);
    let clients = (0..settings.clients).map(|client| {
        let lock = locks.lock(&settings.key);
        let now = move || start.elapsed().as_micros();
        tokio::spawn(async move {
            let mut turns = Vec::new();
            while start.elapsed() < time {
                let asked = now();
                let guard = lock.lock().await?;
                let granted = now();
                tokio::time::sleep(hold).await;
                guard.unlock().await?;
                turns.push(format!("{client} {asked} {granted} {}", now()));
            }
            Ok::<_, Error>(turns)
        })
    });
    let clients: Vec<_> = clients.collect();
    let mut turns = Vec::new();
    for client in clients {
        turns.extend(client.await??);
    }
    Ok(turns)
}

fn start() -> Instant {
    eprintln!("start");
    Instant::now()
}
