//! The shop: fills the stock, lets the buyers in, and counts.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use redis::{Client, Connection};

use crate::buyer::{self, LOOK, SELL, STOCK};
use crate::ways::{self, Way};
use crate::Outcome;

/// Much longer than a purchase takes.
const TTL: Duration = Duration::from_secs(10);
/// When an owner stalls, for longer than its lock lasts.
pub const SHORT_TTL: Duration = Duration::from_millis(200);
pub const STALL: Duration = Duration::from_millis(1_200);
/// So many, one after the other: the last of them reads before the first of them writes.
pub const STALLS: usize = 5;

/// No buyer is silent for longer.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Shop {
    url: String,
    control: Connection,
    pub processes: usize,
    pub stock: u64,
    /// What server this is.
    pub server: String,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Sold {
    pub sold: u64,
    pub oversold: u64,
    pub reads: u64,
    pub seconds: f64,
    /// What the server executed, in scripts too.
    pub commands_per_sale: f64,
    pub in_vain_per_sale: f64,
    pub longest_wait: Duration,
}

/// A buyer's process. Dropping it ends it.
struct Buyer {
    process: Child,
    stdin: ChildStdin,
}

impl Drop for Buyer {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Shop {
    pub fn open(url: &str, processes: usize, stock: u64) -> Outcome<Self> {
        let mut control = Client::open(url)?.get_connection()?;
        let info: String = redis::cmd("INFO").arg("server").query(&mut control)?;
        let version = |field: &str| field_of(&info, field).map(str::to_string);
        let server = match version("valkey_version") {
            Some(version) => format!("Valkey {version}"),
            None => format!("Redis {}", version("redis_version").unwrap_or_default()),
        };
        Ok(Self {
            url: url.to_string(),
            control,
            processes,
            stock,
            server,
        })
    }

    /// Sells until nothing is left, in one way. Those that stall are the first buyers: each next
    /// comes when the one before has read.
    pub fn sell_out(&mut self, way: Way, stalls: bool, bar: &ProgressBar) -> Outcome<Sold> {
        ways::clear(&mut self.control)?;
        redis::cmd("DEL").arg(STOCK).exec(&mut self.control)?;
        let mut fill = redis::cmd("HSET");
        fill.arg(STOCK).arg("left").arg(self.stock);
        fill.arg("sold").arg(0).arg("fence").arg(0);
        fill.exec(&mut self.control)?;
        let (look, sell) = (self.load(LOOK)?, self.load(SELL)?);

        let (said, lines) = channel();
        let ttl = if stalls { SHORT_TTL } else { TTL };
        let stalling = if stalls {
            STALLS.min(self.processes)
        } else {
            0
        };
        let mut buyers = Vec::new();
        for number in 0..self.processes {
            let stall = match number < stalling {
                true => STALL,
                false => Duration::ZERO,
            };
            let words = [
                way.letter(),
                &ttl.as_millis().to_string(),
                &stall.as_millis().to_string(),
                &look,
                &sell,
                &self.url,
            ];
            buyers.push(Buyer::start(&words, said.clone())?);
        }
        drop(said);
        let mut ears = Ears::on(&lines, bar);
        while ears.ready < self.processes {
            ears.hear()?;
        }

        let before = self.commands()?;
        let begin = Instant::now();
        let (first, others) = buyers.split_at_mut(stalling);
        for (stalled, buyer) in first.iter_mut().enumerate() {
            buyer.let_in()?;
            // On a slow machine the stock may be sold out before.
            while ears.stalled + ears.ended <= stalled {
                ears.hear()?;
            }
        }
        others.iter_mut().try_for_each(Buyer::let_in)?;
        while ears.ended < self.processes {
            ears.hear()?;
        }
        let mut sold = ears.sold;
        sold.seconds = begin.elapsed().as_secs_f64();
        // One of them asked for their number.
        let commands = self.commands()? - before - 1;
        let sales = sold.sold.max(1) as f64;
        sold.commands_per_sale = commands as f64 / sales;
        sold.in_vain_per_sale /= sales;
        sold.oversold = sold.sold.saturating_sub(self.stock);
        let mut stock = redis::cmd("HGET");
        let booked: u64 = stock.arg(STOCK).arg("sold").query(&mut self.control)?;
        if booked != sold.sold {
            return Err(format!("{booked} sales are booked, not {}", sold.sold).into());
        }
        Ok(sold)
    }

    /// Makes a script known; answers its name.
    fn load(&mut self, script: &str) -> Outcome<String> {
        let mut load = redis::cmd("SCRIPT");
        Ok(load.arg("LOAD").arg(script).query(&mut self.control)?)
    }

    fn commands(&mut self) -> Outcome<u64> {
        let info: String = redis::cmd("INFO").arg("stats").query(&mut self.control)?;
        let total = field_of(&info, "total_commands_processed");
        Ok(total.ok_or("INFO without commands")?.parse()?)
    }
}

impl Buyer {
    fn start(words: &[&str], said: Sender<String>) -> Outcome<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(buyer::WORD)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = process.stdin.take().ok_or("no stdin")?;
        let stdout = process.stdout.take().ok_or("no stdout")?;
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                said.send(line).ok();
            }
        });
        Ok(Self { process, stdin })
    }

    fn let_in(&mut self) -> Outcome<()> {
        Ok(self.stdin.write_all(b"\n")?)
    }
}

/// What the buyers have said so far.
struct Ears<'a> {
    lines: &'a Receiver<String>,
    bar: &'a ProgressBar,
    ready: usize,
    stalled: usize,
    ended: usize,
    sold: Sold,
}

impl<'a> Ears<'a> {
    fn on(lines: &'a Receiver<String>, bar: &'a ProgressBar) -> Self {
        Self {
            lines,
            bar,
            ready: 0,
            stalled: 0,
            ended: 0,
            sold: Sold::default(),
        }
    }

    /// Waits for the next line, and counts.
    fn hear(&mut self) -> Outcome<()> {
        let line = self.lines.recv_timeout(PATIENCE);
        let line = line.map_err(|_| "a buyer failed, or nobody bought for long")?;
        let (word, number) = line.split_once(' ').unwrap_or((&line, "0"));
        let number: u64 = number.parse()?;
        match word {
            "ready" => self.ready += 1,
            "stalls" => self.stalled += 1,
            "end" => {
                self.ended += 1;
                self.sold.in_vain_per_sale += number as f64;
            }
            "sold" => {
                self.sold.sold += 1;
                self.bar.inc(1);
                self.sold.waited(number);
            }
            "read" => {
                self.sold.reads += 1;
                self.sold.waited(number);
            }
            _ => return Err(format!("a buyer said '{line}'").into()),
        }
        Ok(())
    }
}

impl Sold {
    fn waited(&mut self, us: u64) {
        self.longest_wait = self.longest_wait.max(Duration::from_micros(us));
    }
}

fn field_of<'a>(info: &'a str, field: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
}
