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

use std::time::{Duration, Instant};

use redis_lock_client::{Options, aio, sync};

type Error = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone, Copy)]
struct Load {
    start: Instant,
    hold: Duration,
    time: Duration,
}

impl Load {
    fn now(&self) -> u128 {
        self.start.elapsed().as_micros()
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (library, options) = words.split_first().ok_or("no library")?;
    let values: Vec<&str> = options.iter().skip(1).step_by(2).copied().collect();
    let [url, key, clients, hold_ms, seconds] = values[..] else {
        println!("redis-lock\nredis-lock-tokio");
        return Ok(());
    };
    let locks = sync::LockClient::open(url, Options::default())?;
    let shared = aio::LockClient::open(url, Options::default())?;
    // Both connect.
    locks.lock(format!("{key}:0")).lock()?.unlock()?;
    shared
        .lock(format!("{key}:0"))
        .lock()
        .await?
        .unlock()
        .await?;
    let load = Load {
        start: Instant::now(),
        hold: Duration::from_millis(hold_ms.parse()?),
        time: Duration::try_from_secs_f64(seconds.parse()?)?,
    };
    eprintln!("start");
    let clients: usize = clients.parse()?;
    let clients = (0..clients).map(|client| {
        let (lock, shared) = (locks.lock(key), shared.lock(key));
        match *library {
            "redis-lock" => tokio::task::spawn_blocking(move || thread(client, &lock, load)),
            _ => tokio::spawn(async move { task(client, &shared, load).await }),
        }
    });
    for client in clients.collect::<Vec<_>>() {
        println!("{}", client.await??.join("\n"));
    }
    Ok(())
}

fn thread(client: usize, lock: &sync::Lock, load: Load) -> Result<Vec<String>, Error> {
    let mut turns = Vec::new();
    while load.start.elapsed() < load.time {
        let asked = load.now();
        let guard = lock.lock()?;
        let granted = load.now();
        std::thread::sleep(load.hold);
        guard.unlock()?;
        turns.push(format!("{client} {asked} {granted} {}", load.now()));
    }
    Ok(turns)
}

async fn task(client: usize, lock: &aio::Lock, load: Load) -> Result<Vec<String>, Error> {
    let mut turns = Vec::new();
    while load.start.elapsed() < load.time {
        let asked = load.now();
        let guard = lock.lock().await?;
        let granted = load.now();
        tokio::time::sleep(load.hold).await;
        guard.unlock().await?;
        turns.push(format!("{client} {asked} {granted} {}", load.now()));
    }
    Ok(turns)
}
