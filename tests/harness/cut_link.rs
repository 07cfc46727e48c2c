//! A connection to a server that breaks off after a number of bytes, or that stands still.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Passes on what clients and a server send one another. Used by one client at a time.
pub struct CutLink {
    pub port: u16,
    state: Arc<State>,
    accepts: Option<JoinHandle<()>>,
}

struct State {
    server: AtomicU16,
    /// Those of all connections, to both sides.
    streams: Mutex<Vec<TcpStream>>,
    /// The number of bytes that the server has sent to its clients.
    passed: AtomicU64,
    /// The value of `passed` at which the link breaks.
    end: Mutex<u64>,
    is_over: AtomicBool,
    /// Whether nothing passes, and nobody learns of that.
    is_stalled: AtomicBool,
    /// How long everything is on its way.
    delay_ms: AtomicU64,
}

impl CutLink {
    pub fn to(server: u16) -> Self {
        let (listener, port) = super::server::listener();
        let state = Arc::new(State {
            server: AtomicU16::new(server),
            streams: Mutex::new(Vec::new()),
            passed: AtomicU64::new(0),
            end: Mutex::new(u64::MAX),
            is_over: AtomicBool::new(false),
            is_stalled: AtomicBool::new(false),
            delay_ms: AtomicU64::new(0),
        });
        let accepts = {
            let state = state.clone();
            thread::spawn(move || accept(&listener, &state))
        };
        Self {
            port,
            state,
            accepts: Some(accepts),
        }
    }

    pub fn passed(&self) -> u64 {
        self.state.passed.load(Ordering::SeqCst)
    }

    /// The link breaks when the server has sent this many more bytes. To be called while the server
    /// sends nothing.
    pub fn break_after(&self, bytes: u64) {
        let mut end = self.state.end.lock().unwrap();
        *end = self.passed() + bytes;
    }

    /// From now on nothing passes in either direction. Connections stay.
    #[allow(dead_code)] // Only the campaign uses it.
    pub fn stall(&self) {
        self.state.is_stalled.store(true, Ordering::SeqCst);
    }

    /// Breaks all connections. Later ones are to another server.
    #[allow(dead_code)] // Only the campaign and benchmarks use it.
    pub fn turn_to(&self, server: u16) {
        self.state.server.store(server, Ordering::SeqCst);
        for stream in self.state.streams.lock().unwrap().drain(..) {
            stream.shutdown(Shutdown::Both).ok();
        }
    }

    /// From now on everything takes this time. What is read at once passes at once.
    #[allow(dead_code)] // Only the campaign and benchmarks use it.
    pub fn delay_ms(&self, ms: u64) {
        self.state.delay_ms.store(ms, Ordering::SeqCst);
    }

    /// Later connections do not break.
    pub fn mend(&self) {
        *self.state.end.lock().unwrap() = u64::MAX;
    }
}

impl Drop for CutLink {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        TcpStream::connect(("127.0.0.1", self.port)).ok();
        if let Some(accepts) = self.accepts.take() {
            accepts.join().ok();
        }
    }
}

fn accept(listener: &TcpListener, state: &Arc<State>) {
    for client in listener.incoming() {
        if state.is_over.load(Ordering::SeqCst) {
            return;
        }
        let port = state.server.load(Ordering::SeqCst);
        let server = TcpStream::connect(("127.0.0.1", port));
        let (Ok(client), Ok(server)) = (client, server) else {
            continue;
        };
        let (from, to) = (
            client.try_clone().expect("a copy"),
            server.try_clone().expect("a copy"),
        );
        let both = [&from, &to].map(|stream| stream.try_clone().expect("a copy"));
        state.streams.lock().unwrap().extend(both);
        let (requests, replies) = (state.clone(), state.clone());
        thread::spawn(move || pass_on(from, to, &requests, false));
        thread::spawn(move || pass_on(server, client, &replies, true));
    }
}

/// From one to the other, until the end, which only replies may reach.
fn pass_on(mut from: TcpStream, mut to: TcpStream, state: &State, are_replies: bool) {
    let mut bytes = [0; 1 << 14];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        while state.is_stalled.load(Ordering::SeqCst) {
            if state.is_over.load(Ordering::SeqCst) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let delay_ms = state.delay_ms.load(Ordering::SeqCst);
        thread::sleep(Duration::from_millis(delay_ms));
        if !are_replies {
            if to.write_all(&bytes[..len]).is_err() {
                break;
            }
            continue;
        }
        // A connection that is about to end may pass something on beside the next one. Whoever sees
        // the receiver's answer to the bytes finds them counted.
        let (len, is_end) = {
            let end = state.end.lock().unwrap();
            let passed = state.passed.load(Ordering::SeqCst);
            let len = end.saturating_sub(passed).min(len as u64);
            state.passed.store(passed + len, Ordering::SeqCst);
            (len, passed + len == *end)
        };
        let is_sent = to.write_all(&bytes[..len as usize]).is_ok();
        if !is_sent || is_end {
            break;
        }
    }
    from.shutdown(Shutdown::Both).ok();
    to.shutdown(Shutdown::Both).ok();
}
