//! Scenarios as text, and how they are played: CONTRIBUTING.md describes the format.
//!
//! A [`Stage`] is a server, in memory or a real one. Both read the same files with this one reader,
//! and compare answers by the same rules.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A file.
pub struct Scenario {
    pub path: PathBuf,
    /// Where it is played.
    pub servers: Servers,
    /// Settings that differ from the default, each with its value.
    pub settings: Vec<(String, String)>,
    pub lines: Vec<Line>,
}

/// The servers on which a scenario is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Servers {
    /// Only the one in memory, which plays the next two kinds, too.
    None,
    /// The oldest one and the newest one.
    Ends,
    All,
    /// All real ones: the one in memory cannot do what is in it.
    Real,
}

/// What happens, or must be seen, in one line.
pub struct Line {
    pub number: usize,
    pub step: Step,
}

pub enum Step {
    /// A client sends a command.
    Ask(String, Words, Expected),
    /// A client sends commands in one transaction.
    Transaction(String, Vec<Words>, Vec<Expected>),
    /// A waiting client has its answer, or none.
    Gets(String, Expected),
    /// A client's connection ends.
    Killed(String),
    /// CLIENT UNBLOCK with an error.
    Unblocked(String),
    /// Somebody subscribes to a channel, or leaves it.
    Listens(String),
    Left(String),
    /// A message is published.
    Hears(String, Message, Expected),
    /// Time goes on, in milliseconds.
    After(u64),
    /// The timer has nothing to do for so many milliseconds.
    Rests(u64),
    Demoted,
    Promoted,
    /// What is known of a lock.
    Shows(Shown, String, Vec<String>),
    /// The counters that have grown since the last look.
    Counted(Counts),
}

pub type Words = Vec<String>;
pub type Counts = BTreeMap<String, u64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The tokens that hold it, in the order of their fences.
    Holders,
    /// The tokens that wait for it, in the order of the queue. Behind each may stand its mode, and
    /// who listens: `client`, `channel` or `absent`.
    Waiters,
    /// `exclusive`, `shared`, `counted 3`, `free` with waiters only, or `nothing`.
    Mode,
}

/// What a message says besides the fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `granted`, `timeout` and so on.
    pub event: String,
    pub key: String,
    pub token: String,
}

/// An answer as the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The fence with this number among the fences of the file, in the order of their grants.
    Fence(u32),
    SomeFence,
    /// A fence with a token that the server has generated, or with an early result.
    Made(u32),
    /// A result.
    Text(String),
    Null,
    Int(i64),
    /// So much, or up to 10,000 less; 10 more, because clocks differ.
    About(i64),
    /// A status such as OK.
    Status(String),
    /// An error that begins with these words.
    Error(String),
    /// None for now: the client waits.
    Waits,
    /// An error that says so, or the end of the connection.
    SentAway,
}

/// An answer as a server gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Null,
    Int(i64),
    Made(i64),
    Text(String),
    Status(String),
    Error(String),
    Waits,
    Broken,
    /// Of another kind, printed.
    Other(String),
}

/// Statuses, which look like errors.
const STATUSES: [&str; 3] = ["OK", "PONG", "QUEUED"];

/// The folder of the files.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(super::SCENARIOS)
}

/// All files, in the order of their names.
pub fn files() -> Vec<PathBuf> {
    let entries = fs::read_dir(folder()).expect("the folder of scenarios");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_text = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "txt");
    let mut files: Vec<_> = paths.filter(is_text).collect();
    files.sort();
    files
}

impl Scenario {
    /// Reads a file. The error names the line.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{path:?}: {error}"))?;
        Self::parse(path, &text)
    }

    pub fn parse(path: &Path, text: &str) -> Result<Self, String> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let header = |name: &str| {
            let start = format!("# {name}: ");
            text.lines().find_map(|line| line.strip_prefix(&start))
        };
        header("Why").ok_or(format!("{name}:1: no line `# Why: …`"))?;
        let servers = match header("servers") {
            Some("memory") => Servers::None,
            Some("memory, 7.0 and Valkey 9") => Servers::Ends,
            Some("memory, all") => Servers::All,
            Some("all, not in memory") => Servers::Real,
            other => return Err(format!("{name}:1: `# servers: …` is {other:?}")),
        };
        let settings = header("settings").into_iter();
        let settings = settings.flat_map(|all| all.split(", "));
        let pair = |one: &str| {
            one.split_once(' ')
                .map(|(name, value)| (name.to_string(), value.to_string()))
        };
        let settings: Option<Vec<_>> = settings.map(pair).collect();
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let step = step(line).map_err(|why| format!("{name}:{number}: {why}: {line}"))?;
            lines.push(Line { number, step });
        }
        Ok(Self {
            path: path.to_path_buf(),
            servers,
            settings: settings.ok_or(format!("{name}:1: a setting has no value"))?,
            lines,
        })
    }
}

