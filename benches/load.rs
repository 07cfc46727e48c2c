//! A load generator with little overhead of its own: requests are rendered before the clock starts,
//! and replies are counted in place.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::ops::AddAssign;
use std::time::Duration;

use crate::harness::packed;

/// No round may hang forever on a missing reply.
const PATIENCE: Duration = Duration::from_secs(60);

/// The n-th lock of a measurement: 16 bytes.
pub fn key(n: usize) -> String {
    format!("lock:{n:011}")
}

/// The n-th owner of a measurement: 36 bytes, the length of a UUID. As two UUIDs do, two of them
/// differ in their first and in their last digits.
pub fn token(n: usize) -> String {
    format!("{n:08x}-5f2c-4b1e-9a6d-3c7e{n:08x}")
}

/// Commands as bytes, ready to be sent.
#[derive(Default)]
pub struct Requests {
    bytes: Vec<u8>,
    /// The end of each command.
    ends: Vec<usize>,
}

impl Requests {
    /// One command per line of words.
    pub fn of(lines: impl IntoIterator<Item = String>) -> Self {
        let mut requests = Self::default();
        for line in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            requests.push(&words);
        }
        requests
    }

    fn push(&mut self, words: &[&str]) {
        self.bytes.extend(packed(words));
        self.ends.push(self.bytes.len());
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The bytes of `count` commands from the `first` on, and how many there are.
    fn slice(&self, first: usize, count: usize) -> (&[u8], usize) {
        let last = self.len().min(first + count);
        let start = first.checked_sub(1).map_or(0, |before| self.ends[before]);
        let end = last.checked_sub(1).map_or(0, |last| self.ends[last]);
        (&self.bytes[start..end], last - first)
    }
}

/// The replies, counted by meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// OK, a number other than 0, text, or an array.
    pub yes: usize,
    /// Null or 0.
    pub no: usize,
    pub errors: usize,
}

impl Tally {
    pub fn replies(self) -> usize {
        self.yes + self.no + self.errors
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.yes += other.yes;
        self.no += other.no;
        self.errors += other.errors;
    }
}

/// A connection that sends rendered commands and counts replies.
pub struct Connection {
    stream: TcpStream,
    buffer: Box<[u8]>,
    /// Bytes received and not yet counted.
    from: usize,
    to: usize,
}

impl Connection {
    pub fn to(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            buffer: vec![0; 64 * 1024].into(),
            from: 0,
            to: 0,
        }
    }

    /// Waits longer for replies than usual.
    pub fn be_patient(&self, patience: Duration) {
        self.stream.set_read_timeout(Some(patience)).unwrap();
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("to send");
    }

    /// Waits for `count` replies.
    pub fn receive(&mut self, count: usize) -> Tally {
        let mut tally = Tally::default();
        while tally.replies() < count {
            let waiting = &self.buffer[self.from..self.to];
            match reply_at_start(waiting) {
                Some((end, said)) => {
                    self.from += end;
                    tally += said;
                }
                None => self.fill(),
            }
        }
        tally
    }

    /// A smaller buffer, for one of thousands of connections.
    pub fn shrink(&mut self) {
        self.buffer = vec![0; 256].into();
    }

    /// Whether data has arrived, without waiting for it.
    pub fn has_reply(&self) -> bool {
        let stream = &self.stream;
        stream.set_nonblocking(true).unwrap();
        let has = self.from < self.to || matches!(stream.peek(&mut [0]), Ok(1..));
        stream.set_nonblocking(false).unwrap();
        has
    }

    fn fill(&mut self) {
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        let room = &mut self.buffer[self.to..];
        let got = self.stream.read(room).expect("a reply in time");
        assert!(got > 0, "the server has ended the connection");
        self.to += got;
    }
}

/// Sends all requests, `pipeline` at a time on each connection, and reads the replies before
/// sending the next ones.
pub fn run(connections: &mut [Connection], requests: &Requests, pipeline: usize) -> Tally {
    let mut tally = Tally::default();
    let mut first = 0;
    while first < requests.len() {
        let start = first;
        for connection in &mut *connections {
            let (bytes, count) = requests.slice(first.min(requests.len()), pipeline);
            connection.send(bytes);
            first += count;
        }
        first = start;
        for connection in &mut *connections {
            let (_, count) = requests.slice(first.min(requests.len()), pipeline);
            tally += connection.receive(count);
            first += count;
        }
    }
    tally
}

/// The length and the meaning of the reply at the start of the bytes. `None` if it is incomplete.
///
/// Read by hand: this takes 31 ns for an integer, the parser of the `redis` crate 408 ns. The server
/// takes about 1,000 ns for a command of a pipeline, so the parser would be a part of the figures.
pub fn reply_at_start(bytes: &[u8]) -> Option<(usize, Tally)> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let (kind, rest) = bytes[..line].split_first().expect("a reply's kind");
    let end = line + 2;
    let yes = (1, 0, 0);
    let no = (0, 1, 0);
    let (end, (yes, no, errors)) = match kind {
        b'+' => (end, yes),
        b'-' => (end, (0, 0, 1)),
        b':' => (end, if rest == b"0" { no } else { yes }),
        b'_' => (end, no),
        b'$' | b'*' if rest == b"-1" => (end, no),
        b'$' => {
            let end = end + number(rest) + 2;
            (bytes.len() >= end).then_some((end, yes))?
        }
        b'*' => {
            let mut end = end;
            for _ in 0..number(rest) {
                end += reply_at_start(&bytes[end..])?.0;
            }
            (end, yes)
        }
        other => panic!("a reply of an unknown kind: {}", char::from(*other)),
    };
    Some((end, Tally { yes, no, errors }))
}

fn number(digits: &[u8]) -> usize {
    let text = std::str::from_utf8(digits).expect("digits");
    text.parse().expect("a length")
}
