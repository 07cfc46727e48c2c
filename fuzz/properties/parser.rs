//! The grammar of every command against a second, naive parser. Every accepted command is decided
//! without a panic.

use redis_lock::command::acquire::{self, Acquire, AskedMode, Wait};
use redis_lock::command::macquire::{AllOrNone, Has, Macquire};
use redis_lock::command::spec::{Arg, KeyWords, Kind};
use redis_lock::command::{
    cancel, check, exec, info, log, release, renew, rlock, top, wlock, Args, Command, Error,
};
use redis_lock::lock::codec::{decode, encode_effect, Record};
use redis_lock::lock::{Effect, Fence, FenceClock, Lock, Mode, Now, Waiting};

const NOW: Now = Now::from_millis(1_000_000);

/// The longest ttl and timeout.
const MAX_MS: u128 = 1 << 48;

/// The first byte is the place of the command in [`Command::ALL`]. The others are its arguments, with
/// 0xff between them.
pub fn run(data: &[u8]) {
    let Some((place, rest)) = data.split_first() else {
        return;
    };
    let args: Vec<&[u8]> = match rest {
        [] => Vec::new(),
        rest => rest.split(|byte| *byte == 0xff).collect(),
    };
    let command = Command::ALL[usize::from(*place) % Command::ALL.len()];
    if command.parse(&args).is_ok() {
        assert!(fits(command, &args), "{command:?}");
    }
    match command {
        Command::Acquire => take(acquire::WANTED, &args),
        Command::Wlock => take(wlock::WANTED, &args),
        Command::Rlock => take(rlock::WANTED, &args),
        Command::Macquire => take_several(&args),
        Command::Release => released(&args),
        Command::Cancel => cancelled(&args),
        Command::Renew => renewed(&args),
        Command::Check => checked(&args),
        Command::Exec => guard(&args),
        Command::Info => show(&args),
        Command::Top => count(&args),
        Command::Log => entries(&args),
        // The grammar is all.
        _ => {}
    }
}

/// Whether the words are those of the command's description. It names no bounds.
fn fits(command: Command, words: &[&[u8]]) -> bool {
    let spec = command.spec();
    // A primary of another version may send empty words at the end.
    let is_effect = matches!(command, Command::Apply);
    let end = words
        .iter()
        .rposition(|word| !is_effect || !word.is_empty());
    let args: Vec<_> = match spec.keys {
        KeyWords::One(_) | KeyWords::Two(..) | KeyWords::ByCallback { .. } => {
            spec.args.iter().skip(1).collect()
        }
        KeyWords::None | KeyWords::Counted { .. } => spec.args.iter().collect(),
    };
    fit(&args, &words[..end.map_or(0, |end| end + 1)])
}

/// Whether the arguments can be read as these. Those that may be left out come in any order.
fn fit(args: &[&Arg], words: &[&[u8]]) -> bool {
    if args.iter().all(|arg| arg.is_optional) && words.is_empty() {
        return true;
    }
    let optional = args.iter().take_while(|arg| arg.is_optional).count();
    (0..args.len().min(optional + 1)).any(|at| {
        let mut others = args.to_vec();
        let arg = others.remove(at);
        // What was left out in front of a required one does not come later.
        let others = if at == optional {
            &others[at..]
        } else {
            &others
        };
        let mut rests = rests(arg, words);
        rests.any(|rest| fit(others, rest))
    })
}

