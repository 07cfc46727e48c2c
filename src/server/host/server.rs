//! This server, as the machine sees it ([`redis_lock_core::engine::host`]).

use std::ffi::CStr;
use std::num::NonZeroU64;

use super::lock_key::Key;
use super::module::{Module, Task};
use crate::server::api::clock;
use crate::server::api::scan::Cursor;
use crate::server::api::{Context, Level, OwnedString};
use crate::server::clients::blocked_client::{self, BlockedClient, Machine, Redis, Shared};
use crate::server::clients::channel;
use crate::server::cluster::slots;
use crate::server::observe::stats::{counters, held, times};
use crate::server::replication::replicas;
use crate::server::replication::writes;
use crate::server::settings::config::DEADLOCK_DETECTION;
use crate::server::settings::limits;
use redis_lock_core::command::guard::Beat;
use redis_lock_core::command::{Error, Reply};
use redis_lock_core::engine::guard;
use redis_lock_core::engine::guard::quorum::Replicas;
use redis_lock_core::engine::guard::slots::Cluster;
use redis_lock_core::engine::host::{Host, Purpose, Server, Work, WrongType};
use redis_lock_core::engine::sweep::Findings;
use redis_lock_core::engine::{Count, Message, Outcome};
use redis_lock_core::lock::{Hold, Now, Token};
use redis_lock_core::wait::{KeyRef, Leaving, Limits};

/// Makes methods of one call, from rows of `fn name(self) -> Type = call;`.
macro_rules! calls {
    ($(fn $name:ident($own:ident $(, $arg:ident: $of:ty)*) $(-> $answer:ty)? = $call:expr;)*) => {
        $(
            #[inline]
            fn $name($own $(, $arg: $of)*) $(-> $answer)? { $call }
        )*
    };
}

