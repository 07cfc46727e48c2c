//! Requests that wait, and those of one place in the order in which they came.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::users::UserId;
use crate::lock::{Mode, Ttl};

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

/// A request that waits. It takes 48 bytes: the server's allocator would round up to 64.
#[derive(Clone, Debug)]
pub(super) struct Request<L> {
    pub(super) listener: Listener<L>,
    /// On the monotonic clock; [`NEVER`] is for ever.
    pub(super) times_out_at_us: u64,
    seq: SixBytes,
    /// One millisecond less than the ttl.
    ttl: SixBytes,
    /// For how long the place outlives the request; 0 is not at all.
    pub(super) keep_ms: u32,
    /// Whose share it counts against; `None` is nobody's.
    pub(super) user: Option<UserId>,
    /// The mode, and whether the server has generated the token.
    pub(super) words: Words,
}

impl<L> Request<L> {
    /// One that waits for ever, and says nothing else.
    pub(super) fn new(listener: Listener<L>, seq: Seq, ttl: Ttl, words: Words) -> Self {
        Self {
            listener,
            times_out_at_us: NEVER,
            seq: SixBytes::of(seq.0),
            ttl: SixBytes::of(ttl.ms().saturating_sub(1)),
            keep_ms: 0,
            user: None,
            words,
        }
    }

    pub(super) const fn seq(&self) -> Seq {
        Seq(self.seq.get())
    }

    pub(super) fn ttl(&self) -> Ttl {
        let ms = self.ttl.get().saturating_add(1);
        Ttl::from_millis(ms).unwrap_or(Ttl::MAX)
    }

    pub(super) fn mode(&self) -> Mode {
        self.words.mode()
    }

    pub(super) const fn is_server_generated(&self) -> bool {
        self.words.is_marked()
    }
}

/// A number up to 2^48 - 1. A server that takes a million requests in a second gives so many
/// numbers in nine years.
#[derive(Clone, Copy, Debug)]
struct SixBytes([u8; 6]);

impl SixBytes {
    const MAX: u64 = (1 << 48) - 1;

    /// The number, or the largest one.
    const fn of(number: u64) -> Self {
        let number = if number > Self::MAX {
            Self::MAX
        } else {
            number
        };
        let [a, b, c, d, e, f, ..] = number.to_le_bytes();
        Self([a, b, c, d, e, f])
    }

    const fn get(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}

/// A mode and a mark in 32 bits: there may be a million places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words(u32);

impl Words {
    const MARK: u32 = 1 << 31;

    pub(super) const fn new(mode: Mode, is_marked: bool) -> Self {
        let mode = match mode {
            Mode::Shared => 0,
            mode => mode.tolerates(),
        };
        Self(if is_marked { mode | Self::MARK } else { mode })
    }

    pub(super) fn mode(self) -> Mode {
        Mode::of_limit(self.0 & !Self::MARK).unwrap_or(Mode::Shared)
    }

    pub(super) const fn is_marked(self) -> bool {
        self.0 & Self::MARK != 0
    }
}

/// An instant that does not come.
pub(super) const NEVER: u64 = u64::MAX;

/// The requests of a place. Most places have one. It is on the heap, so that an absent place takes
/// less memory.
#[derive(Clone, Debug)]
pub(super) enum Requests<L> {
    /// Nobody listens since the database change of this number. The grace ends at `until_us` of the
    /// monotonic clock. The place counts against the share of `user`.
    Nobody {
        until_us: u64,
        since_change: u32,
        user: Option<UserId>,
    },
    /// One, and since when somebody listens whose wait is not counted yet.
    One(Box<Request<L>>, u64),
    Many(Box<Many<L>>),
}

/// Two requests or more; fewer only in the middle of a change.
#[derive(Clone, Debug)]
pub(super) struct Many<L> {
    requests: BTreeMap<Seq, Request<L>>,
    /// All of them, by the number of holders that they tolerate.
    by_mode: BTreeMap<u32, BTreeSet<Seq>>,
    /// One entry for each request that does not wait for ever.
    timeouts: BTreeSet<(u64, Seq)>,
    /// The request whose listener is a channel: a place has one at most.
    channel: Option<Seq>,
    /// Since when somebody listens whose wait is not counted yet.
    uncounted_us: u64,
}

impl<L> Default for Many<L> {
    fn default() -> Self {
        Self {
            requests: BTreeMap::new(),
            by_mode: BTreeMap::new(),
            timeouts: BTreeSet::new(),
            channel: None,
            uncounted_us: 0,
        }
    }
}

impl<L> Many<L> {
    fn add(&mut self, request: Request<L>) {
        let seq = request.seq();
        if request.times_out_at_us < NEVER {
            self.timeouts.insert((request.times_out_at_us, seq));
        }
        if matches!(request.listener, Listener::Channel(_)) {
            self.channel = Some(seq);
        }
        let tolerates = request.mode().tolerates();
        self.by_mode.entry(tolerates).or_default().insert(seq);
        self.requests.insert(seq, request);
    }

