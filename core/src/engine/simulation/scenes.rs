//! The scenarios of `tests/scenarios`, played by the machine on a server in memory.

// Long because: the stage and all its steps belong together.

#[allow(dead_code, unreachable_pub)] // The integration tests use it, too.
#[path = "../../../../tests/scenarios/format.rs"]
mod format;

mod wrong;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{catch_unwind, AssertUnwindSafe};

use super::node::{counted, keys_of, Log, Node, Said, Value};
use super::{at, Client, Place, Scene};
use crate::lock::{Mode, Occupancy};
use crate::wait::Listener;
use format::{files, Answer, Counts, Message, Scenario, Servers, Shown, Stage, Words};

/// Where they are, seen from this crate.
const SCENARIOS: &str = "../tests/scenarios";

/// The turns of the timer that are no reason to wonder: those of the patrol, and a few.
const TURNS_PER_100_MS: u64 = 3;

/// The server in memory, and its clients.
struct InMemory {
    node: Node,
    scene: Scene,
    /// After how many looks at the clock of a turn of the timer a millisecond has passed.
    looks: u32,
    clients: BTreeMap<String, Connection>,
    last_client: Client,
    /// The names of the keys. A key's byte says where its name is.
    keys: Vec<String>,
    heard: BTreeMap<String, VecDeque<(Message, i64)>>,
}

struct Connection {
    number: Client,
    db: u8,
    waits: bool,
    /// Answers that no line has told of yet.
    heard: VecDeque<Answer>,
}

impl From<Said> for Answer {
    fn from(said: Said) -> Self {
        let number = |n: u64| i64::try_from(n).unwrap();
        match said {
            Said::Null => Self::Null,
            Said::Number(n) => Self::Int(number(n)),
            Said::Text(text) => Self::Text(text),
            Said::Made(fence) => Self::Made(number(fence)),
            Said::Status(status) => Self::Status(status.into()),
            Said::Error(error) => Self::Error(error),
        }
    }
}

impl InMemory {
    fn new(settings: &[(String, String)], looks: u32) -> Result<Self, String> {
        let mut scene = Scene::new();
        // As on a server.
        scene.detects_deadlocks = true;
        let number = |value: &str| value.parse().map_err(|_| format!("{value} is no number"));
        for (name, value) in settings {
            match name.as_str() {
                "deadlock-detection" => scene.detects_deadlocks = value == "yes",
                "max-waiters" => scene.room.per_server = number(value)?,
                "max-waiters-per-key" => scene.room.per_key = number(value)?,
                "max-absent" => scene.room.absent_per_key = number(value)?,
                _ => return Err(format!("the server in memory has no setting {name}")),
            }
        }
        let node = Node::new(true);
        node.memory.log.replace(Some(Log::default()));
        node.memory.scene.set(scene);
        Ok(Self {
            node,
            scene,
            looks,
            clients: BTreeMap::new(),
            last_client: 0,
            keys: Vec::new(),
            heard: BTreeMap::new(),
        })
    }

    fn client(&mut self, name: &str) -> &mut Connection {
        let last = &mut self.last_client;
        self.clients.entry(name.into()).or_insert_with(|| {
            *last += 1;
            Connection {
                number: *last,
                db: 0,
                waits: false,
                heard: VecDeque::new(),
            }
        })
    }

    fn byte_of(&mut self, key: &str) -> u8 {
        let known = self.keys.iter().position(|known| known == key);
        let n = known.unwrap_or_else(|| {
            self.keys.push(key.into());
            self.keys.len() - 1
        });
        b'A' + u8::try_from(n).unwrap()
    }

    fn in_log<T>(&self, of: impl FnOnce(&mut Log) -> T) -> T {
        of(self.node.memory.log.borrow_mut().as_mut().unwrap())
    }

    /// Runs a command, and returns its reply, if it does not wait.
    fn say(&mut self, who: &str, words: &[String]) -> Result<Option<Answer>, String> {
        let client = self.client(who);
        let (number, db) = (client.number, client.db);
        if client.waits {
            return Err(format!("{who} waits, and can ask nothing"));
        }
        if let [select, db] = words {
            if select.eq_ignore_ascii_case("SELECT") {
                client.db = db.parse().map_err(|_| "a database is a number")?;
                return Ok(Some(Answer::Status("OK".into())));
            }
        }
        let mut words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let borrowed: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let mut keys: Vec<usize> = keys_of(&borrowed).collect();
        if borrowed[0].eq_ignore_ascii_case(b"LOCK.EXEC") {
            let inner = borrowed.get(3..).unwrap_or_default();
            keys.extend(keys_of(inner).map(|key| key + 3));
        }
        for key in keys {
            let name = String::from_utf8(words[key].clone()).unwrap();
            words[key] = vec![self.byte_of(&name)];
        }
        let borrowed: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        self.node.say(number, db, &borrowed)?;
        let answer = self.in_log(|log| {
            let mut replies = log.replies.iter();
            let of = replies.rposition(|(client, _)| *client == number);
            of.map(|of| Answer::from(log.replies.remove(of).1))
        });
        Ok(answer)
    }

