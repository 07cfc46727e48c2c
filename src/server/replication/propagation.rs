//! Replication: effects go to the replicas and into the append-only file as internal commands.
//!
//! ```text
//! LOCK._APPLY key record               the effect of the record
//! LOCK._APPLY key token record         the token has this hold
//! LOCK._RELEASE key token              the token's hold, the only one of the lock, has ended
//! ```
//! Empty arguments at the end have no meaning.
//!
//! # Why there are several forms
//!
//! `RM_Replicate` looks up the name of the command each time and makes a string of every argument.
//! That is more than a quarter of all instructions of an acquire, and a third of a release
//! (docs/PERFORMANCE.md). `RM_ReplicateVerbatim` sends the words of the running command as they
//! are, and retains the strings instead of copying them. So during that call the words of the
//! effect replace those of the client ([`in_place`]). The key and mostly the token are the same
//! strings. The vector gets its own strings back before anything else can read it, so MONITOR and
//! SLOWLOG show what the client sent. The length of the vector cannot change. That is why there is
//! a form for each length, and why there are empty arguments.
//!
//! The module API does not promise that the vector may be changed. So the module does it only on
//! release lines where the tests cover it, for clients, transactions and scripts
//! ([`TESTED_LINES`]). On others, and if `replicate-in-place` is `no`, every effect is sent by
//! `RM_Replicate`.

use std::ffi::{c_char, CStr};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use redis_module::raw;

use crate::server::api::{call, optional, Arg, Argv, Context, OwnedString};
use crate::server::settings::config::REPLICATE_IN_PLACE;
use crate::server::settings::server_line::{Brand, ReleaseLine};
use redis_lock_core::command::{apply, apply_release};
use redis_lock_core::lock::codec::{encode_effect, encode_fence, encode_held, MAX_EFFECT_LEN};
use redis_lock_core::lock::{Effect, Fence, Token};

/// The command that carries effects to replicas and into the append-only file.
pub(in crate::server) const APPLY: &CStr = apply::SPEC.name;
/// The command for the most frequent effect: the end of a lock's only hold.
const RELEASE: &CStr = apply_release::SPEC.name;

/// A word that many commands contain. It is created at load and kept until the server exits.
struct Word(AtomicPtr<raw::RedisModuleString>);

static APPLY_WORD: Word = Word::new();
static RELEASE_WORD: Word = Word::new();
static NOTHING: Word = Word::new();

/// The release lines on which the tests replicate in place.
const TESTED_LINES: [ReleaseLine; 6] = [
    ReleaseLine(Brand::Redis, 7, 0),
    ReleaseLine(Brand::Redis, 8, 2),
    ReleaseLine(Brand::Redis, 8, 6),
    ReleaseLine(Brand::Valkey, 8, 0),
    ReleaseLine(Brand::Valkey, 8, 1),
    ReleaseLine(Brand::Valkey, 9, 1),
];

/// Whether this server belongs to one of the [`TESTED_LINES`].
static IS_TESTED_LINE: AtomicBool = AtomicBool::new(false);

/// Creates the words, and checks which server this is.
pub(in crate::server) fn prepare(ctx: Context<'_>) {
    let is_tested = ReleaseLine::of(ctx).is_some_and(|line| TESTED_LINES.contains(&line));
    IS_TESTED_LINE.store(is_tested, Ordering::Relaxed);
    APPLY_WORD.set(APPLY);
    RELEASE_WORD.set(RELEASE);
    NOTHING.set(c"");
}

