//! A place in a queue: the requests of one token for one key that wait, or nobody's for a while.

// Long because: a place and its requests have no state outside this file.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::key_ref::KeyRef;
use super::several::{Several, Wanted};
use super::slab::{Id, Slab};
use crate::lock::{CompactToken, Mode, Ttl};

/// The position of a place in its queue: smaller is earlier. A server gives each to one place only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(pub(super) u64);

/// The number of a request. Of two requests at one place the smaller one came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Seq(pub(super) u64);

/// What is told when a wait ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Listener<L> {
    /// A blocked client. No two requests have the same.
    Client(L),
    /// A channel. Many requests may have the same.
    Channel(Rc<[u8]>),
}

impl<L> Listener<L> {
    /// The channel of this name.
    pub fn channel(name: &[u8]) -> Self {
        Self::Channel(name.into())
    }
}

/// A request that waits.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Request<L> {
    pub(super) listener: Listener<L>,
    pub(super) ttl: Ttl,
    /// On the monotonic clock; [`NEVER`] is for ever.
    pub(super) times_out_at_us: u64,
    /// For how long the place outlives the request; 0 is not at all.
    pub(super) keep_ms: u32,
    pub(super) mode: Mode,
    pub(super) is_server_generated: bool,
}

/// An instant that does not come.
pub(super) const NEVER: u64 = u64::MAX;

/// The requests of a place, in the order in which they came.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
enum Requests<L> {
    /// Nobody listens. The grace ends at `until_us` of the monotonic clock.
    Nobody {
        until_us: u64,
    },
    One(Seq, Request<L>),
    Many(Box<Many<L>>),
}

/// Two requests or more; fewer only in the middle of a change.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Many<L> {
    shared: BTreeMap<Seq, Request<L>>,
    exclusive: BTreeMap<Seq, Request<L>>,
    /// One entry for each request that does not wait for ever.
    timeouts: BTreeSet<(u64, Seq)>,
    /// The request whose listener is a channel: a place has one at most.
    channel: Option<Seq>,
}

impl<L> Default for Many<L> {
    fn default() -> Self {
        Self {
            shared: BTreeMap::new(),
            exclusive: BTreeMap::new(),
            timeouts: BTreeSet::new(),
            channel: None,
        }
    }
}

impl<L> Many<L> {
    fn of(&self, mode: Mode) -> &BTreeMap<Seq, Request<L>> {
        match mode {
            Mode::Shared => &self.shared,
            Mode::Exclusive => &self.exclusive,
        }
    }

    fn len(&self) -> usize {
        self.shared.len().saturating_add(self.exclusive.len())
    }

    fn add(&mut self, seq: Seq, request: Request<L>) {
        if request.times_out_at_us < NEVER {
            self.timeouts.insert((request.times_out_at_us, seq));
        }
        if matches!(request.listener, Listener::Channel(_)) {
            self.channel = Some(seq);
        }
        match request.mode {
            Mode::Shared => self.shared.insert(seq, request),
            Mode::Exclusive => self.exclusive.insert(seq, request),
        };
    }

    fn take(&mut self, seq: Seq) -> Option<Request<L>> {
        let shared = self.shared.remove(&seq);
        let request = shared.or_else(|| self.exclusive.remove(&seq))?;
        self.timeouts.remove(&(request.times_out_at_us, seq));
        self.channel = self.channel.filter(|channel| *channel != seq);
        Some(request)
    }
}

/// A place in the queue of a key, or of several keys. A token has one at most in each queue.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Place<L> {
    pub(super) ticket: Ticket,
    /// The key, or the first of several.
    pub(super) key_ref: KeyRef,
    /// All keys, if there are several. The requests then have the mode of the first one.
    pub(super) several: Option<Rc<Several>>,
    pub(super) token: CompactToken,
    /// When the place was taken, in milliseconds since the Unix epoch.
    pub(super) since_ms: u64,
    /// The same on the monotonic clock.
    pub(super) since_us: u64,
    requests: Requests<L>,
    /// How long the place stays once nobody listens, as the last request said that has left with KEEP; 0 is not at all.
    pub(super) keep_ms: u32,
    /// The mode of that request.
    pub(super) keep_mode: Mode,
}

/// Who listens at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Client,
    Channel,
    Absent,
}

/// How many places there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Places at which at least one blocked client listens.
    pub clients: usize,
    /// The other places at which a channel listens.
    pub channels: usize,
    /// Places at which nobody listens.
    pub absent: usize,
}

