//! The rules of waiting: who waits, who is next, what a grant, an end or a loss does. They ask the
//! book ([`Book`]) and change it ([`BookMut`]), and name no container: how requests come
//! (`come.rs`) and leave (`leave.rs`), who is next (`turn.rs`), how that one is granted
//! (`grant.rs`), and what is a cycle (`cycle.rs`). What is bounded is in `wait/registry/room.rs`.
//!
//! 1. **One queue for each key**, first in, first out, for readers and writers. A place belongs to
//!    a token, and a token has one at most in a queue (`place.rs`). A later request of the token
//!    joins the place. All requests at a place have its position. A listener is a blocked client
//!    or a channel, and a place has one channel at most: the one that was named last.
//! 2. **A place without a listener is absent.** It stays for the grace that KEEP has said, counted
//!    from the moment when the last listener left. Without KEEP it ends at once. Where several
//!    requests have said KEEP, the words of the one that left last count. The next request of the
//!    token takes the absent place over with its own words. A grant at once ends the place, and so
//!    does a refusal of a request that neither waits nor says KEEP.
//! 3. **Who is next** (`turn.rs`): first what tokens with a hold can have at once, then the refusal
//!    of those who never can, then those who convert their holds, then the line. Nobody passes a
//!    place in the line at which somebody listens. An absent place whose turn has come counts as a
//!    holder of its mode and limit. Nobody is granted on behalf of an absent token.
//! 4. **A token converts** when it has a hold and waits for a narrower one. It stands ahead of the
//!    line, because nobody in the line could enter before others leave. Of several the one that
//!    tolerates the most holders can always be granted first. One token at a time converts to the
//!    exclusive hold: a second one would wait for the first, and the first for it. So it is refused
//!    ([`Refusal::Deadlock`](crate::lock::Refusal)), and without a listener it ends silently.
//! 5. **A grant is one step**: the request is decided as if it came now, and leaves its
//!    place. The caller carries out the effect before it does anything else with the key.
//! 6. **A grant to a channel takes two steps.** The registry offers the hold, and the caller
//!    publishes it. If somebody has received the message, the grant is made. A message that nobody
//!    receives, a grant or another one, says that nobody listens to the channel. So all its
//!    requests leave as if they had timed out, without a word, and the graces of their places run.
//! 7. **The caller that removes a request ends its wait**, exactly once: a grant, a refusal, a
//!    timeout, an error for all, a listener that is gone. A client that is not in the book has been
//!    answered.
//! 8. **A place for several keys** stands in the queue of each with one ticket, and holds nothing
//!    while it waits. It is granted all keys in the step in which it is the first in all queues and
//!    all locks admit it. It stops all behind it, also when it is absent. It comes, is kept and
//!    ends as a whole. A token that got one of its keys by a lock from elsewhere waits until that
//!    hold ends.
//! 9. **Places stay with their database and name**, whatever becomes of the lock: FLUSHDB, SWAPDB,
//!    RENAME and MOVE do not move them. Absent places end with FLUSHDB.
//! 10. **A request with LINGER** binds its hold to its connection (`wait/bindings.rs`). Where it
//!     listens by a channel, it leaves when that connection is lost.
//! 11. **Two clocks.** Locks end by the wall clock, as keys do. Timeouts and graces run on a clock
//!     that nobody can set.
//! 12. **A wait that closes a cycle of waits leaves again** in the step in which it came
//!     ([`cycle`]).
//! 13. **What waits is bounded**: each request counts, and each absent place. Where a key has as
//!     many absent places as it may, a place ends with its last listener in spite of KEEP.
//! 14. **A result answers a place** in place of a hold (LOCK.ONCE), if its newest request takes
//!     one. `engine/once.rs` has the rules.

pub mod come;
pub mod cycle;
pub mod grant;
pub mod key_ref;
pub mod keys;
pub mod leave;
pub mod place;
pub(crate) mod turn;

use std::rc::Rc;

use self::key_ref::{KeyId, KeyRef};
use self::keys::Keys;
use self::place::{Extra, Place, PlaceId, Request, Seq, Ticket, UserId};
use crate::lock::{CompactToken, Occupancy, Token};
#[cfg(test)]
use crate::lock::{Lock, Now};

/// The questions that the rules ask.
pub(crate) trait Book {
    /// A blocked client.
    type Client;

    /// A key that is waited for.
    fn key(&self, key: KeyId) -> Option<&KeyRef>;

    /// A place.
    fn place(&self, id: PlaceId) -> Option<&Place<Self::Client>>;

