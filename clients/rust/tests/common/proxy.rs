use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Stands between a client and a server, and fails on demand.
pub struct Proxy {
    pub port: u16,
    faults: Arc<Mutex<Faults>>,
}

#[derive(Default)]
pub struct Faults {
    /// The port of the server of new connections.
    pub server: u16,
    /// Connections are closed as soon as they come.
    is_closed: bool,
    /// Replies that are still to be swallowed, each with its connection, and of which requests.
    pub losses: usize,
    lost: String,
    /// How late replies are.
    pub delay: Duration,
    /// How many requests are answered here, which ones, and how.
    pub fakes: usize,
    fake: (&'static str, &'static str),
    /// The first request that contains this is held back, and those behind it on its connection,
    /// until it is empty again. The next such requests are not.
    pub late: &'static str,
    pub held_back: usize,
    /// All that have been made, until they are cut.
    links: Vec<Arc<Link>>,
}

struct Link {
    client: TcpStream,
    server: TcpStream,
    loses: AtomicBool,
    has_subscribed: AtomicBool,
    /// The server's end is over. The client's stays open, and is silent.
    is_forgotten: AtomicBool,
}

impl Proxy {
    pub fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let proxy = Self {
            port,
            faults: Arc::default(),
        };
        proxy.faults().server = server;
        let faults = proxy.faults.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (is_closed, server) = {
                    let faults = faults.lock().unwrap();
                    (faults.is_closed, faults.server)
                };
                let server = (!is_closed).then(|| TcpStream::connect(("127.0.0.1", server)));
                if let Some(Ok(server)) = server {
                    serve(&faults, client, server);
                }
            }
        });
        proxy
    }

    pub fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap()
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Swallows the next replies to requests that contain `of`, and cuts their connections.
    pub fn lose_replies(&self, count: usize, of: &str) {
        let mut faults = self.faults();
        (faults.losses, faults.lost) = (count, of.to_owned());
    }

    pub fn delay_replies(&self, ms: u64) {
        self.faults().delay = Duration::from_millis(ms);
    }

    /// Answers the next requests that contain `of`. They do not get to the server.
    pub fn answer(&self, of: &'static str, count: usize, answer: &'static str) {
        let mut faults = self.faults();
        (faults.fakes, faults.fake) = (count, (of, answer));
    }

    pub fn connections(&self) -> usize {
        self.faults().links.len()
    }

    /// Cuts all connections, and accepts no new ones until it is opened.
    pub fn close(&self) {
        self.faults().is_closed = true;
        self.cut();
    }

    pub fn open(&self) {
        self.faults().is_closed = false;
    }

    /// The connections that have subscribed, but for those that were forgotten.
    fn subscribed(&self) -> Vec<Arc<Link>> {
        let mut links = self.faults().links.clone();
        links.retain(|link| link.has_subscribed.load(SeqCst) && !link.is_forgotten.load(SeqCst));
        links
    }

    pub fn has_subscribed(&self) -> bool {
        !self.subscribed().is_empty()
    }

    /// Ends the connections that have subscribed on the side of the server. The client's stays, and is silent.
    pub fn forget_subscribed(&self) {
        for link in self.subscribed() {
            link.is_forgotten.store(true, SeqCst);
            let _ = link.server.shutdown(Shutdown::Both);
        }
    }

    pub fn cut(&self) {
        for link in self.faults().links.drain(..) {
            let _ = link.client.shutdown(Shutdown::Both);
            let _ = link.server.shutdown(Shutdown::Both);
        }
    }
}

fn serve(faults: &Arc<Mutex<Faults>>, client: TcpStream, server: TcpStream) {
    let link = Arc::new(Link {
        client,
        server,
        loses: AtomicBool::new(false),
        has_subscribed: AtomicBool::new(false),
        is_forgotten: AtomicBool::new(false),
    });
    faults.lock().unwrap().links.push(link.clone());
    for is_request in [true, false] {
        let (faults, link) = (faults.clone(), link.clone());
        thread::spawn(move || {
            let (from, to) = match is_request {
                true => (&link.client, &link.server),
                false => (&link.server, &link.client),
            };
            pass(&faults, &link, (from, to), is_request);
            if !is_request && link.is_forgotten.load(SeqCst) {
                return;
            }
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}

fn pass(
    faults: &Mutex<Faults>,
    link: &Link,
    (mut from, mut to): (&TcpStream, &TcpStream),
    is_request: bool,
) {
    let mut bytes = [0; 16_384];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let sent = &bytes[..count];
        let contains = |text: &str| {
            let mut windows = sent.windows(text.len().max(1));
            windows.any(|window| window == text.as_bytes())
        };
        if link.is_forgotten.load(SeqCst) {
            continue;
        }
        let mut now = faults.lock().unwrap();
        if !is_request {
            if now.losses > 0 && link.loses.load(SeqCst) {
                now.losses -= 1;
                return;
            }
            let delay = now.delay;
            drop(now);
            thread::sleep(delay);
        } else {
            link.has_subscribed.fetch_or(contains("SUBSCRIBE"), SeqCst);
            if now.losses > 0 {
                link.loses.store(contains(&now.lost), SeqCst);
            }
            let (of, fake) = now.fake;
            if now.fakes > 0 && contains(of) {
                now.fakes -= 1;
                let _ = from.write_all(fake.as_bytes());
                continue;
            }
            let is_late = contains(now.late);
            now.held_back += usize::from(is_late);
            let waits = is_late && now.held_back == 1;
            drop(now);
            while waits && !faults.lock().unwrap().late.is_empty() {
                thread::sleep(Duration::from_millis(1));
            }
        }
        if to.write_all(sent).is_err() {
            return;
        }
    }
}
