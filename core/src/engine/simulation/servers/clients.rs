//! Clients: what they ask, and what they believe.

// Long because: what a client asks decides what it believes.

use std::collections::{BTreeMap, BTreeSet};

use std::num::NonZeroU64;

use super::server::Connection;
use super::FIRST_OF_CHANNELS;
use super::{at, guard, Arrival, Asker, Careless, Cluster, Event, Mode, RequestId, State, What};
use crate::engine::guard::GuardEvent;

/// A client.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// Its token, where it has one for everything.
    token: u8,
    /// What it has asked for by which token, where it has one for each piece of work.
    works: BTreeMap<u8, (u8, Mode)>,
    /// The keys that it has held in the present work.
    held: BTreeSet<u8>,
    /// The longest lease that it has asked for in the present work, for each key.
    longest_ms: BTreeMap<u8, u64>,
    /// The keys for which it has asked for a shorter one since.
    shortened: BTreeSet<u8>,
    pub(super) pending: Option<Pending>,
    /// What it believes to hold.
    pub(super) beliefs: BTreeMap<u8, Belief>,
    /// Grants that came late: it renews them before it begins to work.
    pub(super) unconfirmed: BTreeMap<u8, Unconfirmed>,
    /// The server that it believes to be the primary.
    pub(super) server: usize,
    /// The number of its connections: its own one, and how many it has lost.
    connection: NonZeroU64,
    /// The tokens that it has asked with LINGER.
    lingering: BTreeSet<u8>,
    careless: Option<Careless>,
}

/// A request without a reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) id: RequestId,
    server: usize,
    token: u8,
    /// Whether it held the lock when it asked.
    had_it: bool,
    what: What,
    sent_us: u64,
    pub(super) reply: Option<Event>,
}

/// A hold as its client sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Belief {
    pub(super) mode: Mode,
    /// The end of its lease.
    pub(super) until_us: u64,
    /// For how long the hold stays when the connection is lost, if it ends with that.
    linger: Option<u64>,
}

/// A grant that its client has heard of too late.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unconfirmed {
    mode: Mode,
    /// When the hold has ended at the latest: a renewal without a reply may have shortened it.
    until_us: u64,
}

impl Client {
    pub(super) fn new(n: usize, careless: Option<Careless>) -> Self {
        Self {
            careless,
            token: b'a' + n as u8,
            works: BTreeMap::new(),
            held: BTreeSet::new(),
            longest_ms: BTreeMap::new(),
            shortened: BTreeSet::new(),
            pending: None,
            beliefs: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            server: 0,
            connection: NonZeroU64::new((n as u64 + 1) << 32).unwrap(),
            lingering: BTreeSet::new(),
        }
    }

    /// How long it counts on a lease: 1 % and 2 ms less, because clocks differ in speed.
    fn lease_us(&self, ttl_ms: u64) -> u64 {
        match self.careless {
            Some(Careless::WithoutMargin) => ttl_ms * 1_000,
            _ => (ttl_ms * 990).saturating_sub(2_000),
        }
    }

    /// Until when it counts on a lease whose grant it hears of now.
    fn until_us(&self, ttl_ms: u64, sent_us: u64, now_us: u64) -> u64 {
        let from_us = match self.careless {
            Some(Careless::CountsFromReply) => now_us,
            _ => sent_us,
        };
        from_us + self.lease_us(ttl_ms)
    }

    /// Whether it has held a lock in the present work. It may hold nothing any more.
    pub(super) fn may_check(&self, name: u8) -> bool {
        self.held.contains(&name)
    }

