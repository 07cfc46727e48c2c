//! Invalid load arguments: the log names the argument and the reason. The server keeps running, or
//! exits cleanly if it was starting.

use crate::harness::workload::words;
use crate::harness::{module, Client, Kind, Reply, Server, MODULE_COMMAND};

on_every_server![
    a_bad_load_argument_in_the_configuration_stops_the_start_cleanly,
    module_load_refuses_bad_arguments,
    module_loadex_refuses_bad_arguments,
    module_loadex_refuses_bad_values,
];

/// Bytes that could end a string, act as a format, control a terminal, or are not text.
const EVIL: [&[u8]; 5] = [b"5\0", b"\0", b"%s%n%s%n", b"\x1b[31m", b"\xff\xfe5"];

/// What the log says after every bad argument.
const EXPECTED: &str =
    "bad arguments: expected [max-waiters-per-key N] [max-waiters N] [replicate-in-place yes|no] \
     [deadlock-detection yes|no] with N from 0 to 1000000, [max-absent N] [max-keep ms] \
     [max-waiters-share percent] [max-waiting-bytes bytes] [max-ttl ms] \
     [guard off|restart|failover|quorum] [guard-slack ms] \
     [guard-members N] [guard-fresh ms]";

/// Arguments, and the messages in the log: one for each reason. The parser has tests of its own.
fn bad_arguments() -> Vec<(Vec<Vec<u8>>, &'static str)> {
    let no_integer = "max-waiters: its value is not an integer from 0 to 1000000";
    let unknown = "': there is no setting of this name";
    let named = "unknown argument 'maxwaiters': there is no setting of this name";
    let mut bad = vec![
        (words("maxwaiters 1"), named),
        (words("max-waiters"), "max-waiters: it has no value"),
        (words("max-waiters many"), no_integer),
        (
            words("max-waiters 1 MAX-WAITERS 1"),
            "max-waiters: it is given twice",
        ),
        (
            words("replicate-in-place maybe"),
            "replicate-in-place: its value is neither yes nor no",
        ),
        (vec![Vec::new(), b"5".to_vec()], unknown),
        (vec![b"max-waiters".to_vec(), Vec::new()], no_integer),
        (vec![b"x".repeat(100_000)], unknown),
    ];
    for evil in EVIL {
        bad.push((vec![b"max-waiters".to_vec(), evil.to_vec()], no_integer));
        bad.push((vec![evil.to_vec(), b"5".to_vec()], unknown));
    }
    bad
}

fn a_bad_load_argument_in_the_configuration_stops_the_start_cleanly(kind: Kind) {
    for (args, why) in bad_arguments() {
        let line = quoted(&args);
        // The server itself accepts no line as long as that.
        if line.len() > 1_000 {
            continue;
        }
        let config = format!("loadmodule {} {line}\n", module().display());
        let log = Server::log_of_failed_start_with_config(kind, &config);
        assert_says(&log, why);
        assert!(log.contains(EXPECTED), "{line}: {log}");
    }
}

/// The words in the syntax of a configuration file.
fn quoted(args: &[Vec<u8>]) -> String {
    let byte = |byte: &u8| format!("\\x{byte:02x}");
    let word = |word: &Vec<u8>| format!("\"{}\"", word.iter().map(byte).collect::<String>());
    args.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn assert_says(log: &str, why: &str) {
    let mut ours = log.lines().filter(|line| line.contains("<lock>"));
    let has_escapes = ours.clone().any(|line| line.contains('\x1b'));
    let says = ours.any(|line| line.ends_with(why));
    assert!(says && !has_escapes, "{why}:\n{log}");
}

fn without_module(kind: Kind) -> Server {
    Server::start_without_module(kind, &MODULE_COMMAND)
}

/// `MODULE LOAD` or a similar command, with more arguments.
fn load(c: &mut Client, command: &str, words: &[&[u8]]) -> Reply {
    let module = module();
    let path = module.to_str().unwrap().as_bytes();
    let start = [b"MODULE", command.as_bytes(), path];
    c.send(&[&start, words].concat())
}

fn is_listed(c: &mut Client) -> bool {
    let list = c.call("MODULE LIST");
    let mut names = list.items().iter().map(|module| module.field("name"));
    names.any(|name| name == "lock".into())
}

fn module_load_refuses_bad_arguments(kind: Kind) {
    refuses(kind, "LOAD", &[]);
}

fn module_loadex_refuses_bad_arguments(kind: Kind) {
    refuses(kind, "LOADEX", &[b"ARGS"]);
}

fn refuses(kind: Kind, command: &str, before: &[&[u8]]) {
    let server = without_module(kind);
    let mut c = server.client();
    let mut read = 0;
    for (args, why) in bad_arguments() {
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let reply = load(&mut c, command, &[before, &args].concat());
        assert!(matches!(reply, Reply::Error(_)), "{args:?}: {reply:?}");
        let log = server.log();
        assert_says(&log[read..], why);
        read = log.len();
        assert!(!is_listed(&mut c));
        assert!(c.error("LOCK.INFO k").contains("unknown command"));
    }
    // A refused load leaves nothing behind.
    let good: [&[u8]; 2] = [b"max-waiters", b"7"];
    let reply = load(&mut c, command, &[before, &good].concat());
    assert_eq!(reply, Reply::Simple("OK".into()));
    assert!(c.int("LOCK.ACQUIRE k me 30000") > 0);
    let found = c.call("CONFIG GET lock.*");
    assert_eq!(found.field("lock.max-waiters"), "7".into());
    assert_eq!(found.field("lock.max-waiters-per-key"), "10000".into());
}

const NAME: &[u8] = b"lock.max-waiters";

/// Values that CONFIG does not accept.
fn bad_values() -> Vec<Vec<u8>> {
    let words = ["", "many", "-1", "1.5", "1000001", "18446744073709551617"];
    let words = words.into_iter().map(str::as_bytes);
    words.chain(EVIL).map(<[u8]>::to_vec).collect()
}

/// Settings that the module does not have.
const UNKNOWN: [&[u8]; 3] = [b"lock.unheard-of", b"lock.", b"lock.%s%n"];

fn module_loadex_refuses_bad_values(kind: Kind) {
    let server = without_module(kind);
    let mut c = server.client();
    for value in bad_values() {
        let reply = load(&mut c, "LOADEX", &[b"CONFIG", NAME, &value]);
        assert!(matches!(reply, Reply::Error(_)), "{value:?}: {reply:?}");
        assert!(!is_listed(&mut c));
    }
    // Either of these two needs the other.
    let words = [
        "CONFIG",
        "lock.max-ttl",
        "30000",
        "ARGS",
        "guard",
        "restart",
    ]
    .map(str::as_bytes);
    let words = [&[&b"CONFIG"[..], NAME, b"7"], &words[..]].concat();
    let reply = load(&mut c, "LOADEX", &words);
    assert_eq!(reply, Reply::Simple("OK".into()));
    let values = bad_values().into_iter().map(|value| (NAME, value));
    for (name, value) in values.chain(UNKNOWN.map(|name| (name, b"5".to_vec()))) {
        let reply = c.send(&[&b"CONFIG"[..], b"SET", name, &value]);
        assert!(matches!(reply, Reply::Error(_)), "{value:?}: {reply:?}");
    }
    // Both or neither.
    c.error("CONFIG SET lock.max-waiters 9 lock.max-waiters-per-key -1");
    let found = c.call("CONFIG GET lock.*");
    assert_eq!(found.field("lock.max-waiters"), "7".into());
    assert_eq!(found.items().len(), 2 * 13, "{found:?}");
}
