//! The grammar of every command against a second, naive parser. Every accepted command is decided
//! without a panic.

use redis_lock::command::acquire::{self, Acquire, Wait, Wanted};
use redis_lock::command::release::Release;
use redis_lock::command::renew::Renew;
use redis_lock::command::{info, rlock, Args, Decision, Error};
use redis_lock::lock::codec::{decode, encode_effect, Record};
use redis_lock::lock::{Effect, FenceClock, Lock, Now, Waiting};

const NOW: Now = Now::from_millis(1_000_000);

/// The longest ttl and timeout.
const MAX_MS: u128 = 1 << 48;

/// The first byte names the command, the others are its arguments with 0xff between them.
pub fn run(data: &[u8]) {
    let Some((command, rest)) = data.split_first() else {
        return;
    };
    let args: Vec<&[u8]> = match rest {
        [] => Vec::new(),
        rest => rest.split(|byte| *byte == 0xff).collect(),
    };
    match command % 5 {
        0 => take(acquire::WANTED, &args),
        1 => take(rlock::WANTED, &args),
        2 => renew(&args),
        3 => release(&args),
        _ => {
            let parsed = info::parse(Args::new(args.iter().copied()));
            assert_eq!(parsed.is_ok(), args.is_empty());
        }
    }
}

/// The options of a request, read in another way than the module does.
struct Options<'a> {
    /// The timeout, and the channel of NOTIFY.
    limit: Option<u128>,
    wait: Option<(u128, Option<&'a [u8]>)>,
    grace: Option<u128>,
    linger: Option<u128>,
}

impl Options<'_> {
    fn needs_own_token(&self) -> bool {
        self.grace.is_some() || self.wait.is_some_and(|(_, channel)| channel.is_some())
    }
}

/// `None` where they do not fit the grammar.
fn options<'a>(takes_limit: bool, words: &[&'a [u8]]) -> Option<Options<'a>> {
    let (mut rest, mut limit, mut wait) = (words, None, None);
    let (mut grace, mut linger) = (None, None);
    while !rest.is_empty() {
        let name = rest[0].to_ascii_uppercase();
        let timeout = |at: usize| number(rest.get(at)?).filter(|ms| *ms <= MAX_MS);
        let (used, is_new) = match name.as_slice() {
            b"BLOCK" => (2, wait.replace((timeout(1)?, None)).is_none()),
            b"NOTIFY" => {
                let channel = *rest.get(2)?;
                (3, wait.replace((timeout(1)?, Some(channel))).is_none())
            }
            b"LIMIT" if takes_limit => {
                let n = number(rest.get(1)?).filter(|n| (1..1 << 31).contains(n))?;
                (2, limit.replace(n).is_none())
            }
            b"KEEP" => {
                let ms = timeout(1).filter(|ms| (1..=3_600_000).contains(ms))?;
                (2, grace.replace(ms).is_none())
            }
            b"LINGER" => (2, linger.replace(timeout(1)?).is_none()),
            _ => return None,
        };
        if !is_new {
            return None;
        }
        rest = &rest[used..];
    }
    Some(Options {
        limit,
        wait,
        grace,
        linger,
    })
}

fn take(wanted: Wanted, args: &[&[u8]]) {
    let parsed = Acquire::parse(wanted, Args::new(args.iter().copied()));
    let options = options(wanted == Wanted::Limited, args.get(2..).unwrap_or_default());
    let expected = match (args, &options) {
        ([token, ttl, ..], Some(options)) => {
            let asks_again = *token != b"*" || !options.needs_own_token();
            is_token(token) && is_ttl(ttl) && asks_again
        }
        _ => false,
    };
    let (Some(request), Some(options)) = (judge(parsed, expected), options) else {
        return;
    };
    let wait = request.wait().map(|wait| match wait {
        Wait::Block(timeout) => (u128::from(timeout.ms), None),
        Wait::Notify(timeout, channel) => (u128::from(timeout.ms), Some(channel)),
    });
    assert_eq!(wait, options.wait);
    assert_eq!(request.keep_ms().map(u128::from), options.grace);
    assert_eq!(request.linger_ms().map(u128::from), options.linger);
    let ask = request.ask();
    match (wanted, options.limit) {
        (Wanted::Mode(mode), _) => assert_eq!(ask.mode, mode),
        (Wanted::Limited, limit) => {
            assert_eq!(u128::from(ask.mode.tolerates()), limit.unwrap_or(1));
        }
    }
    assert_eq!(Some(u128::from(ask.ttl.ms())), number(args[1]));
    assert_eq!(request.is_made(), args[0] == b"*");
    if request.is_made() {
        assert_eq!(ask.token.as_bytes().len(), 36);
    } else {
        assert_eq!(ask.token.as_bytes(), args[0]);
    }
    for lock in locks() {
        let decision = request.decide(
            lock.as_ref(),
            NOW,
            Waiting::default(),
            &mut FenceClock::new(),
        );
        follow(&decision);
        if lock.is_none() {
            assert!(matches!(decision, Decision::Change { .. }), "{decision:?}");
        }
    }
}

