use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Stands between a client and a server, and fails on demand.
pub struct Proxy {
    pub port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// The port of the server of new connections.
    server: AtomicU16,
    /// Replies that are still to be swallowed, each with its connection.
    losses: AtomicUsize,
    /// Connections are closed as soon as they come.
    is_closed: AtomicBool,
    /// How long the server does not see that a client is gone, in ms.
    linger: AtomicU64,
    /// Only a reply to a request that contains this is lost.
    of: Mutex<Vec<u8>>,
    /// How late replies are, in ms.
    delay: AtomicU64,
    /// How many requests are answered here, those that contain what, and how.
    fakes: AtomicUsize,
    fake: Mutex<(&'static str, &'static str)>,
    /// The first request that contains this is held back, and the next are not.
    late: Mutex<&'static str>,
    held_back: AtomicUsize,
    streams: Mutex<Vec<TcpStream>>,
    clients: Mutex<Vec<TcpStream>>,
    subscribed: Mutex<Vec<Subscribed>>,
}

/// The server's end of a connection that has subscribed, and whether the client's stays open without it.
struct Subscribed(TcpStream, Arc<AtomicBool>);

impl Proxy {
    pub fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        state.server.store(server, SeqCst);
        let shared = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.is_closed.load(SeqCst) {
                    continue;
                }
                let server = shared.server.load(SeqCst);
                if let Ok(server) = TcpStream::connect(("127.0.0.1", server)) {
                    serve(&shared, client, server);
                }
            }
        });
        Self { port, state }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Leads new connections to another server.
    pub fn lead_to(&self, server: u16) {
        self.state.server.store(server, SeqCst);
    }

    /// Swallows the next replies to requests that contain `of`, and cuts their connections.
    pub fn lose_replies(&self, count: usize, of: &str) {
        *self.state.of.lock().unwrap() = of.into();
        self.state.losses.store(count, SeqCst);
    }

    pub fn delay_replies(&self, ms: u64) {
        self.state.delay.store(ms, SeqCst);
    }

    /// Answers the next renewals. They do not get to the server.
    pub fn answer_renewals(&self, count: usize, answer: &'static str) {
        self.answer("LOCK.RENEW", count, answer);
    }

    /// Answers the next requests that contain `of`. They do not get to the server.
    pub fn answer(&self, of: &'static str, count: usize, answer: &'static str) {
        *self.state.fake.lock().unwrap() = (of, answer);
        self.state.fakes.store(count, SeqCst);
    }

    /// Holds back the next request that contains `of`, and those behind it on its connection, until
    /// this is called with an empty text.
    pub fn hold_back(&self, of: &'static str) {
        *self.state.late.lock().unwrap() = of;
    }

    pub fn held_back(&self) -> usize {
        self.state.held_back.load(SeqCst)
    }

    pub fn fakes_left(&self) -> usize {
        self.state.fakes.load(SeqCst)
    }

    /// How many have been made, until they are cut.
    pub fn connections(&self) -> usize {
        self.state.clients.lock().unwrap().len()
    }

    pub fn losses_left(&self) -> usize {
        self.state.losses.load(SeqCst)
    }

    /// Cuts all connections, and accepts no new ones.
    pub fn close(&self) {
        self.state.is_closed.store(true, SeqCst);
        self.cut();
    }

    /// Accepts connections again.
    pub fn open(&self) {
        self.state.is_closed.store(false, SeqCst);
    }

    /// Lets the server see only after `time` that a client is gone.
    pub fn linger(&self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).unwrap();
        self.state.linger.store(ms, SeqCst);
    }

    /// How many connections have subscribed, but for those that were forgotten.
    pub fn subscribed(&self) -> usize {
        self.state.subscribed.lock().unwrap().len()
    }

    /// Ends the connections that have subscribed on the side of the server. The client's stays, and is silent.
    pub fn forget_subscribed(&self) {
        for Subscribed(server, is_forgotten) in self.state.subscribed.lock().unwrap().drain(..) {
            is_forgotten.store(true, SeqCst);
            let _ = server.shutdown(Shutdown::Both);
        }
    }

    /// Cuts the connections on the side of the client. The server sees it after the linger.
    pub fn cut_clients(&self) {
        for stream in self.state.clients.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn cut(&self) {
        for stream in self.state.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl State {
    fn keep_late(&self, request: &[u8]) {
        let late = *self.late.lock().unwrap();
        let is_late = !late.is_empty() && contains(request, late);
        if is_late && self.held_back.fetch_add(1, SeqCst) == 0 {
            while !self.late.lock().unwrap().is_empty() {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn serve(state: &Arc<State>, client: TcpStream, server: TcpStream) {
    let kept = client.try_clone().unwrap();
    state.clients.lock().unwrap().push(kept);
    let kept = [client.try_clone().unwrap(), server.try_clone().unwrap()];
    state.streams.lock().unwrap().extend(kept);
    let loses = Arc::new(AtomicBool::new(false));
    let is_forgotten = Arc::new(AtomicBool::new(false));
    for (from, to, is_request) in [
        (
            client.try_clone().unwrap(),
            server.try_clone().unwrap(),
            true,
        ),
        (server, client, false),
    ] {
        let (state, loses) = (state.clone(), loses.clone());
        let is_forgotten = is_forgotten.clone();
        thread::spawn(move || pass(&state, (&loses, &is_forgotten), from, to, is_request));
    }
}

fn pass(
    state: &State,
    (loses, is_forgotten): (&AtomicBool, &Arc<AtomicBool>),
    mut from: TcpStream,
    mut to: TcpStream,
    is_request: bool,
) {
    let mut bytes = [0; 16_384];
    let mut has_subscribed = false;
    while let Ok(count) = from.read(&mut bytes) {
        if count == 0 {
            break;
        }
        if is_forgotten.load(SeqCst) {
            continue;
        }
        if is_request && !has_subscribed && contains(&bytes[..count], "SUBSCRIBE") {
            has_subscribed = true;
            let server = to.try_clone().unwrap();
            let mut subscribed = state.subscribed.lock().unwrap();
            subscribed.push(Subscribed(server, is_forgotten.clone()));
        }
        if is_request && state.losses.load(SeqCst) > 0 {
            let of = state.of.lock().unwrap().clone();
            loses.store(
                bytes[..count].windows(of.len()).any(|window| window == of),
                SeqCst,
            );
        } else if !is_request
            && loses.load(SeqCst)
            && state
                .losses
                .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
                .is_ok()
        {
            break;
        }
        let (of, fake) = *state.fake.lock().unwrap();
        if is_request
            && !of.is_empty()
            && contains(&bytes[..count], of)
            && state
                .fakes
                .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
                .is_ok()
        {
            if from.write_all(fake.as_bytes()).is_err() {
                break;
            }
            continue;
        }
        if is_request {
            state.keep_late(&bytes[..count]);
        } else {
            thread::sleep(Duration::from_millis(state.delay.load(SeqCst)));
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    if !is_request && is_forgotten.load(SeqCst) {
        return;
    }
    let _ = from.shutdown(Shutdown::Both);
    if is_request {
        thread::sleep(Duration::from_millis(state.linger.load(SeqCst)));
    }
    let _ = to.shutdown(Shutdown::Both);
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}
