//! A lock over five independent servers: `cargo run --example quorum -- 127.0.0.1:7001
//! 127.0.0.1:7002 …`.
//!
//! The algorithm, what it needs and what the fence of a quorum is stand in `redlock.rs`. The
//! program plays it once and exits with 1 when a step is not as it should be.

// To be copied, and a library's then.
#[allow(unreachable_pub)]
mod redlock;

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlock::{Gate, Redlock};

const TTL: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_millis(100);

fn main() -> Result<(), Box<dyn Error>> {
    let servers: Vec<String> = std::env::args().skip(1).collect();
    if servers.len() < 3 {
        return Err("usage: quorum host:port host:port host:port …, better five than three".into());
    }
    let mut alice = Redlock::new(&servers, TIMEOUT)?;
    let mut bob = Redlock::new(&servers, TIMEOUT)?;
    let mut gate = Gate::default();

    let mut first = alice
        .acquire("lock:stock", &unique("alice"), TTL)
        .ok_or("no majority for alice: do the servers run, and is the lock free?")?;
    println!("alice has it, with the fences {:?}", first.fences);
    ensure(
        bob.acquire("lock:stock", &unique("bob"), TTL).is_none(),
        "bob is refused",
    )?;
    ensure(alice.extend(&mut first, TTL), "alice extends her lease")?;
    ensure(gate.admits(&first.fences), "the resource admits alice")?;
    alice.release(&first);

    let second = bob
        .acquire("lock:stock", &unique("bob"), TTL)
        .ok_or("no majority for bob")?;
    println!("bob has it, with the fences {:?}", second.fences);
    ensure(
        second.is_valid() && gate.admits(&second.fences),
        "the resource admits bob",
    )?;
    ensure(
        !gate.admits(&first.fences),
        "and refuses alice, who is late",
    )?;
    bob.release(&second);
    Ok(())
}

/// A token that no attempt had before.
fn unique(name: &str) -> String {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let since_epoch = since_epoch.unwrap_or_default().as_nanos();
    format!("{name}-{}-{since_epoch}", std::process::id())
}

fn ensure(truth: bool, what: &str) -> Result<(), String> {
    println!("{what}: {truth}");
    truth
        .then_some(())
        .ok_or_else(|| format!("expected: {what}"))
}
