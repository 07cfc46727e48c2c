use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use redis::RedisError;

use super::client::{Client, Reply};
use super::memcheck::patience;
use super::server::{wait_for, Server, PATIENCE};

/// A command that was sent on its own connection and may be answered later.
pub struct Later {
    /// The client id, for CLIENT KILL and CLIENT UNBLOCK.
    pub id: i64,
    line: String,
    answer: Receiver<Answer>,
    is_answered: Arc<AtomicBool>,
}

/// Sets the flag when it is dropped, also by a panic: a scope waits for threads that go by it.
#[allow(dead_code)] // Only the campaign uses it.
pub struct SetWhenDropped<'a>(pub &'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

type Answer = (Result<Reply, RedisError>, Instant, Client);

impl Server {
    /// Sends a command whose reply may come later.
    pub fn later(&self, line: &str) -> Later {
        Later::send(self.client(), line)
    }

    /// Sends a command that must block, and returns when it does, or has done so: a slow machine can
    /// miss a short wait.
    #[track_caller]
    pub fn blocked(&self, line: &str) -> Later {
        let (before, waits_before) = self.waits();
        let later = self.later(line);
        wait_for(&format!("{line} to block"), || {
            let is_answered = later.is_answered.load(Ordering::Acquire);
            let (blocked, waits) = self.waits();
            (blocked > before || (is_answered && waits > waits_before)).then_some(())
        });
        later
    }

    /// The number of blocked clients, and of the requests for locks that have waited so far. That is 0
    /// without the module.
    pub fn waits(&self) -> (i64, i64) {
        let info = self.client().text("INFO clients lock");
        let field = |name| info.lines().find_map(|line| line.strip_prefix(name));
        let number = |text: &str| text.parse().expect("a number");
        let blocked = field("blocked_clients:").expect("INFO has it");
        (number(blocked), field("lock_waited:").map_or(0, number))
    }

    /// The number of blocked clients.
    pub fn blocked_clients(&self) -> i64 {
        self.waits().0
    }
}

impl Later {
    /// Sends a command on a connection. The reply may come later.
    pub fn send(mut client: Client, line: &str) -> Self {
        let id = match client.call("CLIENT ID") {
            // Where CLIENT is renamed, nobody can use the id.
            Reply::Error(error) if error.starts_with("ERR unknown command") => 0,
            id => id.as_int(),
        };
        let (sender, answer) = channel();
        let line = line.to_string();
        let sent = line.clone();
        let is_answered = Arc::new(AtomicBool::new(false));
        let answered = is_answered.clone();
        thread::spawn(move || {
            let reply = client.try_call(&sent);
            // The test may have ended.
            sender.send((reply, Instant::now(), client)).ok();
            answered.store(true, Ordering::Release);
        });
        Later {
            id,
            line,
            answer,
            is_answered,
        }
    }

    /// Whether a reply has come, or the connection is lost.
    pub fn is_answered(&self) -> bool {
        self.is_answered.load(Ordering::Acquire)
    }

    /// The reply, which must come.
    #[track_caller]
    pub fn reply(self) -> Reply {
        self.reply_and_instant().0
    }

    /// The reply, with its time.
    #[track_caller]
    pub fn reply_and_instant(self) -> (Reply, Instant) {
        let (reply, at, _) = self.receive();
        let reply = reply.unwrap_or_else(|error| panic!("{}: {error}", self.line));
        (reply, at)
    }

    /// The reply, and the connection for further commands.
    #[track_caller]
    pub fn reply_and_client(self) -> (Reply, Client) {
        let (reply, _, client) = self.receive();
        let reply = reply.unwrap_or_else(|error| panic!("{}: {error}", self.line));
        (reply, client)
    }

    /// The reply and the connection for further commands; `None` if the connection broke.
    #[track_caller]
    pub fn end(self) -> Option<(Reply, Client)> {
        let (reply, _, client) = self.receive();
        reply.ok().map(|reply| (reply, client))
    }

    /// Waits for the reply, which must be an error that begins with this word.
    #[track_caller]
    pub fn error(self, word: &str) {
        self.error_of(&[word]);
    }

    /// The same with one of these words, where several can be first to end the wait.
    #[track_caller]
    pub fn error_of(self, words: &[&str]) {
        let line = self.line.clone();
        match self.reply() {
            Reply::Error(error) if words.iter().any(|word| error.starts_with(word)) => {}
            other => panic!("{line}: {other:?}"),
        }
    }

    /// The fence, which must come.
    #[track_caller]
    pub fn fence(self) -> i64 {
        let line = self.line.clone();
        match self.reply() {
            Reply::Int(fence) => fence,
            other => panic!("{line}: {other:?}"),
        }
    }

    /// The end of the connection, which must come.
    #[track_caller]
    pub fn broken(self) {
        let (reply, ..) = self.receive();
        assert!(reply.is_err(), "{}: {reply:?}", self.line);
    }

    /// The end of the wait without a grant, which must come: the server or the module reports that
    /// it is no primary any more, or the connection closes. Which of them is first varies on
    /// Valkey 9.
    #[track_caller]
    pub fn sent_away(self) {
        let words = ["UNBLOCKED ", "TRYAGAIN "];
        match self.receive().0 {
            Err(_) => {}
            Ok(Reply::Error(error)) if words.iter().any(|word| error.starts_with(word)) => {}
            other => panic!("{}: {other:?}", self.line),
        }
    }

    /// Whether no reply has come yet.
    pub fn is_pending(&self) -> bool {
        match self.answer.recv_timeout(Duration::ZERO) {
            Ok((reply, ..)) => panic!("{} was answered: {reply:?}", self.line),
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => false,
        }
    }

    #[track_caller]
    fn receive(&self) -> Answer {
        self.answer
            .recv_timeout(patience(PATIENCE))
            .unwrap_or_else(|_| panic!("{} was not answered", self.line))
    }
}
