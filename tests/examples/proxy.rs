//! A proxy that drops or delays one reply: the server's answer to the first acquire.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The treatment of the first reply with a fence.
#[derive(Clone, Copy)]
pub enum Fate {
    Lost,
    Late(Duration),
}

pub struct Proxy {
    pub port: u16,
    /// The fence in that reply. 0 before.
    caught: Arc<AtomicI64>,
    is_over: Arc<AtomicBool>,
}

impl Proxy {
    pub fn to(server: u16, fate: Fate) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().unwrap().port();
        let caught = Arc::new(AtomicI64::new(0));
        let is_over = Arc::new(AtomicBool::new(false));
        let proxy = Self {
            port,
            caught: Arc::clone(&caught),
            is_over: Arc::clone(&is_over),
        };
        thread::spawn(move || {
            for client in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(client) = client else { continue };
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) else {
                    continue;
                };
                join(client, server, &caught, fate);
            }
        });
        proxy
    }

    pub fn caught(&self) -> Option<i64> {
        Some(self.caught.load(Ordering::Relaxed)).filter(|fence| *fence > 0)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the listener, so that it notices the end.
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok();
    }
}

/// Carries bytes both ways until one side closes.
fn join(client: TcpStream, server: TcpStream, caught: &Arc<AtomicI64>, fate: Fate) {
    for stream in [&client, &server] {
        stream.set_nodelay(true).ok();
    }
    let (from_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || carry(from_client, to_server, |_| true));
    let caught = Arc::clone(caught);
    // A fence is the only integer of this length in the protocol.
    thread::spawn(move || {
        carry(server, client, |bytes| {
            let is_first = fence_in(bytes).is_some_and(|fence| {
                let was = caught.compare_exchange(0, fence, Ordering::AcqRel, Ordering::Acquire);
                was.is_ok()
            });
            match fate {
                Fate::Lost => !is_first,
                Fate::Late(delay) => {
                    if is_first {
                        thread::sleep(delay);
                    }
                    true
                }
            }
        });
    });
}

/// Carries bytes one way until the end, or until `may_pass` returns false. Both connections are
/// then closed.
fn carry(mut from: TcpStream, mut to: TcpStream, may_pass: impl Fn(&[u8]) -> bool) {
    let mut bytes = [0; 16_384];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        let bytes = &bytes[..n];
        if !may_pass(bytes) || to.write_all(bytes).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        stream.shutdown(Shutdown::Both).ok();
    }
}

/// The fence in the replies: `:1700000000000000`.
fn fence_in(bytes: &[u8]) -> Option<i64> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines();
    lines.find_map(|line| {
        line.strip_prefix(':')
            .filter(|n| n.len() >= 16)?
            .parse()
            .ok()
    })
}
