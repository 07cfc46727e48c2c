//! What goes to the replicas and into the append-only file: effects, as internal commands.
//!
//! ```text
//! LOCK._APPLY key record               whatever the record says
//! LOCK._APPLY key token record         the token has this hold
//! LOCK._RELEASE key token              the token's hold, the only one of the lock, has ended
//! ```
//! Empty arguments at the end mean nothing.
//!
//! # Why so many forms
//!
//! `RM_Replicate` looks the command's name up each time and makes a string of every argument: more than a quarter of all the instructions
//! of an acquire, and a third of a release (docs/PERFORMANCE.md). `RM_ReplicateVerbatim` sends the arguments of the running command as they are, and retains
//! the strings instead of copying them. So for the moment of that call an effect's words stand in the place of the client's ([`in_place`]); the key and mostly the
//! token are among them already. The vector has its own strings back before anything else can look at it, so that MONITOR and SLOWLOG
//! show what the client has sent. It cannot be made longer or shorter: hence a form for each length, and the empty arguments.
//!
//! That the vector may be changed is nothing that the module API promises. So it is done only on lines of servers where the tests
//! have proved it, from clients, transactions and scripts ([`PROVED`]). On others, and where `replicate-in-place` is `no`, every
//! effect goes out by `RM_Replicate`.

use std::ffi::{c_char, CStr};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use redis_module::raw;

use super::api::{call, Arg, Argv, Context, OwnedString};
use super::config::REPLICATE_IN_PLACE;
use super::server_line::{Brand, Line};
use crate::command::{apply, apply_release};
use crate::lock::codec::{encode_effect, encode_fence, encode_held, MAX_EFFECT_LEN};
use crate::lock::{Effect, Fence, Token};

/// The command that carries effects to replicas and into the append-only file.
pub(super) const APPLY: &CStr = apply::SPEC.name;
/// The same for the most frequent one: the end of a lock's only hold.
const RELEASE: &CStr = apply_release::SPEC.name;

/// A word that stands in many commands: made at the load, kept until the server ends.
struct Word(AtomicPtr<raw::RedisModuleString>);

static APPLY_WORD: Word = Word::new();
static RELEASE_WORD: Word = Word::new();
static NOTHING: Word = Word::new();

/// The lines of servers on which the tests replicate in place.
const PROVED: [Line; 7] = [
    Line(Brand::Redis, 6, 2),
    Line(Brand::Redis, 7, 0),
    Line(Brand::Redis, 8, 0),
    Line(Brand::Redis, 8, 2),
    Line(Brand::Valkey, 8, 0),
    Line(Brand::Valkey, 8, 1),
    Line(Brand::Valkey, 9, 1),
];

/// Whether this server is of a line in [`PROVED`].
static IS_PROVED: AtomicBool = AtomicBool::new(false);

/// Makes the words, and looks at what this server is.
pub(super) fn prepare(ctx: Context<'_>) {
    let is_proved = Line::of(ctx).is_some_and(|line| PROVED.contains(&line));
    IS_PROVED.store(is_proved, Ordering::Relaxed);
    APPLY_WORD.set(APPLY);
    RELEASE_WORD.set(RELEASE);
    NOTHING.set(c"");
}

/// Sends an effect to replicas and the append-only file. `argv` is that of the running command, if one runs, and `key` its key.
/// `ends_lock` says that the effect releases the only hold of the lock. `buffer` is kept from one effect to the next.
pub(super) fn send(
    ctx: Context<'_>,
    argv: Option<Argv<'_>>,
    key: Arg<'_>,
    effect: &Effect<'_>,
    ends_lock: bool,
    buffer: &mut Vec<u8>,
) {
    let may = |argv: &Argv<'_>| {
        (3..=Argv::MAX_LEN).contains(&argv.len())
            && IS_PROVED.load(Ordering::Relaxed)
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
            let record = OwnedString::new(ctx, &encode_held(now_ms, mode, &hold));
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

/// Has the server send the running command on with other words in it: those given, in their places; `None` leaves the client's own.
fn in_place(ctx: Context<'_>, argv: Argv<'_>, words: &[Option<Arg<'_>>]) {
    argv.with_words(words, NOTHING.arg(), || ctx.replicate_verbatim());
}

/// Sends a fence that was given, without an effect. `key` only says in which slot.
pub(super) fn send_fence(ctx: Context<'_>, key: Arg<'_>, fence: Fence) {
    replicate(ctx, key, &encode_fence(fence));
}

/// Sends LOCK._APPLY outside a command.
fn replicate(ctx: Context<'_>, key: Arg<'_>, record: &[u8]) {
    let (start, len) = (record.as_ptr().cast::<c_char>(), record.len());
    // SAFETY: the context and the key's name are alive; the format "sb" takes a string, a pointer and a length.
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

/// Writes an effect into a buffer that is kept from one effect to the next, so that none allocates.
fn encode<'b>(effect: &Effect<'_>, buffer: &'b mut Vec<u8>) -> &'b [u8] {
    buffer.clear();
    buffer.reserve(MAX_EFFECT_LEN);
    encode_effect(effect, buffer);
    buffer
}

/// Whether the bytes of a token are those of an argument, and not only equal to them.
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
        // SAFETY: a string made without a context belongs to nobody but us; the server copies `len` bytes.
        let word = unsafe { call!(RedisModule_CreateString(ptr::null_mut(), start, len)) };
        self.0.store(word, Ordering::Relaxed);
    }

    fn arg(&self) -> Arg<'static> {
        // SAFETY: `prepare` has made the string when the module was loaded, and nobody frees it.
        unsafe { Arg::new(self.0.load(Ordering::Relaxed)) }
    }
}
