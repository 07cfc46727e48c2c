//! The table, the page around it, and the figures.

use crate::buyer::THINK;
use crate::shop::{Shop, SHORT_TTL, STALL, STALLS};
use crate::ways::Way;
use crate::Row;

const HEAD: [&str; 8] = [
    "way",
    "sold",
    "oversold",
    "time",
    "commands per sale",
    "in vain per sale",
    "longest wait",
    "oversold when owners stall",
];

impl Row {
    fn cells(&self) -> [String; HEAD.len()] {
        let calm = &self.calm;
        [
            self.way.name().to_string(),
            calm.sold.to_string(),
            calm.oversold.to_string(),
            format!("{:.2} s", calm.seconds),
            format!("{:.1}", calm.commands_per_sale),
            format!("{:.1}", calm.in_vain_per_sale),
            match self.way {
                Way::NoLock => "none".to_string(),
                _ => format!("{:.0} ms", calm.longest_wait.as_secs_f64() * 1e3),
            },
            self.stalled.oversold.to_string(),
        ]
    }
}

/// In Markdown, its columns as wide as they need be.
pub fn table(rows: &[Row]) -> String {
    let mut lines = vec![HEAD.map(str::to_string)];
    lines.extend(rows.iter().map(Row::cells));
    let mut widths = [0; HEAD.len()];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for (n, line) in lines.iter().enumerate() {
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            // Names to the left, numbers to the right.
            text += &match column {
                0 => format!("| {cell:<width$} |"),
                _ => format!(" {cell:>width$} |"),
            };
        }
        text.push('\n');
        if n == 0 {
            for (column, width) in widths.iter().enumerate() {
                let line = "-".repeat(*width);
                text += &match column {
                    0 => format!("| {line} |"),
                    _ => format!(" {}: |", &line[1..]),
                };
            }
            text.push('\n');
        }
    }
    text
}

pub fn page(shop: &Shop, rows: &[Row]) -> String {
    let Shop {
        processes,
        stock,
        server,
        ..
    } = shop;
    let reads = rows
        .iter()
        .find(|row| row.way == Way::ReadersWriters)
        .map_or(0, |row| row.calm.reads);
    let (think, ttl, stall) = (THINK.as_millis(), SHORT_TTL.as_millis(), STALL.as_millis());
    let table = table(rows);
    format!(
        "# Overselling

What a lock prevents, for users. On {server}, {processes} processes buy from one stock of {stock} items: each reads how many are left, thinks for {think} ms, and writes one less. `make oversell` plays [it](../../examples/oversell/main.rs) and writes this page.

{table}
<picture>
  <source media=\"(prefers-color-scheme: dark)\" srcset=\"oversell-dark.svg\">
  <img alt=\"How many were oversold in each way, and what it cost\" src=\"oversell.svg\">
</picture>

- **commands per sale**: five are the purchase itself, seven with a fence. In (h) they include those of {reads} readers.
- **in vain per sale**: polls without the lock, and transactions that were not executed.
- **when owners stall**: the same with locks of {ttl} ms, and {STALLS} buyers that each stall for {stall} ms between reading and writing. A lock alone (e) does not stop a late owner.
  A transaction (b) sees that the stock has changed. In (f) and (h) the stock refuses the late owner's fence, in (g) the server its write.
"
    )
}

/// A line for each way, with the columns of its head.
pub fn figures(shop: &Shop, rows: &[Row]) -> String {
    let mut text = "server\tprocesses\tstock\tway\tlock\tcheck\tsold\toversold\tseconds\tcommands per sale\tin vain per sale\tlongest wait ms\toversold when owners stall\n".to_string();
    for Row { way, calm, stalled } in rows {
        let lock = if way.has_lock() { "yes" } else { "no" };
        let cells = [
            shop.server.clone(),
            shop.processes.to_string(),
            shop.stock.to_string(),
            way.name().to_string(),
            lock.to_string(),
            way.check().to_string(),
            calm.sold.to_string(),
            calm.oversold.to_string(),
            format!("{:.4}", calm.seconds),
            format!("{:.4}", calm.commands_per_sale),
            format!("{:.4}", calm.in_vain_per_sale),
            format!("{:.4}", calm.longest_wait.as_secs_f64() * 1e3),
            stalled.oversold.to_string(),
        ];
        text += &cells.join("\t");
        text.push('\n');
    }
    text
}