fn words(text: &str) -> Words {
    text.split_whitespace().map(str::to_string).collect()
}

fn milliseconds(text: &str) -> Result<u64, String> {
    let number = text.trim().strip_suffix(" ms");
    let number = number.and_then(|number| number.parse().ok());
    number.ok_or("the time must be `N ms`".to_string())
}

fn step(line: &str) -> Result<Step, String> {
    if let Some(time) = line.strip_prefix("after ") {
        return Ok(Step::After(milliseconds(time)?));
    }
    if let Some(time) = line.strip_prefix("the timer rests for ") {
        return Ok(Step::Rests(milliseconds(time)?));
    }
    let (who, what) = line.split_once(": ").ok_or("no `name: `")?;
    let what = what.trim();
    let lists = [
        ("holders of ", Shown::Holders),
        ("waiters of ", Shown::Waiters),
        ("mode of ", Shown::Mode),
    ];
    for (start, shown) in lists {
        if let Some(key) = who.strip_prefix(start) {
            let all = what.split(", ").filter(|one| *one != "nobody");
            let all = all.map(str::to_string).collect();
            return Ok(Step::Shows(shown, key.to_string(), all));
        }
    }
    if let Some(channel) = who.strip_prefix("channel ") {
        return of_channel(channel.to_string(), what);
    }
    if who.contains(char::is_whitespace) {
        return Err("a client's name is one word".into());
    }
    match (who, what) {
        ("counted", "nothing") => Ok(Step::Counted(Counts::new())),
        ("counted", _) => {
            let pair = |one: &str| {
                let (name, n) = one.split_once(' ')?;
                Some((name.to_string(), n.parse().ok()?))
            };
            let all: Option<_> = what.split(", ").map(pair).collect();
            all.map(Step::Counted).ok_or("a counter is `name N`".into())
        }
        ("server", "demoted") => Ok(Step::Demoted),
        ("server", "promoted") => Ok(Step::Promoted),
        ("server", _) => Err("a server is `demoted` or `promoted`".into()),
        _ => of_client(who.to_string(), what),
    }
}

fn of_channel(channel: String, what: &str) -> Result<Step, String> {
    let words: Vec<_> = what.split_whitespace().collect();
    let message = |event: &str, key: &str, token: &str| Message {
        event: event.into(),
        key: key.into(),
        token: token.into(),
    };
    match words[..] {
        ["listens"] => Ok(Step::Listens(channel)),
        ["left"] => Ok(Step::Left(channel)),
        ["granted", key, token, "fence", fence] => {
            let fence = fence.parse().map_err(|_| "a fence is a number")?;
            let message = message("granted", key, token);
            Ok(Step::Hears(channel, message, Expected::Fence(fence)))
        }
        [event, key, token] => {
            let message = message(event, key, token);
            Ok(Step::Hears(channel, message, Expected::Int(0)))
        }
        _ => Err("a channel `listens`, is `left`, or hears `event key token`".into()),
    }
}

fn of_client(who: String, what: &str) -> Result<Step, String> {
    match what {
        "killed" => return Ok(Step::Killed(who)),
        "unblocked" => return Ok(Step::Unblocked(who)),
        "sent away" => return Ok(Step::Gets(who, Expected::SentAway)),
        _ => {}
    }
    if let Some(answer) = what.strip_prefix("gets ") {
        return match answer.trim() {
            "nothing" => Ok(Step::Gets(who, Expected::Waits)),
            answer => Ok(Step::Gets(who, expected(answer)?)),
        };
    }
    let (command, answer) = what.split_once("->").ok_or("no `-> answer`")?;
    let answer = answer.trim();
    let Some(commands) = command.trim().strip_prefix("MULTI |") else {
        return Ok(Step::Ask(who, words(command), expected(answer)?));
    };
    let commands = commands.trim().strip_suffix("| EXEC");
    let commands = commands.ok_or("no `| EXEC` at the end of MULTI")?;
    let commands = commands.split('|').map(words).collect();
    let answers: Result<_, _> = answer.split(", ").map(expected).collect();
    Ok(Step::Transaction(who, commands, answers?))
}