/// Sends an effect to replicas and the append-only file. `argv` are the words of the running
/// command, if one runs, and `key` is its key. `ends_lock` says that the effect releases the only
/// hold of the lock. `buffer` is reused from one effect to the next.
pub(in crate::server) fn send(
    ctx: Context<'_>,
    argv: Option<Argv<'_>>,
    key: Arg<'_>,
    effect: &Effect<'_>,
    ends_lock: bool,
    buffer: &mut Vec<u8>,
) {
    let may = |argv: &Argv<'_>| {
        (3..=Argv::MAX_LEN).contains(&argv.len())
            && IS_TESTED_LINE.load(Ordering::Relaxed)
            && REPLICATE_IN_PLACE.is_on()
    };
    let Some(argv) = argv.filter(may) else {
        return replicate(ctx, key, encode(effect, buffer));
    };
    let apply = Some(APPLY_WORD.arg());
    let is_own = |token: Token<'_>| argv.token().is_some_and(|own| same(own, token));
    match *effect {
        Effect::Hold {
            now_ms,
            mode,
            token,
            hold,
        } if argv.len() > 3 && is_own(token) => {
            let record = OwnedString::new(ctx, encode_held(now_ms, mode, &hold).as_bytes());
            in_place(ctx, argv, &[apply, None, None, Some(record.arg())]);
        }
        Effect::Release { token, .. } if argv.len() == 3 && ends_lock && is_own(token) => {
            in_place(ctx, argv, &[Some(RELEASE_WORD.arg()), None, None]);
        }
        _ => {
            let record = OwnedString::new(ctx, encode(effect, buffer));
            in_place(ctx, argv, &[apply, None, Some(record.arg())]);
        }
    }
}

/// Replicates the running command with other words in it. `None` keeps the client's own word.
fn in_place(ctx: Context<'_>, argv: Argv<'_>, words: &[Option<Arg<'_>>]) {
    argv.with_words(words, NOTHING.arg(), || ctx.replicate_verbatim());
}

/// Sends the last fence without an effect. `key` only names the slot.
pub(in crate::server) fn send_fence(ctx: Context<'_>, key: Arg<'_>, fence: Fence) {
    replicate(ctx, key, &encode_fence(fence));
}

/// The same from the child that writes the keys of a migration: ahead of them.
pub(in crate::server) fn send_fence_before_snapshot(ctx: Context<'_>, key: Arg<'_>, fence: Fence) {
    let Some(send) = optional!(RedisModule_ClusterPropagateForSlotMigration) else {
        return;
    };
    let record = encode_fence(fence);
    let (start, len) = (record.as_ptr().cast::<c_char>(), record.len());
    // SAFETY: as in `replicate`.
    unsafe {
        send(
            ctx.as_ptr(),
            APPLY.as_ptr(),
            c"sb".as_ptr(),
            key.as_ptr(),
            start,
            len,
        )
    };
}

/// Sends LOCK._APPLY by `RM_Replicate`.
fn replicate(ctx: Context<'_>, key: Arg<'_>, record: &[u8]) {
    let (start, len) = (record.as_ptr().cast::<c_char>(), record.len());
    // SAFETY: the context and the key's name are alive; the format "sb" takes a string, a pointer
    // and a length.
    unsafe {
        call!(RedisModule_Replicate(
            ctx.as_ptr(),
            APPLY.as_ptr(),
            c"sb".as_ptr(),
            key.as_ptr(),
            start,
            len,
        ))
    };
}

/// Writes an effect into a buffer that is reused, so that no effect allocates.
fn encode<'b>(effect: &Effect<'_>, buffer: &'b mut Vec<u8>) -> &'b [u8] {
    buffer.clear();
    buffer.reserve(MAX_EFFECT_LEN);
    encode_effect(effect, buffer);
    buffer
}

/// Whether a token is this very argument, and not only equal to it.
fn same(argument: Arg<'_>, token: Token<'_>) -> bool {
    ptr::eq(argument.bytes(), token.as_bytes())
}

impl Word {
    const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    fn set(&self, text: &CStr) {
        let bytes = text.to_bytes();
        let (start, len) = (bytes.as_ptr().cast::<c_char>(), bytes.len());
        // SAFETY: a string created without a context belongs to this module; the server copies
        // `len` bytes.
        let word = unsafe { call!(RedisModule_CreateString(ptr::null_mut(), start, len)) };
        self.0.store(word, Ordering::Relaxed);
    }

    fn arg(&self) -> Arg<'static> {
        // SAFETY: `prepare` created the string when the module was loaded, and nothing frees it.
        unsafe { Arg::new(self.0.load(Ordering::Relaxed)) }
    }
}
