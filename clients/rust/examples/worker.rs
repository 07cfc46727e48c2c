//! A worker that takes a lock, keeps it alive while it works, and stops when it is lost.
//!
//! ```sh
//! cargo run --features tokio --example worker -- redis://127.0.0.1:6379 lock:stock
//! ```

use std::env;
use std::time::Duration;

use redis_lock_client::{Options, Result, aio::LockClient};

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = env::args().skip(1);
    let address = args.next().unwrap_or("redis://127.0.0.1:6379".to_owned());
    let key = args.next().unwrap_or("lock:stock".to_owned());

    let options = Options::default()
        .ttl(Duration::from_secs(10))
        .on_fallback(|text| eprintln!("{text}"));
    let locks = LockClient::open(address, options)?;
    let lock = locks.lock(key);
    let Some(guard) = lock.lock_timeout(Duration::from_secs(60)).await? else {
        println!("gave up");
        return Ok(());
    };
    println!("granted {}", guard.fence());

    let keep_alive = guard.keep_alive();
    tokio::select! {
        () = work(guard.fence()) => println!("done"),
        () = guard.lost() => println!("lost"),
    }
    drop(keep_alive);
    guard.unlock().await
}

/// The resource is told the fence with every write. It refuses one that is smaller than the largest it has seen.
async fn work(fence: u64) {
    for step in 1..=5 {
        println!("write {step} with fence {fence}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
