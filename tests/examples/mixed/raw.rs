//! Clients that wait without an end on a connection of their own, as the simplest program does.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread::{self, JoinHandle};

use super::{HOLD, LOCK};

/// The user of connections that did not say one.
pub const NAME: &str = "default";

/// A connection without a read timeout. A wait is as long as it has to be.
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    fn to(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(stream))
    }

    /// Whether the reply is an integer larger than 0. False when the server has ended, too.
    fn is_done(&mut self, line: &str) -> bool {
        let mut reply = String::new();
        let sent = self.0.get_mut().write_all(format!("{line}\r\n").as_bytes());
        let read = sent.and_then(|()| self.0.read_line(&mut reply));
        let number = reply.trim_end().strip_prefix(':').map(str::parse::<u64>);
        read.is_ok() && number.is_some_and(|number| number.is_ok_and(|n| n > 0))
    }

    fn acquire(&mut self, token: &str) -> bool {
        self.is_done(&format!("LOCK.ACQUIRE {LOCK} {token} 600000 BLOCK 0"))
    }
}

/// Waits until `token` has the lock. The connection is that of its owner.
#[track_caller]
pub fn ask(port: u16, token: &str) -> Connection {
    let mut connection = Connection::to(port);
    assert!(connection.acquire(token), "{token} has no lock");
    connection
}

/// Clients that take turns until the server ends.
pub struct RawClients(Vec<JoinHandle<()>>);

impl RawClients {
    pub fn start(port: u16, number: usize) -> Self {
        let clients = (0..number).map(|client| thread::spawn(move || take_turns(port, client)));
        Self(clients.collect())
    }

    pub fn join(self) {
        for client in self.0 {
            client.join().expect("a client that ends with the server");
        }
    }
}

fn take_turns(port: u16, client: usize) {
    let mut connection = Connection::to(port);
    for turn in 0.. {
        let token = format!("raw-{client}-{turn}");
        if !connection.acquire(&token) {
            return;
        }
        thread::sleep(HOLD);
        if !connection.is_done(&format!("LOCK.RELEASE {LOCK} {token}")) {
            return;
        }
    }
}