    /// Lets the timer run, and has clients hear of what they got. Returns the turns of the timer.
    fn settle(&mut self) -> u64 {
        let mut turns = 0;
        self.node.memory.scene.set(self.scene);
        loop {
            turns += self.node.run_timer();
            let first = self.node.memory.in_flight.borrow().first().cloned();
            let Some((client, _)) = first else { break };
            // The server asks for the reply of a client that is there.
            let is_there = self.clients.values().any(|c| c.number == client);
            self.node.end_delivery(client, is_there);
            self.node.settle();
        }
        self.node.memory.events.borrow_mut().clear();
        let (replies, messages) = self.in_log(|log| {
            let replies = std::mem::take(&mut log.replies);
            (replies, std::mem::take(&mut log.messages))
        });
        for (number, said) in replies {
            // Those who are gone hear nothing.
            let mut clients = self.clients.values_mut();
            if let Some(client) = clients.find(|client| client.number == number) {
                client.waits = false;
                client.heard.push_back(said.into());
            }
        }
        for (channel, text) in messages {
            let words: Vec<&str> = text.splitn(5, ' ').collect();
            let key = usize::from(words[3].as_bytes()[0] - b'A');
            let message = Message {
                event: words[0].into(),
                key: self.keys[key].clone(),
                token: words[4].into(),
            };
            let channel = String::from_utf8(channel).unwrap();
            let heard = self.heard.entry(channel).or_default();
            heard.push_back((message, words[1].parse().unwrap()));
        }
        turns
    }

    /// Both clocks go on by a millisecond at a time, some in the middle of a turn of the timer, and
    /// the timer goes off when it is set for then.
    fn go_on(&mut self, ms: u64) -> u64 {
        let (mut turns, until_ms) = (0, self.scene.now_ms + ms);
        while self.scene.now_ms < until_ms {
            self.scene.go_on(1);
            let may_go_on = self.looks > 0 && self.scene.now_ms < until_ms;
            let looks = may_go_on.then_some(self.looks);
            self.node.memory.looks_left.set(looks);
            turns += self.settle();
            self.scene = self.node.memory.scene.get();
        }
        turns
    }

    /// Ends a connection.
    fn disconnect(&mut self, who: &str) -> Result<(), String> {
        let client = self.clients.remove(who);
        let client = client.ok_or(format!("there is no {who}"))?;
        let in_flight = self.node.memory.in_flight.borrow();
        let is_granted = in_flight.iter().any(|(other, _)| *other == client.number);
        drop(in_flight);
        let is_blocked = client.waits && !is_granted;
        self.node.kill_waiter(client.number, is_blocked);
        Ok(())
    }

    fn sent_away(&mut self) -> Vec<Client> {
        let blocked = self.clients.values_mut().filter(|client| client.waits);
        let away = blocked.map(|client| {
            client.waits = false;
            client.heard.push_back(Answer::Error("UNBLOCKED".into()));
            client.number
        });
        away.collect()
    }
}

impl Stage for InMemory {
    fn ask(&mut self, who: &str, words: &[String], _waits: bool) -> Result<Answer, String> {
        let answer = self.say(who, words)?;
        self.client(who).waits = answer.is_none();
        self.settle();
        Ok(answer.unwrap_or(Answer::Waits))
    }

    fn transaction(&mut self, who: &str, commands: &[Words]) -> Result<Vec<Answer>, String> {
        self.in_log(|log| log.is_in_transaction = true);
        let mut answers = Vec::new();
        for words in commands {
            answers.push(match &words[..] {
                [kill, whom] if kill == "KILL" => {
                    self.disconnect(whom)?;
                    Answer::Int(1)
                }
                words => self.say(who, words)?.unwrap_or(Answer::Waits),
            });
        }
        self.in_log(|log| log.is_in_transaction = false);
        self.settle();
        Ok(answers)
    }

    fn gets(&mut self, who: &str) -> Result<Answer, String> {
        let answer = self.client(who).heard.pop_front();
        answer.ok_or(format!("{who} has got nothing"))
    }

    fn unexpected(&mut self) -> Option<String> {
        let mut clients = self.clients.iter();
        let answer = clients.find_map(|(name, client)| {
            let answer = client.heard.front()?;
            Some(format!("{name} has got {answer:?}"))
        });
        answer.or_else(|| {
            let mut channels = self.heard.iter();
            channels.find_map(|(channel, heard)| {
                let message = heard.front()?;
                Some(format!("channel {channel} has heard {message:?}"))
            })
        })
    }

    fn kill(&mut self, who: &str) -> Result<(), String> {
        self.disconnect(who)?;
        self.settle();
        Ok(())
    }

    fn unblock(&mut self, who: &str) -> Result<(), String> {
        let client = self.client(who);
        if !std::mem::take(&mut client.waits) {
            return Err(format!("{who} does not wait"));
        }
        client.heard.push_back(Answer::Error("UNBLOCKED".into()));
        let number = client.number;
        self.node.unblock(number);
        self.settle();
        Ok(())
    }

