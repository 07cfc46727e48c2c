//! The overselling story: `make oversell`, or `cargo run --example oversell -- 127.0.0.1 6379` on a
//! server with the module.
//!
//! Many processes buy from one stock. Each reads how many are left, thinks for a moment, and writes
//! one less. Eight shops differ in how they keep two buyers from reading the same number: see
//! `ways.rs`. Then the same once more, with first buyers that stall for longer than their locks
//! last. A table goes to the terminal, and with `--into FOLDER` also into `oversell.md`, a picture
//! beside it.
//!
//! Further options: `--processes 20`, `--stock 300`. It uses the keys `oversell:*` and no others.

#![allow(unreachable_pub)] // A program has no public face.

mod buyer;
mod plot;
mod report;
mod shop;
mod ways;

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use indicatif::{ProgressBar, ProgressStyle};

use shop::{Shop, Sold};
use ways::Way;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const USAGE: &str =
    "usage: oversell HOST PORT [--processes 20] [--stock 300] [--into FOLDER FOR oversell.md AND oversell.svg]";

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
    let [host, port, options @ ..] = &words[..] else {
        return Err(USAGE.into());
    };
    let into: Option<PathBuf> = option(options, "--into")?;
    let mut shop = Shop::open(
        &format!("redis://{host}:{port}/"),
        option(options, "--processes")?.unwrap_or(20),
        option(options, "--stock")?.unwrap_or(300),
    )?;
    let mut rows = Vec::new();
    for way in Way::ALL {
        if !shop.can_play(way)? {
            eprintln!("{}: this server does not have it, left out", way.name());
            continue;
        }
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
    if let Some(folder) = into {
        fs::write(folder.join("oversell.md"), report::page(&shop, &rows))?;
        plot::draw(&folder.join("oversell.svg"), &shop, &rows)?;
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

fn option<T: FromStr>(words: &[String], name: &str) -> Outcome<Option<T>> {
    let Some(at) = words.iter().position(|word| word == name) else {
        return Ok(None);
    };
    let value = words.get(at + 1).and_then(|value| value.parse().ok());
    Ok(Some(value.ok_or(USAGE)?))
}
