//! The properties of `fuzz/` without a fuzzer: on the corpus, and on random changes of it. `make
//! fuzz` searches for new inputs, guided by coverage.

use std::fs;
use std::path::Path;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::harness::{figure, scale, setting, Kind, Server};
use crate::hostile::payload;

#[path = "../../fuzz/properties/codec.rs"]
mod codec;
#[path = "../../fuzz/properties/parser.rs"]
mod parser;
#[path = "../../fuzz/properties/queue.rs"]
mod queue;
#[path = "../../fuzz/properties/restore.rs"]
mod restore;

on_every_server![restore_accepts_exactly_what_the_codec_accepts];

/// The longest input.
const MAX_LEN: usize = 4096;

#[test]
fn any_bytes_decode_to_one_record_or_none() {
    let (inputs, seconds) = play("codec", 200_000, codec::run);
    figure(None::<Kind>, &format!("{inputs} inputs in {seconds:.1} s"));
}

#[test]
fn any_arguments_are_parsed_as_a_naive_reading_parses_them() {
    let (inputs, seconds) = play("parser", 200_000, parser::run);
    figure(None::<Kind>, &format!("{inputs} inputs in {seconds:.1} s"));
}

#[test]
fn any_history_of_a_queue_keeps_its_invariants() {
    let (inputs, seconds) = play("queue", 10_000, queue::run);
    figure(None::<Kind>, &format!("{inputs} inputs in {seconds:.1} s"));
}

fn restore_accepts_exactly_what_the_codec_accepts(kind: Kind) {
    let server = Server::start_with(kind, &["--rdbcompression", "no"]);
    let mut link = restore::Server::connect(server.port);
    let (inputs, seconds) = play("restore", 20_000, |data| restore::run(data, &mut link));
    figure(kind, &format!("{inputs} inputs in {seconds:.1} s"));
}

/// Runs a property on its corpus, and on this many changes of it. Returns the number of inputs and
/// the seconds.
fn play(target: &str, inputs: usize, mut run: impl FnMut(&[u8])) -> (usize, f64) {
    let start = Instant::now();
    let kept = kept(target);
    for input in &kept {
        run(input);
    }
    let seed = setting("FUZZ_SEED").unwrap_or(0x6675_7a7a);
    let mut rng = StdRng::seed_from_u64(seed);
    let changes = inputs * scale();
    for _ in 0..changes {
        run(&changed(&mut rng, &kept));
    }
    (kept.len() + changes, start.elapsed().as_secs_f64())
}

#[track_caller]
fn kept(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    // Inputs from earlier fuzzing, and some written by hand, which have names.
    let files = fs::read_dir(folder.join(target)).expect("the inputs that are kept");
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 5, "{target} has no inputs");
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// One of the inputs, changed in a few places.
fn changed(rng: &mut StdRng, kept: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = kept[rng.random_range(0..kept.len())].clone();
    for _ in 0..rng.random_range(1..6) {
        let at = rng.random_range(0..=bytes.len());
        let end = rng.random_range(at..=bytes.len());
        match rng.random_range(0..8) {
            0 | 1 if at < bytes.len() => bytes[at] = rng.random(),
            2 | 3 if at < bytes.len() => bytes[at] ^= 1 << rng.random_range(0..8),
            4 => bytes.insert(at, rng.random()),
            5 => bytes.truncate(at),
            6 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                // The rest of another input.
                let other = &kept[rng.random_range(0..kept.len())];
                let from = rng.random_range(0..=other.len());
                bytes.splice(at..end, other[from..].iter().copied());
            }
        }
    }
    bytes.truncate(MAX_LEN);
    bytes
}