    fn listen(&mut self, channel: &str) {
        self.in_log(|log| log.heard_channels.insert(channel.into()));
    }

    fn leave(&mut self, channel: &str) {
        self.in_log(|log| log.heard_channels.remove(channel.as_bytes()));
    }

    fn hears(&mut self, channel: &str) -> Result<(Message, i64), String> {
        let heard = self.heard.get_mut(channel);
        let message = heard.and_then(VecDeque::pop_front);
        message.ok_or(format!("channel {channel} has heard nothing"))
    }

    fn after(&mut self, ms: u64) {
        self.go_on(ms);
    }

    fn rests(&mut self, ms: u64) -> Result<(), String> {
        let turns = self.go_on(ms);
        let most = (ms / 100 + 1) * TURNS_PER_100_MS;
        match turns <= most {
            true => Ok(()),
            false => Err(format!("the timer went off {turns} times in {ms} ms")),
        }
    }

    fn demote(&mut self) -> Result<(), String> {
        self.scene.is_primary = false;
        self.node.memory.scene.set(self.scene);
        let blocked = self.sent_away();
        self.node.demoted(&blocked);
        self.settle();
        Ok(())
    }

    fn promote(&mut self) -> Result<(), String> {
        self.scene.is_primary = true;
        self.node.memory.scene.set(self.scene);
        self.node.promoted();
        self.settle();
        Ok(())
    }

    fn counted(&mut self, expected: &Counts) -> Counts {
        counted(self.node.memory.counts.take(), expected)
    }

    fn shows(&mut self, shown: Shown, key: &str, _expected: &[String]) -> Vec<String> {
        let place = at(0, self.byte_of(key));
        let waiters = self.waiters(place);
        match shown {
            Shown::Waiters => waiters,
            Shown::Holders => self.holders(place).0,
            Shown::Mode => {
                let (holders, occupancy) = self.holders(place);
                vec![match occupancy.tolerated {
                    _ if holders.is_empty() && waiters.is_empty() => "nothing".into(),
                    _ if holders.is_empty() => "free".into(),
                    tolerated => mode_of(tolerated),
                }]
            }
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn mode_of(tolerated: u32) -> String {
    match Mode::of_limit(tolerated) {
        _ if tolerated == Mode::ANY => "shared".into(),
        Some(Mode::Exclusive) => "exclusive".into(),
        _ => format!("counted {tolerated}"),
    }
}

impl InMemory {
    fn waiters(&self, place: Place) -> Vec<String> {
        let registry = &self.node.machine.registry;
        let waiters = registry.waiters(place.db.into(), std::slice::from_ref(&place.name));
        let waiter = waiters.map(|waiter| {
            let listener = match waiter.listener {
                Some(Listener::Client(_)) => "client",
                Some(_) => "channel",
                None => "absent",
            };
            let mode = mode_of(waiter.mode.tolerates());
            format!("{} {mode} {listener}", text(waiter.token.as_bytes()))
        });
        waiter.collect()
    }

    fn holders(&self, place: Place) -> (Vec<String>, Occupancy) {
        let (values, now_ms) = (self.node.values(), self.scene.now_ms);
        let (lock, end) = match values.get(&place) {
            Some(Value::Lock(lock, end)) => (lock, *end),
            _ => return (Vec::new(), Occupancy::NONE),
        };
        if end.is_some_and(|end| end.is_over(now_ms)) {
            return (Vec::new(), Occupancy::NONE);
        }
        let mut holders = lock.holders();
        holders.retain(|(_, hold)| !hold.deadline.is_over(now_ms));
        holders.sort_by_key(|(_, hold)| hold.fence);
        let tokens = holders
            .iter()
            .map(|(token, _)| text(token.as_token().as_bytes()));
        (tokens.collect(), lock.occupancy(self.scene.now()))
    }
}

fn play(scenario: &Scenario, looks: u32) -> Result<(), String> {
    let name = scenario.path.display();
    let stage = InMemory::new(&scenario.settings, looks);
    scenario.play(&mut stage.map_err(|why| format!("{name}: {why}"))?)
}

#[test]
fn all_scenarios() {
    let (mut failed, files) = (0, files());
    for path in &files {
        let played = catch_unwind(AssertUnwindSafe(|| {
            Scenario::read(path).and_then(|scenario| match scenario.servers {
                Servers::Real => Ok(()),
                _ => (0..=5).try_for_each(|looks| {
                    play(&scenario, looks).map_err(|why| format!("{why} ({looks} looks)"))
                }),
            })
        }));
        let why = match played {
            Ok(Ok(())) => continue,
            Ok(Err(why)) => why,
            Err(_) => format!("{}: the machine panics", path.display()),
        };
        println!("{why}");
        failed += 1;
    }
    assert!(files.len() >= 10, "only {} scenarios", files.len());
    assert_eq!(failed, 0, "scenarios that failed, of {}", files.len());
}
