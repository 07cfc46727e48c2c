//! Clients that contend for one lock, all in one thread. Each one acquires, holds, releases and
//! comes again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::load::reply_at_start;
use crate::peers::{Refused, Script};
use crate::stats::Latency;

/// The reply that a client expects next.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    Acquire,
    /// The wait for a signal, after which the client tries again.
    Signal,
    /// None: the client holds the lock, or pauses before the next try.
    Hold,
    Pause,
    Release,
}

/// After this time without data, no reply is outstanding: clients that can be answered are answered
/// sooner.
const SILENCE: Duration = Duration::from_millis(20);

struct Member {
    stream: TcpStream,
    script: Script,
    step: Step,
    since: Instant,
    taken: u64,
    buffer: [u8; 256],
    filled: usize,
}

/// The results of the clients.
pub struct Outcome {
    pub taken: Vec<f64>,
    /// Acquisitions by another client than the previous holder.
    pub hand_offs: u64,
    pub waits: Latency,
    pub seconds: f64,
}

/// The state after everything in progress has been answered.
pub struct Rest {
    /// Acquisitions that were released, so that their full cost is included.
    pub given_back: u64,
    pub holding: usize,
    /// Clients that the server still blocks.
    pub blocked: usize,
    /// Those of them that were refused and wait for a signal.
    pub refused: usize,
}

impl Outcome {
    pub fn acquisitions(&self) -> f64 {
        self.taken.iter().sum()
    }

    pub fn starved(&self) -> usize {
        self.taken.iter().filter(|taken| **taken == 0.0).count()
    }
}

/// Clients that are connected and have not sent a request yet.
pub struct LoadClients {
    poll: Poll,
    members: Vec<Member>,
    hold: Duration,
    /// The instants at which a client must act, with the client.
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    last: Option<usize>,
    hand_offs: u64,
    given_back: u64,
    waits: Latency,
    is_over: bool,
}

impl LoadClients {
    pub fn connect(port: u16, scripts: Vec<Script>, hold: Duration) -> Self {
        let poll = Poll::new().expect("to poll");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let members = scripts.into_iter().enumerate().map(|(n, script)| {
            let stream = std::net::TcpStream::connect(address).expect("a connection");
            stream.set_nodelay(true).unwrap();
            stream.set_nonblocking(true).unwrap();
            let mut stream = TcpStream::from_std(stream);
            let registry = poll.registry();
            registry
                .register(&mut stream, Token(n), Interest::READABLE)
                .unwrap();
            Member {
                stream,
                script,
                step: Step::Pause,
                since: Instant::now(),
                taken: 0,
                buffer: [0; 256],
                filled: 0,
            }
        });
        Self {
            members: members.collect(),
            poll,
            hold,
            timers: BinaryHeap::new(),
            last: None,
            hand_offs: 0,
            given_back: 0,
            waits: Latency::new(),
            is_over: false,
        }
    }

    /// Contends for `time`. Clients that wait at the end keep waiting until `self` is dropped.
    pub fn contend(&mut self, time: Duration) -> Outcome {
        let begin = Instant::now();
        let mut events = Events::with_capacity(1024);
        for n in 0..self.members.len() {
            self.ask(n);
        }
        while begin.elapsed() < time {
            self.poll
                .poll(
                    &mut events,
                    Some(self.patience(time.saturating_sub(begin.elapsed()))),
                )
                .expect("to poll");
            for event in &events {
                self.hear(event.token().0);
            }
            self.ring();
        }
        Outcome {
            taken: self
                .members
                .iter()
                .map(|member| member.taken as f64)
                .collect(),
            hand_offs: self.hand_offs,
            waits: std::mem::replace(&mut self.waits, Latency::new()),
            seconds: begin.elapsed().as_secs_f64(),
        }
    }

