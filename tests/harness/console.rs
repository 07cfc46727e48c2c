//! Runs the examples of the documents with a real redis-cli: each prints what the document shows.
//!
//! A `console` block is a session on a server that starts empty. A line after the prompt of
//! redis-cli is a command. So is a line after the prompt of a shell, `$ redis-cli -3 …`: `-3`
//! selects RESP3, and `&` at the end leaves the command waiting. Its output follows the command
//! that ends its wait. A `SUBSCRIBE` in the background prints each message after the command that
//! published it.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::thread;
use std::time::Duration;

use super::client::Reply;
use super::files::redis_cli;
use super::server::{wait_for, Server};

const PROMPT: &str = "127.0.0.1:6379> ";
const SHELL: &str = "$ redis-cli ";
const RESP3: &str = "-3 ";

/// One command of a session.
struct Example<'d> {
    line: &'d str,
    resp3: bool,
    in_background: bool,
    expected: String,
}

/// Runs the console examples of a document. Returns their number.
#[track_caller]
pub fn run_examples(server: &Server, document: &str) -> usize {
    let mut run = 0;
    for block in document.split("```console\n").skip(1) {
        let examples = examples(block.split("```").next().unwrap_or_default());
        run += examples.len();
        run_session(server, &examples);
        clear(server, &examples);
    }
    run
}

/// Ends the places that a session has left, which are no data, and deletes its data and statistics.
fn clear(server: &Server, examples: &[Example<'_>]) {
    let mut c = server.client();
    let of_locks = examples.iter().filter(|line| line.line.contains("LOCK."));
    let keys = of_locks.filter_map(|example| example.line.split(' ').nth(1));
    for key in keys {
        let info = c.call(&format!("LOCK.INFO {key}"));
        if let Reply::Array(_) = info {
            for waiter in info.field("waiters").items() {
                let token = waiter.field("token");
                c.send(&[b"LOCK.RELEASE".as_slice(), key.as_bytes(), token.as_bytes()]);
            }
        }
    }
    c.call("FLUSHALL");
    c.call("LOCK.RESETSTAT");
}

fn examples(block: &str) -> Vec<Example<'_>> {
    let mut examples: Vec<Example<'_>> = Vec::new();
    for line in block.lines() {
        let of_shell = line.strip_prefix(SHELL);
        if let Some(command) = of_shell.or_else(|| line.strip_prefix(PROMPT)) {
            let foreground = command.strip_suffix(" &");
            let command = foreground.unwrap_or(command);
            let resp3 = command.strip_prefix(RESP3).filter(|_| of_shell.is_some());
            examples.push(Example {
                line: resp3.unwrap_or(command),
                resp3: resp3.is_some(),
                in_background: foreground.is_some() && of_shell.is_some(),
                expected: String::new(),
            });
        } else {
            let last = examples.last_mut().expect("a block begins with a command");
            last.expected += line;
            last.expected.push('\n');
        }
    }
    examples
}

#[track_caller]
fn run_session(server: &Server, examples: &[Example<'_>]) {
    let mut waiting: Vec<Child> = Vec::new();
    let mut listening: Option<Subscriber> = None;
    for example in examples {
        if let Some(channel) = example.line.strip_prefix("SUBSCRIBE ") {
            listening = Some(Subscriber::start(server, example, channel));
            continue;
        }
        let before = server.blocked_clients();
        let cli = start(server, example);
        if example.in_background {
            wait_for(&format!("{} to wait", example.line), || {
                (server.blocked_clients() > before).then_some(())
            });
            waiting.push(cli);
            continue;
        }
        let mut found = printed(cli);
        // The output of a waiter follows the reply that ended its wait, if the document shows it.
        while lines(&found) < lines(&example.expected) && !waiting.is_empty() {
            found += &printed(waiting.remove(0));
        }
        if let Some(subscriber) = &listening {
            found += &subscriber.next_lines(lines(&example.expected) - lines(&found));
        }
        assert!(
            alike(&found, &example.expected),
            "{}\nsays\n{}but gives\n{found}",
            example.line,
            example.expected
        );
    }
    assert!(waiting.is_empty(), "nobody says what a wait has come to");
}

/// A redis-cli that has subscribed to a channel.
struct Subscriber {
    cli: Child,
    lines: Receiver<String>,
}

impl Subscriber {
    /// Returns once the server knows of the subscription.
    #[track_caller]
    fn start(server: &Server, example: &Example<'_>, name: &str) -> Self {
        let mut cli = start(server, example);
        let output = BufReader::new(cli.stdout.take().expect("its output"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            // The first lines are about the subscription.
            let messages = lines.skip_while(|line| !line.contains("\"message\""));
            messages.for_each(|line| drop(sender.send(line)));
        });
        let mut c = server.client();
        wait_for(&format!("a subscription to {name}"), || {
            let reply = c.call(&format!("PUBSUB NUMSUB {name}"));
            (reply.items()[1].as_int() > 0).then_some(())
        });
        Self { cli, lines }
    }

    #[track_caller]
    fn next_lines(&self, n: usize) -> String {
        let line = || {
            let line = self.lines.recv_timeout(Duration::from_secs(10));
            line.expect("a line of a message") + "\n"
        };
        (0..n).map(|_| line()).collect()
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        // It may have ended with its server.
        self.cli.kill().ok();
        self.cli.wait().ok();
    }
}

/// Makes redis-cli print as it does on a terminal.
fn start(server: &Server, example: &Example<'_>) -> Child {
    let mut cli = Command::new(redis_cli());
    cli.args(["--no-raw", "-p", &server.port.to_string()]);
    if example.resp3 {
        cli.arg("-3");
    }
    let words = example.line.split_whitespace();
    cli.args(words).stdin(Stdio::null()).stdout(Stdio::piped());
    cli.spawn().expect("to run redis-cli")
}

fn printed(cli: Child) -> String {
    let output = cli.wait_with_output().expect("what redis-cli printed");
    String::from_utf8(output.stdout).expect("text")
}

fn lines(text: &str) -> usize {
    text.lines().filter(|line| !line.is_empty()).count()
}

/// Equal, except for fences, instants, waits and server-generated tokens, which must only have the
/// same form, and for half of a ttl.
fn alike(found: &str, expected: &str) -> bool {
    let (found, expected) = (words(found), words(expected));
    found.len() == expected.len()
        && found.iter().zip(&expected).all(|(found, expected)| {
            let numbers = found.parse::<u64>().ok().zip(expected.parse::<u64>().ok());
            match numbers {
                Some((found, expected)) if expected >= 1_000_000_000_000 => {
                    found.ilog10() == expected.ilog10()
                }
                Some((found, expected)) if expected >= 1_000 => {
                    found <= expected && found >= expected / 2
                }
                _ => found == expected || (is_uuid(found) && is_uuid(expected)),
            }
        })
}

/// The words of the output, without the durations of waits, and the ids and ports of clients.
fn words(text: &str) -> Vec<&str> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let mut is_different_each_time = false;
    for word in &mut words {
        is_different_each_time |=
            ["\"waited\"", "\"longest\"", "\"held\"", "\"client\""].contains(word);
        if is_different_each_time && word.parse::<u64>().is_ok() {
            (*word, is_different_each_time) = ("some", false);
        }
        if word.starts_with("\"127.0.0.1:") {
            *word = "an address";
        }
    }
    words
}

fn is_uuid(word: &str) -> bool {
    let bare = word.trim_matches('"');
    bare.len() == 36
        && bare.chars().enumerate().all(|(n, c)| match n {
            8 | 13 | 18 | 23 => c == '-',
            _ => c.is_ascii_hexdigit(),
        })
}
