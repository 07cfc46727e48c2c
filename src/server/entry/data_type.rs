//! The methods of the native type `redislock`: how a lock is saved, loaded, rewritten, measured and
//! freed. They share one codec.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr;

use redis_module::raw;

use super::callbacks;
use crate::server::api::clock;
use crate::server::api::lock_type::{self, lock_at};
use crate::server::api::main_thread;
use crate::server::api::{call, Arg, Context, Level};
use crate::server::clients::blocked_client::Note;
use crate::server::host::module::Module;
use crate::server::observe::stats::held;
use crate::server::replication::propagation::APPLY;
use redis_lock_core::lock::codec::{
    self, decode, encode_fence, encode_leases, encode_state, Leases, Record,
};
use redis_lock_core::lock::{Fence, Lock};

/// The type's name, as in the replies of TYPE and the arguments of SCAN.
const NAME: &CStr = c"redislock";

/// The version of the type. The server writes it with every value and into every `DUMP`. It stays
/// 1, because it is one number for all values: a higher one would make each value unreadable to
/// older releases. The record in the value has a version of its own, decided record by record.
const ENCODING_VERSION: c_int = 1;

/// How far a fence in a RESTORE may be ahead of this server's clock: a year. Fences follow the
/// clock, so an honest one is ahead only by the difference of two clocks. A forged one must not use
/// up the range of fences.
const MAX_FENCE_LEAD_US: u64 = 365 * 24 * 3600 * 1_000_000;

/// Registers the type. False if the server refuses it.
pub(in crate::server) fn register(ctx: Context<'_>) -> bool {
    // SAFETY: a structure of numbers and optional functions: all zeroes is a valid value.
    let mut methods: raw::RedisModuleTypeMethods = unsafe { std::mem::zeroed() };
    methods.version = u64::from(raw::REDISMODULE_TYPE_METHOD_VERSION);
    methods.rdb_load = Some(rdb_load);
    methods.rdb_save = Some(rdb_save);
    methods.aof_rewrite = Some(aof_rewrite);
    methods.mem_usage = Some(mem_usage);
    methods.digest = Some(digest);
    methods.free = Some(free);
    methods.free_effort = Some(free_effort);
    methods.aux_load = Some(aux_load);
    // From 7.2 on the server uses the second one, and leaves the field out of its RDB if nothing is
    // written.
    methods.aux_save = Some(aux_save);
    methods.aux_save2 = Some(aux_save2);
    methods.aux_save_triggers = raw::REDISMODULE_AUX_BEFORE_RDB as c_int;
    methods.unlink2 = Some(callbacks::on_unlink2);
    // `copy` stays empty, so the server refuses COPY. A copied hold would be a second exclusive
    // hold.

    // SAFETY: the context is alive, the name has nine characters, and the server copies the
    // structure.
    let ty = unsafe {
        call!(RedisModule_CreateDataType(
            ctx.as_ptr(),
            NAME.as_ptr(),
            ENCODING_VERSION,
            &mut methods,
        ))
    };
    lock_type::set_handle(ty);
    !ty.is_null()
}

unsafe extern "C" fn rdb_save(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    // SAFETY: the server passes a value of this type.
    if let Some(lock) = unsafe { lock_at(value) } {
        save_bytes(io, &encode_state(lock));
    }
}

/// Loads a lock. Null if the bytes are not a lock: then the RESTORE fails, or the loading of the
/// RDB file.
unsafe extern "C" fn rdb_load(io: *mut raw::RedisModuleIO, encoding_version: c_int) -> *mut c_void {
    if encoding_version != ENCODING_VERSION {
        say_unknown(io);
        return ptr::null_mut();
    }
    let Some(lock) = load_bytes(io, |bytes| decode_lock(io, bytes)).flatten() else {
        return ptr::null_mut();
    };
    if lock
        .holders()
        .iter()
        .any(|(_, hold)| is_forged(io, hold.fence))
    {
        return ptr::null_mut();
    }
    let module = Module::get();
    for (_, hold) in lock.holders() {
        module.shared.fences.observe(hold.fence);
        module.lease_came(hold.deadline);
    }
    held::created(&lock);
    let name = key_name(io);
    if let Some(name) = name {
        module.migrations.arrives(name.bytes(), &lock);
    }
    lock_came(io, name, module);
    Box::into_raw(Box::new(lock)).cast()
}