fn expected(answer: &str) -> Result<Expected, String> {
    let number = |start: &str| {
        let rest = answer.strip_prefix(start)?;
        rest.trim().parse::<i64>().ok()
    };
    let fence = |start: &str| number(start).and_then(|fence| u32::try_from(fence).ok());
    if let Some(fence) = fence("fence ") {
        return Ok(Expected::Fence(fence));
    }
    let made = fence("a new token with fence ");
    if let Some(fence) = made.or_else(|| fence("an early value with fence ")) {
        return Ok(Expected::Made(fence));
    }
    if let Some(about) = number("about ") {
        return Ok(Expected::About(about));
    }
    if let Some(number) = number("") {
        return Ok(Expected::Int(number));
    }
    let first = answer.split(' ').next().unwrap_or_default();
    let is_code = first.len() > 1 && first.bytes().all(|byte| byte.is_ascii_uppercase());
    match answer {
        "a fence" => Ok(Expected::SomeFence),
        "null" => Ok(Expected::Null),
        "waits" => Ok(Expected::Waits),
        "sent away" => Ok(Expected::SentAway),
        _ if STATUSES.contains(&answer) => Ok(Expected::Status(answer.into())),
        _ if first == "value" => Ok(Expected::Text(answer[first.len()..].trim().into())),
        _ if is_code => Ok(Expected::Error(answer.into())),
        _ => Err(format!("`{answer}` is no answer")),
    }
}

/// The fences of a file. A smaller number stands for an older fence.
#[derive(Default)]
pub struct Fences(BTreeMap<u32, i64>);

impl Fences {
    fn is(&mut self, number: u32, fence: i64) -> Result<(), String> {
        if let Some(known) = self.0.get(&number) {
            return match *known == fence {
                true => Ok(()),
                false => Err(format!("fence {number} was {known} before")),
            };
        }
        let is_older = self.0.range(..number).all(|(_, older)| *older < fence);
        let is_newer = self.0.range(number..).all(|(_, newer)| *newer > fence);
        if !is_older || !is_newer {
            return Err(format!("it is not in order with {:?}", self.0));
        }
        self.0.insert(number, fence);
        Ok(())
    }

    /// Compares an answer.
    pub fn compare(&mut self, expected: &Expected, answer: &Answer) -> Result<(), String> {
        let starts = |text: &str, start: &str| {
            let rest = text.strip_prefix(start);
            rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
        };
        let is_it = match (expected, answer) {
            (Expected::Fence(number), Answer::Int(fence))
            | (Expected::Made(number), Answer::Made(fence)) => {
                let is = self.is(*number, *fence);
                return is.map_err(|why| format!("expected {expected:?}, got {fence}: {why}"));
            }
            (Expected::Null, Answer::Null) | (Expected::Waits, Answer::Waits) => true,
            // Other numbers are small.
            (Expected::SomeFence, Answer::Int(fence)) => *fence > 1_000,
            (Expected::Int(one), Answer::Int(other)) => one == other,
            (Expected::About(about), Answer::Int(n)) => (about - 10_000..=about + 10).contains(n),
            (Expected::Status(one), Answer::Status(other)) => one == other,
            (Expected::Text(one), Answer::Text(other)) => one == other,
            (Expected::Error(start), Answer::Error(text)) => starts(text, start),
            (Expected::SentAway, Answer::Error(text)) => {
                starts(text, "UNBLOCKED") || starts(text, "TRYAGAIN")
            }
            (Expected::SentAway, Answer::Broken) => true,
            _ => false,
        };
        match is_it {
            true => Ok(()),
            false => Err(format!("expected {expected:?}, got {answer:?}")),
        }
    }
}