/// What may be left of the words after an argument.
fn rests<'a>(arg: &Arg, words: &'a [&'a [u8]]) -> Box<dyn Iterator<Item = &'a [&'a [u8]]> + 'a> {
    let named = match (arg.token, words) {
        (None, _) => words,
        (Some(token), [first, rest @ ..]) if first.eq_ignore_ascii_case(token.to_bytes()) => rest,
        _ => return Box::new(std::iter::empty()),
    };
    let (kind, most) = (arg.kind, if arg.is_multiple { named.len() } else { 1 });
    let once = move |words: &&'a [&'a [u8]]| value(kind, words);
    Box::new(std::iter::successors(once(&named), once).take(most))
}

/// What is left of the words after one value.
fn value<'a>(kind: Kind, words: &'a [&'a [u8]]) -> Option<&'a [&'a [u8]]> {
    match kind {
        Kind::PureToken => Some(words),
        Kind::Key | Kind::Text => words.get(1..),
        Kind::Integer => number(words.first()?).and(words.get(1..)),
        Kind::OneOf(args) => args.iter().find_map(|arg| rests(arg, words).next()),
        Kind::Block(args) => {
            let mut args = args.iter();
            args.try_fold(words, |words, arg| rests(arg, words).next())
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
    modes: Option<Vec<Mode>>,
}

/// Which options a command takes besides those of all.
#[derive(Clone, Copy)]
enum Takes {
    Nothing,
    Limit,
    /// MODES, with so many words.
    Modes(usize),
}

impl Options<'_> {
    fn needs_own_token(&self) -> bool {
        self.grace.is_some() || self.wait.is_some_and(|(_, channel)| channel.is_some())
    }
}

/// `None` where they do not fit the grammar.
fn options<'a>(takes: Takes, words: &[&'a [u8]]) -> Option<Options<'a>> {
    let (mut rest, mut limit, mut wait) = (words, None, None);
    let (mut grace, mut linger, mut modes) = (None, None, None);
    while !rest.is_empty() {
        let name = rest[0].to_ascii_uppercase();
        let timeout = |at: usize| number(rest.get(at)?).filter(|ms| *ms <= MAX_MS);
        let (used, is_new) = match name.as_slice() {
            b"BLOCK" => (2, wait.replace((timeout(1)?, None)).is_none()),
            b"NOTIFY" => {
                let channel = *rest.get(2).filter(|name| name.len() <= 1_024)?;
                (3, wait.replace((timeout(1)?, Some(channel))).is_none())
            }
            b"LIMIT" if matches!(takes, Takes::Limit) => {
                let n = number(rest.get(1)?).filter(|n| (1..1 << 31).contains(n))?;
                (2, limit.replace(n).is_none())
            }
            b"MODES" => {
                let Takes::Modes(count) = takes else {
                    return None;
                };
                let named = rest.get(1..1 + count)?.iter().map(|word| named_mode(word));
                (
                    1 + count,
                    modes.replace(named.collect::<Option<_>>()?).is_none(),
                )
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
        modes,
    })
}

fn named_mode(word: &[u8]) -> Option<Mode> {
    match word.to_ascii_uppercase().as_slice() {
        b"EXCLUSIVE" => Some(Mode::Exclusive),
        b"SHARED" => Some(Mode::Shared),
        _ => None,
    }
}

/// Whether a token and a ttl fit, and the options behind them.
fn is_request(words: &[&[u8]], options: Option<&Options<'_>>) -> bool {
    match (words, options) {
        ([token, ttl, ..], Some(options)) => {
            let asks_again = *token != b"*" || !options.needs_own_token();
            is_token(token) && is_ttl(ttl) && asks_again
        }
        _ => false,
    }
}

/// The words that all commands have which take a hold are understood alike.
fn judge_request(request: &Acquire<'_>, words: &[&[u8]], options: &Options<'_>) {
    let wait = request.wait().map(|wait| match wait {
        Wait::Block(ms) => (u128::from(ms), None),
        Wait::Notify(ms, channel) => (u128::from(ms), Some(channel)),
    });
    assert_eq!(wait, options.wait);
    assert_eq!(request.keep_ms().map(u128::from), options.grace);
    assert_eq!(request.linger_ms().map(u128::from), options.linger);
    let ask = request.ask();
    assert_eq!(Some(u128::from(ask.ttl.ms())), number(words[1]));
    assert_eq!(request.is_made(), words[0] == b"*");
    if request.is_made() {
        assert_eq!(ask.token.as_bytes().len(), 36);
    } else {
        assert_eq!(ask.token.as_bytes(), words[0]);
    }
}

fn take(wanted: AskedMode, args: &[&[u8]]) {
    let parsed = Acquire::parse(wanted, Args::new(args.iter().copied()));
    let takes = match wanted {
        AskedMode::Limited => Takes::Limit,
        AskedMode::Mode(_) => Takes::Nothing,
    };
    let options = options(takes, args.get(2..).unwrap_or_default());
    let expected = is_request(args, options.as_ref());
    let (Some(request), Some(options)) = (judge(parsed, expected), options) else {
        return;
    };
    judge_request(&request, args, &options);
    let ask = request.ask();
    match (wanted, options.limit) {
        (AskedMode::Mode(mode), _) => assert_eq!(ask.mode, mode),
        (AskedMode::Limited, limit) => {
            assert_eq!(u128::from(ask.mode.tolerates()), limit.unwrap_or(1));
        }
    }
    for lock in locks() {
        let (waiting, mut fences) = (Waiting::default(), FenceClock::default());
        let granted = Lock::acquire(lock.as_ref(), ask, NOW, waiting, &mut fences);
        follow(granted.ok().map(|grant| grant.effect(ask.token)));
        assert!(lock.is_some() || granted.is_ok(), "{granted:?}");
    }
}

/// LOCK.MACQUIRE.
fn take_several(args: &[&[u8]]) {
    let parsed = Macquire::parse(Args::new(args.iter().copied()));
    let count = args.first().and_then(|word| number(word));
    let count = count.filter(|count| (1..=128).contains(count));
    let count = count.map_or(0, |count| count as usize);
    let keys = args.get(1..1 + count).unwrap_or_default();
    let words = args.get(1 + count..).unwrap_or_default();
    let options = options(Takes::Modes(count), words.get(2..).unwrap_or_default());
    let is_twice = |at: usize| keys[..at].contains(&keys[at]);
    let expected = count > 0
        && keys.len() == count
        && !(0..count).any(is_twice)
        && is_request(words, options.as_ref());
    let (Some(request), Some(options)) = (judge(parsed, expected), options) else {
        return;
    };
    judge_request(request.acquire(), words, &options);
    let modes = options.modes.unwrap_or(vec![Mode::Exclusive; count]);
    let wanted: Vec<_> = keys.iter().copied().zip(modes).collect();
    assert!(request.keys().eq(wanted.iter().copied()));
    decide_several(&request, &wanted);
}

/// Decides on every lock as that of the first key, and the following ones for the others.
fn decide_several(request: &Macquire<'_>, wanted: &[(&[u8], Mode)]) {
    let token = request.acquire().ask().token;
    let locks = locks();
    for shift in 0..locks.len() {
        let has = |(at, (_, mode)): (usize, &(&[u8], Mode))| {
            let lock = locks[(at + shift) % locks.len()].as_ref();
            match lock.and_then(|lock| lock.hold_of(token, NOW)) {
                Some((mode, hold)) => Has::Hold(mode, hold),
                None if Lock::admits(lock, *mode, token, NOW).is_ok() => Has::NothingFree,
                None => Has::NothingBusy,
            }
        };
        let all: Vec<_> = wanted.iter().enumerate().map(has).collect();
        let fences: Vec<_> = all.iter().filter_map(|has| fence_of(*has)).collect();
        let is_same = all.iter().zip(wanted).all(|(has, (_, wanted))| match has {
            Has::Hold(mode, hold) => mode == wanted && hold.fence == fences[0],
            _ => false,
        });
        let expected = if is_same {
            AllOrNone::Again(fences[0])
        } else if !fences.is_empty() {
            AllOrNone::Partial
        } else if all.contains(&Has::NothingBusy) {
            AllOrNone::Wait
        } else {
            AllOrNone::Grant
        };
        assert_eq!(request.decide(all.iter().copied()), expected, "{all:?}");
    }
}

fn fence_of(has: Has) -> Option<Fence> {
    match has {
        Has::Hold(_, hold) => Some(hold.fence),
        Has::NothingFree | Has::NothingBusy => None,
    }
}

/// LOCK.CHECK.
fn checked(args: &[&[u8]]) {
    let parsed = check::parse(Args::new(args.iter().copied()));
    let expected = matches!(args, [token] if is_owner(token));
    if let Some(token) = judge(parsed, expected) {
        assert_eq!(token.as_bytes(), args[0]);
    }
}

/// LOCK.CANCEL.
fn cancelled(args: &[&[u8]]) {
    let parsed = cancel::parse(Args::new(args.iter().copied()));
    let expected = match args {
        [] => Some(None),
        [option, token] if option.eq_ignore_ascii_case(b"TOKEN") && is_owner(token) => {
            Some(Some(*token))
        }
        _ => None,
    };
    if let Some(token) = judge(parsed, expected.is_some()) {
        assert_eq!(Some(token.map(|token| token.as_bytes())), expected);
    }
}

/// LOCK.EXEC. What follows the command belongs to that.
fn guard(args: &[&[u8]]) {
    let parsed = exec::parse(Args::new(args.iter().copied()));
    let expected = match args {
        [token, command, ..] => is_owner(token) && !command.eq_ignore_ascii_case(b"select"),
        _ => false,
    };
    if let Some((token, command)) = judge(parsed, expected) {
        assert_eq!((token.as_bytes(), command), (args[0], args[1]));
        let is_nested = command.eq_ignore_ascii_case(b"LOCK.EXEC");
        assert_eq!(exec::is_this(command), is_nested);
    }
}

/// LOCK.TOP.
fn count(args: &[&[u8]]) {
    let parsed = top::parse(Args::new(args.iter().copied()));
    let is_option = |word: &[u8]| word.eq_ignore_ascii_case(b"contended");
    let expected = match args {
        [] => Some((10, false)),
        [option] if is_option(option) => Some((10, true)),
        [count] => from_one(count).map(|count| (count, false)),
        [count, option] if is_option(option) => from_one(count).map(|count| (count, true)),
        _ => None,
    };
    if let Some(top) = judge(parsed, expected.is_some()) {
        let expected = expected.map(|(count, option)| (count.min(3_000), option));
        assert_eq!(Some((top.count as u128, top.is_contended)), expected);
    }
}

/// LOCK.INFO.
fn show(args: &[&[u8]]) {
    let parsed = info::parse(Args::new(args.iter().copied()));
    let is_number = |word| number(word).is_some_and(|n| n <= u128::from(u64::MAX));
    let names = args.iter().step_by(2).map(|word| word.to_ascii_uppercase());
    let names: Vec<_> = names.collect();
    let names: Vec<_> = names.iter().map(Vec::as_slice).collect();
    let is_known = |name: &&[u8]| [&b"HOLDERS"[..], b"WAITERS"].contains(name);
    let is_right = args.len() % 2 == 0
        && names.iter().all(is_known)
        && (names.len() < 2 || names.len() == 2 && names[0] != names[1])
        && args.iter().skip(1).step_by(2).all(|word| is_number(word));
    judge(parsed, is_right);
}

/// LOCK.LOG.
fn entries(args: &[&[u8]]) {
    let parsed = log::parse(Args::new(args.iter().copied()));
    let expected = match args {
        [] => Some(10),
        [count] => from_one(count),
        _ => None,
    };
    if let Some(count) = judge(parsed, expected.is_some()) {
        assert_eq!(Some(count as u128), expected);
    }
}

fn from_one(word: &[u8]) -> Option<u128> {
    number(word).filter(|count| (1..=u128::from(u64::MAX)).contains(count))
}

fn renewed(args: &[&[u8]]) {
    let parsed = renew::parse(Args::new(args.iter().copied()));
    let expected = matches!(args, [token, ttl] if is_owner(token) && is_ttl(ttl));
    if let Some((token, ttl)) = judge(parsed, expected) {
        let told = (token.as_bytes(), Some(u128::from(ttl.ms())));
        assert_eq!(told, (args[0], number(args[1])));
        for lock in locks() {
            follow(lock.and_then(|lock| lock.renew(token, ttl, NOW)));
        }
    }
}

fn released(args: &[&[u8]]) {
    let parsed = release::parse(Args::new(args.iter().copied()));
    let expected = match args {
        [token] => is_owner(token),
        [token, option, ms] => {
            let is_option = option.eq_ignore_ascii_case(b"ATLEAST");
            is_owner(token) && is_option && number(ms).is_some_and(|ms| ms <= MAX_MS)
        }
        _ => false,
    };
    if let Some((token, ms)) = judge(parsed, expected) {
        let at_least_ms = args.get(2).map_or(Some(0), |ms| number(ms));
        assert_eq!(
            (token.as_bytes(), Some(u128::from(ms))),
            (args[0], at_least_ms)
        );
        for lock in locks() {
            let ended = lock.and_then(|lock| lock.release_at_least(token, ms, None, NOW));
            follow(ended.map(|(effect, _)| effect));
        }
    }
}

/// Fails if the two parsers differ.
fn judge<T: std::fmt::Debug>(parsed: Result<T, Error>, expected: bool) -> Option<T> {
    assert_eq!(parsed.is_ok(), expected, "{parsed:?}");
    parsed.ok()
}

/// The effect of a decision must reach the other servers unchanged.
fn follow(effect: Option<Effect<'_>>) {
    if let Some(effect) = effect {
        let mut bytes = Vec::new();
        encode_effect(&effect, &mut bytes);
        assert_eq!(decode(&bytes), Ok(Record::Effect(effect)));
    }
}

/// Whether a token names an owner that there is. Only an acquire leaves it to the server.
fn is_owner(bytes: &[u8]) -> bool {
    is_token(bytes) && bytes != b"*"
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
