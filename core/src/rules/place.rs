//! A place in a queue: the requests of one token for one key, or for several, that wait; or
//! nobody's for a while.

use std::cmp::Reverse;
use std::num::NonZeroU64;
use std::rc::Rc;

use smallvec::SmallVec;

use crate::lock::{Ask, CompactToken, FenceClock, Grant, Lock, Mode, Now, Refusal, Ttl, Waiting};
use crate::rules::key_ref::KeyId;
use crate::rules::keys::Keys;

/// The position of a place in its queues: smaller is earlier. A server gives each to one place
/// only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(pub(crate) u64);

impl Ticket {
    /// Behind all places.
    pub(crate) const END: Self = Self(u64::MAX);
}

/// The number of a place. It may be given again once the place has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PlaceId(pub(crate) u32);

/// The number of a request. Of two requests the smaller one came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Seq(pub(crate) u64);

/// The number of a user of whom anything waits. It may be given again once nothing does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UserId(pub(crate) u32);

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

/// What an acquire with LINGER says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linger {
    /// The number of its connection. A server gives each to one connection only.
    pub client: NonZeroU64,
    /// For how long the hold stays after the loss of the connection, in milliseconds.
    pub ms: u64,
}

/// A request that waits.
#[derive(Clone, Debug)]
pub(crate) struct Request<L> {
    pub(crate) seq: Seq,
    pub(crate) listener: Listener<L>,
    pub(crate) mode: Mode,
    pub(crate) ttl: Ttl,
    /// On the monotonic clock; [`NEVER`] is for ever.
    pub(crate) times_out_at_us: u64,
    /// For how long the place outlives the request (KEEP); 0 is not at all.
    pub(crate) keep_ms: u32,
    /// Whose share it counts against; `None` is nobody's.
    pub(crate) user: Option<UserId>,
    /// Whether the server has generated the token.
    pub(crate) is_server_generated: bool,
}

/// What few requests have, so that it is not in them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extra {
    /// What its hold is bound to (LINGER).
    pub(crate) linger: Option<Linger>,
    /// The result that it takes in place of a hold (LOCK.ONCE).
    pub(crate) result: Option<Rc<[u8]>>,
}

/// An instant that does not come.
pub(crate) const NEVER: u64 = u64::MAX;

/// Where a place stands. It is stored, because it is history: the token that converts first stays
/// the first, also if an older place asks for the same later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    /// In the line, by its ticket.
    InLine,
    /// Its token has got a hold, and is looked at when the key is served next.
    Owns,
    /// Its token has a hold, and waits for a narrower one ahead of the line.
    Converts,
}

/// The words by which a place outlives its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) mode: Mode,
    pub(crate) ms: u32,
}

/// A place in the queue of a key, or of several keys. A token has one at most in each queue.
#[derive(Clone, Debug)]
pub(crate) struct Place<L> {
    pub(crate) ticket: Ticket,
    pub(crate) keys: Keys,
    /// The numbers of `keys`, in their order.
    pub(crate) ids: SmallVec<[KeyId; 2]>,
    pub(crate) token: CompactToken,
    /// The hash of the token.
    pub(crate) hash: u32,
    /// When the place was taken, on the monotonic clock.
    pub(crate) since_us: u64,
    /// In their order. Mostly there is one.
    pub(crate) requests: SmallVec<[Request<L>; 1]>,
    /// Those of the last request that has left with KEEP.
    pub(crate) kept: Option<Kept>,
    /// When the grace ends if nobody listens, on the monotonic clock.
    pub(crate) until_us: u64,
    /// The last change of a database when the last listener left.
    pub(crate) since_change: u32,
    /// Whose share the place counts against if nobody listens.
    pub(crate) user: Option<UserId>,
    /// Since when somebody listens whose wait is not counted yet.
    pub(crate) uncounted_us: u64,
    pub(crate) stands: Stands,
}

/// Who listens at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Client,
    Channel,
    Absent,
}

