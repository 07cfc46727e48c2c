//! Who waits for which key, and what has changed: everything about waiting that the server's memory
//! holds.

mod changes;
mod channels;
mod coming;
mod granting;
mod leaving;
mod marks;
mod patrol;
mod questions;
mod room;
mod rounds;
mod several;
mod slots;
mod tokens;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU64;
use std::rc::Rc;

use super::bindings::Linger;
use super::delivery::{Deliveries, Delivery, Grant, Kept};
use super::key_ref::KeyRef;
use super::place::{Counts, PlaceId, Places, Ticket};
use super::queue::WaitQueue;
use super::request::{Listener, Seq};
use super::schedule::Schedule;
use super::several::Several;
use super::users::Users;
use crate::lock::{Effect, Fence, Hold, Mode, Now, Refusal, Token, TokenBuf, Ttl};

use changes::Changes;
use channels::Channels;
use patrol::Patrol;
use slots::Slots;

pub use questions::Waiter;
pub use room::{By, Comer, Full, Leaving, Limits};
pub use several::{Candidate, GrantedSeveral, Turn};
pub use slots::SlotQuestion;

/// All places, and all that is to be done for them. `S` is how its tables hash.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Registry<L, S> {
    /// By database, of which there are few: mostly one, which is found without hashing.
    queues: BTreeMap<i32, HashMap<Rc<[u8]>, KeyQueue, S>>,
    /// Exactly the places in `queues`.
    places: Places<L>,
    /// The places of `places`, by the hash of the token: those whose hash no other place has.
    by_token: HashMap<u32, PlaceId, S>,
    /// The other ones: two or more for each hash.
    by_shared_hash: HashMap<u32, BTreeSet<PlaceId>, S>,
    /// Exactly the blocked clients of `places`.
    by_listener: HashMap<L, (PlaceId, Seq), S>,
    /// Exactly the channels that listen at `places`.
    channels: Channels<S>,
    /// The requests that listen by a channel and end with their connections (LINGER).
    lingering: BTreeMap<(NonZeroU64, Seq), PlaceId>,
    /// What the holds of waiting requests are bound to, if they have said LINGER. Few have, so it
    /// is not in the request.
    lingers: BTreeMap<Seq, Linger>,
    counts: Counts,
    /// How much of `counts` belongs to each user.
    users: Users<S>,
    /// What all of it takes: see [`super::bytes`].
    bytes: usize,
    /// How many of the places are for several keys.
    places_for_several: usize,
    /// Whether a place may upgrade. If one has, this stays until no place is left.
    may_upgrade: bool,
    schedule: Schedule,
    /// Keys that have changed outside a command.
    dirty: BTreeSet<KeyRef>,
    /// Such keys that the timer looks at first. All have their turn before those of `dirty`.
    dirty_first: BTreeSet<KeyRef>,
    /// Whole databases that have changed. Their keys are not in `dirty`.
    changes: Changes<S>,
    /// The waited keys by hash slot. `None` outside a cluster.
    slots: Option<Slots>,
    /// Keys with a lock that must be looked at once this node of a cluster serves them.
    put_off: BTreeSet<KeyRef>,
    /// Places for several keys whose turn has come at one of them in this step. The caller looks at
    /// them before the step ends.
    candidates: BTreeSet<(Ticket, PlaceId)>,
    /// Keys that are to be served before the step ends.
    unserved: Vec<KeyRef>,
    patrol: Patrol,
    /// Grants that their listeners have not heard of yet.
    pub deliveries: Deliveries<S>,
    last_ticket: u64,
    last_seq: u64,
}

/// The queue of a key.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct KeyQueue {
    /// The key's entry in the schedule; [`NEVER`](super::request::NEVER) is none.
    wakes_at_ms: u64,
    queue: WaitQueue,
}

/// A request that was not granted at once.
#[derive(Debug)]
pub struct NewRequest<'a, L> {
    /// For whom.
    pub token: Token<'a>,
    /// Exclusive or shared.
    pub mode: Mode,
    /// For how long it will hold, counted from the grant.
    pub ttl: Ttl,
    /// Whatever is told when the wait ends; `None`: the request does not wait.
    pub listener: Option<Listener<L>>,
    /// On the monotonic clock; `None` is never.
    pub times_out_at_us: Option<u64>,
    /// For how long the place outlives the request (KEEP), in milliseconds; `None` and 0 are not at
    /// all.
    pub keep_ms: Option<u32>,
    /// Whether the server has generated the token, which the reply then carries.
    pub is_server_generated: bool,
    /// What its hold will be bound to.
    pub linger: Option<Linger>,
    /// The user against whose share it counts; `None` is nobody.
    pub user: Option<&'a [u8]>,
    /// Why it was not granted.
    pub refusal: Refusal,
    /// Now, on the monotonic clock.
    pub now_us: u64,
}

/// What has become of a request that was not granted at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// It waits.
    Waits(At),
    /// It does not wait, and its token has a place without a listener.
    Kept(At),
    /// It does not wait, and the place without a listener that its token had has ended: the one
    /// behind may be next.
    Ended,
    /// It does not wait, and nothing has changed.
    No,
}

