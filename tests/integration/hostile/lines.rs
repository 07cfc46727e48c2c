//! Commands that are almost, or not at all, valid.

use rand::rngs::StdRng;
use rand::RngExt;

pub fn random_line(rng: &mut StdRng, megabyte: &[u8]) -> Vec<Vec<u8>> {
    const COMMANDS: [&str; 8] = [
        "LOCK.ACQUIRE",
        "RWLOCK.WLOCK",
        "RWLOCK.RLOCK",
        "LOCK.RELEASE",
        "LOCK.RENEW",
        "LOCK.INFO",
        "lock._apply",
        "lock._release",
    ];
    const KEYS: [&[u8]; 6] = [b"a", b"b", b"", b"\0\r\n", b"\xff", b"string"];
    const TOKENS: [&[u8]; 8] = [b"t", b"u", b"*", b"", b"-1", b"\0", b"\xc3\x28", b"%s%n%p"];
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
    // No wait here is longer than this client's own limit.
    const OPTIONS: [&[&str]; 12] = [
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
    ];
    let command = COMMANDS[rng.random_range(0..COMMANDS.len())];
    let mut args = vec![command.as_bytes().to_vec()];
    args.push(KEYS[rng.random_range(0..KEYS.len())].to_vec());
    args.push(TOKENS[rng.random_range(0..TOKENS.len())].to_vec());
    args.push(NUMBERS[rng.random_range(0..NUMBERS.len())].to_vec());
    // As many arguments as the command takes, or a few more or less.
    let fitting = match command {
        "LOCK.INFO" => 2,
        "LOCK.RELEASE" | "lock._apply" | "lock._release" => 3,
        _ => 4,
    };
    if rng.random_bool(0.8) {
        args.truncate(fitting);
    } else {
        args.truncate(rng.random_range(1..=4));
    }
    if fitting == 4 || rng.random_bool(0.05) {
        let options = OPTIONS[rng.random_range(0..OPTIONS.len())];
        args.extend(options.iter().map(|option| option.as_bytes().to_vec()));
    }
    if rng.random_bool(0.2) {
        let at = rng.random_range(1..=args.len());
        let odd = match rng.random_range(0..20) {
            0 => megabyte.to_vec(),
            _ => (0..rng.random_range(0..600))
                .map(|_| rng.random())
                .collect(),
        };
        match rng.random_bool(0.5) && at < args.len() {
            true => args[at] = odd,
            false => args.insert(at, odd),
        }
    }
    args
}