impl Server for Context<'_> {
    type Types = Redis;

    calls! {
        fn command_time(self) -> Now = clock::of_command();
        fn now(self) -> Now = clock::now();
        fn meanwhile(self, now: Now, has_gone_on: bool) -> Now = clock::meanwhile(now, has_gone_on);
        fn monotonic_us(self) -> u64 = clock::monotonic_us();
        fn boot_us(self) -> u64 = clock::boot_us();
        fn has_time(self, _work: Work, until_us: u64) -> bool =
            clock::monotonic_us() < until_us;

        fn is_primary(self) -> bool = Context::is_primary(self);
        fn is_cluster(self) -> bool = Context::is_cluster(self);
        fn is_loading(self) -> bool = Context::is_loading(self);
        fn must_not_write(self) -> bool = Context::must_not_write(self);
        fn selected_db(self) -> i32 = Context::selected_db(self);
        fn select_db(self, db: i32) -> bool = Context::select_db(self, db);
        fn has_locks(self) -> bool = held::now().keys() > 0;
        fn begin_scan(self) -> Option<Cursor> = Cursor::new();
        fn scan(self, cursor: &mut Cursor, findings: &mut Findings) -> bool =
            cursor.scan(self, findings);

        fn may_block(self) -> bool = Context::may_block(self);
        fn may_read(self, key: &KeyRef) -> bool = Context::may_read(self, &key.name, key.db);
        fn unblock(self, client: BlockedClient, outcome: Outcome) =
            blocked_client::unblock(client, outcome, &Module::get().spare_outcome);
        fn abort(self, client: BlockedClient) = blocked_client::abort(client);
        fn release(self, client: BlockedClient) = blocked_client::release(client);
        fn reply(self, reply: Reply<'_>) = Context::reply(self, reply);
        fn reply_error(self, text: &CStr) = Context::reply_error(self, text);
        fn publish(self, channel: &[u8], message: Message, key: &[u8], token: Token<'_>) -> bool =
            channel::publish(self, channel, message, key, token);

        fn detects_deadlocks(self) -> bool = DEADLOCK_DETECTION.is_on();
        fn leaving(self) -> Leaving = limits::leaving(clock::monotonic_us());
        fn limits(self, waiting: usize) -> (Limits, Option<Box<[u8]>>) =
            limits::of_request(self, waiting);

        fn guard(self) -> guard::Settings = limits::guard();
        fn replicas(self) -> Replicas = replicas::listed(self);
        fn ask_replicas(self) = replicas::ask();

        fn waited(self, us: u64) = times::waited(us);
        fn held(self, hold: &Hold, now: Now) = times::held(hold, now);
        fn log(self, line: &CStr) = self.log_escaped(Level::Notice, line);
    }

    fn beat(self, beat: Beat) {
        let may_wait = limits::guard().scope != guard::Scope::Quorum;
        if !(may_wait && Module::get().migrations.may_fail_by_beats()) {
            replicas::beat(&beat);
        }
    }

    fn connection(self) -> Option<NonZeroU64> {
        let client = Context::connection(self)?;
        Module::get().connections.listen(self);
        Some(client)
    }

    #[inline]
    fn block(self) -> Option<BlockedClient> {
        let callbacks = Module::get().blocked.get()?;
        blocked_client::block(self, &callbacks)
    }

    #[inline(always)] // The counter is known when it is compiled.
    fn count_many(self, of: Count, n: usize) {
        counters::add(of, n);
    }
}

impl<'c> Host for Task<'c> {
    type Server = Context<'c>;
    type Name = OwnedString<'c>;
    type Key<'k>
        = Key<'k, 'c>
    where
        Self: 'k;

    #[inline]
    fn server(&self) -> Context<'c> {
        self.ctx()
    }

    #[inline]
    fn shared(&self) -> &Shared {
        &self.module().shared
    }

    #[inline]
    fn machine(&mut self) -> &mut Machine {
        Task::machine(self)
    }

    #[inline]
    fn drain(&mut self) {
        let (ctx, shared) = (self.ctx(), &self.module().shared);
        shared.drain(ctx, Task::machine(self));
    }

    #[inline]
    fn name(&self, name: &[u8]) -> OwnedString<'c> {
        OwnedString::new(self.ctx(), name)
    }

    #[inline]
    fn open<'k>(
        &'k mut self,
        name: &'k OwnedString<'c>,
        purpose: Purpose,
    ) -> Result<Key<'k, 'c>, WrongType> {
        Key::open(self, name.arg(), purpose)
    }

    #[inline]
    fn open_key(&mut self, purpose: Purpose) -> Result<Key<'_, 'c>, Error> {
        let argv = self.argv();
        let name = argv.key().ok_or(Error::Arity)?;
        Key::of_command(self, argv, name, purpose).map_err(|WrongType| Error::WrongType)
    }

    #[inline]
    fn open_word(&mut self, at: usize, purpose: Purpose) -> Result<Key<'_, 'c>, Error> {
        let name = self.argv().word(at).ok_or(Error::Arity)?;
        Key::open(self, name, purpose).map_err(|WrongType| Error::WrongType)
    }

    fn serves(&mut self, name: &OwnedString<'c>) -> bool {
        writes::are_served_here(self.caller(), name.arg())
    }

    fn serves_word(&mut self, at: usize) -> bool {
        let word = self.argv().word(at);
        word.is_some_and(|word| writes::are_served_here(self.caller(), word))
    }

    fn serves_slot(&mut self, slot: u16) -> bool {
        writes::is_slot_served_here(self.caller(), slot)
    }

    fn cluster(&mut self) -> Option<Cluster> {
        match self.ctx().is_cluster() {
            true => slots::cluster(self.caller()),
            false => None,
        }
    }

    fn refuses_writes(&mut self) -> bool {
        writes::are_refused(self.caller())
    }

    fn may_be_heard(&mut self, channel: &[u8]) -> bool {
        channel::may_be_heard(self.caller(), channel)
    }
}
