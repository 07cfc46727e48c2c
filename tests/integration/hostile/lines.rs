//! Commands that are almost, or not at all, valid.

use rand::rngs::StdRng;
use rand::RngExt;

use crate::harness::Reply;

type Line = Vec<Vec<u8>>;

const COMMANDS: [&str; 17] = [
    "LOCK.ACQUIRE",
    "LOCK.ACQUIRE",
    "RWLOCK.WLOCK",
    "RWLOCK.RLOCK",
    "LOCK.RELEASE",
    "LOCK.RELEASE",
    "LOCK.RENEW",
    "LOCK.INFO",
    "LOCK.CHECK",
    "LOCK.TOP",
    "LOCK.LOG",
    "LOCK.MACQUIRE",
    "LOCK.MACQUIRE",
    "LOCK.EXEC",
    "LOCK.EXEC",
    "lock._apply",
    "lock._release",
];

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

// No wait here is longer than this client's own limit, and no absent place lasts much longer.
const OPTIONS: [&[&str]; 30] = [
    &[],
    &[],
    &["BLOCK", "1"],
    &["block"],
    &["BLOCK", "-1"],
    &["BLOCK", "1", "BLOCK", "1"],
    &["NX"],
    &["LIMIT", "2"],
    &["LIMIT", "3", "BLOCK", "1"],
    &["LIMIT", "4294967297"],
    &["limit"],
    &["BLOCK", "1", "\0"],
    &["KEEP", "1"],
    &["KEEP", "40", "BLOCK", "1"],
    &["keep", "40", "LINGER", "0"],
    &["KEEP", "0"],
    &["KEEP", "3600001"],
    &["KEEP"],
    &["KEEP", "1", "KEEP", "1"],
    &["NOTIFY", "0", "heard"],
    &["NOTIFY", "5", "heard", "KEEP", "5"],
    &["NOTIFY", "0", "unheard"],
    &["NOTIFY", "5", "\0\r\n\u{1}"],
    &["NOTIFY", "5"],
    &["NOTIFY", "1e9", "heard"],
    &["NOTIFY", "5", "heard", "BLOCK", "1"],
    &["LINGER", "0"],
    &["LINGER", "9", "NOTIFY", "5", "heard"],
    &["LINGER", "-1"],
    &["LINGER"],
];

const AT_LEAST: [&[&str]; 8] = [
    &[],
    &[],
    &["ATLEAST", "0"],
    &["atleast", "20"],
    &["ATLEAST", "281474976710656"],
    &["ATLEAST", "281474976710657"],
    &["ATLEAST"],
    &["ATLEAST", "1", "ATLEAST", "1"],
];

/// The numbers of keys that are wrong. `None` is the right one.
const COUNTS: [Option<&str>; 10] = [
    None,
    None,
    None,
    None,
    Some("0"),
    Some("2"),
    Some("-1"),
    Some("129"),
    Some("9223372036854775807"),
    Some("many"),
];

const MODES: [&[&str]; 8] = [
    &[],
    &[],
    &["MODES", "SHARED", "EXCLUSIVE"],
    &["modes", "exclusive", "shared"],
    &["MODES", "SHARED"],
    &["MODES"],
    &["MODES", "SHARED", "READ"],
    &["MODES", "SHARED", "SHARED", "MODES", "SHARED", "SHARED"],
];

/// The command by which the writes of LOCK.EXEC are counted.
const COUNTED: [&str; 2] = ["INCR", "counted"];

/// The commands within LOCK.EXEC. KEY is the key of the lock, TOKEN its token.
const GUARDED: [&[&str]; 30] = [
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
    const CODES: [&str; 7] = [
        "ERR",
        "WRONGTYPE",
        "DEADLOCK",
        "PARTIAL",
        "NOTHELD",
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
        Reply::Simple(_) | Reply::Bulk(_) if is_guarded => "guarded",
        other => panic!("{:?}: {other:?}", line[0].escape_ascii()),
    }
}

pub fn random_line(rng: &mut StdRng, megabyte: &[u8]) -> Line {
    let command = any(rng, &COMMANDS);
    let mut args = vec![command.as_bytes().to_vec()];
    // The server quotes unknown commands in its errors, and this client reads only errors of text.
    let is_quoted = command == "LOCK.EXEC";
    match command {
        "LOCK.MACQUIRE" => several(rng, &mut args),
        "LOCK.EXEC" => guarded(rng, &mut args),
        "LOCK.TOP" => {
            args.push(mostly(rng, &NUMBERS, 3).to_vec());
            if rng.random_bool(0.3) {
                args.push(b"contended".to_vec());
            }
        }
        "LOCK.LOG" => args.push(mostly(rng, &NUMBERS, 3).to_vec()),
        _ => one_key(rng, command, &mut args),
    }
    if rng.random_bool(0.2) {
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
    args
}

fn one_key(rng: &mut StdRng, command: &str, args: &mut Line) {
    args.push(mostly(rng, &KEYS, 2).to_vec());
    args.push(mostly(rng, &TOKENS, 2).to_vec());
    args.push(mostly(rng, &NUMBERS, 3).to_vec());
    // As many arguments as the command takes, or a few more or less.
    let fitting = match command {
        "LOCK.INFO" => 2,
        "LOCK.RELEASE" | "LOCK.CHECK" | "lock._apply" | "lock._release" => 3,
        _ => 4,
    };
    if rng.random_bool(0.8) {
        args.truncate(fitting);
    } else {
        args.truncate(rng.random_range(1..=4));
    }
    if command == "LOCK.RELEASE" {
        push(args, any(rng, &AT_LEAST));
    } else if fitting == 4 || rng.random_bool(0.05) {
        push(args, any(rng, &OPTIONS));
    }
}

/// Two keys mostly, sometimes the same one, and sometimes another number of them than is said.
fn several(rng: &mut StdRng, args: &mut Line) {
    let keys = match rng.random_range(0..8) {
        0 => 1,
        1 => 3,
        2 => 129,
        _ => 2,
    };
    let right = keys.to_string();
    args.push(any(rng, &COUNTS).unwrap_or(&right).into());
    args.extend((0..keys).map(|_| mostly(rng, &KEYS, 2).to_vec()));
    args.push(mostly(rng, &TOKENS, 2).to_vec());
    args.push(mostly(rng, &NUMBERS, 3).to_vec());
    let (modes, options) = (any(rng, &MODES), any(rng, &OPTIONS));
    let (first, second) = match rng.random_bool(0.5) {
        true => (modes, options),
        false => (options, modes),
    };
    push(args, first);
    push(args, second);
}

fn guarded(rng: &mut StdRng, args: &mut Line) {
    let (key, token) = (mostly(rng, &KEYS[..5], 2), mostly(rng, &TOKENS[..7], 2));
    args.extend([key.to_vec(), token.to_vec()]);
    let inner = any(rng, &GUARDED).iter();
    args.extend(inner.map(|word| match *word {
        "KEY" => key.to_vec(),
        "TOKEN" => token.to_vec(),
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

fn push(args: &mut Line, words: &[&str]) {
    args.extend(words.iter().map(|word| word.as_bytes().to_vec()));
}
