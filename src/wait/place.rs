//! A place in a queue: the requests of one token for one key that wait, or nobody's for a while.

use super::key_ref::KeyRef;
use super::keys::Keys;
use super::request::{Listener, Request, Requests, Seq, Words, NEVER};
use super::slab::{Id, Slab};
use super::users::UserId;
use crate::lock::{Ask, CompactToken, FenceClock, Grant, Lock, Mode, Now, Refusal, Waiting};

/// The position of a place in its queue: smaller is earlier. A server gives each to one place only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(pub(super) u64);

impl Ticket {
    /// No place has it.
    pub(super) const LAST: Self = Self(u64::MAX);
}

/// A place in the queue of a key, or of several keys. A token has one at most in each queue.
#[derive(Clone, Debug)]
pub(super) struct Place<L> {
    pub(super) ticket: Ticket,
    pub(super) keys: Keys,
    pub(super) token: CompactToken,
    /// When the place was taken, on the monotonic clock.
    pub(super) since_us: u64,
    pub(super) requests: Requests<L>,
    /// How long the place stays once nobody listens, as the last request said that has left with
    /// KEEP; 0 is not at all.
    pub(super) keep_ms: u32,
    /// The mode of that request, and whether the token has other places.
    words: Words,
}

/// Who listens at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Client,
    Channel,
    Absent,
}

/// How many places there are, and how many requests at them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Places at which at least one blocked client listens.
    pub clients: usize,
    /// The other places at which a channel listens.
    pub channels: usize,
    /// Places at which nobody listens.
    pub absent: usize,
    /// Requests that wait.
    pub requests: usize,
}

impl Counts {
    /// All places.
    pub fn all(&self) -> usize {
        self.clients
            .saturating_add(self.channels)
            .saturating_add(self.absent)
    }

    /// All that waits: each request, and each place at which nobody listens.
    pub fn waiting(&self) -> usize {
        self.requests.saturating_add(self.absent)
    }

    /// Counts a place that has come.
    pub(super) fn add(&mut self, outline: &Outline) {
        if let Some(count) = outline.kind.map(|kind| self.at(kind)) {
            *count = count.saturating_add(1);
        }
        self.requests = self.requests.saturating_add(outline.requests);
    }

    /// Follows a place that has changed.
    pub(super) fn change(&mut self, before: &Outline, after: &Outline) {
        if before.kind != after.kind {
            if let Some(count) = before.kind.map(|kind| self.at(kind)) {
                *count = count.saturating_sub(1);
            }
            if let Some(count) = after.kind.map(|kind| self.at(kind)) {
                *count = count.saturating_add(1);
            }
        }
        let requests = self.requests.saturating_add(after.requests);
        self.requests = requests.saturating_sub(before.requests);
    }

    fn at(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Client => &mut self.clients,
            Kind::Channel => &mut self.channels,
            Kind::Absent => &mut self.absent,
        }
    }
}

/// What a place is for those behind it in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part(u32);

impl Part {
    /// It stands ahead of the line, because it upgrades.
    pub(super) const ELSEWHERE: Self = Self(0);
    /// It lets nobody pass: somebody listens there, or it is absent for the exclusive hold or for
    /// several keys.
    pub(super) const STOPS: Self = Self(1);

    /// It is absent for this mode at one key.
    pub(super) const fn of_absent(mode: Mode) -> Self {
        Self(mode.tolerates())
    }

    /// How many holders it tolerates, if it is an absent share or permit: then it counts as a
    /// holder once its turn has come.
    pub(super) const fn tolerates(self) -> Option<u32> {
        match self {
            Self::ELSEWHERE | Self::STOPS => None,
            Self(tolerates) => Some(tolerates),
        }
    }
}

/// What tables outside a place depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outline {
    /// `None` of a place that has ended.
    pub(super) kind: Option<Kind>,
    /// How many requests wait there.
    pub(super) requests: usize,
    /// Against whose share it counts, if it is absent.
    pub(super) user: Option<UserId>,
    /// When its first request times out, or its grace is over.
    pub(super) due_us: Option<u64>,
    /// What it is for those behind it if it does not upgrade.
    pub(super) part: Part,
}

pub(super) type Places<L> = Slab<Place<L>>;
pub(super) type PlaceId = Id;

/// Questions.
impl<L> Place<L> {
    /// A place at which nobody listens yet.
    pub(super) fn new(ticket: Ticket, keys: Keys, token: CompactToken) -> Self {
        Self {
            ticket,
            keys,
            token,
            since_us: 0,
            requests: Requests::NOBODY,
            keep_ms: 0,
            words: Words::new(Mode::Exclusive, false),
        }
    }

    /// The keys that it waits for.
    pub(super) fn keys(&self) -> impl Iterator<Item = &KeyRef> {
        self.keys.iter()
    }

