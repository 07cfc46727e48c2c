//! Servers that are killed or shut down under load at random instants, and restart on their files.
//!
//! - [`load_clients`]: the clients, and [`journal`]: their requests and replies. [`trial`]: the
//!   lives of a server.
//! - [`file`]: the append-only file while no server runs. [`observed`]: the state of the server in
//!   its next life.
//! - [`checker`]: the rules. [`checker_tests`] shows with forged journals that each rule refuses
//!   what it should.
//! - [`torn`]: files that are truncated anywhere.

mod checker;
mod checker_tests;
mod file;
mod journal;
mod load_clients;
mod observed;
mod torn;
mod trial;

use std::fs;

use rand::RngExt;

use crate::harness::dump::raise_fences_by_an_hour;
use crate::harness::{aof, figure, scale, Kind};
use torn::an_aof_cut_anywhere_loads_as_a_prefix;
use trial::{Beside, Ending, Trial, EVERYTHING};

on_every_server![
    nothing_acknowledged_is_lost_with_appendfsync_always,
    nothing_acknowledged_is_lost_when_a_rewrite_is_interrupted,
    a_kill_keeps_all_but_the_last_seconds_with_appendfsync_everysec,
    a_power_cut_keeps_a_prefix_of_the_aof,
    a_kill_keeps_the_state_of_the_last_save_with_rdb,
    an_aof_cut_anywhere_loads_as_a_prefix,
];

const ALWAYS: [&str; 6] = [
    "--appendonly",
    "yes",
    "--appendfsync",
    "always",
    "--auto-aof-rewrite-percentage",
    "0",
];

const EVERYSEC: [&str; 6] = [
    "--appendonly",
    "yes",
    "--appendfsync",
    "everysec",
    "--auto-aof-rewrite-percentage",
    "0",
];

/// A fork writes for long enough that a kill can hit it.
const SLOW_CHILD: [&str; 2] = ["--rdb-key-save-delay", "3000"];

/// The time that may be lost with `everysec`.
const TWO_SECONDS_US: u64 = 2_000_000;

fn nothing_acknowledged_is_lost_with_appendfsync_always(kind: Kind) {
    let mut trial = Trial::start(kind, &ALWAYS);
    // From here on the clock alone would repeat fences.
    raise_fences_by_an_hour(&mut trial.server.client());
    for n in 0..5 * scale() {
        let ending = match n % 5 {
            3 => Ending::Order("SHUTDOWN NOSAVE"),
            4 => Ending::Order("SHUTDOWN SAVE"),
            _ => Ending::Kill,
        };
        let ms = trial.rng.random_range(20..300);
        trial.live(ms, ending, Beside::Nothing);
        let account = trial.read_file();
        let observed = trial.come_back(&EVERYTHING);
        observed.assert_is(&account.locks, &trial.context());
    }
    figure(kind, &format!("{}", trial.tally));
}

fn nothing_acknowledged_is_lost_when_a_rewrite_is_interrupted(kind: Kind) {
    for preamble in ["yes", "no"] {
        let preamble = ["--aof-use-rdb-preamble", preamble];
        let mut trial = Trial::start(kind, &[&ALWAYS[..], &preamble, &SLOW_CHILD].concat());
        raise_fences_by_an_hour(&mut trial.server.client());
        for n in 0..4 * scale() {
            let ending = match n % 4 {
                0 => Ending::KillInSwap,
                1 => Ending::KillInRewrite,
                2 => Ending::KillAfterRewrite,
                _ => Ending::Order("SHUTDOWN NOSAVE"),
            };
            let ms = trial.rng.random_range(20..200);
            trial.live(ms, ending, Beside::Rewrites);
            let account = trial.read_file();
            let observed = trial.come_back(&EVERYTHING);
            if !account.begins_with_rdb {
                observed.assert_is(&account.locks, &trial.context());
            }
        }
        let tally = &trial.tally;
        assert!(tally.rewrites > 0, "no rewrite was completed");
        let cut_off = tally.in_a_rewrite + tally.in_a_swap;
        assert!(cut_off > 0, "no rewrite was cut off");
        figure(kind, &format!("{}: {tally}", preamble.join(" ")));
    }
}

fn a_kill_keeps_all_but_the_last_seconds_with_appendfsync_everysec(kind: Kind) {
    let mut trial = Trial::start(kind, &[&EVERYSEC[..], &SLOW_CHILD].concat());
    for n in 0..4 * scale() {
        let (ending, beside, ms) = match n % 4 {
            // Longer than the time that may be lost.
            0 => (Ending::Kill, Beside::Nothing, 2_100..2_200),
            1 => (Ending::KillAfterRewrite, Beside::Rewrites, 20..200),
            2 => (Ending::KillInRewrite, Beside::Rewrites, 20..200),
            _ => (Ending::Order("SHUTDOWN"), Beside::Nothing, 20..200),
        };
        let ms = trial.rng.random_range(ms);
        let notes = trial.live(ms, ending, beside);
        let allowed = match ending {
            // It writes and syncs its buffer.
            Ending::Order(_) => EVERYTHING,
            _ => notes.struck_us - TWO_SECONDS_US..=u64::MAX,
        };
        trial.read_file();
        trial.come_back(&allowed);
    }
    figure(kind, &format!("{}", trial.tally));
}

/// A kill keeps everything that was written. A power cut keeps what was synced: everything written
/// up to an instant at most a second before. So the file is cut to the length that it had at some
/// instant.
fn a_power_cut_keeps_a_prefix_of_the_aof(kind: Kind) {
    let mut trial = Trial::start(kind, &EVERYSEC);
    for _ in 0..3 * scale() {
        let ms = trial.rng.random_range(50..400);
        let notes = trial.live(ms, Ending::Kill, Beside::Meter);
        let any = trial.rng.random_range(0..notes.lengths.len());
        let (from_us, until_us, len) = notes.lengths[any];
        let last = aof::parts(trial.server.dir()).pop().unwrap();
        let file = fs::File::options().write(true).open(last).unwrap();
        file.set_len(len).unwrap();
        trial.come_back(&(from_us - TWO_SECONDS_US..=until_us));
    }
    figure(kind, &format!("{}", trial.tally));
}

fn a_kill_keeps_the_state_of_the_last_save_with_rdb(kind: Kind) {
    let mut trial = Trial::start(kind, &SLOW_CHILD);
    let mut saves = 0;
    for n in 0..6 * scale() {
        let (ending, beside, ms) = match n % 6 {
            2 => (Ending::Order("SHUTDOWN NOSAVE"), Beside::Saves, 20..300),
            3 => (Ending::Order("SHUTDOWN SAVE"), Beside::Saves, 20..300),
            // The server saves on its own.
            4 => (Ending::KillAfterSave, Beside::SavePoint, 1..2),
            5 => (Ending::KillInRewrite, Beside::Saves, 100..300),
            _ => (Ending::Kill, Beside::Saves, 100..400),
        };
        let ms = trial.rng.random_range(ms);
        let notes = trial.live(ms, ending, beside);
        saves += notes.saves;
        let allowed = match ending {
            Ending::Order("SHUTDOWN SAVE") => EVERYTHING,
            _ => notes.saved_us.unwrap_or(notes.began_us)..=u64::MAX,
        };
        let rdb = trial.server.dir().join("dump.rdb");
        if rdb.exists() {
            trial.check("rdb", &rdb);
        }
        trial.come_back(&allowed);
    }
    assert!(saves > 0, "nothing was saved");
    figure(kind, &format!("{saves} saves; {}", trial.tally));
}
