//! A place in a queue: the requests of one token for one key that wait, or nobody's for a while.

use std::rc::Rc;

use super::key_ref::KeyRef;
use super::request::{Listener, Request, Requests, Seq, NEVER};
use super::several::{Several, Wanted};
use super::slab::{Id, Slab};
use crate::lock::{CompactToken, Mode};

/// The position of a place in its queue: smaller is earlier. A server gives each to one place only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(pub(super) u64);

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
    /// When the place was taken, on the monotonic clock.
    pub(super) since_us: u64,
    requests: Requests<L>,
    /// How long the place stays once nobody listens, as the last request said that has left with KEEP; 0 is not at all.
    pub(super) keep_ms: u32,
    /// The mode of that request, and whether the token has other places.
    words: Words,
}

/// A mode and a mark in 32 bits: there may be a million places.
#[derive(Clone, Copy, Debug)]
struct Words(u32);

impl Words {
    const MARK: u32 = 1 << 31;

    const fn new(mode: Mode, is_marked: bool) -> Self {
        let mode = match mode {
            Mode::Shared => 0,
            mode => mode.tolerates(),
        };
        Self(if is_marked { mode | Self::MARK } else { mode })
    }

    fn mode(self) -> Mode {
        Mode::of_limit(self.0 & !Self::MARK).unwrap_or(Mode::Shared)
    }

    const fn is_marked(self) -> bool {
        self.0 & Self::MARK != 0
    }
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
    /// Whether it can keep out those who ask for a share. All can but an absent share of one key.
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
            since_us: 0,
            requests: Requests::Nobody { until_us: NEVER },
            keep_ms: 0,
            words: Words::new(Mode::Exclusive, false),
        }
    }

    /// The keys that it waits for.
    pub(super) fn keys(&self) -> impl Iterator<Item = &KeyRef> {
        let several = self.several.as_deref();
        let one = several.is_none().then_some(&self.key_ref);
        let all = several.into_iter().flat_map(Several::iter);
        one.into_iter()
            .chain(all.map(|wanted: &Wanted| &wanted.key_ref))
    }

    /// Whether it is granted several keys at once, or none.
    pub(super) const fn is_for_several_keys(&self) -> bool {
        self.several.is_some()
    }

    /// The mode in which a key is asked for, if it is one of several.
    pub(super) fn mode_among(&self, name: &[u8]) -> Option<Mode> {
        self.several.as_ref()?.mode_of(name)
    }

    /// The mode that the last request has said which has left with KEEP.
    pub(super) fn keep_mode(&self) -> Mode {
        self.words.mode()
    }

    /// Whether its token has other places, too.
    pub(super) const fn has_others(&self) -> bool {
        self.words.is_marked()
    }

    pub(super) fn is_absent(&self) -> bool {
        matches!(self.requests, Requests::Nobody { .. })
    }

    /// The mode that is decided first, or that an absent place keeps.
    pub(super) fn mode(&self) -> Mode {
        self.first()
            .map_or_else(|| self.keep_mode(), |(_, request)| request.mode)
    }

    /// Whether it waits for the exclusive hold.
    pub(super) fn wants_exclusive(&self) -> bool {
        self.has_below(2)
    }

    /// The most holders that one of its requests tolerates, or that an absent place does.
    pub(super) fn widest(&self) -> u32 {
        let widest = self.requests.widest();
        widest.unwrap_or_else(|| self.keep_mode().tolerates())
    }

    /// Whether it waits for a hold that tolerates fewer holders than `n`.
    pub(super) fn has_below(&self, n: u32) -> bool {
        let narrowest = self.requests.narrowest();
        narrowest.unwrap_or_else(|| self.keep_mode().tolerates()) < n
    }

    /// Whether it waits for a counted hold.
    pub(super) fn has_counted(&self) -> bool {
        match self.is_absent() {
            true => self.keep_mode().limit().is_some(),
            false => self.requests.has_counted(),
        }
    }

    pub(super) fn first(&self) -> Option<(Seq, &Request<L>)> {
        self.iter().next()
    }

    /// The first request for a hold that tolerates `n` holders at least.
    pub(super) fn first_tolerating(&self, n: u32) -> Option<Seq> {
        self.requests.first_tolerating(n)
    }

    /// The first request for the exclusive hold.
    pub(super) fn first_exclusive(&self) -> Option<Seq> {
        self.requests.first_of(1)
    }

    pub(super) fn request(&self, seq: Seq) -> Option<&Request<L>> {
        self.requests.get(seq)
    }

    /// The requests in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Seq, &Request<L>)> {
        self.requests.iter()
    }

    /// The request whose listener is a channel.
    pub(super) fn channel(&self) -> Option<Seq> {
        self.requests.channel()
    }

    /// A request that has timed out.
    pub(super) fn timed_out(&self, now_us: u64) -> Option<Seq> {
        let (at_us, seq) = self.requests.first_timeout()?;
        (at_us <= now_us).then_some(seq)
    }

    /// Whether nobody listens and the place is not kept.
    pub(super) fn is_over(&self) -> bool {
        self.is_absent() && self.keep_ms == 0
    }

    pub(super) fn outline(&self) -> Outline {
        let (kind, due_us) = match &self.requests {
            Requests::Nobody { .. } if self.keep_ms == 0 => (None, NEVER),
            Requests::Nobody { until_us } => (Some(Kind::Absent), *until_us),
            requests => {
                let kind = match requests.is_channel_only() {
                    true => Kind::Channel,
                    false => Kind::Client,
                };
                let first = requests.first_timeout();
                (Some(kind), first.map_or(NEVER, |(at_us, _)| at_us))
            }
        };
        Outline {
            kind,
            due_us: (due_us < NEVER).then_some(due_us),
            stops: !self.is_absent() || self.keep_mode() != Mode::Shared || self.several.is_some(),
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
        self.requests.add(seq, request);
        // An absent place goes on by the words of this request.
        self.keep_ms = if was_absent { 0 } else { keep_ms };
        replaced
    }

    /// Takes a request out, and nothing else: the place may be over then.
    pub(super) fn take(&mut self, seq: Seq) -> Option<Request<L>> {
        self.requests.take(seq)
    }

    /// Notes whether its token has other places. Whether that is new.
    pub(super) fn set_has_others(&mut self, has_others: bool) -> bool {
        let is_new = self.has_others() != has_others;
        self.words = Words::new(self.keep_mode(), has_others);
        is_new
    }

    /// Has an absent place stay until this instant of the monotonic clock.
    pub(super) fn stay_until(&mut self, at_us: u64) {
        if let Requests::Nobody { until_us } = &mut self.requests {
            *until_us = at_us;
        }
    }

    /// Notes the words of a request with KEEP.
    pub(super) fn keep(&mut self, mode: Mode, keep_ms: u32) {
        self.words = Words::new(mode, self.has_others());
        self.keep_ms = keep_ms;
    }
}