impl Entered {
    /// Whether the caller has to serve the key: somebody may be next, or other instants matter now.
    pub const fn must_serve(self) -> bool {
        match self {
            Self::Waits(at) | Self::Kept(at) => at.must_serve(),
            Self::Ended => true,
            Self::No => false,
        }
    }

    /// Whether it goes on with a place at which nobody has listened.
    pub const fn is_resumed(self) -> bool {
        matches!(self, Self::Waits(At::Absent) | Self::Kept(At::Absent))
    }
}

/// The place at which a request has arrived, as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// There was none. Nobody ahead of the new one stops it, but the lock may.
    NewHead,
    /// There was none, and others stand ahead of the new one.
    New,
    /// Nobody listened there.
    Absent,
    /// Others of its token wait there.
    Joined,
}

impl At {
    /// Whether the key has to be served. A place that has changed may matter to others, or be next,
    /// wherever it stands.
    const fn must_serve(self) -> bool {
        !matches!(self, Self::New)
    }
}

/// What has become of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// It has ended.
    Ended,
    /// Others listen at it.
    Listens,
    /// Nobody listens at it for a while.
    Absent,
}

/// A request, or a place of nobody's, that waits no more. Whoever took it out ends its wait.
#[derive(Debug)]
pub struct Removed<L> {
    /// The key that it waited for, or the first of several.
    pub key_ref: KeyRef,
    /// All keys, if there are several.
    pub several: Option<Rc<Several>>,
    /// Whatever is to be told; `None` of a place at which nobody has listened.
    pub listener: Option<Listener<L>>,
    /// Whose it is.
    pub token: TokenBuf,
    /// Exclusive or shared.
    pub mode: Mode,
    /// Since when it has had its place, on the monotonic clock.
    pub since_us: u64,
    /// Whether the server has generated the token.
    pub is_server_generated: bool,
    /// What its hold is bound to.
    pub linger: Option<Linger>,
    /// What has become of its place.
    pub rest: Rest,
}

/// What [`Registry::grant_next`] has done.
#[derive(Debug)]
pub enum Step<L> {
    /// A client has a hold. The caller carries out [`Granted::effect`].
    Granted(Granted<L>),
    /// A channel is to be told of a hold. The caller publishes it, and then calls
    /// [`Registry::heard`] or [`Registry::unheard`].
    Offered(Offer),
    /// It can never be granted here.
    Refused(Removed<L>, Refusal),
}

/// A request that was granted.
#[derive(Debug)]
pub struct Granted<L> {
    /// The request.
    pub removed: Removed<L>,
    /// Its hold.
    pub hold: Hold,
    /// Whether its token had a hold before.
    pub had_it: bool,
    /// The delivery of the grant, which has begun; `None` where a channel has heard of it.
    pub delivery: Option<Delivery>,
    /// When it was granted.
    pub at: Now,
    kept: Option<Box<Kept>>,
}

/// A hold that a channel is to be told of. It is not given yet.
#[derive(Debug)]
pub struct Offer {
    /// The channel.
    pub channel: Rc<[u8]>,
    /// The key.
    pub key_ref: KeyRef,
    /// For whom.
    pub token: TokenBuf,
    /// The hold, with its fence.
    pub hold: Hold,
    /// When it is granted.
    pub at: Now,
    had_it: bool,
    place: PlaceId,
    ticket: Ticket,
    seq: Seq,
}

impl Offer {
    /// The fence that the message carries.
    pub const fn fence(&self) -> Fence {
        self.hold.fence
    }
}

impl<L> Granted<L> {
    /// The change of the lock.
    pub fn effect(&self) -> Effect<'_> {
        Effect::Hold {
            now_ms: self.at.ms(),
            mode: self.removed.mode,
            token: self.removed.token.as_token(),
            hold: self.hold,
        }
    }

    /// What goes to the client, and comes back to [`Deliveries::delivered`] or
    /// [`Deliveries::lost`]. `None` where a channel has heard.
    pub fn grant(&self) -> Option<Grant> {
        Some(Grant {
            token: self.removed.token.clone(),
            fence: self.hold.fence,
            delivery: self.delivery?,
            kept: self.kept.clone(),
        })
    }
}

impl<L, S: Default> Default for Registry<L, S> {
    fn default() -> Self {
        Self {
            queues: BTreeMap::new(),
            places: Places::default(),
            by_token: HashMap::default(),
            by_shared_hash: HashMap::default(),
            by_listener: HashMap::default(),
            channels: Channels::default(),
            lingering: BTreeMap::new(),
            lingers: BTreeMap::new(),
            counts: Counts::default(),
            users: Users::default(),
            bytes: 0,
            places_for_several: 0,
            may_upgrade: false,
            schedule: Schedule::default(),
            dirty: BTreeSet::new(),
            dirty_first: BTreeSet::new(),
            changes: Changes::default(),
            slots: None,
            put_off: BTreeSet::new(),
            candidates: BTreeSet::new(),
            unserved: Vec::new(),
            patrol: Patrol::default(),
            deliveries: Deliveries::default(),
            last_ticket: 0,
            last_seq: 0,
        }
    }
}