/// Notes that a lock was loaded, because it may lack a ttl. After a RESTORE the timer checks its
/// key. After the load of a file or of a primary's data set the sweep checks all keys.
fn lock_came(io: *mut raw::RedisModuleIO, name: Option<Arg<'_>>, module: &Module) {
    if Context::detached().is_none_or(Context::is_loading) {
        return module.shared.inbox.leave(Note::SweepWanted);
    }
    let Some(name) = name else {
        return;
    };
    // SAFETY: the server passed `io` to the running method.
    let db = unsafe { call!(RedisModule_GetDbIdFromIO(io)) };
    let name = name.bytes().into();
    module.leave(Note::Restored { db, name });
}

/// The name of the key that is loaded, if the server tells it.
fn key_name<'io>(io: *mut raw::RedisModuleIO) -> Option<Arg<'io>> {
    // SAFETY: the server passed `io` to the running method, and the name does not outlive that
    // method.
    unsafe {
        let name = call!(RedisModule_GetKeyNameFromIO(io));
        (!name.is_null()).then(|| Arg::new(name.cast_mut()))
    }
}

unsafe extern "C" fn aof_rewrite(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    // SAFETY: the server passes a value of this type.
    let Some(lock) = (unsafe { lock_at(value) }) else {
        return;
    };
    // An append-only file without an RDB preamble has no other place for the last fence.
    if let Some(fence) = Module::get().shared.fences.last() {
        emit(io, key, &encode_fence(fence));
    }
    emit(io, key, &encode_state(lock));
}

fn emit(io: *mut raw::RedisModuleIO, key: *mut raw::RedisModuleString, bytes: &[u8]) {
    let (start, len) = (bytes.as_ptr().cast::<c_char>(), bytes.len());
    // SAFETY: the server passed `io` and `key` to the running method; "sb" takes a string, a
    // pointer and a length.
    unsafe {
        call!(RedisModule_EmitAOF(
            io,
            APPLY.as_ptr(),
            c"sb".as_ptr(),
            key,
            start,
            len
        ))
    };
}

unsafe extern "C" fn mem_usage(value: *const c_void) -> usize {
    // SAFETY: the server passes a value of this type.
    unsafe { lock_at(value) }.map_or(0, Lock::memory_bytes)
}

/// The work to free the value. The server frees large values on another thread.
unsafe extern "C" fn free_effort(_key: *mut raw::RedisModuleString, value: *const c_void) -> usize {
    // SAFETY: the server passes a value of this type.
    unsafe { lock_at(value) }.map_or(1, Lock::len)
}

unsafe extern "C" fn digest(md: *mut raw::RedisModuleDigest, value: *mut c_void) {
    // SAFETY: the server passes a value of this type.
    let Some(lock) = (unsafe { lock_at(value) }) else {
        return;
    };
    let bytes = encode_state(lock);
    // SAFETY: `md` is alive during the method; the server reads `len` bytes.
    unsafe {
        call!(RedisModule_DigestAddStringBuffer(
            md,
            bytes.as_ptr().cast::<c_char>(),
            bytes.len()
        ));
        call!(RedisModule_DigestEndSequence(md));
    }
}

/// Frees a value, maybe on another thread. There it touches only the value and gauges that are safe
/// for it.
unsafe extern "C" fn free(value: *mut c_void) {
    if !value.is_null() {
        // SAFETY: every value of this type comes from a `Box`, and the server frees it once.
        let lock = unsafe { Box::from_raw(value.cast::<Lock>()) };
        if main_thread::is_current() {
            let module = Module::get();
            module
                .removals
                .freed(&lock, module.shared.inbox.is_own_change());
            held::freed(&lock);
        } else {
            held::freed_on_another_thread(&lock);
        }
    }
}

/// Saves the last fence, so that fences do not go back after a restart, even if no lock is held at
/// the time of the save. A server with a guard also saves how long leases may last.
unsafe extern "C" fn aux_save(io: *mut raw::RedisModuleIO, _when: c_int) {
    save_bytes(io, &aux_bytes());
}

unsafe extern "C" fn aux_save2(io: *mut raw::RedisModuleIO, _when: c_int) {
    let bytes = aux_bytes();
    if !bytes.is_empty() {
        save_bytes(io, &bytes);
    }
}

fn aux_bytes() -> Vec<u8> {
    let module = Module::get();
    let fence = module.shared.fences.last();
    match (module.longest_lease(), fence) {
        (Some((longest_ms, wait_ms)), fence) => encode_leases(&Leases {
            fence,
            longest_ms,
            wait_ms,
        }),
        (None, Some(fence)) => encode_fence(fence).to_vec(),
        (None, None) => Vec::new(),
    }
}

