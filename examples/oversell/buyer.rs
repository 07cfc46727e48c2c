//! One buyer: a process of its own, that buys until nothing is left.
//!
//! It says `ready`, waits for a line, says `sold`, `read` with the time that it had waited for the
//! lock, and at the end `end` with how often it tried in vain. One of the first buyers, that are to
//! stall, says `stalls` when it does.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rand::RngExt;
use redis::{Client, Connection};

use crate::ways::{Lock, Way};
use crate::Outcome;

/// The word behind the program's name that makes it a buyer.
pub const WORD: &str = "buyer";

pub const STOCK: &str = "oversell:stock";

/// The two stand for the database that keeps the stock, as one statement each. A buyer without a
/// fence says 0.
///
/// `UPDATE stock SET fence = :fence WHERE fence <= :fence RETURNING left`: what is read to be
/// written back later shows the fence already. Otherwise one who is late might write after the next
/// one has read, and before that one writes.
pub const LOOK: &str = "
    local stock = redis.call('HMGET', KEYS[1], 'fence', 'left')
    if tonumber(ARGV[1]) < tonumber(stock[1]) then return false end
    redis.call('HSET', KEYS[1], 'fence', ARGV[1])
    return tonumber(stock[2])";

/// `UPDATE stock SET left = :left, sold = sold + 1, fence = :fence WHERE fence <= :fence`
pub const SELL: &str = "
    if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence')) then return 0 end
    redis.call('HSET', KEYS[1], 'left', ARGV[2], 'fence', ARGV[1])
    redis.call('HINCRBY', KEYS[1], 'sold', 1)
    return 1";

/// The moment between reading and writing: a price is looked up, a card is checked.
pub const THINK: Duration = Duration::from_millis(2);

const READERS: f64 = 0.95;

struct Buyer {
    connection: Connection,
    lock: Lock,
    /// The names of `LOOK` and `SELL` for EVALSHA.
    look: String,
    sell: String,
    /// How long its first thought takes.
    stall: Option<Duration>,
}

/// `WAY TTL_MS STALL_MS LOOK SELL URL`
pub fn run(words: &[String]) -> Outcome<()> {
    let [way, ttl_ms, stall_ms, look, sell, url] = words else {
        return Err("a buyer is started by the shop".into());
    };
    let stall = Duration::from_millis(stall_ms.parse()?);
    let mut buyer = Buyer {
        connection: Client::open(url.as_str())?.get_connection()?,
        lock: Lock {
            way: Way::of_letter(way).ok_or("no such way")?,
            token: std::process::id().to_string(),
            ttl_ms: ttl_ms.parse()?,
            in_vain: 0,
        },
        look: look.clone(),
        sell: sell.clone(),
        stall: Some(stall).filter(|stall| !stall.is_zero()),
    };
    println!("ready");
    io::stdin().read_line(&mut String::new())?;
    while buyer.visit()? {}
    println!("end {}", buyer.lock.in_vain);
    Ok(())
}

impl Buyer {
    /// Whether there may be more to buy.
    fn visit(&mut self) -> Outcome<bool> {
        let stalls = self.stall.is_some();
        match self.lock.way {
            Way::Watch => self.buy_watching(),
            Way::ReadersWriters if !stalls && rand::rng().random_bool(READERS) => self.look(),
            _ => self.buy_locked(),
        }
    }

    fn buy_locked(&mut self) -> Outcome<bool> {
        let asked = Instant::now();
        let fence = self.lock.acquire(&mut self.connection, false)?;
        let waited = asked.elapsed();
        // Only these two show the stock their fence.
        let checks = matches!(self.lock.way, Way::Module | Way::ReadersWriters);
        let fence = if checks { fence } else { 0 };
        let left = match fence {
            0 => self.left()?,
            // Already late: somebody with a newer fence was here.
            _ => match self.left_for(fence)? {
                Some(left) => left,
                None => return self.late(),
            },
        };
        if left > 0 {
            self.think();
            let sold = match self.lock.way {
                Way::Guarded => self.sell_guarded(left - 1)?,
                _ => self.sale(left - 1, fence).query(&mut self.connection)?,
            };
            if !sold {
                return self.late();
            }
            println!("sold {}", waited.as_micros());
        }
        self.lock.release(&mut self.connection)?;
        Ok(left > 0)
    }

    /// The server writes only while this buyer holds the lock. What was sold is counted afterwards, as it was sold then.
    fn sell_guarded(&mut self, left: i64) -> Outcome<bool> {
        let write = ["HSET", STOCK, "left", &left.to_string()];
        match self.lock.guarded(&write).exec(&mut self.connection) {
            Ok(()) => {}
            Err(refused) if refused.code() == Some("NOTHELD") => return Ok(false),
            Err(other) => return Err(other.into()),
        }
        let mut count = redis::cmd("HINCRBY");
        count.arg(STOCK).arg("sold").arg(1);
        count.exec(&mut self.connection)?;
        Ok(true)
    }

    /// Refused by the stock: the lock was over, and the visit was in vain.
    fn late(&mut self) -> Outcome<bool> {
        self.lock.in_vain += 1;
        self.lock.release(&mut self.connection)?;
        Ok(true)
    }

    /// No lock: the sale fails when somebody else has changed the stock meanwhile, and all is done
    /// again.
    fn buy_watching(&mut self) -> Outcome<bool> {
        let asked = Instant::now();
        loop {
            let waited = asked.elapsed();
            redis::cmd("WATCH").arg(STOCK).exec(&mut self.connection)?;
            let left = self.left()?;
            if left <= 0 {
                return Ok(false);
            }
            self.think();
            redis::cmd("MULTI").exec(&mut self.connection)?;
            self.sale(left - 1, 0).exec(&mut self.connection)?;
            let sold: Option<(bool,)> = redis::cmd("EXEC").query(&mut self.connection)?;
            if sold.is_some() {
                println!("sold {}", waited.as_micros());
                return Ok(true);
            }
            self.lock.in_vain += 1;
        }
    }

    /// What a reader does: looks, and thinks about it.
    fn look(&mut self) -> Outcome<bool> {
        let asked = Instant::now();
        self.lock.acquire(&mut self.connection, true)?;
        let waited = asked.elapsed();
        let left = self.left()?;
        thread::sleep(THINK);
        self.lock.release(&mut self.connection)?;
        println!("read {}", waited.as_micros());
        Ok(left > 0)
    }

    fn left(&mut self) -> Outcome<i64> {
        let mut left = redis::cmd("HGET");
        Ok(left.arg(STOCK).arg("left").query(&mut self.connection)?)
    }

    fn left_for(&mut self, fence: u64) -> Outcome<Option<i64>> {
        let mut look = redis::cmd("EVALSHA");
        look.arg(&self.look).arg(1).arg(STOCK).arg(fence);
        Ok(look.query(&mut self.connection)?)
    }

    fn think(&mut self) {
        let stall = self.stall.take();
        if stall.is_some() {
            println!("stalls");
        }
        thread::sleep(stall.unwrap_or(THINK));
    }

    fn sale(&self, left: i64, fence: u64) -> redis::Cmd {
        let mut sell = redis::cmd("EVALSHA");
        sell.arg(&self.sell).arg(1).arg(STOCK);
        sell.arg(fence).arg(left);
        sell
    }
}
