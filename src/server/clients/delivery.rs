//! Clients that were sent their grant in this turn of the server's event loop, and whether the
//! reply has left.
//!
//! The server asks for the reply of a client although it knows already that it will close it: its
//! connection broke, its user was deleted, it does not read. The reply is dropped then. A server
//! frees such a client in the same turn, before it looks for new events. So a client that is still
//! there when the server looks for events has received its grant ([`Replies::take_all`]), and a
//! client that is freed before has not ([`Replies::take_of`]). In these exceptions the grant counts
//! as delivered, because it is worse to revoke a hold that its owner knows of than to let it end by
//! its ttl:
//!
//! - A client that closes by itself after its replies: QUIT behind the request. CLIENT LIST has a
//!   flag for it.
//! - The server looks for events without saying so in the middle of a long script, or of a reload,
//!   that was sent behind another request. It does so in a turn that lasts, and the cause of that
//!   can be seen.
//!
//! This says nothing where a client is freed later, because threads write to it (`io-threads`), or
//! where it is freed after its reply was sent, because of the memory of all clients
//! (`maxmemory-clients`). Nor does it before 7.0, which does not say when it looks for events.
//! There the module asks the server at each grant whether it closes the client, which is slow.
//!
//! The call in the next turn alone would save 1,400 instructions of a hand-off, but it comes too
//! late: an end of the connection may be read before, and frees the client at once. CLIENT LIST
//! does not tell whether the reply was read.
//!
//! The server says it by an event of its loop. Each turn fires two of them, and each of these makes
//! and clears a client for its context: 1,200 instructions. So the module listens for one turn
//! only, after a grant, and hears one of them. To listen on for the next grant costs more than to
//! begin anew.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::mem;

use redis_module::raw;

use crate::server::api::{clock, Caller, Context, OnTurn};
use crate::wait::{Delivery, DeliveryId};

/// How long after a grant its client may be freed and count as not reached. A script or a function
/// is long after five seconds, unless the server is set otherwise.
const TURN_US: u64 = 1_000_000;

/// The grants that were sent in this turn, and what this server says of its clients.
#[derive(Default)]
pub(in crate::server) struct Replies {
    sent: RefCell<Sent>,
    /// When the first of them was sent, on the monotonic clock.
    since_us: Cell<u64>,
    /// Whether this server says what has become of a client in the turn of its grant.
    says_later: Cell<bool>,
    /// Whether the module hears of clients that are freed. From 7.0 on.
    hears_of_clients: Cell<bool>,
    /// What listens to the event of the loop.
    on_loop: Cell<raw::RedisModuleEventCallback>,
    /// What the server calls in the next turn, after that event.
    on_turn: Cell<Option<OnTurn>>,
    /// Whether the module listens.
    listens: Cell<bool>,
    /// Whether it goes on although the next turn has begun.
    goes_on: Cell<bool>,
}

/// The grants of this turn, by the number of the client. Mostly there is one.
#[derive(Default)]
struct Sent {
    first: Option<(u64, Delivery)>,
    others: BTreeMap<(u64, DeliveryId), Delivery>,
}

impl Sent {
    fn is_empty(&self) -> bool {
        self.first.is_none() && self.others.is_empty()
    }
}

impl Replies {
    /// Looks at what this server says of its clients, at load from 7.0 on.
    pub(in crate::server) fn prepare(
        &self,
        ctx: Context<'_>,
        on_client: raw::RedisModuleEventCallback,
        on_loop: raw::RedisModuleEventCallback,
        on_turn: OnTurn,
    ) {
        self.on_loop.set(on_loop);
        self.on_turn.set(Some(on_turn));
        self.hears_of_clients
            .set(ctx.on_server_event(raw::REDISMODULE_EVENT_CLIENT_CHANGE, on_client));
    }

