//! The overselling story, played on a live server: `cargo run --example story -- 127.0.0.1 6379`,
//! or `make run`.
//!
//! Ten workers sell from one stock, each step under the lock. Then come the problems of real life:
//! a stranger tries to release, a slow owner renews, a crashed owner never releases. The program
//! checks every answer and exits with 1 when one is wrong.

use std::error::Error;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Client, Connection, Value};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const WORKERS: usize = 10;
const STOCK: i64 = 50;
const LOCK: &str = "lock:stock";
/// A stall that only a bug could outlast.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let host = args.next().unwrap_or_else(|| "127.0.0.1".into());
    let port = args.next().unwrap_or_else(|| "6379".into());
    let client = Client::open(format!("redis://{host}:{port}/"))?;
    let mut cli = Cli {
        prompt: format!("{host}:{port}> "),
        connection: client.get_connection()?,
    };
    sell_out(&client, &mut cli)?;
    refuse_a_stranger(&mut cli)?;
    renew(&mut cli)?;
    outlive_a_crash(&mut cli)?;
    println!("\nEvery reply was as expected.");
    Ok(())
}

fn sell_out(client: &Client, cli: &mut Cli) -> Outcome<()> {
    heading(&format!(
        "{WORKERS} workers sell {STOCK} items from one stock. Each sale reads the stock, pauses and writes it back. Without a lock \
         they would oversell."
    ));
    cli.run(&format!("SET stock {STOCK}"))?;
    cli.run("SET sold 0")?;
    println!("\n  each worker:  LOCK.ACQUIRE {LOCK} worker-N 10000 BLOCK 30000   GET stock, SET stock, INCR sold   LOCK.RELEASE {LOCK} worker-N\n");
    let start = Arc::new(Barrier::new(WORKERS));
    let workers: Vec<_> = (1..=WORKERS)
        .map(|n| {
            let (client, start) = (client.clone(), Arc::clone(&start));
            thread::spawn(move || work(&client, &format!("worker-{n}"), &start))
        })
        .collect();
    let mut last_fence = 0;
    let mut sales = Vec::new();
    for (n, worker) in workers.into_iter().enumerate() {
        let sold = worker.join().map_err(|_| "a worker panicked")??;
        println!("  worker-{:<2} sold {:>2}", n + 1, sold.len());
        // The queue is fair: nobody waits for more than one sale of each of the others.
        ensure(!sold.is_empty(), "a sale by every worker")?;
        sales.extend(sold);
    }
    sales.sort_by_key(|sale| sale.fence);
    for (sale, expected_left) in sales.iter().zip((0..STOCK).rev()) {
        ensure(
            sale.left == expected_left,
            "sales in the order of their fences",
        )?;
        ensure(sale.fence > last_fence, "fences that rise")?;
        last_fence = sale.fence;
    }
    println!();
    cli.expect("GET stock", "\"0\"")?;
    cli.expect("GET sold", &format!("\"{STOCK}\""))?;
    ensure(sales.len() == STOCK as usize, "nothing oversold")?;
    println!("\n  Nothing is oversold: {STOCK} items, {STOCK} sales, and each sale has a larger fence than the one before.");
    Ok(())
}

struct Sale {
    fence: i64,
    left: i64,
}

/// Sells until nothing is left.
fn work(client: &Client, token: &str, start: &Barrier) -> Outcome<Vec<Sale>> {
    let connection = client.get_connection();
    start.wait();
    let mut connection = connection?;
    let mut sales = Vec::new();
    loop {
        let fence = acquire(&mut connection, token)?;
        let left: i64 = redis::cmd("GET").arg("stock").query(&mut connection)?;
        // The moment in which another worker would read the same number.
        thread::sleep(Duration::from_millis(2));
        if left > 0 {
            redis::cmd("SET")
                .arg("stock")
                .arg(left - 1)
                .exec(&mut connection)?;
            redis::cmd("INCR").arg("sold").exec(&mut connection)?;
            sales.push(Sale {
                fence,
                left: left - 1,
            });
        }
        let released: i64 = redis::cmd("LOCK.RELEASE")
            .arg(LOCK)
            .arg(token)
            .query(&mut connection)?;
        ensure(released == 1, "an owner that can release")?;
        if left <= 0 {
            return Ok(sales);
        }
    }
}

