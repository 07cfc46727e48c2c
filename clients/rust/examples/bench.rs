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

use clap::Parser;
use redis_lock_client::{Options, aio, sync};

type Error = Box<dyn std::error::Error + Send + Sync>;

const LIBRARIES: [&str; 2] = ["redis-lock", "redis-lock-tokio"];

#[derive(Clone, Parser)]
struct Settings {
    #[arg(required_unless_present = "list", value_parser = LIBRARIES)]
    library: Option<String>,
    /// Print the libraries, and end
    #[arg(long)]
    list: bool,
    #[arg(long, default_value = "redis://127.0.0.1:6379")]
    url: String,
    #[arg(long = "lock", value_name = "KEY", default_value = "lock:bench")]
    key: String,
    #[arg(long, default_value_t = 8)]
    clients: usize,
    #[arg(long = "hold-ms", value_name = "MS", default_value = "1", value_parser = millis)]
    hold: Duration,
    #[arg(long, default_value = "5", value_parser = seconds)]
    seconds: Duration,
}

fn millis(text: &str) -> Result<Duration, Error> {
    Ok(Duration::from_millis(text.parse()?))
}

fn seconds(text: &str) -> Result<Duration, Error> {
    Ok(Duration::try_from_secs_f64(text.parse()?)?)
}

/// The times of an acquisition, in microseconds since the start.
struct Turn {
    client: usize,
    asked: u128,
    granted: u128,
    released: u128,
}

fn main() -> Result<(), Error> {
    let settings = Settings::parse();
    if settings.list {
        println!("{}", LIBRARIES.join("\n"));
        return Ok(());
    }
    let turns = match settings.library.as_deref() {
        Some("redis-lock-tokio") => tokio::runtime::Runtime::new()?.block_on(tasks(&settings))?,
        _ => threads(&settings)?,
    };
    for turn in turns {
        let (asked, granted) = (turn.asked, turn.granted);
        println!("{} {asked} {granted} {}", turn.client, turn.released);
    }
    Ok(())
}

fn threads(settings: &Settings) -> Result<Vec<Turn>, Error> {
    let locks = sync::LockClient::open(settings.url.as_str(), Options::default())?;
    let lock = locks.lock(&settings.key);
    // Connects.
    locks.lock(format!("{}:0", settings.key)).lock()?.unlock()?;
    let start = start();
    let contend = |client| -> Result<Vec<Turn>, Error> {
        let mut turns = Vec::new();
        while start.elapsed() < settings.seconds {
            let asked = start.elapsed().as_micros();
            let guard = lock.lock()?;
            let granted = start.elapsed().as_micros();
            thread::sleep(settings.hold);
            guard.unlock()?;
            turns.push(Turn {
                client,
                asked,
                granted,
                released: start.elapsed().as_micros(),
            });
        }
        Ok(turns)
    };
    let contend = &contend;
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

async fn tasks(settings: &Settings) -> Result<Vec<Turn>, Error> {
    let locks = aio::LockClient::open(settings.url.as_str(), Options::default())?;
    let first = locks.lock(format!("{}:0", settings.key)).lock().await?;
    first.unlock().await?;
    let start = start();
    let clients = (0..settings.clients).map(|client| {
        let lock = locks.lock(&settings.key);
        let settings = settings.clone();
        tokio::spawn(async move {
            let mut turns = Vec::new();
            while start.elapsed() < settings.seconds {
                let asked = start.elapsed().as_micros();
                let guard = lock.lock().await?;
                let granted = start.elapsed().as_micros();
                tokio::time::sleep(settings.hold).await;
                guard.unlock().await?;
                turns.push(Turn {
                    client,
                    asked,
                    granted,
                    released: start.elapsed().as_micros(),
                });
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
