//! The context of a call from the server: the questions and requests that need one.
//!
//! Every call here is a **leaf**: the server does not call this module back while it runs. The
//! calls that may come back are methods of [`Caller`](super::Caller).

use std::ffi::{c_int, c_longlong, c_void, CStr};
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use redis_module::raw;

use super::{call, Arg};

static IS_CLUSTER: AtomicBool = AtomicBool::new(false);
static DETACHED: AtomicPtr<raw::RedisModuleCtx> = AtomicPtr::new(ptr::null_mut());

/// The context of a call from the server. It is valid until that call returns; `'c` is that time.
#[derive(Clone, Copy)]
pub(crate) struct Context<'c> {
    raw: NonNull<raw::RedisModuleCtx>,
    call: PhantomData<&'c raw::RedisModuleCtx>,
}

/// The level of a log message.
#[derive(Clone, Copy)]
pub(crate) enum Level {
    Notice,
    Warning,
}

impl<'c> Context<'c> {
    /// # Safety
    /// `raw` is the context that the server passed to a callback, and `'c` does not outlive that
    /// callback.
    pub(crate) unsafe fn new(raw: *mut raw::RedisModuleCtx) -> Option<Self> {
        NonNull::new(raw).map(|raw| Self {
            raw,
            call: PhantomData,
        })
    }

    pub(crate) const fn as_ptr(self) -> *mut raw::RedisModuleCtx {
        self.raw.as_ptr()
    }