    /// Reads outstanding replies without sending new requests. To be called once, after the
    /// contention.
    pub fn settle(&mut self) -> Rest {
        self.is_over = true;
        let mut events = Events::with_capacity(1024);
        loop {
            self.poll.poll(&mut events, Some(SILENCE)).expect("to poll");
            if events.is_empty() {
                break;
            }
            for event in &events {
                self.hear(event.token().0);
            }
        }
        let count = |is: fn(&Member) -> bool| self.members.iter().filter(|m| is(m)).count();
        Rest {
            given_back: self.given_back,
            holding: count(|member| member.step == Step::Hold),
            blocked: count(|member| matches!(member.step, Step::Acquire | Step::Signal)),
            refused: count(|member| member.step == Step::Signal),
        }
    }

    /// The time until the next timer. The system waits in whole milliseconds, so the last one is
    /// spent polling.
    fn patience(&self, rest: Duration) -> Duration {
        let next = self
            .timers
            .peek()
            .map(|Reverse((at, _))| at.saturating_duration_since(Instant::now()));
        let wait = next.map_or(rest, |next| next.min(rest));
        Duration::from_millis(wait.as_millis().saturating_sub(1) as u64)
    }

    fn ring(&mut self) {
        while let Some(Reverse((at, n))) = self.timers.peek().copied() {
            if at > Instant::now() {
                return;
            }
            self.timers.pop();
            if self.members[n].step == Step::Hold {
                self.give(n);
            } else {
                self.try_to_take(n);
            }
        }
    }

    /// Reads the replies for one client.
    fn hear(&mut self, n: usize) {
        loop {
            let member = &mut self.members[n];
            match member.stream.read(&mut member.buffer[member.filled..]) {
                Ok(0) => panic!("the server has ended a connection"),
                Ok(count) => member.filled += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("no reply: {error}"),
            }
            if let Some((end, said)) = reply_at_start(&member.buffer[..member.filled]) {
                // Each client sends one command at a time, so there is one reply.
                assert_eq!(end, member.filled, "more than a reply");
                let text = String::from_utf8_lossy(&member.buffer[..end]);
                assert_eq!(said.errors, 0, "{text}");
                member.filled = 0;
                self.act(n, said.yes == 1);
                return;
            }
        }
    }

    fn act(&mut self, n: usize, granted: bool) {
        if self.members[n].step == Step::Release {
            self.given_back += 1;
        }
        if self.is_over {
            let has_it = self.members[n].step == Step::Acquire && granted;
            self.members[n].step = if has_it { Step::Hold } else { Step::Pause };
            return;
        }
        match self.members[n].step {
            Step::Acquire if granted => self.taken(n),
            Step::Acquire => match &self.members[n].script.refused {
                Refused::Never => panic!("a wait without end has ended"),
                Refused::Sleep(pause) => {
                    self.timers.push(Reverse((Instant::now() + *pause, n)));
                    self.members[n].step = Step::Pause;
                }
                Refused::Block(_) => self.members[n].send(Step::Signal),
            },
            Step::Signal => self.try_to_take(n),
            Step::Release => self.ask(n),
            Step::Hold | Step::Pause => panic!("a reply to nothing"),
        }
    }

    fn taken(&mut self, n: usize) {
        self.waits.record(self.members[n].since.elapsed());
        if self.last.replace(n) != Some(n) {
            self.hand_offs += 1;
        }
        self.members[n].taken += 1;
        if self.hold.is_zero() {
            return self.give(n);
        }
        self.members[n].step = Step::Hold;
        self.timers.push(Reverse((Instant::now() + self.hold, n)));
    }

    fn ask(&mut self, n: usize) {
        self.members[n].since = Instant::now();
        self.try_to_take(n);
    }

    fn try_to_take(&mut self, n: usize) {
        self.members[n].send(Step::Acquire);
    }

    fn give(&mut self, n: usize) {
        self.members[n].send(Step::Release);
    }
}

impl Member {
    fn send(&mut self, step: Step) {
        let bytes = match (step, &self.script.refused) {
            (Step::Signal, Refused::Block(wait)) => wait,
            (Step::Release, _) => &self.script.release,
            _ => &self.script.acquire,
        };
        // A hundred bytes always fit into the socket's buffer.
        let sent = self.stream.write(bytes).expect("to send");
        assert_eq!(sent, bytes.len(), "no room for a command");
        self.step = step;
    }
}