fn renew(args: &[&[u8]]) {
    let parsed = Renew::parse(Args::new(args.iter().copied()));
    let expected = matches!(args, [token, ttl] if is_token(token) && is_ttl(ttl));
    if let Some(request) = judge(parsed, expected) {
        for lock in locks() {
            follow(&request.decide(lock.as_ref(), NOW));
        }
    }
}

fn release(args: &[&[u8]]) {
    let parsed = Release::parse(Args::new(args.iter().copied()));
    let expected = match args {
        [token] => is_token(token),
        [token, option, ms] => {
            let is_option = option.eq_ignore_ascii_case(b"ATLEAST");
            is_token(token) && is_option && number(ms).is_some_and(|ms| ms <= MAX_MS)
        }
        _ => false,
    };
    if let Some(request) = judge(parsed, expected) {
        for lock in locks() {
            follow(&request.decide(lock.as_ref(), || None, NOW).0);
        }
    }
}

/// Fails if the two parsers differ.
fn judge<T: std::fmt::Debug>(parsed: Result<T, Error>, expected: bool) -> Option<T> {
    assert_eq!(parsed.is_ok(), expected, "{parsed:?}");
    parsed.ok()
}

/// The effect of a decision must reach the other servers unchanged.
fn follow(decision: &Decision<'_>) {
    if let Decision::Change { effect, .. } = decision {
        let mut bytes = Vec::new();
        encode_effect(effect, &mut bytes);
        assert_eq!(decode(&bytes), Ok(Record::Effect(*effect)));
    }
}

fn is_token(bytes: &[u8]) -> bool {
    (1..=512).contains(&bytes.len())
}

fn is_ttl(bytes: &[u8]) -> bool {
    number(bytes).is_some_and(|ms| (1..=MAX_MS).contains(&ms))
}

fn number(bytes: &[u8]) -> Option<u128> {
    let text = std::str::from_utf8(bytes).ok()?;
    let number: u128 = text.parse().ok()?;
    // The standard library also accepts signs and leading zeros.
    (number.to_string() == text).then_some(number)
}

/// A free lock, and some that are held.
fn locks() -> Vec<Option<Lock>> {
    let record = |mode: u8, tokens: &[&[u8]]| {
        let mut bytes = vec![1, 1, mode];
        for (n, token) in tokens.iter().enumerate() {
            bytes.extend((n as u64 + 1).to_le_bytes());
            bytes.extend((NOW.ms() + 5).to_le_bytes());
            bytes.extend(NOW.ms().to_le_bytes());
            bytes.extend((token.len() as u16).to_le_bytes());
            bytes.extend(*token);
        }
        match decode(&bytes) {
            Ok(Record::State(lock)) => Some(lock),
            other => panic!("{other:?}"),
        }
    };
    let mut over = record(2, &[b"a", b"b"]);
    let deadline = redis_lock::lock::Deadline::from_millis(1).expect("an instant");
    if let Some(lock) = &mut over {
        assert_eq!(
            Effect::Cap { deadline }.apply_to(lock),
            redis_lock::lock::Fate::Held
        );
    }
    vec![
        None,
        record(1, &[b"a"]),
        record(2, &[b"a"]),
        record(2, &[b"a", b"b"]),
        over,
    ]
}
