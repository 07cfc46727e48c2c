//! Commands that are almost, or not at all, valid.

use std::ffi::CStr;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::RngExt;
use redis_lock::command::spec::{Arg, Flag, Kind as ArgKind};
use redis_lock::command::Command;

use crate::harness::commands::text;
use crate::harness::Reply;

type Line = Vec<Vec<u8>>;

// The first ones are usual, the last ones are no text.
const KEYS: [&[u8]; 6] = [b"a", b"b", b"", b"\0\r\n", b"string", b"\xff"];

const TOKENS: [&[u8]; 8] = [b"t", b"u", b"*", b"", b"-1", b"\0", b"%s%n%p", b"\xc3\x28"];

const NUMBERS: [&[u8]; 10] = [
    b"1",
    b"50",
    b"100000",
    b"281474976710656",
    b"0",
    b"-1",
    b"-9223372036854775808",
    b"1e9",
    b"nan",
    b"",
];

/// No wait of a client is longer than its own limit. The first ones are usual.
const BLOCKS: [&[u8]; 6] = [b"1", b"1", b"-1", b"1e9", b"", b"\0"];

const TIMEOUTS: [&[u8]; 5] = [b"0", b"5", b"1e9", b"-1", b""];

const CHANNELS: [&[u8]; 4] = [b"heard", b"heard", b"unheard", b"\0\r\n\x01"];

/// No absent place lasts much longer.
const GRACES: [&[u8]; 5] = [b"1", b"40", b"0", b"3600001", b""];

const SHORT_TIMES: [&[u8]; 6] = [b"0", b"9", b"20", b"-1", b"281474976710657", b"nan"];

const COUNTS: [&[u8]; 6] = [b"2", b"0", b"-1", b"129", b"9223372036854775807", b"many"];

const LIMITS: [&[u8]; 6] = [
    b"2",
    b"3",
    b"1",
    b"0",
    b"4294967297",
    b"18446744073709551616",
];

/// The command by which the writes of LOCK.EXEC are counted.
const COUNTED: [&str; 2] = ["INCR", "counted"];

/// The commands within LOCK.EXEC. KEY is the key of the lock, TOKEN its token.
const GUARDED: [&[&str]; 31] = [
    &COUNTED,
    &COUNTED,
    &COUNTED,
    &COUNTED,
    &["PING"],
    &["GET", "counted"],
    &["SET", "written", "v"],
    &["HGETALL", "KEY"],
    &["NO.SUCH.COMMAND", "counted"],
    &["\0"],
    &[""],
    &[],
    &["GET"],
    &["BLPOP", "nothing", "0"],
    &["XREAD", "BLOCK", "0", "STREAMS", "nothing", "0"],
    &["LOCK.ACQUIRE", "KEY", "other", "50", "BLOCK", "0"],
    &["LOCK.ACQUIRE", "b", "TOKEN", "50", "NOTIFY", "0", "heard"],
    &["LOCK.MACQUIRE", "2", "a", "b", "TOKEN", "50", "KEEP", "1"],
    &["LOCK.RELEASE", "KEY", "TOKEN"],
    &["LOCK.CANCEL", "KEY"],
    &["LOCK.EXEC", "KEY", "TOKEN", "INCR", "counted"],
    &["lock.exec"],
    &["MULTI"],
    &["EXEC"],
    &["WATCH", "KEY"],
    &["SUBSCRIBE", "heard"],
    &["EVAL", "return redis.call('INCR', 'counted')", "0"],
    &["SELECT", "1"],
    &["DEL", "KEY"],
    &["SET", "KEY", "v", "PX", "3"],
    &["RENAME", "KEY", "away"],
];

/// Whether a line counts one where it is carried out.
pub fn is_counted(line: &[Vec<u8>]) -> bool {
    let [name, _, _, inner @ ..] = line else {
        return false;
    };
    name == b"LOCK.EXEC" && inner.iter().eq(COUNTED.iter().map(|word| word.as_bytes()))
}

/// The kind of a reply. Fails if it is not one that a line can have.
#[track_caller]
pub fn kind_of(line: &[Vec<u8>], reply: &Reply) -> &'static str {
    const CODES: [&str; 8] = [
        "ERR",
        "WRONGTYPE",
        "DEADLOCK",
        "PARTIAL",
        "NOTHELD",
        "CANCELLED",
        // The own errors of commands within LOCK.EXEC.
        "EXECABORT",
        "NOSCRIPT",
    ];
    let is_guarded = line[0] == b"LOCK.EXEC";
    match reply {
        Reply::Error(error) => {
            let code = error.split(' ').next().unwrap();
            assert!(CODES.contains(&code), "{error}");
            // The server itself names the beginning of an unknown command.
            let is_brief = !error.contains("mmmmmmmmm") || is_guarded && error.len() < 300;
            assert!(is_brief, "{error}");
            "error"
        }
        Reply::Int(n) => {
            assert!((0..1 << 53).contains(n));
            "number"
        }
        Reply::Nil => "null",
        Reply::Array(_) | Reply::Map(_) => "array",
        Reply::Simple(word) if word == "QUEUED" => "place",
        // Of LOCK.RESETSTAT.
        Reply::Simple(word) if word == "OK" => "done",
        Reply::Simple(_) | Reply::Bulk(_) if is_guarded => "guarded",
        Reply::Bulk(_) if line[0] == b"LOCK.ONCE" => "value",
        other => panic!("{:?}: {other:?}", line[0].escape_ascii()),
    }
}

