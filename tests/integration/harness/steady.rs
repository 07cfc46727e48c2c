use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use redis::{ConnectionLike, Parser, RedisResult, Value};

use super::memcheck::patience;

/// A connection with the `redis` crate's parser that survives a stop of the test process (Ctrl-Z, a
/// debugger, a suspended machine). After that, a read with a timeout returns EINTR (signal(7)),
/// which the crate's own connection treats as an error. Without a timeout, a test would hang
/// forever on a missing reply.
pub struct Steady {
    stream: Patient,
    parser: Parser,
    is_open: bool,
}

struct Patient(TcpStream);

impl Steady {
    /// Connects to a running server. A server that is exiting may accept a connection and send
    /// nothing.
    pub fn to(port: u16) -> RedisResult<Self> {
        Self::to_within(port, patience(Duration::from_secs(30)))
    }

    /// The same, and each reply comes within this time, or the connection is lost.
    pub fn to_within(port: u16, patience: Duration) -> RedisResult<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        let mut steady = Self {
            stream: Patient(stream),
            parser: Parser::new(),
            is_open: true,
        };
        // A refusal is a reply, too.
        steady.req_packed_command(&redis::cmd("PING").get_packed_command())?;
        Ok(steady)
    }

    fn send(&mut self, packed: &[u8]) -> RedisResult<()> {
        let sent = self.stream.0.write_all(packed);
        self.is_open &= sent.is_ok();
        Ok(sent?)
    }

    /// The next reply. Push messages in between are skipped.
    fn reply(&mut self) -> RedisResult<Value> {
        loop {
            let reply = self.parser.parse_value(&mut self.stream);
            self.is_open &= reply.is_ok();
            if !matches!(reply, Ok(Value::Push { .. })) {
                return reply;
            }
        }
    }
}

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }
}

impl ConnectionLike for Steady {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        self.send(command)?;
        self.reply()
    }

    fn req_packed_commands(
        &mut self,
        commands: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        self.send(commands)?;
        for _ in 0..offset {
            self.reply()?;
        }
        (0..count).map(|_| self.reply()).collect()
    }

    fn get_db(&self) -> i64 {
        0
    }

    fn check_connection(&mut self) -> bool {
        redis::cmd("PING").query::<Value>(self).is_ok()
    }

    fn is_open(&self) -> bool {
        self.is_open
    }
}
