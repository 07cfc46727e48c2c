use std::time::Duration;

use redis::{ConnectionLike, RedisError, Value};

use super::steady::Steady;

/// A connection to a server through the `redis` crate, in the manner of redis-cli: a line in, a
/// reply out.
pub struct Client {
    connection: Box<dyn ConnectionLike + Send + Sync>,
}

/// The reply of a server.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Nil,
    Int(i64),
    Bulk(Vec<u8>),
    Simple(String),
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    /// With its code: `ERR unknown option`.
    Error(String),
    /// A reply of another kind, printed.
    Other(String),
}

impl Client {
    pub fn connect(port: u16) -> Self {
        Self::over(Steady::to(port).expect("a connection"))
    }

    pub fn connect_resp3(port: u16) -> Self {
        let mut client = Self::connect(port);
        let hello = client.call("HELLO 3");
        assert!(matches!(hello, Reply::Map(_)), "{hello:?}");
        client
    }

    /// Connects. `None` if nobody listens.
    pub fn try_connect(port: u16) -> Option<Self> {
        Steady::to(port).ok().map(Self::over)
    }

    /// The same, with a limit of time for each reply.
    #[allow(dead_code)] // Only the campaign and benchmarks use it.
    pub fn try_connect_within(port: u16, patience: Duration) -> Option<Self> {
        Steady::to_within(port, patience).ok().map(Self::over)
    }

    /// Wraps a connection with settings of its own.
    pub fn over(connection: impl ConnectionLike + Send + Sync + 'static) -> Self {
        Self {
            connection: Box::new(connection),
        }
    }

    /// Whether the process `pid` answers on the port. Another test's server may have taken it
    /// first.
    pub(super) fn is_ready(port: u16, pid: u32) -> bool {
        let Some(mut client) = Self::try_connect(port) else {
            return false;
        };
        let ours = format!("process_id:{pid}");
        let is_ours = match client.try_call("INFO") {
            Ok(Reply::Bulk(info)) => String::from_utf8_lossy(&info)
                .lines()
                .any(|line| line == ours),
            _ => false,
        };
        // INFO is answered while the data is still loading, PING is not.
        is_ours
            && client
                .try_call("PING")
                .is_ok_and(|pong| pong == Reply::Simple("PONG".into()))
    }

    /// Sends a line of words.
    #[track_caller]
    pub fn call(&mut self, line: &str) -> Reply {
        self.try_call(line).expect("a reply")
    }

    /// Sends a line of words. `Err` if the connection broke.
    pub fn try_call(&mut self, line: &str) -> Result<Reply, RedisError> {
        let words: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
        self.try_send(&words)
    }

