//! The overselling story: `make oversell`, or `cargo run --example oversell -- 127.0.0.1 6379` on a
//! server with the module.
//!
//! Many processes buy from one stock. Each reads how many are left, thinks for a moment, and writes
//! one less. Eight shops differ in how they keep two buyers from reading the same number: see
//! `ways.rs`. Then the same once more, with first buyers that stall for longer than their locks
//! last. A table goes to the terminal, and with `--into FOLDER` also into `oversell.md`, with every
//! figure in `oversell.tsv` beside it. `make plots` draws the picture from that.
//!
//! Further options: `--processes 20`, `--stock 300`. It uses the keys `oversell:*` and no others.

#![allow(unreachable_pub)] // A program has no public face.

mod buyer;
mod report;
mod shop;
mod ways;

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

use shop::{Shop, Sold};
use ways::Way;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Sells out the stock of several shops, which differ in how two buyers are kept apart.
#[derive(Parser)]
struct Arguments {
    host: String,
    port: u16,
    #[arg(long, default_value_t = 20)]
    processes: usize,
    #[arg(long, default_value_t = 300)]
    stock: u64,
    /// The folder for oversell.md and oversell.tsv
    #[arg(long)]
    into: Option<PathBuf>,
}

/// How one way did: at an ordinary hour, and with owners that stalled.
struct Row {
    way: Way,
    calm: Sold,
    stalled: Sold,
}

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // This program starts itself once for each buyer.
    if let [word, rest @ ..] = &words[..] {
        if word == buyer::WORD {
            return buyer::run(rest);
        }
    }
    let arguments = Arguments::parse();
    let mut shop = Shop::open(
        &format!("redis://{}:{}/", arguments.host, arguments.port),
        arguments.processes,
        arguments.stock,
    )?;
    let mut rows = Vec::new();
    for way in Way::ALL {
        let mut sell = |stalls: bool| -> Outcome<Sold> {
            let bar = progress(&shop, way, stalls);
            let sold = shop.sell_out(way, stalls, &bar);
            bar.finish_and_clear();
            sold
        };
        let (calm, stalled) = (sell(false)?, sell(true)?);
        rows.push(Row { way, calm, stalled });
    }
    println!("{}", report::table(&rows));
    if let Some(folder) = arguments.into {
        fs::write(folder.join("oversell.md"), report::page(&shop, &rows))?;
        fs::write(folder.join("oversell.tsv"), report::figures(&shop, &rows))?;
    }
    Ok(())
}

/// Hidden where the output is no terminal.
fn progress(shop: &Shop, way: Way, stalls: bool) -> ProgressBar {
    let bar = ProgressBar::new(shop.stock);
    let template = "{prefix:<46} {bar:30} {pos:>5} sold of {len}  {elapsed}";
    // A template that is wrong is seen at the first run.
    bar.set_style(ProgressStyle::with_template(template).expect("a good template"));
    let hour = if stalls { ", owners stall" } else { "" };
    bar.set_prefix(format!("{}{hour}", way.name()));
    bar
}
