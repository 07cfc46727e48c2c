//! Waiting: the places of tokens in the queues of keys, and what is due when. Plain data and
//! decisions about it. Std only: no server, no clock, no `unsafe`. It is generic over `L`, a
//! blocked client of the shell.
//!
//! # The rules
//!
//! 1. **One queue per key** (`queue`), first in, first out, for readers and writers. It exists
//!    while there is a place in it.
//! 2. **A place belongs to a token** (`place`), and a token has one at most in a queue. A later
//!    request of the token joins the place. All requests at a place have its position, and the
//!    first one is decided first. A listener is a blocked client or a channel. A place has one
//!    channel at most: the one that was named last.
//! 3. **A place without a listener is absent.** It stays for the grace that KEEP has said, counted
//!    from the moment when the last listener left. Without KEEP it ends at once. Where several
//!    requests have said KEEP, the words of the one that left last count. The next request of the
//!    token takes the absent place over with its own words. A grant at once ends the place
//!    ([`Registry::resume`]). So does a refusal of a request that neither waits nor says KEEP.
//! 4. **An absent place whose turn has come counts as a holder** of its mode and limit. Those
//!    behind it enter if they fit beside it. The token itself is let in at once
//!    ([`Registry::ahead_of`]). Nobody is granted on behalf of an absent token.
//! 5. **A grant is one step** ([`Registry::grant_next`]): the request is decided as if it came now,
//!    leaves its place. The caller carries out the effect before it does anything else with the
//!    key.
//! 6. **A grant to a channel takes two steps.** The registry offers the hold ([`Step::Offered`])
//!    and the caller publishes it. If somebody has received the message, the grant is made
//!    ([`Registry::heard`]). A message that nobody receives, a grant or another one, says that
//!    nobody listens to the channel. So all its requests leave as if they had timed out, without a
//!    word ([`Registry::unheard`]), and the graces of their places run side by side.
//! 7. **The caller that removes a request ends its wait**, exactly once: a grant, a refusal, a
//!    timeout, an error for all, a listener that is gone. A client that is not in the registry has
//!    been answered. [`Removed::listener`] is `None` where nobody is to be told.
//! 8. **A mark** says that a key has changed outside a command. Callbacks of the server only mark;
//!    commands and the timer serve. A lock that is free while a place is absent may be replaced
//!    without notice, so the patrol marks such keys.
//! 9. **A grant that nobody hears of ends** ([`Bindings::unheard`]), unless its owner has learned
//!    of it otherwise: with KEEP after the grace, else at once. A hold that was converted stays so.
//! 10. **Places stay with their database and name**, whatever becomes of the lock: FLUSHDB, SWAPDB,
//!     RENAME and MOVE do not move them. Absent places end with FLUSHDB ([`Registry::db_emptied`]).
//!     [`Registry::dismiss`] ends the places of a key, and with them every KEEP.
//! 11. **A request with LINGER** ([`bindings`]) binds its hold to its connection. Where it listens
//!     by a channel, it leaves when that connection is lost ([`Registry::remove_lingering`]): with
//!     KEEP its place stays for the grace.
//! 12. **Two clocks.** Locks end by the wall clock, as keys do. Timeouts and graces run on a clock
//!     that nobody can set.
//! 13. **A wait that would close a cycle of waits is not begun.** The caller asks [`graph`] before
//!     it lets a request enter. The registry knows the places of each token, so that the search
//!     finds what a token waits for.
//! 14. **A place for several keys** ([`Keys`]) stands in the queue of each with one ticket, and
//!     holds nothing while it waits. It is granted all keys in the step in which it is the first in
//!     all queues and all locks admit it ([`Registry::take_candidate`]). It stops all behind it,
//!     also when it is absent. It comes, is kept and ends as a whole.
//! 15. **What waits is bounded** ([`Registry::admit`]): each request counts, and each absent place.
//!     Where a key has as many absent places as it may, a place ends with its last listener in
//!     spite of KEEP ([`Leaving`]).
//! 16. **A result answers a place** in place of a hold (LOCK.ONCE), if its newest request takes one
//!     ([`Registry::end_for_result`]). Before such a place is granted, the caller is asked whether
//!     the result exists ([`Step::Asks`]). `engine/once.rs` has the rules.
//!
//! # Memory
//!
//! There may be a million places. So a place is one entry of a slab, a token is kept in its compact
//! form, all places of a key share its name, all requests for a channel share its name, and a queue
//! of one place has no index. Half of a table that has just doubled is empty, so what has an entry
//! for each place, or for each key, grows in small steps ([`tree`]).

pub mod bindings;
mod bytes;
pub mod contended;
pub mod graph;
pub mod key_ref;
pub mod keys;
mod lost;
#[cfg(test)]
pub(crate) mod naive;
mod place;
mod queue;
pub mod registry;
mod request;
pub mod schedule;
mod slab;
mod table;
mod tree;
mod users;

pub use bindings::{Bindings, Linger};
pub use contended::{Contended, Waits};
pub use key_ref::KeyRef;
pub use keys::{Keys, Several, Wanted};
pub use lost::{Delivery, Lost, LostEnd};
pub use place::Counts;
pub use registry::{
    At, By, Candidate, ChannelRequest, Comer, Ending, Entered, Full, Granted, Leaving, Limits,
    Marks, NewRequest, Offer, Registry, Removed, Rest, SlotQuestion, Step, Terms, TurnAt,
    WaitedSlots, Waiter,
};
pub use request::Listener;
pub use schedule::Due;