    /// The token of a piece of work: a new one for each. Whoever asks again for what it has asked
    /// for, or for more or less than it has, goes on with it.
    fn token_of(&mut self, what: What, last: &mut u8) -> u8 {
        let is_take = matches!(what, What::Take { .. } | What::TakeBoth { .. });
        let goes_on = |name: u8| {
            let work = self.works.get(&name)?;
            let is_held = self.beliefs.contains_key(&name);
            // A lease that it has made shorter, and that has ended, is lost.
            let is_lost = self.shortened.contains(&name);
            let may = !is_take || is_held || (work.1 == what.mode() && !is_lost);
            may.then_some(work.0)
        };
        let mut tokens = what.names().map(goes_on);
        let first = tokens.next().flatten();
        let token = match first.filter(|_| tokens.all(|token| token == first)) {
            Some(token) => token,
            None => {
                // Above `*`, by which the server makes one.
                for name in what.names() {
                    self.held.remove(&name);
                    self.longest_ms.remove(&name);
                    self.shortened.remove(&name);
                }
                *last = last.wrapping_add(1).max(b'a');
                *last
            }
        };
        for name in what.names() {
            if is_take {
                self.works.insert(name, (token, what.mode()));
            } else if let What::Release(_) = what {
                self.works.remove(&name);
                self.held.remove(&name);
            }
        }
        token
    }

    /// What the sending alone changes: whether or not the reply comes, the server may do it.
    fn send(&mut self, what: What, now_us: u64) {
        for name in what.names() {
            self.send_of(name, what, now_us);
        }
    }

    fn send_of(&mut self, name: u8, what: What, now_us: u64) {
        let mut until_us = u64::MAX;
        if let What::Renew(_, ttl) | What::Take { ttl, .. } | What::TakeBoth { ttl, .. } = what {
            until_us = now_us + self.lease_us(ttl);
            let longest_ms = self.longest_ms.entry(name).or_insert(ttl);
            if ttl < *longest_ms {
                self.shortened.insert(name);
            }
            *longest_ms = ttl.max(*longest_ms);
        }
        if let (What::Renew(..), Some(late)) = (what, self.unconfirmed.get_mut(&name)) {
            late.until_us = late.until_us.min(until_us);
        }
        let Some(belief) = self.beliefs.get_mut(&name) else {
            return;
        };
        belief.until_us = belief.until_us.min(until_us);
        match what {
            What::Check(_) | What::Renew(..) | What::TakeBoth { .. } => {}
            What::Release(_) => drop(self.beliefs.remove(&name)),
            What::Take { mode, linger, .. } => {
                let both = belief.linger.into_iter().chain(linger);
                belief.linger = both.min();
                if mode.tolerates() > belief.mode.tolerates() {
                    belief.mode = mode;
                }
            }
        }
    }

    /// Hears a reply. Answers whether it begins to believe.
    fn hear(&mut self, pending: &Pending, event: Event, now_us: u64) -> bool {
        let name = pending.what.name();
        match (pending.what, event) {
            (What::Take { ttl, linger, .. }, Event::Granted(_)) => {
                return self.is_granted(pending, ttl, linger, now_us);
            }
            (What::TakeBoth { ttl, .. }, Event::Granted(_)) => {
                return self.is_granted(pending, ttl, None, now_us);
            }
            (What::Renew(_, ttl), Event::Done(true)) => {
                let until_us = self.until_us(ttl, pending.sent_us, now_us);
                if let Some(belief) = self.beliefs.get_mut(&name) {
                    belief.until_us = until_us;
                } else if let Some(Unconfirmed { mode, .. }) = self.unconfirmed.remove(&name) {
                    if now_us < until_us {
                        let belief = Belief {
                            mode,
                            until_us,
                            linger: Some(0),
                        };
                        self.beliefs.insert(name, belief);
                        return true;
                    }
                }
            }
            (What::Renew(..), Event::Done(false)) => {
                self.beliefs.remove(&name);
                self.unconfirmed.remove(&name);
            }
            (What::Release(_), _) => drop(self.unconfirmed.remove(&name)),
            _ => {}
        }
        false
    }

    /// It hears of a grant. Answers whether it begins to believe.
    fn is_granted(
        &mut self,
        pending: &Pending,
        ttl: u64,
        linger: Option<u64>,
        now_us: u64,
    ) -> bool {
        let until_us = self.until_us(ttl, pending.sent_us, now_us);
        let mode = pending.what.mode();
        for name in pending.what.names() {
            self.beliefs.remove(&name);
            self.unconfirmed.remove(&name);
            if now_us < until_us {
                let belief = Belief {
                    mode,
                    until_us,
                    linger,
                };
                self.beliefs.insert(name, belief);
                self.held.insert(name);
            } else if !pending.had_it && !self.shortened.contains(&name) {
                // A hold that it had has ended with this lease. Another one may be there yet.
                let until_us = u64::MAX;
                let late = Unconfirmed { mode, until_us };
                self.unconfirmed.insert(name, late);
            }
        }
        now_us < until_us
    }