impl Counts {
    /// All places.
    pub fn all(&self) -> usize {
        self.clients
            .saturating_add(self.channels)
            .saturating_add(self.absent)
    }

    pub(super) fn of(kind: Kind) -> Self {
        let mut counts = Self::default();
        counts.change(None, Some(kind));
        counts
    }

    pub(super) fn change(&mut self, before: Option<Kind>, after: Option<Kind>) {
        if let Some(count) = before.map(|kind| self.at(kind)) {
            *count = count.saturating_sub(1);
        }
        if let Some(count) = after.map(|kind| self.at(kind)) {
            *count = count.saturating_add(1);
        }
    }

    fn at(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Client => &mut self.clients,
            Kind::Channel => &mut self.channels,
            Kind::Absent => &mut self.absent,
        }
    }
}

/// What tables outside a place depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outline {
    /// `None` of a place that has ended.
    pub(super) kind: Option<Kind>,
    /// When its first request times out, or its grace is over.
    pub(super) due_us: Option<u64>,
    /// Whether nobody behind it can be granted before it is. All do that but an absent share of one key.
    pub(super) stops: bool,
}

pub(super) type Places<L> = Slab<Place<L>>;
pub(super) type PlaceId = Id;

/// Questions.
impl<L> Place<L> {
    /// A place at which nobody listens yet.
    pub(super) fn new(ticket: Ticket, key_ref: KeyRef, token: CompactToken) -> Self {
        Self {
            ticket,
            key_ref,
            several: None,
            token,
            since_ms: 0,
            since_us: 0,
            requests: Requests::Nobody { until_us: NEVER },
            keep_ms: 0,
            keep_mode: Mode::Exclusive,
        }
    }

    /// The keys that it is for.
    pub(super) fn key_refs(&self) -> impl Iterator<Item = &KeyRef> {
        let several = self.several.as_deref();
        let one = several.is_none().then_some(&self.key_ref);
        let all = several.into_iter().flat_map(Several::iter);
        one.into_iter()
            .chain(all.map(|wanted: &Wanted| &wanted.key_ref))
    }

    /// The mode in which a key is asked for, if it is one of several.
    pub(super) fn mode_among(&self, name: &[u8]) -> Option<Mode> {
        self.several.as_ref()?.mode_of(name)
    }

    pub(super) fn is_absent(&self) -> bool {
        matches!(self.requests, Requests::Nobody { .. })
    }

    /// The mode that is decided first, or that an absent place keeps.
    pub(super) fn mode(&self) -> Mode {
        self.first()
            .map_or(self.keep_mode, |(_, request)| request.mode)
    }

    /// Whether it waits for the exclusive hold.
    pub(super) fn wants_exclusive(&self) -> bool {
        match &self.requests {
            Requests::Nobody { .. } => self.keep_mode == Mode::Exclusive,
            _ => self.first_of(Mode::Exclusive).is_some(),
        }
    }

    pub(super) fn first(&self) -> Option<(Seq, &Request<L>)> {
        self.iter().next()
    }

    pub(super) fn first_of(&self, mode: Mode) -> Option<Seq> {
        match &self.requests {
            Requests::Nobody { .. } => None,
            Requests::One(seq, request) => (request.mode == mode).then_some(*seq),
            Requests::Many(many) => many.of(mode).keys().next().copied(),
        }
    }

    pub(super) fn request(&self, seq: Seq) -> Option<&Request<L>> {
        match &self.requests {
            Requests::Nobody { .. } => None,
            Requests::One(other, request) => (*other == seq).then_some(request),
            Requests::Many(many) => many.shared.get(&seq).or_else(|| many.exclusive.get(&seq)),
        }
    }

