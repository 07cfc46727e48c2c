//! A connection that is made when it is needed, and made anew after it failed.

use std::time::Duration;

use redis::{Client, Cmd, Connection, ConnectionInfo, Value};

/// A server that takes longer counts as down until it answers.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct Line {
    info: ConnectionInfo,
    connection: Option<Connection>,
    /// The database that is selected.
    db: u32,
}

/// The answer to one command: a value, or what the server said against it.
pub(super) type Answer = Result<Value, Refusal>;

/// An error reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) code: String,
    /// All of it, in one line and without control bytes.
    pub(super) text: String,
}

impl Refusal {
    /// The server, or its version of the module, does not have the command.
    pub(super) fn is_unknown_command(&self) -> bool {
        self.code == "ERR" && self.text.contains("unknown command")
    }

    pub(super) fn is_denied(&self) -> bool {
        self.code == "NOPERM"
    }
}

impl Line {
    pub(super) fn new(info: ConnectionInfo) -> Self {
        Self {
            info,
            connection: None,
            db: 0,
        }
    }

    /// Whether the next question makes a connection.
    pub(super) fn is_new(&self) -> bool {
        self.connection.is_none()
    }

    /// Sends the commands in one go. The error says why no answer came; then the connection is
    /// gone.
    pub(super) fn ask(&mut self, commands: &[Cmd]) -> Result<Vec<Answer>, String> {
        let asked = self.try_ask(commands);
        asked.map_err(|error| {
            self.connection = None;
            describe(&error)
        })
    }

    pub(super) fn ask_one(&mut self, command: Cmd) -> Result<Answer, String> {
        let answer = self.ask(&[command])?.pop();
        answer.ok_or_else(|| "the server sent no answer".to_owned())
    }

    fn try_ask(&mut self, commands: &[Cmd]) -> Result<Vec<Answer>, redis::RedisError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let client = Client::open(self.info.clone())?;
                let connection = client.get_connection_with_timeout(PATIENCE)?;
                connection.set_read_timeout(Some(PATIENCE))?;
                connection.set_write_timeout(Some(PATIENCE))?;
                self.db = 0;
                none.insert(connection)
            }
        };
        let mut bytes = Vec::new();
        for command in commands {
            bytes.extend(command.get_packed_command());
        }
        connection.send_packed_command(&bytes)?;
        // The library's own pipeline would wait for each answer of a server that hangs.
        let answers = commands
            .iter()
            .map(|_| connection.recv_response().map(answer));
        answers.collect()
    }

    /// Whether the database could be selected, else why not.
    pub(super) fn select(&mut self, db: u32) -> Result<Result<(), Refusal>, String> {
        let selected = if self.is_new() { 0 } else { self.db };
        if db == selected {
            return Ok(Ok(()));
        }
        let answer = self.ask_one(redis::cmd("SELECT").arg(db).take())?;
        Ok(answer.map(|_| self.db = db))
    }
}

fn answer(value: Value) -> Answer {
    match value {
        Value::ServerError(error) => {
            let text = match error.details() {
                Some(details) => format!("{} {details}", error.code()),
                None => error.code().to_owned(),
            };
            Err(Refusal {
                code: error.code().to_owned(),
                text: crate::text::sentence(&text),
            })
        }
        value => Ok(value),
    }
}

fn describe(error: &redis::RedisError) -> String {
    let text = if error.is_timeout() {
        format!("no answer within {} s", PATIENCE.as_secs())
    } else {
        match (error.code(), error.detail()) {
            (Some(code), Some(detail)) => format!("{code} {detail}"),
            (None, Some(detail)) => detail.to_owned(),
            _ => error.to_string(),
        }
    };
    crate::text::sentence(&text)
}