    fn take(&mut self, seq: Seq) -> Option<Request<L>> {
        let request = self.requests.remove(&seq)?;
        self.timeouts.remove(&(request.times_out_at_us, seq));
        self.channel = self.channel.filter(|channel| *channel != seq);
        let tolerates = request.mode().tolerates();
        if let Some(same) = self.by_mode.get_mut(&tolerates) {
            same.remove(&seq);
            if same.is_empty() {
                self.by_mode.remove(&tolerates);
            }
        }
        Some(request)
    }
}

/// Questions.
impl<L> Requests<L> {
    /// Nobody has listened yet, or nobody listens any more and the grace is not known yet.
    pub(super) const NOBODY: Self = Self::Nobody {
        until_us: NEVER,
        since_change: 0,
        user: None,
    };

    /// The most holders that one of them tolerates; `None` where there is none.
    pub(super) fn widest(&self) -> Option<u32> {
        match self {
            Self::Nobody { .. } => None,
            Self::One(one, _) => Some(one.mode().tolerates()),
            Self::Many(many) => many.by_mode.last_key_value().map(|(n, _)| *n),
        }
    }

    /// The fewest.
    pub(super) fn narrowest(&self) -> Option<u32> {
        match self {
            Self::Nobody { .. } => None,
            Self::One(one, _) => Some(one.mode().tolerates()),
            Self::Many(many) => many.by_mode.first_key_value().map(|(n, _)| *n),
        }
    }

    /// Whether one of them is counted.
    pub(super) fn has_counted(&self) -> bool {
        match self {
            Self::Nobody { .. } => false,
            Self::One(one, _) => one.mode().limit().is_some(),
            Self::Many(many) => many.by_mode.range(2..Mode::ANY).next().is_some(),
        }
    }

    /// The first one that tolerates `n` holders at least. Its cost grows with the number of
    /// different modes.
    pub(super) fn first_tolerating(&self, n: u32) -> Option<Seq> {
        match self {
            Self::Nobody { .. } => None,
            Self::One(one, _) => (one.mode().tolerates() >= n).then_some(one.seq()),
            Self::Many(many) => {
                let modes = many.by_mode.range(n..);
                modes.filter_map(|(_, same)| same.first()).min().copied()
            }
        }
    }

    /// Those that tolerate exactly `n` holders, in their order.
    pub(super) fn of(&self, n: u32) -> impl Iterator<Item = Seq> + '_ {
        let (one, many) = match self {
            Self::Nobody { .. } => (None, None),
            Self::One(one, _) => ((one.mode().tolerates() == n).then_some(one.seq()), None),
            Self::Many(many) => (None, many.by_mode.get(&n)),
        };
        one.into_iter().chain(many.into_iter().flatten().copied())
    }

    pub(super) fn get(&self, seq: Seq) -> Option<&Request<L>> {
        match self {
            Self::Nobody { .. } => None,
            Self::One(one, _) => (one.seq() == seq).then_some(&**one),
            Self::Many(many) => many.requests.get(&seq),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Nobody { .. } => 0,
            Self::One(..) => 1,
            Self::Many(many) => many.requests.len(),
        }
    }

