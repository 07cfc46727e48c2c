//! locktop: a live view of the locks of redis-lock servers.
//!
//! ```text
//! args      the command line
//! source    the servers: a thread and a connection for each; looks and releases
//! model     what is known of them, and what of it is shown        pure
//! app       what the keys do                                      pure
//! view      the screen                                            pure
//! once      one look as a table or as JSON                        pure
//! live      the terminal: keys and reports in, screens out
//! text      bytes and numbers as text                             pure
//! ```

#![cfg_attr(
    not(test),
    deny(
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

mod app;
mod args;
mod live;
mod model;
mod once;
mod source;
mod text;
mod view;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::time::Instant;

use clap::Parser;

use args::Args;
use model::{Model, State};
use source::{Databases, Past, Report, Watch, Wishes};

/// A server could not be reached.
const UNREACHED: u8 = 1;
/// The command line is wrong; clap ends with the same.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let args = Args::parse();
    let seeds = match args.servers() {
        Ok(seeds) => seeds,
        Err(error) => return fail(&error, USAGE),
    };
    let wishes = Wishes {
        databases: if args.all_databases {
            Databases::All
        } else {
            Databases::One(args.db)
        },
        all: args.all,
        top: args.top,
        interval: args.interval(),
        paused: false,
        detail: None,
        // The table has no place for them.
        past: Past {
            contended: args.json,
            log: args.json,
        },
    };
    let _ = rustls::crypto::ring::default_provider().install_default();
    if args.once {
        return look_once(&args, &seeds, wishes);
    }
    if !std::io::stdout().is_terminal() {
        return fail(
            "there is no terminal; --once prints a table, --once --json a document",
            USAGE,
        );
    }
    match live::run(&args, seeds, wishes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string(), UNREACHED),
    }
}

fn fail(error: &str, status: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "locktop: {error}");
    ExitCode::from(status)
}

fn look_once(args: &Args, seeds: &[redis::ConnectionInfo], wishes: Wishes) -> ExitCode {
    let servers = if args.cluster {
        match source::primaries(seeds) {
            Ok(nodes) => nodes,
            Err(error) => return fail(&error, UNREACHED),
        }
    } else {
        seeds.to_vec()
    };
    let model = look_at_all(&servers, wishes);
    let text = if args.json {
        format!("{}\n", once::json(&model))
    } else {
        once::table(&model)
    };
    // The reader may have enough: `locktop --once | head`.
    let _ = std::io::stdout().write_all(text.as_bytes());
    let all_up = model
        .servers
        .iter()
        .all(|server| matches!(server.state, State::Up(_)));
    if all_up {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(UNREACHED)
    }
}

/// One look at each, side by side.
fn look_at_all(servers: &[redis::ConnectionInfo], wishes: Wishes) -> Model {
    let (sender, reports) = channel();
    let mut watch = Watch::new(
        Wishes {
            paused: true,
            ..wishes
        },
        sender,
    );
    let mut model = Model::default();
    model.set_servers(&watch.set_servers(servers));
    let end = Instant::now() + source::LONGEST_LOOK;
    while model
        .servers
        .iter()
        .any(|server| server.state == State::Connecting)
    {
        let left = end.saturating_duration_since(Instant::now());
        match reports.recv_timeout(left) {
            Ok(Report::Looked { server, result }) => model.update(&server, *result),
            Ok(_) => {}
            Err(_) => break,
        }
    }
    model
}
