//! Append-only files that are truncated anywhere, as by a power cut in the middle of a write.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use rand::rngs::StdRng;
use rand::RngExt;

use super::file::Account;
use super::observed::Observed;
use super::trial::{Beside, Ending, Trial};
use super::ALWAYS;
use crate::harness::{aof, figure, scale, Kind};

pub fn an_aof_cut_anywhere_loads_as_a_prefix(kind: Kind) {
    let options = [&ALWAYS[..], &["--aof-load-truncated", "yes"]].concat();
    let mut trial = Trial::start(kind, &options);
    trial.live(400, Ending::Kill, Beside::Nothing);
    let mut parts = aof::parts(trial.server.dir());
    let last = parts.pop().expect("a part");
    let bytes = fs::read(&last).unwrap();
    let (mut inside, mut fixed, mut holds, mut several, cuts) = (0, 0, 0, 0, 6 * scale());
    for n in 0..cuts {
        let cut = any_cut(&mut trial.rng, &bytes, n % 3 == 0);
        let account = Account::of(&[bytes[..cut].to_vec()]);
        assert_eq!(account.torn, Vec::<String>::new(), "{}", trial.context());
        several = several.max(account.several);
        let context = format!("{}, cut at {cut} of {}", trial.context(), bytes.len());
        fs::write(&last, &bytes[..cut]).unwrap();
        if !account.is_whole {
            inside += 1;
            // The servers' own tool truncates the file as the server would.
            if n % 2 == 0 && fix(kind, &trial) {
                let len = fs::metadata(&last).unwrap().len();
                assert_eq!(len, account.whole as u64, "{context}");
                fixed += 1;
            }
        }
        trial.server.start_again();
        let observed = Observed::at(&mut trial.server.client());
        observed.assert_is(&account.locks, &context);
        holds += observed.len();
        trial.server.kill();
    }
    assert!(inside > 0, "no cut was inside of a command");
    figure(
        kind,
        &format!(
            "{cuts} cuts of a file of {} bytes, {inside} inside of a command or a transaction, {fixed} repaired by the checker: \
             {holds} holds as the rest of the file has them, in the longest part {several} grants of several keys, each whole",
            bytes.len()
        ),
    );
}

/// A position in the file, inside a transaction if required.
fn any_cut(rng: &mut StdRng, bytes: &[u8], in_transaction: bool) -> usize {
    let from = rng.random_range(0..bytes.len());
    if !in_transaction {
        return from;
    }
    let (mut begin, mut places) = (0, Vec::new());
    for command in aof::commands(bytes) {
        match command.args[0].to_ascii_uppercase().as_slice() {
            b"MULTI" => begin = command.end,
            b"EXEC" => places.push(begin..command.end),
            _ => {}
        }
    }
    if places.is_empty() {
        return from;
    }
    let place = places[rng.random_range(0..places.len())].clone();
    rng.random_range(place)
}

/// Repairs the file with the servers' checker, if there is one for this server.
#[track_caller]
fn fix(kind: Kind, trial: &Trial) -> bool {
    let Some(checker) = kind.checker("aof") else {
        return false;
    };
    let mut run = Command::new(checker)
        .arg("--fix")
        .arg(aof::entrance(trial.server.dir()))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    run.stdin.take().unwrap().write_all(b"y\n").unwrap();
    assert!(run.wait().unwrap().success());
    true
}
