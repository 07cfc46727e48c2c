//! Links of replication, as the guard needs them: who follows this server, and whom it has
//! followed.

use std::cell::{Cell, RefCell};
use std::ffi::{c_longlong, CStr, CString};

use redis_module::raw;

use crate::server::api::clock;
use crate::server::api::{call, Context, ServerInfo};
use redis_lock_core::command::guard::{self, Beat};
use redis_lock_core::command::integer;
use redis_lock_core::engine::guard::quorum::{Replica, Replicas};
use redis_lock_core::engine::guard::GuardEvent;

/// How long before a promotion the link to the primary may have ended because of it, in
/// microseconds.
const JUST_BEFORE_US: u64 = 200_000;

/// Those that follow this server, by INFO.
///
/// An address that is there twice is listed twice: a link that is broken, and the next one.
pub(in crate::server) fn listed(ctx: Context<'_>) -> Replicas {
    let mut replicas = Replicas::default();
    let Some(info) = ServerInfo::of(ctx, c"replication") else {
        return replicas;
    };
    let number = |name: &CStr| info.field(name).and_then(integer);
    replicas.offset = number(c"master_repl_offset").unwrap_or_default();
    for n in 0..number(c"connected_slaves").unwrap_or_default() {
        let name = CString::new(format!("slave{n}")).unwrap_or_default();
        replicas.all.extend(info.field(&name).and_then(replica_of));
    }
    replicas
}

/// Reads `ip=127.0.0.1,port=6380,state=online,offset=14,lag=0`.
fn replica_of(line: &[u8]) -> Option<Replica> {
    let value = |name: &[u8]| {
        let mut parts = line.split(|byte| *byte == b',');
        parts.find_map(|part| part.strip_prefix(name))
    };
    (value(b"state=")? == b"online").then_some(Replica {
        name: address(value(b"ip=")?, value(b"port=")?),
        acked: integer(value(b"offset=")?)?,
    })
}

fn address(host: &[u8], port: &[u8]) -> Box<[u8]> {
    [host, b":", port].concat().into()
}

/// Tells the replicas of the guard. Nothing of it goes to the append-only file (`A`).
pub(in crate::server) fn beat(beat: &Beat) {
    let number = |ms: u64| c_longlong::try_from(ms).unwrap_or(c_longlong::MAX);
    let Some(ctx) = Context::detached() else {
        return;
    };
    // A replica of 0.3 reads five words, and followers in the last one.
    //
    // SAFETY: the context is alive. `Allllc` takes four numbers and a string.
    unsafe {
        call!(RedisModule_Replicate(
            ctx.as_ptr(),
            guard::SPEC.name.as_ptr(),
            c"Allllc".as_ptr(),
            beat.left_ms.map_or(-1, number),
            number(beat.longest_ms),
            number(beat.wait_ms),
            number(beat.clock_us),
            c"".as_ptr(),
        ))
    };
}

/// Asks the replicas what they have received, as WAIT does.
pub(in crate::server) fn ask() {
    let Some(ctx) = Context::detached() else {
        return;
    };
    // SAFETY: the context is alive. `Acc` takes two strings.
    unsafe {
        call!(RedisModule_Replicate(
            ctx.as_ptr(),
            c"REPLCONF".as_ptr(),
            c"Acc".as_ptr(),
            c"GETACK".as_ptr(),
            c"*".as_ptr(),
        ))
    };
}

/// The primary that this server has followed.
#[derive(Debug, Default)]
pub(in crate::server) struct Links {
    /// Whether the server tells of links.
    are_watched: Cell<bool>,
    /// Its address while the link was up.
    primary: RefCell<Option<Box<[u8]>>>,
    /// When the link to it has ended.
    ended_us: Cell<Option<u64>>,
    /// The primary that this server followed up to its promotion, and how many resynchronizations
    /// were more than partial then.
    came_after: RefCell<Option<(Box<[u8]>, Copies)>>,
}

/// How many replicas have got a full copy, and how many could not go on where they were.
type Copies = [Option<u64>; 2];

impl Links {
    /// Whether the server did not tell of links before. It does from now on.
    pub(in crate::server) fn watch(&self) -> bool {
        !self.are_watched.replace(true)
    }

    /// Looks whether this server has a link to a primary, which nobody has told of.
    pub(in crate::server) fn find(&self, ctx: Context<'_>) -> bool {
        let info = ServerInfo::of(ctx, c"replication");
        let is_up = info.is_some_and(|info| info.field(c"master_link_status") == Some(b"up"));
        if is_up {
            self.is_up(ctx);
        }
        is_up
    }

    /// The link to a primary is up.
    pub(in crate::server) fn is_up(&self, ctx: Context<'_>) {
        let primary = ServerInfo::of(ctx, c"replication").and_then(|info| {
            let (host, port) = (info.field(c"master_host")?, info.field(c"master_port")?);
            Some(address(host, port))
        });
        self.primary.replace(primary);
        self.ended_us.set(None);
    }

    /// The link to the primary has ended.
    pub(in crate::server) fn is_down(&self) {
        self.ended_us.set(Some(clock::boot_us()));
    }

    /// This server is promoted.
    pub(in crate::server) fn is_promoted(&self, ctx: Context<'_>) {
        let now_us = clock::boot_us();
        let is_just_before = |us: u64| now_us.saturating_sub(us) <= JUST_BEFORE_US;
        let was_up = self.ended_us.take().is_none_or(is_just_before);
        let primary = self.primary.take().filter(|_| was_up);
        let came_after = primary.map(|primary| (primary, copies(ctx)));
        self.came_after.replace(came_after);
    }

    /// A replica has come or gone. Answers what it means.
    pub(in crate::server) fn replicas_changed(&self, ctx: Context<'_>) -> [Option<GuardEvent>; 2] {
        let (replicas, now_us) = (listed(ctx), clock::boot_us());
        let mut came_after = self.came_after.borrow_mut();
        let is_back = |(name, before): &mut (Box<[u8]>, Copies)| {
            replicas.all.iter().any(|one| one.name == *name) && *before == copies(ctx)
        };
        let back = came_after.take_if(is_back);
        let back = back.map(|(name, _)| GuardEvent::OldPrimaryIsBack(name, now_us));
        [Some(GuardEvent::Replicas(replicas, now_us)), back]
    }
}

fn copies(ctx: Context<'_>) -> Copies {
    let info = ServerInfo::of(ctx, c"stats");
    [c"sync_full", c"sync_partial_err"].map(|name| integer(info.as_ref()?.field(name)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_read_from_its_line() {
        let line = b"ip=::1,port=6380,state=online,offset=14,lag=0,type=replica";
        let replica = replica_of(line).unwrap();
        assert_eq!((&*replica.name, replica.acked), (&b"::1:6380"[..], 14));
        assert_eq!(
            replica_of(b"ip=::1,port=6380,state=send_bulk,offset=0"),
            None
        );
        assert_eq!(replica_of(b"ip=::1,port=6380,state=online"), None);
        assert_eq!(replica_of(b""), None);
    }
}