    /// The one that came last.
    pub(super) fn newest(&self) -> Option<Seq> {
        match self {
            Self::Nobody { .. } => None,
            Self::One(one, _) => Some(one.seq()),
            Self::Many(many) => many.requests.last_key_value().map(|(seq, _)| *seq),
        }
    }

    /// All of them in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Seq, &Request<L>)> {
        let (one, many) = match self {
            Self::Nobody { .. } => (None, None),
            Self::One(one, _) => (Some((one.seq(), &**one)), None),
            Self::Many(many) => (None, Some(&many.requests)),
        };
        let many = many.into_iter().flatten();
        one.into_iter()
            .chain(many.map(|(seq, request)| (*seq, request)))
    }

    /// The one whose listener is a channel.
    pub(super) fn channel(&self) -> Option<Seq> {
        match self {
            Self::Nobody { .. } => None,
            Self::One(one, _) => matches!(one.listener, Listener::Channel(_)).then_some(one.seq()),
            Self::Many(many) => many.channel,
        }
    }

    /// Whether all listeners are channels. A place has one at most, so one of two requests is a
    /// client's.
    pub(super) fn is_channel_only(&self) -> bool {
        match self {
            Self::Many(many) => many.requests.len() == 1 && many.channel.is_some(),
            requests => requests.channel().is_some(),
        }
    }

    /// When the first one times out; [`NEVER`] is not at all.
    pub(super) fn first_timeout(&self) -> Option<(u64, Seq)> {
        match self {
            Self::Nobody { .. } => None,
            Self::One(one, _) => Some((one.times_out_at_us, one.seq())),
            Self::Many(many) => many.timeouts.first().copied(),
        }
    }

    /// Since when somebody listens whose wait is not counted yet. `None` where nobody listens.
    pub(super) fn uncounted_us(&self) -> Option<u64> {
        match self {
            Self::Nobody { .. } => None,
            Self::One(_, uncounted_us) => Some(*uncounted_us),
            Self::Many(many) => Some(many.uncounted_us),
        }
    }
}

/// Changes.
impl<L> Requests<L> {
    /// Adds one. The waits are counted from this instant.
    pub(super) fn add(&mut self, request: Request<L>, uncounted_us: u64) {
        *self = match std::mem::replace(self, Self::NOBODY) {
            Self::Nobody { .. } => Self::One(Box::new(request), uncounted_us),
            Self::One(one, _) => {
                let mut many = Box::<Many<L>>::default();
                many.add(*one);
                many.add(request);
                many.uncounted_us = uncounted_us;
                Self::Many(many)
            }
            Self::Many(mut many) => {
                many.add(request);
                Self::Many(many)
            }
        };
    }

    pub(super) fn take(&mut self, seq: Seq) -> Option<Request<L>> {
        match self {
            Self::Many(many) => {
                let request = many.take(seq)?;
                if many.requests.len() == 1 {
                    if let Some((_, last)) = std::mem::take(&mut many.requests).pop_first() {
                        *self = Self::One(Box::new(last), many.uncounted_us);
                    }
                }
                Some(request)
            }
            Self::One(one, _) if one.seq() == seq => match std::mem::replace(self, Self::NOBODY) {
                Self::One(one, _) => Some(*one),
                _ => None,
            },
            _ => None,
        }
    }

    /// The waits of those who listen yet are counted from this instant.
    pub(super) fn count_from(&mut self, us: u64) {
        match self {
            Self::Nobody { .. } => {}
            Self::One(_, uncounted_us) => *uncounted_us = us,
            Self::Many(many) => many.uncounted_us = us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_small_and_keeps_its_number_and_its_ttl() {
        assert_eq!(size_of::<Request<u64>>(), 48);
        for (seq, ttl_ms) in [(1, 1), (1 << 32, 60_000), ((1 << 48) - 1, Ttl::MAX_MS)] {
            let ttl = Ttl::from_millis(ttl_ms).unwrap();
            let words = Words::new(Mode::Exclusive, false);
            let request = Request::new(Listener::Client(7), Seq(seq), ttl, words);
            assert_eq!((request.seq(), request.ttl()), (Seq(seq), ttl));
        }
        assert_eq!(SixBytes::of(u64::MAX).get(), SixBytes::MAX);
    }
}