/// Any command, by its description. Now and then the end of a lock.
pub fn random_line(rng: &mut StdRng, megabyte: &[u8]) -> Line {
    // Else an odd token would soon hold each key, to the end.
    if rng.random_bool(0.02) {
        return vec![b"DEL".to_vec(), any(rng, &KEYS[..2]).to_vec()];
    }
    let mut command = any(rng, Command::ALL);
    // Clients are refused most of these.
    while command.spec().flags.contains(&Flag::Admin) && rng.random_bool(0.7) {
        command = any(rng, Command::ALL);
    }
    let spec = command.spec();
    let mut args = vec![text(spec.name).to_uppercase().into_bytes()];
    let (needed, mut optional): (Vec<_>, Vec<_>) =
        spec.args.iter().partition(|arg| !arg.is_optional);
    optional.retain(|_| rng.random_bool(0.5));
    optional.shuffle(rng);
    // The server quotes unknown commands in its errors, and this client reads only errors of text.
    let is_quoted = command == Command::Exec;
    for arg in needed.into_iter().chain(optional) {
        add(rng, arg, is_quoted, &mut args);
    }
    match rng.random_range(0..20) {
        0 => args.truncate(rng.random_range(1..=args.len())),
        1 => args.extend_from_within(rng.random_range(1..=args.len())..),
        2..4 => {
            let most = if is_quoted { 0x7f } else { 0xff };
            let at = rng.random_range(1..=args.len());
            let odd = match rng.random_range(0..20) {
                0 => megabyte.to_vec(),
                _ => (0..rng.random_range(0..600))
                    .map(|_| rng.random::<u8>() & most)
                    .collect(),
            };
            match rng.random_bool(0.5) && at < args.len() {
                true => args[at] = odd,
                false => args.insert(at, odd),
            }
        }
        _ => {}
    }
    args
}

/// Mostly twice, if it may be repeated.
fn add(rng: &mut StdRng, arg: &Arg, is_text: bool, args: &mut Line) {
    let lower = |word: &[u8]| word.to_ascii_lowercase();
    let token = arg.token.map(CStr::to_bytes);
    args.extend(token.map(|word| {
        if rng.random() {
            lower(word)
        } else {
            word.to_vec()
        }
    }));
    let times = match rng.random_range(0..8) {
        _ if !arg.is_multiple => 1,
        0 => 1,
        1 => 3,
        2 => 129,
        _ => 2,
    };
    let (keys, tokens) = if is_text {
        (5, 7)
    } else {
        (KEYS.len(), TOKENS.len())
    };
    for _ in 0..times {
        let word = match (text(arg.name), arg.kind) {
            ("token", _) => mostly(rng, &TOKENS[..tokens], 2),
            (_, ArgKind::OneOf(of)) => {
                let one = any(rng, of);
                add(rng, &one, is_text, args);
                continue;
            }
            (_, ArgKind::Block(of)) => {
                of.iter().for_each(|arg| add(rng, arg, is_text, args));
                continue;
            }
            (_, ArgKind::PureToken) => return,
            ("command", _) => return guarded(rng, args),
            // They come with the command.
            ("arg", _) => return,
            ("timeout", _) if token.is_some() => mostly(rng, &BLOCKS, 2),
            ("timeout", _) => mostly(rng, &TIMEOUTS, 2),
            ("channel", _) => mostly(rng, &CHANNELS, 2),
            ("grace", _) => mostly(rng, &GRACES, 2),
            ("milliseconds", _) => mostly(rng, &SHORT_TIMES, 3),
            ("numkeys", _) => mostly(rng, &COUNTS, 1),
            ("n", _) => mostly(rng, &LIMITS, 2),
            (_, ArgKind::Key) => mostly(rng, &KEYS[..keys], 2),
            (_, ArgKind::Integer) => mostly(rng, &NUMBERS, 3),
            (_, ArgKind::Text) => mostly(rng, &TOKENS[..tokens], 2),
        };
        args.push(word.to_vec());
    }
}

/// The command within LOCK.EXEC, behind its key and token.
fn guarded(rng: &mut StdRng, args: &mut Line) {
    let (key, token) = (args[1].clone(), args[2].clone());
    let inner = any(rng, &GUARDED).iter();
    args.extend(inner.map(|word| match *word {
        "KEY" => key.clone(),
        "TOKEN" => token.clone(),
        word => word.into(),
    }));
}

/// Mostly one of the first few, with which a command is valid.
fn mostly<T: Copy>(rng: &mut StdRng, of: &[T], usual: usize) -> T {
    match rng.random_bool(0.7) {
        true => any(rng, &of[..usual]),
        false => any(rng, of),
    }
}

fn any<T: Copy>(rng: &mut StdRng, of: &[T]) -> T {
    of[rng.random_range(0..of.len())]
}