    /// Sends a command of arbitrary bytes.
    #[track_caller]
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        self.try_send(args).expect("a reply")
    }

    pub fn try_send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Reply, RedisError> {
        // Some commands have no reply.
        assert!(!args.is_empty(), "an empty line");
        match command(args).query::<Value>(&mut *self.connection) {
            Ok(value) => Ok(Reply::from(value)),
            Err(error) if error.is_io_error() || error.is_connection_dropped() => Err(error),
            Err(error) => Ok(Reply::Error(error_text(&error))),
        }
    }

    /// Sends many commands at once and reads all replies. Meant for thousands of commands.
    #[track_caller]
    pub fn pipeline(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<Reply> {
        self.try_pipeline(commands).expect("all replies")
    }

    /// The same. `Err` if the connection broke before the last reply.
    pub fn try_pipeline(&mut self, commands: &[Vec<Vec<u8>>]) -> Result<Vec<Reply>, RedisError> {
        let mut packed = Vec::new();
        for args in commands {
            packed.extend(self::packed(args));
        }
        let replies = self
            .connection
            .req_packed_commands(&packed, 0, commands.len())?;
        Ok(replies.into_iter().map(Reply::from).collect())
    }

    /// Sends a line whose reply must be an integer.
    #[track_caller]
    pub fn int(&mut self, line: &str) -> i64 {
        match self.call(line) {
            Reply::Int(n) => n,
            other => panic!("{line}: {other:?}"),
        }
    }

    /// Sends a line whose reply must be text.
    #[track_caller]
    pub fn text(&mut self, line: &str) -> String {
        match self.call(line) {
            Reply::Bulk(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Reply::Simple(text) | Reply::Other(text) => text,
            other => panic!("{line}: {other:?}"),
        }
    }

    /// Sends a line whose reply must be an error.
    #[track_caller]
    pub fn error(&mut self, line: &str) -> String {
        match self.call(line) {
            Reply::Error(error) => error,
            other => panic!("{line}: {other:?}"),
        }
    }

    /// Sends a line that must be answered with OK.
    #[track_caller]
    pub fn ok(&mut self, line: &str) {
        assert_eq!(self.text(line), "OK", "{line}");
    }

    /// Sends a line whose reply must be an error that begins so.
    #[track_caller]
    pub fn refused(&mut self, line: &str, start: &str) {
        let error = self.error(line);
        assert!(error.starts_with(start), "{line}: {error}");
    }

    /// Sends a line whose reply must be an error that contains this.
    #[track_caller]
    pub fn refused_saying(&mut self, line: &str, part: &str) {
        let error = self.error(line);
        assert!(error.contains(part), "{line}: {error}");
    }

    /// The server's clock.
    #[track_caller]
    pub fn now_us(&mut self) -> u64 {
        let time = self.call("TIME");
        let part = |n: usize| {
            let digits = std::str::from_utf8(time.items()[n].as_bytes());
            digits.unwrap().parse::<u64>().unwrap()
        };
        part(0) * 1_000_000 + part(1)
    }

    /// The value of a setting.
    #[track_caller]
    pub fn setting(&mut self, name: &str) -> String {
        let found = self.call(&format!("CONFIG GET {name}"));
        found.field(name).to_text()
    }

    /// How often the server has executed a command.
    #[track_caller]
    pub fn calls_of(&mut self, command: &str) -> u64 {
        let stats = self.text("INFO commandstats").to_lowercase();
        let head = format!("cmdstat_{command}:calls=");
        let rest = stats.lines().find_map(|line| line.strip_prefix(&head));
        rest.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
    }

    /// Loads functions, which the code registers.
    #[track_caller]
    pub fn load_functions(&mut self, code: &str) {
        let library = format!("#!lua name=test\n{code}");
        let loaded = self.send(&["FUNCTION", "LOAD", &library]);
        assert_eq!(loaded, Reply::from("test"));
    }

    /// One field of INFO.
    #[track_caller]
    pub fn info(&mut self, field: &str) -> String {
        let found = self.try_info(field);
        found.unwrap_or_else(|| panic!("INFO has no {field}"))
    }

    /// The same of a server that may be out of reach.
    pub fn try_info(&mut self, field: &str) -> Option<String> {
        // All sections take a server milliseconds, and this is often asked again and again.
        let Ok(Reply::Bulk(text)) = self.try_call("INFO default lock") else {
            return None;
        };
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines();
        lines.find_map(|line| Some(line.strip_prefix(field)?.strip_prefix(':')?.to_string()))
    }
}

impl Reply {
    /// A field of a map, or of the flat array that RESP2 uses instead.
    #[track_caller]
    pub fn field(&self, name: &str) -> Reply {
        let found = self.get(name);
        found.unwrap_or_else(|| panic!("no {name:?} in {self:?}"))
    }

    /// The same if there is one.
    pub fn get(&self, name: &str) -> Option<Reply> {
        let name = Reply::from(name);
        let found = match self {
            Reply::Map(pairs) => pairs.iter().find(|(k, _)| *k == name).map(|(_, v)| v),
            Reply::Array(flat) => flat
                .chunks(2)
                .find(|pair| pair[0] == name)
                .map(|pair| &pair[1]),
            _ => None,
        };
        found.cloned()
    }

    #[track_caller]
    pub fn items(&self) -> &[Reply] {
        match self {
            Reply::Array(items) => items,
            other => panic!("no array: {other:?}"),
        }
    }

    /// The texts of an array.
    #[track_caller]
    pub fn words<C: FromIterator<String>>(&self) -> C {
        self.items().iter().map(Reply::to_text).collect()
    }

    /// The text of a string. Bytes that are none are replaced.
    #[track_caller]
    pub fn to_text(&self) -> String {
        match self {
            Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Reply::Simple(text) | Reply::Other(text) => text.clone(),
            other => panic!("no text: {other:?}"),
        }
    }

    #[track_caller]
    pub fn as_int(&self) -> i64 {
        match self {
            Reply::Int(n) => *n,
            other => panic!("no integer: {other:?}"),
        }
    }

    #[track_caller]
    pub fn assert_ok(&self) {
        assert_eq!(*self, Reply::Simple("OK".into()));
    }

    #[track_caller]
    pub fn as_error(&self) -> &str {
        match self {
            Reply::Error(error) => error,
            other => panic!("no error: {other:?}"),
        }
    }

    #[track_caller]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Reply::Bulk(bytes) => bytes,
            other => panic!("no bytes: {other:?}"),
        }
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        Reply::Bulk(text.as_bytes().to_vec())
    }
}

impl From<i64> for Reply {
    fn from(number: i64) -> Self {
        Reply::Int(number)
    }
}

impl From<Value> for Reply {
    fn from(value: Value) -> Self {
        match value {
            Value::Nil => Reply::Nil,
            Value::Int(n) => Reply::Int(n),
            Value::BulkString(bytes) => Reply::Bulk(bytes),
            Value::SimpleString(text) => Reply::Simple(text),
            Value::Okay => Reply::Simple("OK".into()),
            Value::Array(items) => Reply::Array(items.into_iter().map(Reply::from).collect()),
            Value::Map(pairs) => Reply::Map(
                pairs
                    .into_iter()
                    .map(|(key, value)| (key.into(), value.into()))
                    .collect(),
            ),
            Value::ServerError(error) => Reply::Error(format!(
                "{} {}",
                error.code(),
                error.details().unwrap_or_default()
            )),
            Value::VerbatimString { text, .. } => Reply::Other(text),
            other => Reply::Other(format!("{other:?}")),
        }
    }
}

/// A command as the bytes that a client sends.
pub fn packed<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    command(args).get_packed_command()
}

fn command<A: AsRef<[u8]>>(args: &[A]) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    for arg in args {
        command.arg(arg.as_ref());
    }
    command
}

fn error_text(error: &RedisError) -> String {
    let code = error.code().unwrap_or("?");
    let detail = error.detail().unwrap_or_default();
    format!("{code} {detail}")
}