    /// Its connection is lost. A lease that ends with it is shorter now.
    fn lose_connection(&mut self, now_us: u64) {
        let mut beliefs = std::mem::take(&mut self.beliefs);
        for belief in beliefs.values_mut() {
            if let Some(ms) = belief.linger.take() {
                belief.until_us = belief.until_us.min(now_us + self.lease_us(ms));
            }
        }
        self.beliefs = beliefs;
        self.connection = self.connection.checked_add(1).unwrap();
    }
}

impl Cluster {
    /// The servers learn of the lost connection as soon as they run.
    pub(super) fn disconnect(&mut self, c: usize) {
        self.lose(c, true);
        self.tally.disconnected += 1;
        let lost = self.clients[c].connection;
        self.clients[c].lose_connection(self.true_us);
        for s in 0..self.servers.len() {
            self.arrive(s, Arrival::Lost(lost));
        }
    }

    pub(super) fn ask(&mut self, c: usize, s: usize, what: What) {
        let client = &mut self.clients[c];
        let may_ask = !matches!(what, What::Check(name) if !client.may_check(name));
        if client.pending.is_some() || !may_ask {
            return;
        }
        client.server = s;
        client.beliefs.retain(|_, b| self.true_us < b.until_us);
        let is_over = |late: &Unconfirmed| late.until_us <= self.true_us;
        client.unconfirmed.retain(|_, late| !is_over(late));
        let token = match self.settings.guard.scope {
            guard::Scope::Off => client.token,
            _ => client.token_of(what, &mut self.last_token),
        };
        client.send(what, self.true_us);
        if let What::Release(name) = what {
            client.unconfirmed.remove(&name);
        }
        self.last_request += 1;
        let id = self.last_request;
        client.pending = Some(Pending {
            id,
            server: s,
            token,
            had_it: what.names().any(|name| client.beliefs.contains_key(&name)),
            what,
            sent_us: self.true_us,
            reply: None,
        });
        if self.servers[s].state == State::Down {
            client.pending = None; // Nobody listens there.
            client.server = (s + 1) % self.servers.len();
            return;
        }
        let request = what.request(token);
        let client = &mut self.clients[c];
        let linger = match what {
            What::Take { linger, .. } => linger,
            _ => None,
        };
        if linger.is_some() {
            client.lingering.insert(token);
        }
        let connection = Connection {
            number: client.connection,
            linger,
        };
        self.arrive(s, Arrival::Request(id, what.keys(), request, connection));
    }

    pub(super) fn hear(&mut self, c: usize) {
        let Some(pending) = self.clients[c].pending else {
            return;
        };
        let Some(event) = pending.reply else {
            return;
        };
        self.clients[c].pending = None;
        if event == Event::TryAgain {
            self.clients[c].server = (pending.server + 1) % self.servers.len();
        }
        let begins = self.clients[c].hear(&pending, event, self.true_us);
        self.tally.believed += u64::from(begins);
        self.arrive(pending.server, Arrival::Heard(pending.id));
    }

    pub(super) fn lose(&mut self, c: usize, server_knows: bool) {
        let Some(pending) = self.clients[c].pending.take() else {
            return;
        };
        let arrival = match server_knows || pending.reply.is_none() {
            true => Arrival::Gone(pending.id),
            false => Arrival::Heard(pending.id),
        };
        self.arrive(pending.server, arrival);
    }

    pub(super) fn pending(&mut self, id: RequestId) -> Option<&mut Pending> {
        let pending = self.clients.iter_mut().flat_map(|c| &mut c.pending);
        pending.into_iter().find(|pending| pending.id == id)
    }