    /// Sends the running command on to replicas and the append-only file.
    pub(crate) fn replicate_verbatim(self) {
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_ReplicateVerbatim(self.as_ptr())) };
    }

    /// Tells WATCH and CLIENT TRACKING that the key has changed.
    pub(crate) fn signal_modified(self, key: Arg<'_>) {
        // SAFETY: the context and the key's name are alive.
        unsafe { call!(RedisModule_SignalModifiedKey(self.as_ptr(), key.as_ptr())) };
    }

    /// Whether the running command comes from a primary or from the append-only file, not from a
    /// client.
    pub(crate) fn is_replay(self) -> bool {
        // A replica that loads a new data set beside the old one still serves clients. So loading
        // alone proves nothing then.
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_REPLICATED)
            || (self.has_flag(raw::REDISMODULE_CTX_FLAGS_LOADING)
                && !self.has_flag(raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING))
    }

    /// Whether a script or a function runs.
    pub(crate) fn is_in_script(self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_LUA)
    }

    /// Whether the server loads a file or the data set of a primary.
    pub(crate) fn is_loading(self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_LOADING)
    }

    /// Whether this server is a primary.
    pub(crate) fn is_primary(self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_MASTER)
    }

    /// Whether this server is part of a cluster. That never changes while it runs.
    pub(crate) fn is_cluster(self) -> bool {
        IS_CLUSTER.load(Ordering::Relaxed)
    }

    /// Whether the running command may block its client, and this server could grant the request
    /// later.
    pub(crate) fn may_block(self) -> bool {
        let flags = self.flags();
        flags & raw::REDISMODULE_CTX_FLAGS_MASTER as c_int != 0
            && flags & raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING as c_int == 0
    }

    fn has_flag(self, flag: u32) -> bool {
        self.flags() & flag as c_int != 0
    }

    /// The flags of the context. They take the server a while to find out.
    fn flags(self) -> c_int {
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_GetContextFlags(self.as_ptr())) }
    }

    /// Whether a write outside a command must wait, because the server is paused.
    pub(crate) fn must_not_write(self) -> bool {
        // SAFETY: the function takes nothing.
        unsafe { call!(RedisModule_AvoidReplicaTraffic()) != 0 }
    }

    /// Whether the server calls a command only to be told its keys.
    pub(crate) fn is_asked_for_keys(self) -> bool {
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_IsKeysPositionRequest(self.as_ptr())) != 0 }
    }

    /// The id of the context's client.
    pub(crate) fn client_id(self) -> u64 {
        // SAFETY: the context is alive; without a client the server returns 0.
        unsafe { call!(RedisModule_GetClientId(self.as_ptr())) }
    }

    /// The number of the context's client if it has a connection. Those of scripts and of calls
    /// have none.
    pub(crate) fn connection(self) -> Option<NonZeroU64> {
        let client = NonZeroU64::new(self.client_id())?;
        // The server looks only clients with a connection up by their number. Valkey 9 makes an
        // exception for the client of a call, but not where the user is asked for.
        let user = self.user_name_of(client.get());
        if user.is_null() {
            return None;
        }
        // SAFETY: the context is alive, and the name is freed once.
        unsafe { call!(RedisModule_FreeString(self.as_ptr(), user)) };
        Some(client)
    }

    /// The database that is selected in the context.
    pub(crate) fn selected_db(self) -> c_int {
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_GetSelectedDb(self.as_ptr())) }
    }

    /// Selects a database in the context. False if the server has no such database.
    pub(crate) fn select_db(self, db: c_int) -> bool {
        // SAFETY: the context is alive.
        let status = unsafe { call!(RedisModule_SelectDb(self.as_ptr(), db)) };
        status == raw::REDISMODULE_OK as c_int
    }

    /// Calls `callback` after `ms` milliseconds, once.
    pub(crate) fn create_timer(
        self,
        ms: u64,
        callback: unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut c_void),
    ) -> raw::RedisModuleTimerID {
        let ms = c_longlong::try_from(ms).unwrap_or(c_longlong::MAX);
        // SAFETY: the context is alive.
        unsafe {
            call!(RedisModule_CreateTimer(
                self.as_ptr(),
                ms,
                Some(callback),
                ptr::null_mut()
            ))
        }
    }

    /// Stops a timer that has not fired yet.
    pub(crate) fn stop_timer(self, id: raw::RedisModuleTimerID) {
        // SAFETY: the context is alive; the server looks the number up.
        unsafe { call!(RedisModule_StopTimer(self.as_ptr(), id, ptr::null_mut())) };
    }

    /// Calls `callback` at each event of this kind. A module has one for each kind: a second one
    /// replaces the first, and `None` ends it. False if the server does not know such events.
    pub(crate) fn on_server_event(self, id: u64, callback: raw::RedisModuleEventCallback) -> bool {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        // SAFETY: the context is alive. The callback has the required signature, and it proves
        // itself what its event's data are.
        let status = unsafe {
            call!(RedisModule_SubscribeToServerEvent(
                self.as_ptr(),
                event,
                callback
            ))
        };
        status == raw::REDISMODULE_OK as c_int
    }

    /// Keeps a context of the module itself, for functions that the server calls without one. Also
    /// keeps what never changes.
    pub(crate) fn detach(self) {
        // SAFETY: the context is that of the load. The new one is kept until the server ends.
        let detached = unsafe { call!(RedisModule_GetDetachedThreadSafeContext(self.as_ptr())) };
        DETACHED.store(detached, Ordering::Relaxed);
        let is_cluster = self.has_flag(raw::REDISMODULE_CTX_FLAGS_CLUSTER);
        IS_CLUSTER.store(is_cluster, Ordering::Relaxed);
    }

    /// The module's own context. It has no client, and no database is selected in it.
    pub(crate) fn detached() -> Option<Context<'static>> {
        // SAFETY: it is kept until the server ends, and only the main thread uses it.
        unsafe { Context::new(DETACHED.load(Ordering::Relaxed)) }
    }

    /// Writes a line to the server's log. `text` must not contain anything that a client sent.
    pub(crate) fn log(self, level: Level, text: &'static CStr) {
        self.log_escaped(level, text);
    }

    /// The same with a text that is made. Words of clients in it are escaped.
    pub(crate) fn log_escaped(self, level: Level, text: &CStr) {
        // SAFETY: the context is alive; the text is an argument of a fixed format, never the format
        // itself.
        unsafe {
            call!(RedisModule_Log(
                self.as_ptr(),
                level.name().as_ptr(),
                c"%s".as_ptr(),
                text.as_ptr(),
            ))
        };
    }
}

impl Level {
    const fn name(self) -> &'static CStr {
        match self {
            Self::Notice => c"notice",
            Self::Warning => c"warning",
        }
    }
}
