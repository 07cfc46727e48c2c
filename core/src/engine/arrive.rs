//! A request that was refused comes to its place, if it waits or leaves one.

use super::count::Count;
use super::ending::tell;
use super::host::{ClientOfServer, Key, Name, Server};
use super::machine::{Came, Machine, Registry};
use super::serve::{serve_changed, watch};
use crate::command::acquire::{Acquire, Wait};
use crate::command::Error;
use crate::lock::{Now, Refusal};
use crate::wait::{
    Entered, KeyRef, Keys, Linger, Listener, ListensBy, NewRequest, Newcomer, PlaceBefore,
};

/// How a request that was refused goes on.
#[derive(Clone, Copy)]
pub(super) enum Stay<C> {
    /// This client is blocked: the reply comes when the wait ends.
    Blocked(C),
    /// It is queued: the end of the wait is published.
    Queued,
    /// It does not wait.
    No,
}

/// A refused request at its place, if it waits or leaves one.
pub(super) struct Arrival<S: Server> {
    pub(super) keys: Keys,
    pub(super) stay: Stay<ClientOfServer<S>>,
    pub(super) entered: Entered,
    pub(super) came: Option<Came<S::Types>>,
}

/// Lets a refused request wait, or lets its token keep a place. `key_ref` is given when others wait
/// for the key already. `None` is the usual case of a request that does not wait. [`arrived`] comes
/// next.
pub(super) fn enter<K: Key>(
    key: &mut K,
    key_ref: Option<KeyRef>,
    acquire: &Acquire<'_>,
    refusal: Refusal,
    linger: Option<Linger>,
) -> Result<Option<Arrival<K::Server>>, Error> {
    if !acquire.may_stay() && key_ref.is_none() {
        return Ok(None);
    }
    let (server, name, machine) = (key.server(), key.name(), key.parts().machine);
    let keys = Keys::One(key_ref.unwrap_or_else(|| {
        let registry = &machine.registry;
        registry.new_key_ref(server.selected_db(), name.bytes())
    }));
    take_place(server, machine, keys, acquire, refusal, linger).map(Some)
}

/// Serves the key at whose place a request has arrived, as far as that matters to others.
pub(super) fn arrived<K: Key>(key: &mut K, key_ref: &KeyRef, entered: Entered, now: Now) {
    match entered {
        // A new place changes nothing for the others. The key is watched for it if it is the first.
        Entered::Waits(PlaceBefore::NewHead) => watch(key, key_ref, now),
        // Others matter now, or other instants.
        entered if entered.must_serve() => drop(serve_changed(key, key_ref, now)),
        _ => {}
    }
}

/// Takes a refused request for one key or several to its place, if it waits or leaves one. The
/// caller serves the keys.
pub(super) fn take_place<S: Server>(
    server: S,
    machine: &mut Machine<S::Types>,
    keys: Keys,
    acquire: &Acquire<'_>,
    refusal: Refusal,
    linger: Option<Linger>,
) -> Result<Arrival<S>, Error> {
    let wait = wait_of(server, acquire);
    // A replica that takes writes of its own grants nothing later, and blocks nobody.
    if !matches!(wait, Some(Wait::Block(_))) && !server.is_primary() {
        return Ok(Arrival {
            keys,
            stay: Stay::No,
            entered: Entered::No,
            came: None,
        });
    }
    let cancelled = machine.registry.end_cancelled(&keys, acquire.ask().token);
    for removed in cancelled {
        tell(server, machine, removed, Some(Error::Cancelled));
    }
    let user = admit(server, &machine.registry, &keys, (acquire, refusal), wait)?;
    let (listener, stay) = listen(server, wait);
    let (ask, now_us) = (acquire.ask(), server.monotonic_us());
    let timeout_ms = wait
        .filter(|_| listener.is_some())
        .map(Wait::timeout_ms)
        .filter(|ms| *ms > 0);
    let (entered, came) = machine.registry.enter(
        &keys,
        NewRequest {
            token: ask.token,
            mode: keys.several().map_or(ask.mode, |all| all.first().mode),
            ttl: ask.ttl,
            listener,
            times_out_at_us: timeout_ms.map(|ms| now_us.saturating_add(ms.saturating_mul(1_000))),
            keep_ms: acquire.keep_ms(),
            is_server_generated: acquire.is_made(),
            linger,
            result: acquire.result().map(|asked| asked.name),
            user: user.as_deref(),
            refusal,
            now_us,
        },
    );
    machine.is_due_changed = true;
    if entered.is_resumed() {
        server.count(Count::Resumed);
    }
    Ok(Arrival {
        keys,
        stay,
        entered,
        came,
    })
}

/// Checks whether there is room for a request, if it waits or leaves a place. Answers the user
/// against whose share it counts.
fn admit<S: Server>(
    server: S,
    registry: &Registry<S::Types>,
    keys: &Keys,
    (acquire, refusal): (&Acquire<'_>, Refusal),
    wait: Option<Wait<'_>>,
) -> Result<Option<Box<[u8]>>, Error> {
    let by = match wait {
        Some(Wait::Block(_)) => ListensBy::Client,
        Some(Wait::Notify(_, channel)) => ListensBy::Channel(channel),
        None if acquire.keep_ms().is_some() => ListensBy::Nobody,
        None => return Ok(None),
    };
    let (limits, user) = server.limits(registry.counts().waiting());
    let comer = Newcomer {
        token: acquire.ask().token,
        keys,
        by,
        result: acquire.result().map(|asked| asked.name),
        user: user.as_deref(),
        refusal,
    };
    registry.admit(&comer, &limits).map_err(Error::QueueFull)?;
    Ok(user)
}

/// How a request waits here. Asked only where it cannot be granted, because it is slow: inside
/// MULTI, scripts and the like nobody may block.
fn wait_of<'a, S: Server>(server: S, acquire: &Acquire<'a>) -> Option<Wait<'a>> {
    let may = |wait: &Wait<'_>| matches!(wait, Wait::Notify(..)) || server.may_block();
    acquire.wait().filter(may)
}

/// Blocks the client of the running command, or names its channel.
fn listen<S: Server>(
    server: S,
    wait: Option<Wait<'_>>,
) -> (Option<Listener<ClientOfServer<S>>>, Stay<ClientOfServer<S>>) {
    match wait {
        None => (None, Stay::No),
        Some(Wait::Notify(_, channel)) => (Some(Listener::channel(channel)), Stay::Queued),
        Some(Wait::Block(_)) => {
            let client = server.block();
            let stay = client.map_or(Stay::No, Stay::Blocked);
            (client.map(Listener::Client), stay)
        }
    }
}