    /// The requests in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Seq, &Request<L>)> {
        let (one, many) = match &self.requests {
            Requests::Nobody { .. } => (None, None),
            Requests::One(seq, request) => (Some((*seq, request)), None),
            Requests::Many(many) => (None, Some(many)),
        };
        let mut shared = many.into_iter().flat_map(|many| &many.shared).peekable();
        let mut exclusive = many.into_iter().flat_map(|many| &many.exclusive).peekable();
        let merged = std::iter::from_fn(move || {
            let is_shared_next = match (shared.peek(), exclusive.peek()) {
                (Some((one, _)), Some((other, _))) => one < other,
                (one, _) => one.is_some(),
            };
            match is_shared_next {
                true => shared.next(),
                false => exclusive.next(),
            }
        });
        one.into_iter()
            .chain(merged.map(|(seq, request)| (*seq, request)))
    }

    /// The request whose listener is a channel.
    pub(super) fn channel(&self) -> Option<Seq> {
        match &self.requests {
            Requests::Nobody { .. } => None,
            Requests::One(seq, request) => {
                matches!(request.listener, Listener::Channel(_)).then_some(*seq)
            }
            Requests::Many(many) => many.channel,
        }
    }

    /// A request that has timed out.
    pub(super) fn timed_out(&self, now_us: u64) -> Option<Seq> {
        match &self.requests {
            Requests::Nobody { .. } => None,
            Requests::One(seq, request) => (request.times_out_at_us <= now_us).then_some(*seq),
            Requests::Many(many) => {
                let first = many.timeouts.first();
                first
                    .filter(|(at_us, _)| *at_us <= now_us)
                    .map(|(_, seq)| *seq)
            }
        }
    }

    /// Whether nobody listens and the place is not kept.
    pub(super) fn is_over(&self) -> bool {
        self.is_absent() && self.keep_ms == 0
    }

    pub(super) fn outline(&self) -> Outline {
        let (kind, due_us) = match &self.requests {
            Requests::Nobody { .. } if self.keep_ms == 0 => (None, NEVER),
            Requests::Nobody { until_us } => (Some(Kind::Absent), *until_us),
            Requests::One(_, request) => {
                let kind = match request.listener {
                    Listener::Client(_) => Kind::Client,
                    Listener::Channel(_) => Kind::Channel,
                };
                (Some(kind), request.times_out_at_us)
            }
            Requests::Many(many) => {
                // There is one channel at most, so one of two requests is a client's.
                let kind = match many.len() {
                    1 if many.channel.is_some() => Kind::Channel,
                    _ => Kind::Client,
                };
                let first = many.timeouts.first();
                (Some(kind), first.map_or(NEVER, |(at_us, _)| *at_us))
            }
        };
        Outline {
            kind,
            due_us: (due_us < NEVER).then_some(due_us),
            stops: !self.is_absent() || self.keep_mode == Mode::Exclusive || self.several.is_some(),
        }
    }
}

/// Changes.
impl<L> Place<L> {
    /// Adds a request. One of a channel takes the place of the one that was there.
    pub(super) fn add(&mut self, seq: Seq, request: Request<L>) -> Option<Request<L>> {
        let (was_absent, keep_ms) = (self.is_absent(), self.keep_ms);
        let replaced = match request.listener {
            Listener::Channel(_) => self.channel().and_then(|before| self.take(before)),
            Listener::Client(_) => None,
        };
        let before = std::mem::replace(&mut self.requests, Requests::Nobody { until_us: NEVER });
        self.requests = match before {
            Requests::Nobody { .. } => Requests::One(seq, request),
            Requests::One(other_seq, other) => {
                let mut many = Box::<Many<L>>::default();
                many.add(other_seq, other);
                many.add(seq, request);
                Requests::Many(many)
            }
            Requests::Many(mut many) => {
                many.add(seq, request);
                Requests::Many(many)
            }
        };
        // An absent place goes on by the words of this request.
        self.keep_ms = if was_absent { 0 } else { keep_ms };
        replaced
    }

    /// Takes a request out, and nothing else: the place may be over then.
    pub(super) fn take(&mut self, seq: Seq) -> Option<Request<L>> {
        let nobody = Requests::Nobody { until_us: NEVER };
        match &mut self.requests {
            Requests::Many(many) => {
                let request = many.take(seq)?;
                if many.len() == 1 {
                    let mut rest = std::mem::take(many);
                    let last = rest
                        .shared
                        .pop_first()
                        .or_else(|| rest.exclusive.pop_first());
                    if let Some((seq, last)) = last {
                        self.requests = Requests::One(seq, last);
                    }
                }
                Some(request)
            }
            Requests::One(other, _) if *other == seq => {
                match std::mem::replace(&mut self.requests, nobody) {
                    Requests::One(_, request) => Some(request),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Has an absent place stay until this instant of the monotonic clock.
    pub(super) fn stay_until(&mut self, at_us: u64) {
        if let Requests::Nobody { until_us } = &mut self.requests {
            *until_us = at_us;
        }
    }

    /// Notes the words of a request with KEEP.
    pub(super) fn keep(&mut self, mode: Mode, keep_ms: u32) {
        (self.keep_mode, self.keep_ms) = (mode, keep_ms);
    }
}
