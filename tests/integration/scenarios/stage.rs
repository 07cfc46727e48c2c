//! A real server as the stage of a scenario. What must come is waited for, with a bound. Its clock
//! stands but for what the scenario lets pass, so a slow machine changes nothing.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::format::{is_shown, Answer, Counts, Message, Shown, Stage, Words};
use crate::harness::{
    start_by, wait_for, Client, Clock, Info, Kind, Later, Listener, Reply, Server,
};
use crate::places::fixture::Subscriber;
use crate::stats;

/// How long something that must come may take to be seen.
const SOON: Duration = Duration::from_secs(10);

/// How often the timer may ask in 100 milliseconds whether the server takes writes.
const QUESTIONS_PER_100_MS: u64 = 6;

pub(super) struct RealServer {
    server: Server,
    clock: Clock,
    /// For questions that belong to no client of the scenario.
    operator: Client,
    clients: BTreeMap<String, Connection>,
    subscribers: BTreeMap<String, (Subscriber, VecDeque<String>)>,
}

struct Connection {
    id: i64,
    state: State,
}

enum State {
    Idle(Client),
    Waits(Later),
    /// Between two of its states.
    Gone,
}

fn answer_of(reply: Reply) -> Answer {
    match reply {
        Reply::Nil => Answer::Null,
        Reply::Int(n) => Answer::Int(n),
        Reply::Bulk(text) => Answer::Text(String::from_utf8_lossy(&text).into()),
        Reply::Simple(status) => Answer::Status(status),
        Reply::Error(error) => Answer::Error(error),
        Reply::Array(items) => match &items[..] {
            [Reply::Bulk(_), Reply::Int(fence)] => Answer::Made(*fence),
            _ => Answer::Other(format!("{items:?}")),
        },
        other => Answer::Other(format!("{other:?}")),
    }
}

