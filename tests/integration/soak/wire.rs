//! A bare connection, which can be closed at any moment, and read with any timeout.

use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::harness::Reply;

pub struct Wire {
    /// The client id, for CLIENT KILL and CLIENT UNBLOCK.
    pub id: i64,
    stream: TcpStream,
    unread: Vec<u8>,
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
            unread: Vec::new(),
        };
        wire.send(&[&["CLIENT", "ID"]])?;
        wire.id = wire.reply(PATIENCE)?.as_int();
        Ok(wire)
    }

    /// Sends commands in one write.
    pub fn send(&mut self, commands: &[&[&str]]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for command in commands {
            write!(bytes, "*{}\r\n", command.len())?;
            for arg in *command {
                write!(bytes, "${}\r\n{arg}\r\n", arg.len())?;
            }
        }
        self.stream.write_all(&bytes)
    }

    /// Reads one reply. `TimedOut` if it does not come in time. It can still be read later.
    pub fn reply(&mut self, patience: Duration) -> io::Result<Reply> {
        let start = Instant::now();
        loop {
            if let Some((reply, used)) = parse(&self.unread) {
                self.unread.drain(..used);
                return Ok(reply);
            }
            let left = patience.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.unread.extend(&bytes[..n]),
                Err(error) if is_impatience(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Closes the connection without a command.
    pub fn cut(self) {
        self.stream.shutdown(Shutdown::Both).ok();
    }
}

/// Whether a reply is just not there yet. A read with a timeout returns `Interrupted` after the
/// process was stopped and resumed.
pub fn is_impatience(error: &Error) -> bool {
    use ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), TimedOut | WouldBlock | Interrupted)
}

/// One RESP2 reply and its length in bytes. `None` while it is incomplete.
fn parse(bytes: &[u8]) -> Option<(Reply, usize)> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    let line = std::str::from_utf8(bytes.get(1..end)?).expect("a line of text");
    let mut used = end + 2;
    if bytes.len() < used {
        return None;
    }
    let number = || line.parse::<i64>().expect("a number");
    let reply = match bytes[0] {
        b'+' => Reply::Simple(line.into()),
        b'-' => Reply::Error(line.into()),
        b':' => Reply::Int(number()),
        b'$' | b'*' if number() < 0 => Reply::Nil,
        b'$' => {
            let len = usize::try_from(number()).unwrap();
            let text = bytes.get(used..used + len)?.to_vec();
            used += len + 2;
            Reply::Bulk(text)
        }
        b'*' => {
            let mut items = Vec::new();
            for _ in 0..number() {
                let (item, more) = parse(bytes.get(used..)?)?;
                items.push(item);
                used += more;
            }
            Reply::Array(items)
        }
        other => panic!("no reply: {other}"),
    };
    (used <= bytes.len()).then_some((reply, used))
}