    /// Looks at the settings that decide it: at load, and when a setting has changed.
    pub(in crate::server) fn look_at_config(&self, caller: &mut Caller<'_>) {
        let mut is = |name, value: &[u8]| caller.config_value(name).is_some_and(|is| is == value);
        let says_later = self.hears_of_clients.get()
            && is(c"io-threads", b"1")
            && is(c"maxmemory-clients", b"0");
        self.says_later.set(says_later);
    }

    /// Whether this server will say what has become of the client of a reply that is sent now.
    pub(in crate::server) fn are_confirmed_later(&self, ctx: Context<'_>) -> bool {
        self.says_later.get() && self.listen(ctx)
    }

    /// Notes that a client is sent its grant. Answers with an earlier grant to the same client,
    /// which it has received.
    pub(in crate::server) fn send(&self, client: u64, granted: Delivery) -> Option<Delivery> {
        let mut sent = self.sent.borrow_mut();
        if sent.is_empty() {
            self.since_us.set(clock::monotonic_us());
        }
        let of = (client, granted.delivery);
        match &mut sent.first {
            None => {
                sent.first = Some((client, granted));
                None
            }
            Some((client, first)) if (*client, first.delivery) == of => {
                Some(mem::replace(first, granted))
            }
            Some(_) => sent.others.insert(of, granted),
        }
    }

    /// Listens to the event of the loop until the next turn has begun. False when the server
    /// refuses.
    fn listen(&self, ctx: Context<'_>) -> bool {
        if !self.listens.get() {
            let on_turn = self.on_turn.get();
            let heard = on_turn.is_some_and(|on_turn| ctx.call_next_turn(on_turn))
                && ctx.on_server_event(raw::REDISMODULE_EVENT_EVENTLOOP, self.on_loop.get());
            self.listens.set(heard);
        }
        self.listens.get()
    }

    /// The next turn has begun: listens no more. In the middle of a long script the server has not
    /// said yet that it looks for events, so the module goes on until it does.
    pub(in crate::server) fn turn_has_begun(&self, ctx: Context<'_>) {
        if self.is_empty() {
            ctx.on_server_event(raw::REDISMODULE_EVENT_EVENTLOOP, None);
        }
        self.listens.set(!self.is_empty());
        self.goes_on.set(!self.is_empty());
    }

    /// Hands over all grants of this turn: the server looks for new events, so they were delivered.
    pub(in crate::server) fn take_all(&self, ctx: Context<'_>, mut take: impl FnMut(Delivery)) {
        if let Some(on_turn) = self.on_turn.get().filter(|_| self.goes_on.take()) {
            ctx.call_next_turn(on_turn);
        }
        let mut sent = self.sent.borrow_mut();
        let first = sent.first.take().map(|(_, granted)| granted);
        first.into_iter().for_each(&mut take);
        while let Some((_, granted)) = sent.others.pop_first() {
            take(granted);
        }
    }

    /// Takes the grants that a client was sent in this turn.
    pub(in crate::server) fn take_of(&self, client: u64) -> Vec<Delivery> {
        let mut sent = self.sent.borrow_mut();
        let first = sent.first.take_if(|(of, _)| *of == client);
        let mut taken: Vec<Delivery> = first.into_iter().map(|(_, granted)| granted).collect();
        let next = |sent: &Sent| {
            let mut rest = sent.others.range((client, DeliveryId::default())..);
            let of = rest.next().map(|(of, _)| *of);
            of.filter(|(of, _)| *of == client)
        };
        while let Some(of) = next(&sent) {
            taken.extend(sent.others.remove(&of));
        }
        taken
    }

    /// Whether no grant was sent in this turn.
    pub(in crate::server) fn is_empty(&self) -> bool {
        self.sent.borrow().is_empty()
    }

    /// Whether a client that was sent its grant in this turn, and is freed in it, may have received
    /// it, as far as the context says.
    pub(in crate::server) fn may_have_been_read(&self, ctx: Context<'_>) -> bool {
        clock::monotonic_us().saturating_sub(self.since_us.get()) > TURN_US
            || ctx.is_in_script()
            || ctx.is_loading()
    }
}