/// What is seen when it is as expected, or too late.
fn soon<T>(mut look: impl FnMut() -> T, is_it: impl Fn(&T) -> bool) -> T {
    let start = Instant::now();
    loop {
        let seen = look();
        if is_it(&seen) || start.elapsed() > SOON {
            return seen;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl RealServer {
    pub(super) fn start(kind: Kind, settings: &[(String, String)]) -> Self {
        let options = settings.iter().flat_map(|(name, value)| [name, value]);
        let options: Vec<&str> = options.map(String::as_str).collect();
        let clock = Clock::standing();
        let server = start_by(&clock, kind, &options);
        Self {
            clock,
            operator: server.client(),
            server,
            clients: BTreeMap::new(),
            subscribers: BTreeMap::new(),
        }
    }

    fn client(&mut self, name: &str) -> &mut Connection {
        let server = &self.server;
        self.clients.entry(name.into()).or_insert_with(|| {
            let mut client = server.client();
            Connection {
                id: client.call("CLIENT ID").as_int(),
                state: State::Idle(client),
            }
        })
    }

    fn idle(&mut self, name: &str) -> Result<Client, String> {
        let state = &mut self.client(name).state;
        match std::mem::replace(state, State::Gone) {
            State::Idle(client) => Ok(client),
            waits => {
                *state = waits;
                Err(format!("{name} waits, and can ask nothing"))
            }
        }
    }

    fn id_of(&self, name: &str) -> Result<i64, String> {
        let client = self.clients.get(name);
        client
            .map(|client| client.id)
            .ok_or(format!("there is no {name}"))
    }

    /// Ends the connection of a client that the server has closed.
    fn forget(&mut self, name: &str) {
        let client = self.clients.remove(name);
        if let Some(State::Waits(later)) = client.map(|client| client.state) {
            assert!(later.end().is_none(), "{name} was answered after its end");
        }
    }

    fn look(&mut self, shown: Shown, key: &str) -> Vec<String> {
        let info = self.operator.lock_info(key);
        match shown {
            Shown::Mode if info == Info::default() => vec!["nothing".into()],
            Shown::Mode => vec![info.mode],
            Shown::Holders => info.holders.into_iter().map(|one| one.token).collect(),
            Shown::Waiters => {
                let waiters = info.waiters.iter().map(|place| {
                    let listener = match place.listener {
                        Listener::Client(_) => "client",
                        Listener::Channel(_) => "channel",
                        Listener::Nobody => "absent",
                    };
                    format!("{} {} {listener}", place.token, place.mode)
                });
                waiters.collect()
            }
        }
    }
}

impl Stage for RealServer {
    fn ask(&mut self, who: &str, words: &[String], waits: bool) -> Result<Answer, String> {
        let client = self.idle(who)?;
        let before = self.server.blocked_clients();
        let later = Later::send(client, &words.join(" "));
        if waits {
            let server = &self.server;
            wait_for("a client to wait", || {
                let is_blocked = server.blocked_clients() > before;
                (is_blocked || later.is_answered()).then_some(())
            });
            if !later.is_answered() {
                self.client(who).state = State::Waits(later);
                return Ok(Answer::Waits);
            }
        }
        let (reply, client) = later
            .end()
            .ok_or(format!("{who} has lost its connection"))?;
        self.client(who).state = State::Idle(client);
        Ok(answer_of(reply))
    }

    fn transaction(&mut self, who: &str, commands: &[Words]) -> Result<Vec<Answer>, String> {
        let mut client = self.idle(who)?;
        let (mut lines, mut killed) = (Vec::new(), Vec::new());
        for words in commands {
            lines.push(match &words[..] {
                [kill, whom] if kill == "KILL" => {
                    killed.push(whom.clone());
                    format!("CLIENT KILL ID {}", self.id_of(whom)?)
                }
                words => words.join(" "),
            });
        }
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let replies = client.multi(&lines);
        self.client(who).state = State::Idle(client);
        killed.iter().for_each(|whom| self.forget(whom));
        Ok(replies.into_iter().map(answer_of).collect())
    }

    fn gets(&mut self, who: &str) -> Result<Answer, String> {
        let state = &mut self.client(who).state;
        let State::Waits(later) = std::mem::replace(state, State::Gone) else {
            return Err(format!("{who} does not wait"));
        };
        match later.end() {
            Some((reply, client)) => {
                self.client(who).state = State::Idle(client);
                Ok(answer_of(reply))
            }
            None => {
                self.clients.remove(who);
                Ok(Answer::Broken)
            }
        }
    }

    fn unexpected(&mut self) -> Option<String> {
        let mut clients = self.clients.iter_mut();
        let answer = clients.find_map(|(name, client)| {
            let State::Waits(later) = &client.state else {
                return None;
            };
            later
                .is_answered()
                .then(|| format!("{name} has got an answer"))
        });
        answer.or_else(|| {
            let mut channels = self.subscribers.iter_mut();
            channels.find_map(|(channel, (subscriber, heard))| {
                heard.extend(subscriber.so_far());
                let message = heard.front()?;
                Some(format!("channel {channel} has heard {message}"))
            })
        })
    }

    fn kill(&mut self, who: &str) -> Result<(), String> {
        let id = self.id_of(who)?;
        let killed = self.operator.int(&format!("CLIENT KILL ID {id}"));
        self.forget(who);
        match killed {
            1 => Ok(()),
            _ => Err(format!("{who} was not connected any more")),
        }
    }

    fn unblock(&mut self, who: &str) -> Result<(), String> {
        let id = self.id_of(who)?;
        match self.operator.int(&format!("CLIENT UNBLOCK {id} ERROR")) {
            1 => Ok(()),
            _ => Err(format!("this server does not unblock {who}")),
        }
    }

    fn listen(&mut self, channel: &str) {
        let subscriber = Subscriber::new(&self.server, &format!("SUBSCRIBE {channel}"));
        self.subscribers
            .insert(channel.into(), (subscriber, VecDeque::new()));
    }

    fn leave(&mut self, channel: &str) {
        self.subscribers.remove(channel);
        let line = format!("PUBSUB NUMSUB {channel}");
        let operator = &mut self.operator;
        wait_for("the channel to be left", || {
            (operator.call(&line).items()[1] == Reply::Int(0)).then_some(())
        });
    }

    fn hears(&mut self, channel: &str) -> Result<(Message, i64), String> {
        let (subscriber, heard) = self.subscribers.get_mut(channel).ok_or("nobody listens")?;
        let text = heard.pop_front().unwrap_or_else(|| subscriber.text());
        let words: Vec<&str> = text.split(' ').collect();
        let [event, fence, _, key, token] = words[..] else {
            return Err(format!("it has heard {text}"));
        };
        let message = Message {
            event: event.into(),
            key: key.into(),
            token: token.into(),
        };
        Ok((message, fence.parse().map_err(|_| text.clone())?))
    }

    fn after(&mut self, ms: u64) {
        self.clock.step(&mut self.operator, ms);
    }

    fn rests(&mut self, ms: u64) -> Result<(), String> {
        let before = self.operator.calls_of("lock._writable");
        self.after(ms);
        let questions = self.operator.calls_of("lock._writable") - before;
        match questions <= (ms / 100 + 1) * QUESTIONS_PER_100_MS {
            true => Ok(()),
            false => Err(format!("the timer has asked {questions} times in {ms} ms")),
        }
    }

    fn demote(&mut self) -> Result<(), String> {
        // Nobody listens there.
        self.operator.text("REPLICAOF 127.0.0.1 1");
        Ok(())
    }

    fn promote(&mut self) -> Result<(), String> {
        self.operator.text("REPLICAOF NO ONE");
        Ok(())
    }

    fn shows(&mut self, shown: Shown, key: &str, expected: &[String]) -> Vec<String> {
        soon(|| self.look(shown, key), |seen| is_shown(expected, seen))
    }

    fn counted(&mut self, expected: &Counts) -> Counts {
        let counted = soon(|| stats::counted(&mut self.operator), |one| one == expected);
        self.operator.text("LOCK.RESETSTAT");
        counted
    }
}