/// What a place is for the others in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// It is about to end.
    Nowhere,
    /// Its token has got a hold. Those who do not ask for an exclusive one come later.
    Owns(Reverse<bool>),
    /// It stands ahead of the line. One that tolerates more holders comes first.
    Converts(Reverse<u32>),
    /// Nobody passes: somebody listens there, or it is absent for the exclusive hold or for several
    /// keys.
    Stops,
    /// It is absent, and counts as a holder that tolerates so many once its turn has come.
    Passed(u32),
}

/// What tables outside a place depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableKeys {
    /// `None` of a place that has ended.
    pub(crate) kind: Option<Kind>,
    /// How many requests wait there.
    pub(crate) requests: u32,
    /// Against whose share it counts, if it is absent.
    pub(crate) user: Option<UserId>,
    /// When its first request times out, or its grace is over.
    pub(crate) due_us: Option<u64>,
    pub(crate) spot: Spot,
}

impl TableKeys {
    /// That of no place.
    pub(crate) const NONE: Self = Self {
        kind: None,
        requests: 0,
        user: None,
        due_us: None,
        spot: Spot::Nowhere,
    };
}

/// Questions.
impl<L> Place<L> {
    /// Whether it is granted several keys at once, or none.
    pub(crate) const fn is_for_several_keys(&self) -> bool {
        self.keys.several().is_some()
    }

    /// The mode in which a key is asked for, if it is one of several.
    pub(crate) fn mode_among(&self, key: KeyId) -> Option<Mode> {
        let several = self.keys.several()?;
        let mut pairs = self.ids.iter().zip(several.iter());
        pairs.find(|(id, _)| **id == key).map(|(_, one)| one.mode)
    }

    pub(crate) fn is_absent(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether nobody listens and the place is not kept.
    pub(crate) fn is_over(&self) -> bool {
        self.is_absent() && self.kept.is_none()
    }

    /// Whether nobody has listened since before the database change of this number.
    pub(crate) fn is_absent_since_before(&self, change: u32) -> bool {
        self.is_absent() && self.since_change < change
    }

    /// The modes that it waits for.
    fn modes(&self) -> impl Iterator<Item = Mode> + '_ {
        let kept = self.kept.filter(|_| self.is_absent());
        let asked = self.requests.iter().map(|request| request.mode);
        asked.chain(kept.map(|kept| kept.mode))
    }

    /// The mode that is decided first, or that an absent place keeps.
    pub(crate) fn mode(&self) -> Mode {
        self.modes().next().unwrap_or(Mode::Exclusive)
    }

    /// The mode that stands for all of them at a key where they exclude others: the exclusive one,
    /// or that of the first request.
    pub(crate) fn narrowest_mode_at(&self, key: KeyId) -> Mode {
        match self.mode_among(key) {
            Some(mode) => mode,
            None if self.wants_exclusive() => Mode::Exclusive,
            None => self.mode(),
        }
    }

    /// Whether it waits for the exclusive hold.
    pub(crate) fn wants_exclusive(&self) -> bool {
        self.has_below(2)
    }

    /// The most holders that one of its modes tolerates.
    pub(crate) fn widest(&self) -> u32 {
        self.modes().map(Mode::tolerates).max().unwrap_or(1)
    }

    /// Whether it waits for a hold that tolerates fewer holders than `n`.
    pub(crate) fn has_below(&self, n: u32) -> bool {
        self.modes().any(|mode| mode.tolerates() < n)
    }

    /// Whether it waits for a counted hold.
    pub(crate) fn has_counted(&self) -> bool {
        self.modes().any(|mode| mode.limit().is_some())
    }

    pub(crate) fn first(&self) -> Option<&Request<L>> {
        self.requests.first()
    }

    /// The first request for a hold that tolerates `n` holders at least.
    pub(crate) fn first_tolerating(&self, n: u32) -> Option<Seq> {
        let mut all = self.requests.iter();
        let first = all.find(|request| request.mode.tolerates() >= n);
        first.map(|request| request.seq)
    }

