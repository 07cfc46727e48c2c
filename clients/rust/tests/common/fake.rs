use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

type Place = (Vec<u8>, Vec<u8>);

/// A server that speaks as much of NOTIFY as the client needs, and grants when the test says so.
#[derive(Clone)]
pub struct Fake {
    pub port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    log: Vec<Vec<Vec<u8>>>,
    /// By channel: the connections that listen.
    subscribers: HashMap<Vec<u8>, Vec<TcpStream>>,
    /// The places in the queue, each with its channel.
    queued: HashMap<Place, Vec<u8>>,
    held: HashMap<Place, u64>,
    fence: u64,
    refuses_subscriptions: bool,
}

impl Fake {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let fake = Self {
            port: listener.local_addr().unwrap().port(),
            state: Arc::default(),
        };
        let shared = fake.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let fake = shared.clone();
                thread::spawn(move || fake.serve(stream));
            }
        });
        fake
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The commands of the module so far, each as one line.
    pub fn log(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let line = |words: &Vec<Vec<u8>>| {
            let words: Vec<_> = words
                .iter()
                .map(|word| String::from_utf8_lossy(word))
                .collect();
            words.join(" ")
        };
        state.log.iter().map(line).collect()
    }

    pub fn count(&self, containing: &str) -> usize {
        self.log()
            .iter()
            .filter(|line| line.contains(containing))
            .count()
    }

    pub fn queued(&self) -> usize {
        self.state.lock().unwrap().queued.len()
    }

    pub fn held(&self) -> usize {
        self.state.lock().unwrap().held.len()
    }

    /// Grants the one place that is queued, and publishes it if anybody listens.
    pub fn grant(&self) -> u64 {
        let mut state = self.state.lock().unwrap();
        let ((key, token), channel) = state.queued.drain().next().unwrap();
        state.fence += 1;
        let fence = state.fence;
        state.held.insert((key.clone(), token.clone()), fence);
        state.publish(&channel, b"granted", fence, &key, &token);
        fence
    }

    /// Ends the one place that is queued.
    pub fn end(&self, event: &str) {
        let mut state = self.state.lock().unwrap();
        let ((key, token), channel) = state.queued.drain().next().unwrap();
        state.publish(&channel, event.as_bytes(), 0, &key, &token);
    }

    pub fn cut_subscriptions(&self) {
        for (_, streams) in self.state.lock().unwrap().subscribers.drain() {
            for stream in streams {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }

    pub fn refuse_subscriptions(&self) {
        self.state.lock().unwrap().refuses_subscriptions = true;
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        while let Some(words) = read(&mut reader) {
            let mut state = self.state.lock().unwrap();
            let answer = state.answer(&words, &stream);
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    }
}

impl State {
    fn answer(&mut self, words: &[Vec<u8>], stream: &TcpStream) -> Vec<u8> {
        let name = String::from_utf8_lossy(&words[0]).to_uppercase();
        if name.contains("LOCK.") {
            self.log.push(words.to_vec());
        }
        let place = |words: &[Vec<u8>]| (words[1].clone(), words[2].clone());
        match name.as_str() {
            "SUBSCRIBE" if self.refuses_subscriptions => {
                b"-NOPERM this user has no permissions to access one of the channels\r\n".into()
            }
            "SUBSCRIBE" => {
                let channel = &words[1];
                let streams = self.subscribers.entry(channel.clone()).or_default();
                streams.push(stream.try_clone().unwrap());
                array(&[b"subscribe", channel], ":1\r\n")
            }
            // As a connection that is not subscribed.
            "PING" if self.refuses_subscriptions => b"+PONG\r\n".into(),
            "PING" => array(&[b"pong", b""], ""),
            "LOCK.RELEASE" => {
                let held = self.held.remove(&place(words)).is_some();
                self.queued.remove(&place(words));
                format!(":{}\r\n", u8::from(held)).into()
            }
            "LOCK.RENEW" => {
                format!(":{}\r\n", u8::from(self.held.contains_key(&place(words)))).into()
            }
            "LOCK.ACQUIRE" => match (self.held.get(&place(words)), notify(words)) {
                (Some(fence), _) => format!(":{fence}\r\n").into(),
                (None, Some(channel)) => {
                    assert!(
                        self.subscribers.contains_key(&channel),
                        "asked before it listened"
                    );
                    self.queued.insert(place(words), channel);
                    b"+QUEUED\r\n".into()
                }
                (None, None) => b"$-1\r\n".into(),
            },
            _ => b"+OK\r\n".into(),
        }
    }

    fn publish(&mut self, channel: &[u8], event: &[u8], fence: u64, key: &[u8], token: &[u8]) {
        let mut payload = event.to_vec();
        payload.extend(format!(" {fence} {} ", key.len()).bytes());
        payload.extend([key, b" ", token].concat());
        let message = array(&[b"message", channel, &payload], "");
        for stream in self.subscribers.get_mut(channel).into_iter().flatten() {
            let _ = stream.write_all(&message);
        }
    }
}

fn notify(words: &[Vec<u8>]) -> Option<Vec<u8>> {
    let at = words.iter().position(|word| word == b"NOTIFY")?;
    Some(words[at + 2].clone())
}

fn array(words: &[&[u8]], last: &str) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len() + usize::from(!last.is_empty())).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend([word, &b"\r\n"[..]].concat());
    }
    bytes.extend(last.bytes());
    bytes
}

fn read(reader: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let count = read_length(reader)?;
    (0..count)
        .map(|_| {
            let mut word = vec![0; read_length(reader)? + 2];
            reader.read_exact(&mut word).ok()?;
            word.truncate(word.len() - 2);
            Some(word)
        })
        .collect()
}

fn read_length(reader: &mut impl BufRead) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    line.trim_end().get(1..)?.parse().ok()
}
