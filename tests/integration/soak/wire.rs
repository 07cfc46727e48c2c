//! A bare connection, which can be closed at any moment, and read with any timeout.

use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::{Duration, Instant};

use redis::Parser;

use crate::harness::{packed, Reply};

pub struct Wire {
    /// The client id, for CLIENT KILL and CLIENT UNBLOCK.
    pub id: i64,
    stream: TcpStream,
    parser: Parser,
}

/// The longest time that anything may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

impl Wire {
    pub fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        let mut wire = Self {
            id: 0,
            stream,
            parser: Parser::new(),
        };
        wire.send(&[&["CLIENT", "ID"]])?;
        wire.id = wire.reply(PATIENCE)?.as_int();
        Ok(wire)
    }

    /// Sends commands in one write.
    pub fn send(&mut self, commands: &[&[&str]]) -> io::Result<()> {
        let bytes: Vec<_> = commands
            .iter()
            .flat_map(|command| packed(command))
            .collect();
        self.stream.write_all(&bytes)
    }

    /// Reads one reply. `TimedOut` if it does not come in time. It can still be read later.
    pub fn reply(&mut self, patience: Duration) -> io::Result<Reply> {
        let mut source = Source {
            stream: &self.stream,
            until: Instant::now() + patience,
            failure: None,
        };
        // The parser keeps the part of a reply that has come.
        match self.parser.parse_value(&mut source) {
            Ok(value) => Ok(Reply::from(value)),
            Err(error) => Err(source.failure.unwrap_or_else(|| Error::other(error))),
        }
    }

    /// Closes the connection without a command.
    pub fn cut(self) {
        self.stream.shutdown(Shutdown::Both).ok();
    }
}

/// What comes until an instant. A read with a timeout returns `Interrupted` after the process was
/// stopped and resumed.
struct Source<'s> {
    stream: &'s TcpStream,
    until: Instant,
    /// The parser keeps the kind of an error to itself.
    failure: Option<Error>,
}

impl Read for Source<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use ErrorKind::{Interrupted, TimedOut, WouldBlock};
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            let kind = if left.is_zero() {
                TimedOut
            } else {
                self.stream.set_read_timeout(Some(left))?;
                match self.stream.read(buffer) {
                    Ok(0) => ErrorKind::UnexpectedEof,
                    Ok(len) => return Ok(len),
                    Err(error) if matches!(error.kind(), WouldBlock | Interrupted) => continue,
                    Err(error) => error.kind(),
                }
            };
            self.failure = Some(kind.into());
            return Err(kind.into());
        }
    }
}

/// Whether a reply is just not there yet.
pub fn is_impatience(error: &Error) -> bool {
    error.kind() == ErrorKind::TimedOut
}
