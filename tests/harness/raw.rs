use std::io::{self, BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::{Duration, Instant};

use redis::{Parser, Value};

use super::client::{packed, Reply};
use super::memcheck::patience;
use super::server::{wait_for, Server, PATIENCE};

/// A bare connection, for a client that leaves in the middle of something, or has its own patience.
/// It sends lines, and reads single-line replies, or whole ones by the `redis` crate's parser.
pub struct Raw {
    /// The connection's number, for CLIENT KILL and CLIENT UNBLOCK.
    pub id: i64,
    from: BufReader<Source>,
    parser: Parser,
}

/// What comes until an instant.
struct Source {
    stream: TcpStream,
    patience: Duration,
    until: Instant,
    /// The parser keeps the kind of an error to itself.
    failure: Option<ErrorKind>,
}

impl Server {
    /// A bare connection.
    pub fn raw(&self) -> Raw {
        Raw::open(self.port).expect("a connection")
    }

    /// A bare connection that waits for the reply of a command which must block until it is seen.
    #[track_caller]
    pub fn raw_blocked(&self, line: &str) -> Raw {
        let before = self.blocked_clients();
        let mut raw = self.raw();
        raw.send(line);
        wait_for(&format!("{line} to block"), || {
            (self.blocked_clients() > before).then_some(())
        });
        raw
    }
}

impl Raw {
    /// Connects, and asks for the connection's number.
    pub fn open(port: u16) -> io::Result<Self> {
        let mut raw = Self::connect(port)?;
        raw.write(b"CLIENT ID\r\n")?;
        raw.id = raw.reply(patience(PATIENCE))?.as_int();
        Ok(raw)
    }

    /// Connects, and says nothing yet.
    pub(super) fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        let source = Source {
            stream,
            patience: PATIENCE,
            until: Instant::now(),
            failure: None,
        };
        Ok(Self {
            id: 0,
            from: BufReader::new(source),
            parser: Parser::new(),
        })
    }

    /// Sends a line of words.
    pub fn send(&mut self, line: &str) {
        self.send_bytes(format!("{line}\r\n").as_bytes());
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.write(bytes).expect("to send");
    }

    /// Sends commands in one write.
    pub fn send_together(&mut self, commands: &[&[&str]]) -> io::Result<()> {
        let commands = commands.iter();
        self.write(&commands.flat_map(|words| packed(words)).collect::<Vec<_>>())
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.from.get_mut().stream.write_all(bytes)
    }

    /// The next line of the replies, without its end; `None` when the connection has ended.
    #[track_caller]
    pub fn line(&mut self) -> Option<String> {
        self.from.get_mut().begin(patience(PATIENCE));
        let mut line = String::new();
        match self.from.read_line(&mut line).map_err(|error| error.kind()) {
            Ok(_) => Some(line.trim_end().to_string()),
            Err(ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => None,
            Err(kind) => panic!("no reply: {kind}"),
        }
    }

    /// The next reply. `TimedOut` if it does not come in time. It can still be read later.
    pub fn reply(&mut self, patience: Duration) -> io::Result<Reply> {
        self.value(patience).map(Reply::from)
    }

    /// The same as the crate has it.
    pub fn value(&mut self, patience: Duration) -> io::Result<Value> {
        self.from.get_mut().begin(patience);
        // The parser keeps the part of a reply that has come.
        let value = self.parser.parse_value(&mut self.from);
        value.map_err(|error| match self.from.get_ref().failure {
            Some(kind) => Error::from(kind),
            None => Error::other(error),
        })
    }

    /// Closes the sending side, which ends the connection for the server. Data that it has sent can
    /// still be read.
    pub fn leave(&mut self) {
        // The server may have closed it already.
        self.from.get_ref().stream.shutdown(Shutdown::Write).ok();
    }

    /// Closes the connection without a command.
    #[allow(dead_code)] // Only the campaign uses it.
    pub fn cut(self) {
        self.from.get_ref().stream.shutdown(Shutdown::Both).ok();
    }
}

impl Source {
    fn begin(&mut self, patience: Duration) {
        self.patience = patience;
        self.until = Instant::now() + patience;
        self.failure = None;
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            let read = match left.is_zero() {
                true => Err(Error::from(ErrorKind::TimedOut)),
                false => {
                    self.stream.set_read_timeout(Some(left))?;
                    self.stream.read(buffer)
                }
            };
            let kind = match read {
                Ok(0) => ErrorKind::UnexpectedEof,
                Ok(len) => return Ok(len),
                Err(error) => error.kind(),
            };
            match kind {
                ErrorKind::WouldBlock => {}
                // The test process was stopped and goes on (Ctrl-Z, a debugger, a suspended machine):
                // a read with a timeout returns EINTR then (signal(7)).
                ErrorKind::Interrupted => self.until = Instant::now() + self.patience,
                _ => {
                    self.failure = Some(kind);
                    return Err(kind.into());
                }
            }
        }
    }
}
