//! What the machine needs of a server. The shell implements these traits by the module API, and
//! the simulation in memory.
//!
//! They are three, so that re-entrancy is a compile error. Some calls of a server may run another
//! command of this module before they return, and that command needs the machine. These calls are
//! methods of [`Host`], which takes `&mut self`: nothing of the machine is borrowed then, and no
//! key is open. The calls that do not come back are methods of [`Server`], which may be copied.

use std::ffi::CStr;
use std::num::NonZeroU64;
use std::rc::Rc;

use super::count::Count;
use super::event::Event;
use super::guard;
use super::guard::quorum::Replicas;
use super::guard::slots::Cluster;
use super::machine::{Machine, Shared};
use super::message::{Message, Outcome};
use super::sweep::Findings;
use super::types::Types;
use crate::command::guard::Beat;
use crate::command::{Error, Reply};
use crate::lock::{Deadline, Effect, Hold, Lock, Now, Token};
use crate::wait::{KeyRef, Leaving, Limits};

/// Calls that do not come back into the machine, and the clocks.
pub trait Server: Copy {
    /// What the machine remembers for it.
    type Types: Types;

    /// The wall-clock time at which the running command began, as the server's own ttls count it.
    fn command_time(self) -> Now;
    /// The wall-clock time now.
    fn now(self) -> Now;
    /// The time later in a step that began at `now`. It `has_gone_on` if keys changed in it.
    fn meanwhile(self, now: Now, has_gone_on: bool) -> Now;
    /// Microseconds on a clock that nobody can set.
    fn monotonic_us(self) -> u64;
    /// Microseconds on a clock that nobody can set, and that goes on while the machine is
    /// suspended.
    fn boot_us(self) -> u64;
    /// Whether a turn of the timer may go on with its work, after some steps, until an instant of
    /// that clock.
    fn has_time(self, work: Work, until_us: u64) -> bool;

    /// Whether it is no replica.
    fn is_primary(self) -> bool;
    /// Whether it is a node of a cluster.
    fn is_cluster(self) -> bool;
    /// Whether it loads a data set.
    fn is_loading(self) -> bool;
    /// Whether a write outside a command would abort it, because it is paused.
    fn must_not_write(self) -> bool;
    /// The database of the running command or step.
    fn selected_db(self) -> i32;
    /// Goes to another database. False if there is none.
    fn select_db(self, db: i32) -> bool;
    /// Whether any key has a lock.
    fn has_locks(self) -> bool;
    /// Begins to scan the selected database. `None` if the server refuses.
    fn begin_scan(self) -> Option<<Self::Types as Types>::Cursor>;
    /// Looks at some keys, and adds to what was found. False after the last one.
    fn scan(self, cursor: &mut <Self::Types as Types>::Cursor, findings: &mut Findings) -> bool;

    /// Whether the client of the running command may be blocked. It may not in MULTI and scripts,
    /// nor on a replica.
    fn may_block(self) -> bool;
    /// Whether the user of the running command may read a key in its database.
    fn may_read(self, key: &KeyRef) -> bool;
    /// The connection of the running command. From the first call on, the server leaves a note
    /// when one is lost. `None` in a script.
    fn connection(self) -> Option<NonZeroU64>;
    /// Blocks the client of the running command. `None` if the server refuses.
    fn block(self) -> Option<<Self::Types as Types>::Client>;
    /// Ends the wait of a client that has left the registry.
    fn unblock(self, client: <Self::Types as Types>::Client, outcome: Outcome);
    /// Has the client of the running command not blocked any more, which it was just now. The
    /// command replies.
    fn abort(self, client: <Self::Types as Types>::Client);
    /// Gives up a client that is gone, or was answered by the server.
    fn release(self, client: <Self::Types as Types>::Client);
    /// Replies to the running command.
    fn reply(self, reply: Reply<'_>);
    /// Replies to the running command with an error that has a text of its own.
    fn reply_error(self, text: &CStr);
    /// Publishes a message. Whether somebody on this server has received it.
    fn publish(self, channel: &[u8], message: Message, key: &[u8], token: Token<'_>) -> bool;

    /// Whether a wait that would close a cycle is refused.
    fn detects_deadlocks(self) -> bool;
    /// How requests leave now.
    fn leaving(self) -> Leaving;
    /// How much may wait, and the user whose share counts, when so many wait already.
    fn limits(self, waiting: usize) -> (Limits, Option<Box<[u8]>>);

    /// After what the server waits with new grants.
    fn guard(self) -> guard::Settings;
    /// Its replicas, and how much was sent to them.
    fn replicas(self) -> Replicas;
    /// Tells the replicas of the guard.
    fn beat(self, beat: Beat);
    /// Asks the replicas how much they have received. They answer at once.
    fn ask_replicas(self);

    /// Adds to a counter.
    fn count_many(self, of: Count, n: usize);
    /// Notes how long a request has waited for its grant.
    fn waited(self, us: u64);
    /// Notes that a hold ends by its owner.
    fn held(self, hold: &Hold, now: Now);
    /// Writes a line to the log. What clients have sent is escaped in it.
    fn log(self, line: &CStr);

    /// Adds one to a counter.
    #[inline]
    fn count(self, of: Count) {
        self.count_many(of, 1);
    }
}

/// A command or a timer at work: the right to make calls that may come back, and the machine.
pub trait Host {
    type Server: Server;
    /// A name of the server's own, made for one key.
    type Name;
    /// An open key. It borrows the host.
    type Key<'k>: Key<Server = Self::Server>
    where
        Self: 'k;

    fn server(&self) -> Self::Server;
    fn shared(&self) -> &Shared<TypesOf<Self>>;
    fn machine(&mut self) -> &mut Machine<TypesOf<Self>>;

    /// Carries out what callbacks have noted.
    fn drain(&mut self);

    /// The name of a key, for the selected database.
    fn name(&self, name: &[u8]) -> Self::Name;
    /// Opens a key of the selected database.
    fn open<'k>(
        &'k mut self,
        name: &'k Self::Name,
        purpose: Purpose,
    ) -> Result<Self::Key<'k>, WrongType>;
    /// Opens the key of the running command. It is an error if there is none.
    fn open_key(&mut self, purpose: Purpose) -> Result<Self::Key<'_>, Error>;
    /// Opens a word of the running command as a key. It is an error if there is no such word.
    fn open_word(&mut self, at: usize, purpose: Purpose) -> Result<Self::Key<'_>, Error>;

    /// Whether this server accepts writes of a key now, from every client.
    fn serves(&mut self, name: &Self::Name) -> bool;
    /// The same for a word of the running command.
    fn serves_word(&mut self, at: usize) -> bool;
    /// The same for each key of a hash slot.
    fn serves_slot(&mut self, slot: u16) -> bool;
    /// The slots of this node. `None` outside of a cluster.
    fn cluster(&mut self) -> Option<Cluster>;
    /// Whether this server refuses all writes of clients now.
    fn refuses_writes(&mut self) -> bool;
    /// Whether somebody may receive what is published to a channel. False is certain.
    fn may_be_heard(&mut self, channel: &[u8]) -> bool;
}

/// A key that is absent or has a lock, open until it is dropped.
pub trait Key {
    type Server: Server;
    type Name: Name;