    /// A server deals with what has come from a client.
    pub(super) fn serve(&mut self, s: usize, arrival: Arrival) {
        let server = &mut self.servers[s];
        server.set_clocks(self.true_us);
        match arrival {
            Arrival::Request(id, keys, request, connection) => {
                let memory = &server.node.memory;
                memory.connection.set(Some(connection.number));
                memory.linger_ms.set(connection.linger);
                let (token, guard) = (request.token(), memory.guard.get());
                let is_too_long =
                    guard.scope != guard::Scope::Off && request.ttl().ms() > guard.max_ttl_ms;
                if is_too_long || !server.is_primary {
                    self.answer(s, vec![(id, Event::TryAgain)]);
                } else {
                    let asker = Asker { id, token };
                    let mut all = keys.iter().map(|(place, _)| place);
                    let (place, is_one) = (all.next().unwrap(), all.next().is_none());
                    self.turn(s, Some(asker), |node| match is_one {
                        true => node.command(id, place, request),
                        false => node.take_all(id, keys, request),
                    });
                }
            }
            Arrival::Gone(id) => {
                if server.blocked.remove(&id) {
                    self.turn(s, None, |node| node.kill_waiter(id, true));
                } else if let Some(fence) = server.in_flight(id) {
                    server.ledger.may_revoke(fence);
                    self.turn(s, None, |node| node.end_delivery(id, false));
                }
            }
            Arrival::Lost(connection) => {
                let is_its =
                    |client: &&Client| client.connection.get() >> 32 == connection.get() >> 32;
                let client = self.clients.iter().find(is_its).unwrap();
                server.ledger.may_end(&client.lingering);
                self.turn(s, None, |node| node.disconnected(connection));
            }
            Arrival::Heard(id) if server.in_flight(id).is_some() => {
                self.turn(s, None, |node| node.end_delivery(id, true));
            }
            Arrival::Heard(_) => {}
            Arrival::Settings(guard) => {
                server.node.memory.guard.set(guard);
                server.node.note_link(GuardEvent::SettingsChanged);
            }
        }
        if self.settings.timer_is_prompt && self.servers[s].node.is_timer_set() {
            self.run_timer(s);
        }
    }

    /// What is published reaches the clients that still listen for it.
    pub(super) fn find_listeners(&self, s: usize, events: &mut Vec<(RequestId, Event)>) {
        events.retain_mut(|(id, _)| {
            if *id < FIRST_OF_CHANNELS {
                return true;
            }
            let [.., name, token] = id.to_be_bytes();
            let mut pending = self.clients.iter().filter_map(|client| client.pending);
            let listens = pending.find(|one| {
                let is_it = one.token == token && one.what.names().contains(&name);
                // An older place of its token may be told of, too.
                is_it && one.what.is_channel() && self.servers[s].blocked.contains(&one.id)
            });
            *id = listens.map_or(*id, |one| one.id);
            listens.is_some()
        });
    }

    /// Replies go to the clients that still wait for them.
    pub(super) fn answer(&mut self, s: usize, events: Vec<(RequestId, Event)>) {
        for (id, event) in events {
            let server = &mut self.servers[s];
            if event == Event::Waits {
                server.blocked.insert(id);
                continue;
            }
            server.blocked.remove(&id);
            let ledger = server.ledger.clone();
            let asks = |client: &Client| client.pending.is_some_and(|p| p.id == id);
            let Some(c) = self.clients.iter().position(asks) else {
                continue;
            };
            let Some(pending) = &mut self.clients[c].pending else {
                continue;
            };
            let (what, token) = (pending.what, pending.token);
            let name = what.name();
            pending.reply = Some(event);
            if let (What::Check(_), Event::Granted(_)) = (what, event) {
                if self.clients[c].shortened.contains(&name) {
                    continue; // It knows that the lease may be over.
                }
                let own = ledger.mode_of(at(0, name), token);
                let asked = self.clients[c].works.get(&name).map(|(_, mode)| *mode);
                let modes = own.into_iter().chain(asked);
                self.check_is_true(c, name, modes.max_by_key(|mode| mode.tolerates()));
            } else if let Event::Granted(fence) = event {
                self.tally.grants += 1;
                let places = what.names().map(|name| at(0, name));
                places.for_each(|place| ledger.check_told(place, token, fence));
            }
        }
    }
}