unsafe extern "C" fn aux_load(
    io: *mut raw::RedisModuleIO,
    encoding_version: c_int,
    _when: c_int,
) -> c_int {
    const OK: c_int = raw::REDISMODULE_OK as c_int;
    const ERR: c_int = raw::REDISMODULE_ERR as c_int;
    if encoding_version != ENCODING_VERSION {
        say_unknown(io);
        return ERR;
    }
    let module = Module::get();
    let is_read = load_bytes(io, |bytes| {
        match decode(bytes) {
            _ if bytes.is_empty() => {}
            Ok(Record::Fence(fence)) => module.shared.fences.observe(fence),
            Ok(Record::Leases(leases)) => {
                leases
                    .fence
                    .into_iter()
                    .for_each(|fence| module.shared.fences.observe(fence));
                module.leases_were(leases.longest_ms, leases.wait_ms);
            }
            _ => {
                say_if_later(io, bytes);
                return false;
            }
        }
        true
    });
    match is_read {
        Some(true) => OK,
        _ => ERR,
    }
}

fn save_bytes(io: *mut raw::RedisModuleIO, bytes: &[u8]) {
    let start = bytes.as_ptr().cast::<c_char>();
    // SAFETY: the server passed `io` to the running method. It reads `len` bytes.
    unsafe { call!(RedisModule_SaveStringBuffer(io, start, bytes.len())) };
}

/// Reads one string of the value and passes its bytes to `read`. `None` if the input ends too
/// early.
fn load_bytes<R>(io: *mut raw::RedisModuleIO, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
    let mut len = 0;
    // SAFETY: the server passed `io` to the running method. With HANDLE_IO_ERRORS a short input
    // gives null and sets the error; the server does not abort.
    let buffer = unsafe { call!(RedisModule_LoadStringBuffer(io, &mut len)) };
    // SAFETY: as above.
    let failed = unsafe { call!(RedisModule_IsIOError(io)) } != 0;
    if buffer.is_null() {
        return None;
    }
    let value = if failed {
        None
    } else {
        // SAFETY: the server gives a buffer of `len` bytes. This function owns it until it frees it
        // below.
        Some(read(unsafe {
            std::slice::from_raw_parts(buffer.cast::<u8>(), len)
        }))
    };
    // SAFETY: the buffer was allocated for this function, and only this call frees it.
    unsafe { call!(RedisModule_Free(buffer.cast())) };
    value
}

/// Decodes a whole lock.
fn decode_lock(io: *mut raw::RedisModuleIO, bytes: &[u8]) -> Option<Lock> {
    match decode(bytes) {
        Ok(Record::State(lock)) => Some(lock),
        _ => {
            say_if_later(io, bytes);
            None
        }
    }
}

fn say_if_later(io: *mut raw::RedisModuleIO, bytes: &[u8]) {
    if codec::is_of_later_version(bytes) {
        say_unknown(io);
    }
}

/// Logs why a file cannot be loaded, because the server's own message only refers to the log. The
/// client of a RESTORE learns it from the reply.
fn say_unknown(io: *mut raw::RedisModuleIO) {
    // SAFETY: the server passed `io` to the running method, and the context does not outlive that
    // method.
    let ctx = unsafe { Context::new(call!(RedisModule_GetContextFromIO(io))) };
    if let Some(ctx) = ctx.filter(|ctx| ctx.is_loading()) {
        ctx.log(
            Level::Warning,
            c"these locks are in a format that this version of the module does not know: a later one has written them",
        );
    }
}

/// Whether a fence that comes by RESTORE is too far ahead to be honest. Files are trusted. On a
/// replica the fence was accepted by its primary, whose clock may differ, or it comes from a client
/// of a writable replica.
fn is_forged(io: *mut raw::RedisModuleIO, fence: Fence) -> bool {
    if fence.get() <= clock::now().us().saturating_add(MAX_FENCE_LEAD_US) {
        return false;
    }
    // SAFETY: the server passed `io` to the running method, and the context does not outlive that
    // method.
    let Some(ctx) = (unsafe { Context::new(call!(RedisModule_GetContextFromIO(io))) }) else {
        return false;
    };
    let beyond_any_clock = clock::now().us().saturating_add(10 * MAX_FENCE_LEAD_US);
    !ctx.is_loading() && (ctx.is_primary() || fence.get() > beyond_any_clock)
}