    fn server(&self) -> Self::Server;
    fn name(&self) -> Self::Name;
    /// Its lock; `None` when it is absent.
    fn lock(&self) -> Option<&Lock>;
    /// The lock and the machine.
    fn parts(&mut self) -> Parts<'_, Self>
    where
        Self: Sized;
    fn shared(&self) -> &Shared<<Self::Server as Server>::Types>;
    /// When it expires by itself. The server looks it up, so it is asked for only where it matters.
    fn deadline(&self) -> Option<Deadline>;

    /// Changes the lock, and the ttl of the key with it. [`super::commit`] alone calls it. False if
    /// that has failed: a callback of another module, which the server calls for a new key, has
    /// changed the key again.
    fn apply(&mut self, effect: &Effect<'_>) -> bool;
    /// Sends an effect to the replicas and into the append-only file. `ends_lock` says that it
    /// releases the only hold.
    fn replicate(&mut self, effect: &Effect<'_>, ends_lock: bool);
    /// Notes an event for those who listen to events.
    fn note(&self, event: Event);

    /// The string under another key of the same database, with this key closed for that call. What
    /// was decided on the key before must be decided anew.
    ///
    /// # Errors
    /// As [`Key::may_be_heard`].
    fn result(&mut self, name: &[u8], with_ttl: bool) -> Result<Found, WrongType>;
    /// [`Host::may_be_heard`], with the key closed for that call. What was decided on the key
    /// before must be decided anew.
    ///
    /// # Errors
    /// If the key has a value of another type by then. It takes no change any more.
    fn may_be_heard(&mut self, channel: &[u8]) -> Result<bool, WrongType>;
}

/// The name of an open key.
pub trait Name: Copy {
    fn bytes(&self) -> &[u8];
}

/// What can be used while a key is open.
pub struct Parts<'p, K: Key + 'p> {
    pub lock: Option<&'p Lock>,
    pub machine: &'p mut Machine<<K::Server as Server>::Types>,
    pub shared: &'p Shared<<K::Server as Server>::Types>,
}

/// The types of a host.
pub type TypesOf<H> = <<H as Host>::Server as Server>::Types;

/// The types of the host of a key.
pub type TypesOfKey<K> = <<K as Key>::Server as Server>::Types;

/// The blocked clients of a server.
pub type ClientOfServer<S> = <<S as Server>::Types as Types>::Client;

/// The blocked clients of a key's server.
pub type ClientOf<K> = ClientOfServer<<K as Key>::Server>;

/// What the timer does in a turn, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Waits end, and keys are found at which time has made somebody next.
    End,
    /// The pass over all places.
    Pass,
    /// Marked keys are served.
    Serve,
}

/// The purpose for which a key is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Nothing is changed.
    Read,
    /// The lock may be changed.
    Write,
}

/// What a key has that may be a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A string, and for how many milliseconds it lives yet, if that was asked for and it ends.
    Value(Rc<[u8]>, Option<u64>),
    /// A value of another type.
    OtherType,
    /// It may be at another node of the cluster.
    Elsewhere,
}

/// The key has a value of another type.
#[derive(Clone, Copy, Debug)]
pub struct WrongType;

/// The reference to an open key.
pub(super) fn key_ref_of<K: Key>(key: &K) -> KeyRef {
    KeyRef::new(key.server().selected_db(), key.name().bytes())
}