    /// The first request for the exclusive hold.
    pub(crate) fn first_exclusive(&self) -> Option<Seq> {
        let mut all = self.requests.iter();
        let first = all.find(|request| request.mode == Mode::Exclusive);
        first.map(|request| request.seq)
    }

    pub(crate) fn request(&self, seq: Seq) -> Option<&Request<L>> {
        self.requests.iter().find(|request| request.seq == seq)
    }

    /// The request that came last.
    pub(crate) fn newest(&self) -> Option<Seq> {
        self.requests.last().map(|request| request.seq)
    }

    /// The request whose listener is a channel.
    pub(crate) fn channel(&self) -> Option<Seq> {
        let mut all = self.requests.iter();
        let channel = all.find(|request| matches!(request.listener, Listener::Channel(_)));
        channel.map(|request| request.seq)
    }

    /// A request that has timed out.
    pub(crate) fn timed_out(&self, now_us: u64) -> Option<Seq> {
        let first = self.first_timeout()?;
        (first.times_out_at_us <= now_us).then_some(first.seq)
    }

    fn first_timeout(&self) -> Option<&Request<L>> {
        let by_time = |request: &&Request<L>| (request.times_out_at_us, request.seq);
        self.requests.iter().min_by_key(by_time)
    }

    pub(crate) fn table_keys(&self) -> TableKeys {
        if self.is_over() {
            return TableKeys::NONE;
        }
        let (kind, due_us) = match self.first_timeout() {
            None => (Kind::Absent, self.until_us),
            // A place has one channel at most, so one of two requests is a client's.
            Some(first) if self.requests.len() == 1 && self.channel().is_some() => {
                (Kind::Channel, first.times_out_at_us)
            }
            Some(first) => (Kind::Client, first.times_out_at_us),
        };
        TableKeys {
            kind: Some(kind),
            requests: self.requests.len() as u32, // They are at most 100.
            user: self.user.filter(|_| kind == Kind::Absent),
            due_us: (due_us < NEVER).then_some(due_us),
            spot: self.spot(),
        }
    }

    fn spot(&self) -> Spot {
        match self.stands {
            Stands::Owns => Spot::Owns(Reverse(self.wants_exclusive())),
            Stands::Converts => Spot::Converts(Reverse(self.widest())),
            Stands::InLine if self.is_absent() && !self.is_for_several_keys() => {
                match self.mode() {
                    Mode::Exclusive => Spot::Stops,
                    mode => Spot::Passed(mode.tolerates()),
                }
            }
            Stands::InLine => Spot::Stops,
        }
    }

    /// Decides one of its requests at its turn.
    #[inline]
    pub(crate) fn decide(
        &self,
        request: &Request<L>,
        lock: Option<&Lock>,
        at: Now,
        fences: &mut FenceClock,
    ) -> Result<Grant, Refusal> {
        let (mode, ttl) = (request.mode, request.ttl);
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
    /// Adds a request. An absent place goes on by its words.
    pub(crate) fn add(&mut self, request: Request<L>, now_us: u64) {
        if self.is_absent() {
            (self.kept, self.uncounted_us) = (None, now_us);
        }
        debug_assert!(
            self.newest() < Some(request.seq),
            "requests come in their order"
        );
        self.requests.push(request);
    }

    /// Puts a request where it stands by its number. The place was never absent without it.
    pub(crate) fn put_back(&mut self, request: Request<L>) {
        let seq = request.seq;
        let at = self.requests.partition_point(|other| other.seq < seq);
        self.requests.insert(at, request);
    }

    /// Takes a request out, and nothing else: the place may be over then.
    pub(crate) fn take(&mut self, seq: Seq) -> Option<Request<L>> {
        let at = self.requests.iter().position(|one| one.seq == seq)?;
        let request = self.requests.remove(at);
        self.requests.shrink_to_fit();
        Some(request)
    }
}