/// A server with its clients. Each has a name, and connects when it is named first.
pub trait Stage {
    /// Sends a command, which is expected to wait or not.
    fn ask(&mut self, who: &str, words: &[String], waits: bool) -> Result<Answer, String>;
    /// Sends commands in one transaction. `KILL name` is CLIENT KILL.
    fn transaction(&mut self, who: &str, commands: &[Words]) -> Result<Vec<Answer>, String>;
    /// The answer that a waiting client must have, or have soon.
    fn gets(&mut self, who: &str) -> Result<Answer, String>;
    /// An answer or message that has come and that no line has told of.
    fn unexpected(&mut self) -> Option<String>;
    fn kill(&mut self, who: &str) -> Result<(), String>;
    fn unblock(&mut self, who: &str) -> Result<(), String>;
    fn listen(&mut self, channel: &str);
    fn leave(&mut self, channel: &str);
    /// The message that a channel must have, or have soon, and its fence, or 0.
    fn hears(&mut self, channel: &str) -> Result<(Message, i64), String>;
    fn after(&mut self, ms: u64);
    fn rests(&mut self, ms: u64) -> Result<(), String>;
    fn demote(&mut self) -> Result<(), String>;
    fn promote(&mut self) -> Result<(), String>;
    /// What is known of a lock, as expected if that comes soon.
    fn shows(&mut self, shown: Shown, key: &str, expected: &[String]) -> Vec<String>;
    /// The counters that have grown since the last look, as expected if that comes soon.
    fn counted(&mut self, expected: &Counts) -> Counts;
}

/// Whether a lock is as expected. What a line does not say of a waiter does not matter.
pub fn is_shown(expected: &[String], shown: &[String]) -> bool {
    let is_one = |(expected, shown): (&String, &String)| {
        let has = |word| shown.split(' ').any(|known| known == word);
        expected.split(' ').next() == shown.split(' ').next() && expected.split(' ').all(has)
    };
    expected.len() == shown.len() && expected.iter().zip(shown).all(is_one)
}

impl Scenario {
    /// Plays the file. The error names the line, with what was expected and what came.
    pub fn play(&self, stage: &mut impl Stage) -> Result<(), String> {
        let mut fences = Fences::default();
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        for line in &self.lines {
            let done = line.play(stage, &mut fences);
            done.map_err(|why| format!("{name}:{}: {why}", line.number))?;
        }
        match stage.unexpected() {
            Some(what) => Err(format!(
                "{name}: at the end: {what}, and no line tells of it"
            )),
            None => Ok(()),
        }
    }
}

impl Line {
    fn play(&self, stage: &mut impl Stage, fences: &mut Fences) -> Result<(), String> {
        // What time brings may come before the line that waits for it.
        if !matches!(self.step, Step::Gets(..) | Step::Hears(..) | Step::After(_)) {
            if let Some(what) = stage.unexpected() {
                return Err(format!("before this line: {what}, and no line tells of it"));
            }
        }
        match &self.step {
            Step::Ask(who, words, expected) => {
                let answer = stage.ask(who, words, *expected == Expected::Waits)?;
                fences.compare(expected, &answer)
            }
            Step::Transaction(who, commands, expected) => {
                let answers = stage.transaction(who, commands)?;
                if answers.len() != expected.len() {
                    return Err(format!("expected {expected:?}, got {answers:?}"));
                }
                let mut pairs = expected.iter().zip(&answers);
                pairs.try_for_each(|(expected, answer)| fences.compare(expected, answer))
            }
            Step::Gets(who, Expected::Waits) => match stage.unexpected() {
                Some(what) => Err(format!("{who} was to wait on: {what}")),
                None => Ok(()),
            },
            Step::Gets(who, expected) => {
                let answer = stage.gets(who)?;
                fences.compare(expected, &answer)
            }
            Step::Killed(who) => stage.kill(who),
            Step::Unblocked(who) => stage.unblock(who),
            Step::Listens(channel) => {
                stage.listen(channel);
                Ok(())
            }
            Step::Left(channel) => {
                stage.leave(channel);
                Ok(())
            }
            Step::Hears(channel, expected, fence) => {
                let (message, of) = stage.hears(channel)?;
                if message != *expected {
                    return Err(format!("expected {expected:?}, got {message:?}"));
                }
                fences.compare(fence, &Answer::Int(of))
            }
            Step::After(ms) => {
                stage.after(*ms);
                Ok(())
            }
            Step::Rests(ms) => stage.rests(*ms),
            Step::Demoted => stage.demote(),
            Step::Promoted => stage.promote(),
            Step::Shows(what, key, expected) => {
                let shown = stage.shows(*what, key, expected);
                match is_shown(expected, &shown) {
                    true => Ok(()),
                    false => Err(format!("expected {expected:?}, got {shown:?}")),
                }
            }
            Step::Counted(expected) => match stage.counted(expected) {
                counted if counted == *expected => Ok(()),
                counted => Err(format!("expected {expected:?}, got {counted:?}")),
            },
        }
    }
}