    /// Whether it is granted several keys at once, or none.
    pub(super) const fn is_for_several_keys(&self) -> bool {
        self.keys.several().is_some()
    }

    /// The mode in which a key is asked for, if it is one of several.
    pub(super) fn mode_among(&self, name: &[u8]) -> Option<Mode> {
        self.keys.several()?.mode_of(name)
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

    /// Whether nobody has listened since before the database change of this number.
    pub(super) const fn is_absent_since_before(&self, change: u32) -> bool {
        matches!(self.requests, Requests::Nobody { since_change, .. } if since_change < change)
    }

    /// The mode that is decided first, or that an absent place keeps.
    pub(super) fn mode(&self) -> Mode {
        self.first()
            .map_or_else(|| self.keep_mode(), |(_, request)| request.mode())
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
        self.requests.of(1).next()
    }

    /// The mode that stands for its requests where they exclude others, one of them left out: the
    /// exclusive one, or that of the first. `None` where no other request waits.
    pub(super) fn narrowest_mode_but(&self, left_out: Option<Seq>) -> Option<Mode> {
        let is_left_out = |seq: Seq| Some(seq) == left_out;
        if self.requests.of(1).any(|seq| !is_left_out(seq)) {
            return Some(Mode::Exclusive);
        }
        let mut requests = self.iter().filter(|(seq, _)| !is_left_out(*seq));
        requests.next().map(|(_, request)| request.mode())
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

    /// Since when somebody listens whose wait is not counted yet. `None` where nobody listens.
    pub(super) fn uncounted_us(&self) -> Option<u64> {
        self.requests.uncounted_us()
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
        let mut user = None;
        let (kind, due_us) = match &self.requests {
            Requests::Nobody { .. } if self.keep_ms == 0 => (None, NEVER),
            Requests::Nobody {
                until_us, user: of, ..
            } => {
                user = *of;
                (Some(Kind::Absent), *until_us)
            }
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
            requests: self.requests.len(),
            user,
            due_us: (due_us < NEVER).then_some(due_us),
            part: match self.is_absent() && !self.is_for_several_keys() {
                true => Part::of_absent(self.keep_mode()),
                false => Part::STOPS,
            },
        }
    }
}

/// Decisions.
impl<L> Place<L> {
    /// Decides one of its requests at its turn.
    pub(super) fn decide(
        &self,
        request: &Request<L>,
        lock: Option<&Lock>,
        at: Now,
        fences: &mut FenceClock,
    ) -> Result<Grant, Refusal> {
        let (mode, ttl) = (request.mode(), request.ttl());
        if lock.is_none() {
            // The usual case. The token's text is not needed, which takes a while to build.
            let fence = fences.next(at).ok_or(Refusal::FencesExhausted)?;
            return Ok(Grant::new(None, mode, ttl, fence, at));
        }
        let text = self.token.text();
        let token = text.as_token();
        let ask = Ask { mode, token, ttl };
        Lock::acquire(lock, ask, at, Waiting::default(), fences)
    }
}

/// Changes.
impl<L> Place<L> {
    /// Adds a request. One of a channel takes the place of the one that was there.
    pub(super) fn add(&mut self, request: Request<L>, now_us: u64) -> Option<Request<L>> {
        let (was_absent, keep_ms) = (self.is_absent(), self.keep_ms);
        let uncounted_us = self.uncounted_us().unwrap_or(now_us);
        let replaced = match request.listener {
            Listener::Channel(_) => self.channel().and_then(|before| self.take(before)),
            Listener::Client(_) => None,
        };
        self.requests.add(request, uncounted_us);
        // An absent place goes on by the words of this request.
        self.keep_ms = if was_absent { 0 } else { keep_ms };
        replaced
    }

    /// The waits of those who listen yet are counted from this instant.
    pub(super) fn count_from(&mut self, us: u64) {
        self.requests.count_from(us);
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

    /// Has an absent place stay until this instant of the monotonic clock. `change` is the number
    /// of the last database change.
    pub(super) fn stay_until(&mut self, at_us: u64, change: u32) {
        if let Requests::Nobody {
            until_us,
            since_change,
            ..
        } = &mut self.requests
        {
            (*until_us, *since_change) = (at_us, change);
        }
    }

    /// Has an absent place stay until this later instant.
    pub(super) fn stay_longer(&mut self, at_us: u64) {
        if let Requests::Nobody { until_us, .. } = &mut self.requests {
            *until_us = at_us;
        }
    }

    /// Has an absent place count against the share of this user.
    pub(super) fn count_against(&mut self, of: Option<UserId>) {
        if let Requests::Nobody { user, .. } = &mut self.requests {
            *user = of;
        }
    }

    /// Notes the words of a request with KEEP.
    pub(super) fn keep(&mut self, mode: Mode, keep_ms: u32) {
        self.words = Words::new(mode, self.has_others());
        self.keep_ms = keep_ms;
    }
}
