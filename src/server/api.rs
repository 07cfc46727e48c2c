//! The module API under safe names. Each wrapper states why its call is sound; the callers have nothing left to prove.

use std::ffi::{c_char, c_int, c_long, c_longlong, c_void, CStr, CString};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use redis_module::raw;

use crate::command::{Error, Reply};

/// Calls a function of the module API that every supported server has; used inside an `unsafe` block.
///
/// Of the pointer no user needs to say anything: it is filled in when the module is loaded, `missing_function` has the load
/// refused without it, and it never changes after that. What the arguments need is said at each use.
macro_rules! call {
    ($name:ident($($arg:expr),* $(,)?)) => {
        (raw::$name.unwrap_unchecked())($($arg),*)
    };
}
pub(super) use call;

/// Names the functions that [`call`] may be used with.
macro_rules! required {
    ($($name:ident),* $(,)?) => {
        /// The name of a needed function that this server does not have: one older than 6.2.
        pub(super) fn missing_function() -> Option<&'static str> {
            // SAFETY: these statics are written while the module is being initialised, in this thread, and before this call.
            $(if unsafe { (*(&raw const raw::$name)).is_none() } { return Some(stringify!($name)); })*
            None
        }
    };
}

required! {
    RedisModule_Alloc, RedisModule_Realloc, RedisModule_Free, RedisModule_CreateCommand, RedisModule_CreateDataType, RedisModule_SetModuleOptions,
    RedisModule_WrongArity, RedisModule_ReplyWithLongLong, RedisModule_ReplyWithNull, RedisModule_ReplyWithError, RedisModule_ReplyWithSimpleString,
    RedisModule_ReplyWithArray, RedisModule_ReplyWithStringBuffer, RedisModule_StringPtrLen, RedisModule_OpenKey,
    RedisModule_CloseKey, RedisModule_KeyType, RedisModule_DeleteKey, RedisModule_ModuleTypeGetType,
    RedisModule_ModuleTypeGetValue, RedisModule_ModuleTypeSetValue, RedisModule_GetExpire, RedisModule_SetExpire,
    RedisModule_SignalModifiedKey, RedisModule_Replicate, RedisModule_ReplicateVerbatim, RedisModule_GetContextFlags,
    RedisModule_GetServerVersion, RedisModule_GetContextFromIO, RedisModule_IsIOError, RedisModule_SaveStringBuffer,
    RedisModule_LoadStringBuffer, RedisModule_EmitAOF, RedisModule_DigestAddStringBuffer, RedisModule_DigestEndSequence,
    RedisModule_Log, RedisModule_BlockClient, RedisModule_UnblockClient, RedisModule_SetDisconnectCallback,
    RedisModule_GetBlockedClientPrivateData, RedisModule_GetBlockedClientHandle, RedisModule_BlockedClientDisconnected,
    RedisModule_GetSelectedDb, RedisModule_SelectDb, RedisModule_CreateString, RedisModule_FreeString, RedisModule_CreateTimer,
    RedisModule_StopTimer, RedisModule_AvoidReplicaTraffic, RedisModule_SubscribeToServerEvent, RedisModule_Call,
    RedisModule_FreeCallReply, RedisModule_CallReplyStringPtr, RedisModule_CallReplyArrayElement, RedisModule_CallReplyType, RedisModule_GetClientId, RedisModule_GetDetachedThreadSafeContext,
    RedisModule_GetServerInfo, RedisModule_ServerInfoGetFieldC, RedisModule_FreeServerInfo, RedisModule_RegisterInfoFunc,
    RedisModule_InfoAddSection, RedisModule_InfoAddFieldULongLong, RedisModule_GetNotifyKeyspaceEvents,
    RedisModule_NotifyKeyspaceEvent, RedisModule_GetUsedMemoryRatio, RedisModule_Scan, RedisModule_ScanCursorCreate,
    RedisModule_ScanCursorDestroy, RedisModule_GetKeyNameFromIO,
}

static IS_CLUSTER: AtomicBool = AtomicBool::new(false);
static DETACHED: AtomicPtr<raw::RedisModuleCtx> = AtomicPtr::new(ptr::null_mut());

/// The context of a call from the server: valid until that call returns, which `'c` stands for.
#[derive(Clone, Copy)]
pub(super) struct Context<'c> {
    raw: NonNull<raw::RedisModuleCtx>,
    call: PhantomData<&'c raw::RedisModuleCtx>,
}

/// An argument of a command: a string of the server's, alive as long as its context.
#[derive(Clone, Copy)]
pub(super) struct Arg<'c> {
    raw: *mut raw::RedisModuleString,
    call: PhantomData<&'c raw::RedisModuleString>,
}

