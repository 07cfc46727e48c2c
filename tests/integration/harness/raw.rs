use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::Duration;

use super::memcheck::patience;
use super::server::{wait_for, Server};

/// A bare connection, for a client that leaves in the middle of something. It speaks lines, and
/// reads single-line replies.
pub struct Raw {
    /// The connection's number, for CLIENT KILL.
    pub id: i64,
    stream: BufReader<TcpStream>,
}

impl Server {
    /// A bare connection.
    pub fn raw(&self) -> Raw {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("a connection");
        stream
            .set_read_timeout(Some(patience(Duration::from_secs(30))))
            .unwrap();
        stream.set_nodelay(true).unwrap();
        let stream = BufReader::new(stream);
        let mut raw = Raw { id: 0, stream };
        raw.send("CLIENT ID");
        raw.id = raw.line().expect("a reply")[1..].parse().unwrap();
        raw
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
    /// Sends a line of words.
    pub fn send(&mut self, line: &str) {
        self.send_bytes(format!("{line}\r\n").as_bytes());
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("to send");
    }

    /// The next line of the replies, without its end; `None` when the connection has ended.
    #[track_caller]
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(line.trim_end().to_string()),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
            Err(error) => panic!("no reply: {error}"),
        }
    }

    /// Closes the sending side, which ends the connection for the server. Data that it has sent can
    /// still be read.
    pub fn leave(&mut self) {
        // The server may have closed it already.
        self.stream.get_ref().shutdown(Shutdown::Write).ok();
    }
}