    /// The place of a token at a key.
    fn of_token(&self, key: KeyId, token: Token<'_>) -> Option<PlaceId>;

    /// The next place whose token has got a hold and has not been looked at since. Those who wait
    /// for the exclusive hold come first, then the earlier ones.
    fn first_owner(&self, key: KeyId) -> Option<PlaceId>;

    /// The places that convert, in the order in which they are decided: those that tolerate the
    /// most holders first, then the earlier ones.
    fn converts(&self, key: KeyId) -> impl Iterator<Item = PlaceId>;

    /// The first place in the line ahead of a ticket that nobody passes: somebody listens there, or
    /// it is absent for the exclusive hold or for several keys.
    fn first_stop(&self, key: KeyId, before: Ticket) -> Option<PlaceId>;

    /// The other places in the line ahead of a ticket: how many they are, and how many holders they
    /// tolerate.
    fn passed(&self, key: KeyId, before: Ticket) -> Occupancy;

    /// The first of them that tolerates a limited number.
    fn first_permit(&self, key: KeyId) -> Option<PlaceId>;

    /// The places of a token. One for several keys may come several times.
    fn places_of<'b>(&'b self, token: &'b CompactToken) -> impl Iterator<Item = PlaceId>;

    /// The places at a key ahead of a ticket whose tokens wait for other keys, too.
    fn elsewhere_too(&self, key: KeyId, before: Ticket) -> impl Iterator<Item = PlaceId>;

    /// The places in the line ahead of a ticket that nobody passes, the last one first.
    fn stops_ahead(&self, key: KeyId, before: Ticket) -> impl Iterator<Item = PlaceId>;
}

/// A place of a book, as its closures get it.
type PlaceOf<B> = Place<<B as Book>::Client>;

/// A request of a book.
type RequestOf<B> = Request<<B as Book>::Client>;

/// More questions, and the changes that the rules make. Each change keeps all tables true.
pub(crate) trait BookMut: Book<Client: Clone> {
    /// The number of a key, if it is waited for.
    fn key_id(&self, key: &KeyRef) -> Option<KeyId>;

    /// All places of a key in the order in which they stand.
    fn all_at(&self, key: KeyId) -> impl Iterator<Item = PlaceId> + '_;

    /// How many places a key has, and how many of them are absent.
    fn counts_at(&self, key: KeyId) -> (usize, usize);

    /// When the first request times out, or the first grace is over.
    fn first_due(&self) -> Option<(u64, PlaceId)>;

    /// The result that answers a place in place of a hold.
    fn result_of(&self, id: PlaceId) -> Option<&Rc<[u8]>>;

    /// The number of the last change of a whole database.
    fn last_change(&self) -> u32;

    /// A new place, which is to be kept or listened at next.
    fn open(&mut self, keys: &Keys, token: Token<'_>, now_us: u64) -> PlaceId;

    /// Changes a place.
    fn change<R>(&mut self, id: PlaceId, act: impl FnOnce(&mut PlaceOf<Self>) -> R) -> Option<R>;

    /// Has a place for several keys name them by the words of another request.
    fn rename(&mut self, id: PlaceId, keys: &Keys);

    /// Has a place kept by words with this result. `act` says the other words.
    fn keep(&mut self, id: PlaceId, result: Option<Rc<[u8]>>, act: impl FnOnce(&mut PlaceOf<Self>));

    /// The number of a new request.
    fn next_seq(&mut self) -> Seq;

    /// The number of a user, for a request that comes next.
    fn user(&mut self, name: &[u8]) -> UserId;

    /// A request comes, perhaps instead of another one. `act` puts it into its place.
    fn put(
        &mut self,
        id: PlaceId,
        new: (RequestOf<Self>, Extra),
        replaces: Option<Seq>,
        act: impl FnOnce(&mut PlaceOf<Self>, RequestOf<Self>),
    ) -> Option<(RequestOf<Self>, Extra)>;

    /// A request leaves its place, which `act` changes with it. Whether it `keeps` the place by its
    /// words.
    fn take<R>(
        &mut self,
        id: PlaceId,
        seq: Seq,
        keeps: bool,
        act: impl FnOnce(&mut PlaceOf<Self>, &RequestOf<Self>) -> R,
    ) -> Option<(RequestOf<Self>, Extra, R)>;

    /// A place ends that is over.
    fn close(&mut self, id: PlaceId);

    /// Notes whether the lock of a key was replaced by another one, whose holders may be waiting.
    /// Whether it was noted before.
    fn set_replaced(&mut self, key: KeyId, is_replaced: bool) -> bool;

    /// Compares an answer with that of another book.
    #[cfg(test)]
    fn check(&self, key: KeyId, lock: Option<&Lock>, now: Now, next: Option<turn::Next>);
}