/// The arguments of the running command, its name the first.
#[derive(Clone, Copy)]
pub(super) struct Argv<'c> {
    /// `len` strings of the server's.
    start: *mut *mut raw::RedisModuleString,
    len: usize,
    call: PhantomData<&'c raw::RedisModuleString>,
}

/// Where a message of the log belongs.
#[derive(Clone, Copy)]
pub(super) enum Level {
    Notice,
    Warning,
}

impl<'c> Context<'c> {
    /// # Safety
    /// `raw` is the context that the server passed to a callback, and `'c` does not outlive that callback.
    pub(super) unsafe fn new(raw: *mut raw::RedisModuleCtx) -> Option<Self> {
        NonNull::new(raw).map(|raw| Self {
            raw,
            call: PhantomData,
        })
    }

    pub(super) const fn as_ptr(self) -> *mut raw::RedisModuleCtx {
        self.raw.as_ptr()
    }

    pub(super) fn reply_integer(self, n: u64) {
        let n = c_longlong::try_from(n).unwrap_or(c_longlong::MAX);
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_ReplyWithLongLong(self.as_ptr(), n)) };
    }

    pub(super) fn reply_null(self) {
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_ReplyWithNull(self.as_ptr())) };
    }

    pub(super) fn reply_ok(self) {
        // SAFETY: the context is alive; the server copies the text.
        unsafe {
            call!(RedisModule_ReplyWithSimpleString(
                self.as_ptr(),
                c"OK".as_ptr()
            ))
        };
    }

    pub(super) fn reply_error(self, message: &'static CStr) {
        // SAFETY: the context is alive; the server copies the message.
        unsafe { call!(RedisModule_ReplyWithError(self.as_ptr(), message.as_ptr())) };
    }

    pub(super) fn reply_wrong_arity(self) {
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_WrongArity(self.as_ptr())) };
    }

    pub(super) fn reply_bytes(self, bytes: &[u8]) {
        let (start, len) = (bytes.as_ptr().cast::<c_char>(), bytes.len());
        // SAFETY: the context is alive; the server copies `len` bytes.
        unsafe { call!(RedisModule_ReplyWithStringBuffer(self.as_ptr(), start, len)) };
    }

    /// Opens an array; `len` replies must follow.
    pub(super) fn reply_array(self, len: usize) {
        let len = c_long::try_from(len).unwrap_or(c_long::MAX);
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_ReplyWithArray(self.as_ptr(), len)) };
    }

    /// Opens a map; `len` pairs of replies must follow. RESP2 has no maps, nor has the module API before 7.0: a flat array.
    pub(super) fn reply_map(self, len: usize) {
        // SAFETY: the static is not written after the load.
        let Some(reply_with_map) = (unsafe { raw::RedisModule_ReplyWithMap }) else {
            return self.reply_array(len.saturating_mul(2));
        };
        let len = c_long::try_from(len).unwrap_or(c_long::MAX);
        // SAFETY: the context is alive.
        unsafe { reply_with_map(self.as_ptr(), len) };
    }

    /// Sends this very command on: to the append-only file of a replica.
    pub(super) fn replicate_verbatim(self) {
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_ReplicateVerbatim(self.as_ptr())) };
    }

    /// Tells WATCH and CLIENT TRACKING that the key has changed.
    pub(super) fn signal_modified(self, key: Arg<'_>) {
        // SAFETY: the context and the key's name are alive.
        unsafe { call!(RedisModule_SignalModifiedKey(self.as_ptr(), key.raw)) };
    }

    /// Whether what runs now comes from a primary or from the append-only file, and from no client.
    pub(super) fn is_replay(self) -> bool {
        // While a replica loads a new data set beside the old one its clients are served, so loading alone proves nothing then.
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_REPLICATED)
            || (self.has_flag(raw::REDISMODULE_CTX_FLAGS_LOADING)
                && !self.has_flag(raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING))
    }

    /// Whether a script or a function runs.
    pub(super) fn is_in_script(self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_LUA)
    }

    /// Whether the server reads a file or a primary's data set.
    pub(super) fn is_loading(self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_LOADING)
    }

    /// Whether this server is a primary.
    pub(super) fn is_primary(self) -> bool {
        self.has_flag(raw::REDISMODULE_CTX_FLAGS_MASTER)
    }

    /// Whether this server is part of a cluster, which it is for all its life.
    pub(super) fn is_cluster(self) -> bool {
        IS_CLUSTER.load(Ordering::Relaxed)
    }

    /// Whether the running command may block its client, and somebody could grant it later.
    pub(super) fn may_block(self) -> bool {
        self.is_primary() && !self.has_flag(raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING)
    }

    fn has_flag(self, flag: u32) -> bool {
        // SAFETY: the context is alive.
        let flags = unsafe { call!(RedisModule_GetContextFlags(self.as_ptr())) };
        flags & flag as c_int != 0
    }

    /// Whether a write outside a command must wait, as the server is paused.
    pub(super) fn must_not_write(self) -> bool {
        // SAFETY: the function takes nothing.
        unsafe { call!(RedisModule_AvoidReplicaTraffic()) != 0 }
    }

    /// The number of the context's client.
    pub(super) fn client_id(self) -> u64 {
        // SAFETY: the context is alive; without a client the server answers 0.
        unsafe { call!(RedisModule_GetClientId(self.as_ptr())) }
    }

    /// A field of a section of INFO.
    pub(super) fn server_info(self, section: &CStr, field: &CStr) -> Option<CString> {
        // SAFETY: the context is alive; the server copies the name of the section.
        let info = unsafe { call!(RedisModule_GetServerInfo(self.as_ptr(), section.as_ptr())) };
        if info.is_null() {
            return None;
        }
        // SAFETY: the data are ours until they are freed, and the value of the field, a string that ends with NUL, is part of them.
        unsafe {
            let value = call!(RedisModule_ServerInfoGetFieldC(info, field.as_ptr()));
            let value = (!value.is_null()).then(|| CStr::from_ptr(value).to_owned());
            call!(RedisModule_FreeServerInfo(self.as_ptr(), info));
            value
        }
    }

    /// The number of the database that the context looks at.
    pub(super) fn selected_db(self) -> c_int {
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_GetSelectedDb(self.as_ptr())) }
    }

    /// Has the context look at a database. False where the server has no such database.
    pub(super) fn select_db(self, db: c_int) -> bool {
        // SAFETY: the context is alive.
        let status = unsafe { call!(RedisModule_SelectDb(self.as_ptr(), db)) };
        status == raw::REDISMODULE_OK as c_int
    }

    /// Calls `callback` after `ms` milliseconds, once.
    pub(super) fn create_timer(
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

    /// Stops a timer that has not gone off yet.
    pub(super) fn stop_timer(self, id: raw::RedisModuleTimerID) {
        // SAFETY: the context is alive; the server looks the number up.
        unsafe { call!(RedisModule_StopTimer(self.as_ptr(), id, ptr::null_mut())) };
    }

    /// Answers a command.
    pub(super) fn reply(self, reply: Reply<'_>) {
        match reply {
            Reply::Fence(fence) => self.reply_integer(fence.get()),
            Reply::Made(token, fence) => {
                self.reply_array(2);
                self.reply_bytes(token);
                self.reply_integer(fence.get());
            }
            Reply::Done(done) => self.reply_integer(done.into()),
            Reply::Null => self.reply_null(),
            Reply::Error(Error::Arity) => self.reply_wrong_arity(),
            Reply::Error(error) => self.reply_error(error.message()),
        }
    }

    /// Keeps a context of the module's own, for what is called without one, and what never changes.
    pub(super) fn detach(self) {
        // SAFETY: the context is that of the load. The new one is kept until the server ends.
        let detached = unsafe { call!(RedisModule_GetDetachedThreadSafeContext(self.as_ptr())) };
        DETACHED.store(detached, Ordering::Relaxed);
        let is_cluster = self.has_flag(raw::REDISMODULE_CTX_FLAGS_CLUSTER);
        IS_CLUSTER.store(is_cluster, Ordering::Relaxed);
    }

    /// The module's own context, for timers only: it looks at no database and has no client.
    pub(super) fn detached() -> Option<Context<'static>> {
        // SAFETY: it is kept until the server ends, and used in the main thread.
        unsafe { Context::new(DETACHED.load(Ordering::Relaxed)) }
    }

    /// Writes a line to the server's log. `text` must be the module's own words.
    pub(super) fn log(self, level: Level, text: &'static CStr) {
        // SAFETY: the context is alive; the text is passed under a format of its own, never as one.
        unsafe {
            call!(RedisModule_Log(
                self.as_ptr(),
                level.name().as_ptr(),
                c"%s".as_ptr(),
                text.as_ptr(),
            ))
        };
    }

    /// Writes a line of two parts to the server's log, both the module's own words: what it is about, and what is said of it.
    pub(super) fn log_of(self, level: Level, about: &'static CStr, text: &'static CStr) {
        // SAFETY: the context is alive; the format takes two strings that end with NUL.
        unsafe {
            call!(RedisModule_Log(
                self.as_ptr(),
                level.name().as_ptr(),
                c"%s: %s".as_ptr(),
                about.as_ptr(),
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

impl<'c> Arg<'c> {
    /// # Safety
    /// `raw` is a string that the server passed to a callback, and `'c` does not outlive that callback.
    pub(super) const unsafe fn new(raw: *mut raw::RedisModuleString) -> Self {
        Self {
            raw,
            call: PhantomData,
        }
    }

    pub(super) const fn as_ptr(self) -> *mut raw::RedisModuleString {
        self.raw
    }

    pub(super) fn bytes(self) -> &'c [u8] {
        let mut len = 0;
        // SAFETY: the string is alive as long as its context.
        let start = unsafe { call!(RedisModule_StringPtrLen(self.raw, &mut len)) };
        if start.is_null() {
            return &[];
        }
        // SAFETY: the string has `len` bytes, and they stand still while it is alive: nobody but this module has it now.
        unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len) }
    }
}

impl<'c> Argv<'c> {
    /// How many words [`Argv::with_words`] can exchange: more than any command of ours takes.
    pub(super) const MAX_LEN: usize = 8;

    /// # Safety
    /// `argv` and `argc` are what the server passed to a command's handler, and `'c` does not outlive that handler.
    pub(super) unsafe fn new(argv: *mut *mut raw::RedisModuleString, argc: c_int) -> Self {
        let len = usize::try_from(argc).unwrap_or_default();
        Self {
            start: argv,
            len: if argv.is_null() { 0 } else { len },
            call: PhantomData,
        }
    }

    /// How many words the command has.
    pub(super) const fn len(self) -> usize {
        self.len
    }

    /// The key: the first argument after the name.
    pub(super) fn key(self) -> Option<Arg<'c>> {
        self.word(1)
    }

    /// The argument after the key, which is a token in every command that has one.
    pub(super) fn token(self) -> Option<Arg<'c>> {
        self.word(2)
    }

    /// The arguments after the key.
    pub(super) fn after_key(self) -> impl Iterator<Item = &'c [u8]> {
        (2..self.len).filter_map(move |at| self.word(at).map(Arg::bytes))
    }

    fn word(self, at: usize) -> Option<Arg<'c>> {
        // SAFETY: there are `len` strings, and they live as long as the call.
        (at < self.len).then(|| unsafe { Arg::new(*self.start.add(at)) })
    }

    /// Lets `act` see other words in the command: those given, in their places, where `None` stands for the command's own, and
    /// `filler` in all places behind them. The command has no more than [`Argv::MAX_LEN`] words.
    pub(super) fn with_words(self, words: &[Option<Arg<'_>>], filler: Arg<'_>, act: impl FnOnce()) {
        let mut own = [ptr::null_mut(); Self::MAX_LEN];
        for (at, own) in own.iter_mut().enumerate().take(self.len) {
            let word = words.get(at).copied().unwrap_or(Some(filler));
            // SAFETY: there are `len` places. The server passes its own vector, for a command to do with as it likes while it runs.
            unsafe {
                let place = self.start.add(at);
                *own = *place;
                if let Some(word) = word {
                    *place = word.raw;
                }
            }
        }
        act();
        for (at, own) in own.iter().enumerate().take(self.len) {
            // SAFETY: as above; every place has its own string back, for whose count the server answers.
            unsafe { *self.start.add(at) = *own };
        }
    }
}

/// A string of the server's that this module has made.
pub(super) struct OwnedString<'c> {
    ctx: Context<'c>,
    raw: *mut raw::RedisModuleString,
}

impl<'c> OwnedString<'c> {
    pub(super) fn new(ctx: Context<'c>, bytes: &[u8]) -> Self {
        let (start, len) = (bytes.as_ptr().cast::<c_char>(), bytes.len());
        // SAFETY: the context is alive; the server copies `len` bytes.
        let raw = unsafe { call!(RedisModule_CreateString(ctx.as_ptr(), start, len)) };
        Self { ctx, raw }
    }

    pub(super) const fn arg(&self) -> Arg<'_> {
        // SAFETY: the string lives as long as this borrow of it.
        unsafe { Arg::new(self.raw) }
    }
}

impl Drop for OwnedString<'_> {
    fn drop(&mut self) {
        // SAFETY: the string is ours, and freed only here.
        unsafe { call!(RedisModule_FreeString(self.ctx.as_ptr(), self.raw)) };
    }
}
