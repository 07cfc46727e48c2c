//! Clients that were told of their grant in this turn of the server's loop, and whether the reply has left.
//!
//! The server asks for the reply of a client of which it knows already that it closes it: its connection broke, its user was deleted,
//! it does not read. The reply is dropped then. A server frees such a client in the same turn, before it looks for new events; so who
//! is still there when it does ([`after_sleep`]) was told, and who is freed before ([`on_client`]) was not. With some exceptions, in all
//! of which the grant counts as told, for to take back a hold of which its owner knows is worse than to let it end by its ttl:
//!
//! - A client that goes by itself after its replies: QUIT behind the request. CLIENT LIST has a flag for it.
//! - In the middle of a long script, or a reload, that was sent behind another request, the server looks for events without saying so.
//!   It does so in a turn that lasts, and what makes it last is seen.
//!
//! Nothing can be told from that where a client is freed later, as threads write to it (`io-threads`), or freed after its reply was
//! sent, for the memory of all clients (`maxmemory-clients`), nor before 7.0, which does not say when it looks for events. There the
//! server is asked at each grant whether it closes the client ([`Context::is_closing`]), which is slow.
//!
//! The event of the loop costs the server something in each turn, so the module listens to it only while somebody waits or was just granted.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::c_void;

use redis_module::raw;

use super::super::api::Context;
use super::super::clock;
use super::{timer, with};
use crate::wait::{Delivery, Grant};

/// How long after a grant its client may be freed and count as not told. A script or a function is long after five seconds, unless the
/// server is set otherwise.
const TURN_US: u64 = 1_000_000;

thread_local! {
    /// Who was told in this turn: the numbers of the clients, and of the deliveries.
    static TOLD: RefCell<BTreeMap<(u64, Delivery), Grant>> = const { RefCell::new(BTreeMap::new()) };
    /// When the first of them was, on the monotonic clock.
    static SINCE_US: Cell<u64> = const { Cell::new(0) };
    /// Whether this server says what has become of a client in the turn of its grant.
    static SAYS_LATER: Cell<bool> = const { Cell::new(false) };
    /// Whether the module hears of clients that are freed. From 7.0 on.
    static LISTENS_TO_CLIENTS: Cell<bool> = const { Cell::new(false) };
    /// Whether the module listens to the event of the loop.
    static LISTENS: Cell<bool> = const { Cell::new(false) };
    /// Whether the timer is set that ends it.
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

/// Lends those who were told to `act`, which must not call the module API.
fn with_told<R>(act: impl FnOnce(&mut BTreeMap<(u64, Delivery), Grant>) -> R) -> R {
    TOLD.with_borrow_mut(act)
}

/// Notes that the reply callback answers a client with a grant.
pub(super) fn tell(ctx: Context<'_>, granted: &Grant) {
    if !SAYS_LATER.get() || !listen(ctx) {
        return settle(granted.clone(), !ctx.is_closing());
    }
    let client = ctx.client_id();
    let before = with_told(|told| {
        if told.is_empty() {
            SINCE_US.set(clock::monotonic_us());
        }
        told.insert((client, granted.delivery), granted.clone())
    });
    if let Some(before) = before {
        settle(before, true);
    }
}

fn settle(granted: Grant, delivered: bool) {
    if delivered {
        with(|registry| registry.deliveries.delivered(&granted));
    } else {
        with(|registry| registry.deliveries.lost(granted));
        timer::arm();
    }
}

/// A new look for events: the replies of the last turn were sent.
unsafe extern "C" fn after_sleep(
    _ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    if subevent == raw::REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP {
        for granted in with_told(std::mem::take).into_values() {
            settle(granted, true);
        }
    }
}

/// A client is freed, whatever for.
unsafe extern "C" fn on_client(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    if subevent != raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED
        || with_told(|told| told.is_empty())
    {
        return;
    }
    // SAFETY: the data of this event is a structure of this kind; the context is the server's own, in its callback.
    let (info, ctx) = unsafe {
        let info = data.cast::<raw::RedisModuleClientInfo>().as_ref();
        (info, Context::new(ctx))
    };
    let (Some(info), Some(ctx)) = (info, ctx) else {
        return;
    };
    for granted in take(info.id) {
        settle(granted, may_have_read(ctx));
    }
}

/// What a client was told in this turn.
fn take(client: u64) -> Vec<Grant> {
    with_told(|told| {
        let of_client = told.range((client, Delivery::MIN)..=(client, Delivery::MAX));
        let keys: Vec<_> = of_client.map(|(key, _)| *key).collect();
        let granted = keys.iter().filter_map(|key| told.remove(key));
        granted.collect()
    })
}

/// Whether a client that was told in this turn, and is freed in it, may have got the reply.
fn may_have_read(ctx: Context<'_>) -> bool {
    clock::monotonic_us().saturating_sub(SINCE_US.get()) > TURN_US
        || ctx.is_in_script()
        || ctx.is_loading()
        || ctx.closes_after_replies()
}

/// Has the server say when it looks for events. False when it does not.
fn listen(ctx: Context<'_>) -> bool {
    if !LISTENS.get() {
        LISTENS.set(ctx.on_server_event(raw::REDISMODULE_EVENT_EVENTLOOP, Some(after_sleep)));
    }
    LISTENS.get()
}

/// Ends the listening when nobody waits. Only from a timer: a listener must not go while the server goes through the listeners, which it
/// does in each event.
pub(super) fn rest() {
    if LISTENS.get() && !ENDS.get() && is_idle() {
        if let Some(ctx) = Context::detached() {
            ENDS.set(true);
            ctx.create_timer(0, on_rest);
        }
    }
}

unsafe extern "C" fn on_rest(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    ENDS.set(false);
    // SAFETY: the server's own context, in its callback.
    if let (Some(ctx), true) = (unsafe { Context::new(ctx) }, is_idle()) {
        ctx.on_server_event(raw::REDISMODULE_EVENT_EVENTLOOP, None);
        LISTENS.set(false);
    }
}

fn is_idle() -> bool {
    with_told(|told| told.is_empty()) && with(|registry| registry.is_empty())
}

/// Looks at what this server can say; for a server from 7.0 on.
pub(crate) fn prepare(ctx: Context<'_>) {
    LISTENS_TO_CLIENTS
        .set(ctx.on_server_event(raw::REDISMODULE_EVENT_CLIENT_CHANGE, Some(on_client)));
    look_at_config(ctx);
}

/// Looks at the settings on which it depends: at the load, and when any has changed.
pub(crate) fn look_at_config(ctx: Context<'_>) {
    let is = |name, value: &[u8]| ctx.config_value(name).is_some_and(|is| is == value);
    SAYS_LATER
        .set(LISTENS_TO_CLIENTS.get() && is(c"io-threads", b"1") && is(c"maxmemory-clients", b"0"));
}