/// Waits in the server's queue until the lock is ours.
fn acquire(connection: &mut Connection, token: &str) -> Outcome<i64> {
    let mut command = redis::cmd("LOCK.ACQUIRE");
    command.arg(LOCK).arg(token).arg(10_000);
    command.arg("BLOCK").arg(PATIENCE.as_millis() as u64);
    let fence: Option<i64> = command.query(connection)?;
    fence.ok_or_else(|| "no lock in time".into())
}

fn refuse_a_stranger(cli: &mut Cli) -> Outcome<()> {
    heading("Alice holds the lock. A stranger cannot release, take or renew it.");
    cli.fence(&format!("LOCK.ACQUIRE {LOCK} alice 30000"))?;
    cli.expect(&format!("LOCK.RELEASE {LOCK} mallory"), "(integer) 0")?;
    cli.expect(&format!("LOCK.ACQUIRE {LOCK} mallory 30000"), "(nil)")?;
    cli.expect(&format!("LOCK.RENEW {LOCK} mallory 30000"), "(integer) 0")
}

fn renew(cli: &mut Cli) -> Outcome<()> {
    heading(
        "Alice's work takes longer than expected. She renews the lock, finishes and releases it.",
    );
    cli.expect(&format!("LOCK.RENEW {LOCK} alice 60000"), "(integer) 1")?;
    cli.run(&format!("PTTL {LOCK}"))?;
    cli.run(&format!("LOCK.INFO {LOCK}"))?;
    cli.expect(&format!("LOCK.RELEASE {LOCK} alice"), "(integer) 1")
}

fn outlive_a_crash(cli: &mut Cli) -> Outcome<()> {
    heading("Bob takes the lock for 300 ms and crashes. Carol waits, and gets it when his 300 ms are over. Bob's late renewal and release do nothing.");
    let bob = cli.fence(&format!("LOCK.ACQUIRE {LOCK} bob 300"))?;
    let start = Instant::now();
    let carol = cli.fence(&format!("LOCK.ACQUIRE {LOCK} carol 30000 BLOCK 5000"))?;
    println!("({:.3}s)", start.elapsed().as_secs_f64());
    ensure(carol > bob, "a larger fence for the later owner")?;
    cli.expect(&format!("LOCK.RENEW {LOCK} bob 30000"), "(integer) 0")?;
    cli.expect(&format!("LOCK.RELEASE {LOCK} bob"), "(integer) 0")?;
    cli.expect(&format!("LOCK.RELEASE {LOCK} carol"), "(integer) 1")
}

/// Runs commands and prints them and their answers as redis-cli does.
struct Cli {
    prompt: String,
    connection: Connection,
}

impl Cli {
    fn reply(&mut self, line: &str) -> Outcome<Value> {
        let mut words = line.split(' ');
        let mut command = redis::cmd(words.next().unwrap_or_default());
        for word in words {
            command.arg(word);
        }
        Ok(command.query(&mut self.connection)?)
    }

    fn run(&mut self, line: &str) -> Outcome<Value> {
        let reply = self.reply(line)?;
        println!("{}{line}\n{}", self.prompt, print(&reply, 0));
        Ok(reply)
    }

    fn fence(&mut self, line: &str) -> Outcome<i64> {
        match self.run(line)? {
            Value::Int(fence) if fence > 0 => Ok(fence),
            other => Err(format!("{line} gave no fence but {other:?}").into()),
        }
    }

    fn expect(&mut self, line: &str, expected: &str) -> Outcome<()> {
        let reply = self.run(line)?;
        ensure(
            print(&reply, 0) == expected,
            &format!("{expected} from {line}"),
        )
    }
}

/// A reply as redis-cli prints it.
fn print(reply: &Value, indent: usize) -> String {
    match reply {
        Value::Nil => "(nil)".into(),
        Value::Int(n) => format!("(integer) {n}"),
        Value::BulkString(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Value::SimpleString(text) => text.clone(),
        Value::Okay => "OK".into(),
        Value::Array(items) if items.is_empty() => "(empty array)".into(),
        Value::Array(items) => {
            let lines = items.iter().enumerate().map(|(n, item)| {
                let margin = if n == 0 { 0 } else { indent };
                format!("{:margin$}{}) {}", "", n + 1, print(item, indent + 3))
            });
            lines.collect::<Vec<_>>().join("\n")
        }
        other => format!("{other:?}"),
    }
}

fn heading(text: &str) {
    println!("\n# {text}");
}

fn ensure(truth: bool, what: &str) -> Outcome<()> {
    if truth {
        return Ok(());
    }
    Err(format!("expected {what}").into())
}
