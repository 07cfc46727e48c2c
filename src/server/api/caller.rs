//! Calls that may come back into this module: commands of the server, and events that other modules
//! listen to. The module makes all of them here; `tests/tidy.rs` checks that.
//!
//! # Checks
//!
//! Every call passes the flag `E`: if the server refuses the call, it returns an error reply.
//! Valkey 9.1 needs the flag. Without it a refusal in script mode takes the length of a text that
//! does not exist, and the server crashes.

use std::cell::Cell;
use std::ffi::{c_int, CStr};
use std::io;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::rc::Rc;

use redis_module::raw;

use super::{call, Arg, Context, OwnedString};
use redis_lock_core::command::Error;
use redis_lock_core::engine::host::Found;

/// EPERM: this node does not own the key's slot. The number is the same on every system.
const NOT_HERE: c_int = 1;

/// EACCES: the client has no right to the call. It is the same number on every system that the
/// servers run on.
const NOT_ALLOWED: c_int = 13;

/// What Redis 7.0 says then.
const ACL: &[u8] = b"acl verification failed";

/// A call that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallError {
    /// In a cluster: this node does not serve the key's slot, or the slot is moving to another
    /// node.
    NotHere,
    /// The client has no right to it.
    NotAllowed,
    /// The key has a value of another type.
    WrongType,
    /// Any other refusal, or an error of the command itself.
    Refused,
}

/// A reply of the server. It is freed when it is dropped.
pub(crate) struct CallReply {
    raw: NonNull<raw::RedisModuleCallReply>,
}

/// A reply, or an element of a reply.
#[derive(Clone, Copy)]
pub(crate) struct ReplyPart<'r> {
    raw: NonNull<raw::RedisModuleCallReply>,
    whole: PhantomData<&'r CallReply>,
}

thread_local! {
    /// The client on whose behalf a call of this module runs: the context of the call has none that
    /// can be asked for its user.
    static FOR_CLIENT: Cell<Option<NonZeroU64>> = const { Cell::new(None) };
}

/// Makes a call that has the user of the context's client, or of the one that it is made for.
fn of_client<R>(ctx: Context<'_>, call: impl FnOnce() -> R) -> R {
    let outer = FOR_CLIENT.get();
    FOR_CLIENT.set(outer.or(NonZeroU64::new(ctx.client_id())));
    let result = call();
    FOR_CLIENT.set(outer);
    result
}

/// The client on whose behalf a call of this module runs, if one does.
pub(super) fn for_client() -> Option<NonZeroU64> {
    FOR_CLIENT.get()
}

/// The right to make calls that may come back into this module. There is one for each call from the
/// server.
pub(crate) struct Caller<'c>(Context<'c>, Replication);

/// Whether what the server sends to its replicas during a call may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replication {
    /// Nothing may: a call that only asks sends nothing.
    Held,
    /// It may: [`Caller::in_deletion`].
    Allowed,
}

impl<'c> Caller<'c> {
    /// The right that belongs to a context. The user makes sure that no other one is in use.
    pub(crate) const fn new(ctx: Context<'c>) -> Self {
        Self(ctx, Replication::Held)
    }

    /// The same, in a callback in the middle of a deletion, for calls that only ask.
    ///
    /// The server may be about to send deletions of other keys to its replicas and to the
    /// append-only file. When Redis 7.0 expires keys by itself, it takes the end of any call for
    /// the moment to do so, and forgets them if the call has held the replication.
    pub(crate) const fn in_deletion(ctx: Context<'c>) -> Self {
        Self(ctx, Replication::Allowed)
    }

    /// The context, for calls that do not come back.
    pub(crate) const fn context(&self) -> Context<'c> {
        self.0
    }

    /// Calls a command of the server and returns its reply. The server only checks that the command
    /// exists, and in a cluster that this node serves its keys.
    pub(crate) fn call(
        &mut self,
        command: &CStr,
        words: &[Arg<'_>],
    ) -> Result<CallReply, CallError> {
        let format = match self.1 {
            Replication::Held => c"Ev",
            Replication::Allowed => c"!Ev",
        };
        unless_error(self.raw_call(command, format, words))
    }

    /// The same with words of the module's own.
    pub(crate) fn call_with(
        &mut self,
        command: &CStr,
        words: &[&[u8]],
    ) -> Result<CallReply, CallError> {
        let ctx = self.0;
        let words = words.iter().map(|word| OwnedString::new(ctx, word));
        let words: Vec<_> = words.collect();
        let words: Vec<_> = words.iter().map(OwnedString::arg).collect();
        self.call(command, &words)
    }

    /// Calls a command without words. The server makes the checks of a script's commands, too:
    /// READONLY, MISCONF, NOREPLICAS.
    pub(crate) fn call_as_script(&mut self, command: &CStr) -> Result<CallReply, CallError> {
        unless_error(self.raw_call(command, c"SEv", &[]))
    }

    /// Whether the context has a user. The server looks for it before it sees that the command
    /// lacks its words, and only then at rights.
    pub(super) fn has_user(&mut self) -> bool {
        let reply = self.raw_call(c"GET", c"CEv", &[]);
        let errno = io::Error::last_os_error().raw_os_error();
        let is_refused = reply.is_none_or(|reply| reply.part().is_error());
        !(is_refused && errno == Some(libc::ENOTSUP))
    }

    /// Calls a command. `None` where the server gives no reply.
    fn raw_call(&mut self, command: &CStr, format: &CStr, words: &[Arg<'_>]) -> Option<CallReply> {
        let mut words: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
        // SAFETY: the context is alive; each format that is used here takes a vector of strings and
        // its length, which the server only reads. The strings are alive.
        let reply = unsafe {
            call!(RedisModule_Call(
                self.0.as_ptr(),
                command.as_ptr(),
                format.as_ptr(),
                words.as_mut_ptr(),
                words.len(),
            ))
        };
        NonNull::new(reply).map(|raw| CallReply { raw })
    }

    /// Runs a command on behalf of the client, with its rights and the checks of a script, and
    /// sends the command to replicas and the append-only file. An error of the command is a reply.
    pub(crate) fn call_for_client(
        &mut self,
        command: &CStr,
        words: &[Arg<'_>],
    ) -> Result<CallReply, CallError> {
        let reply = of_client(self.0, || self.raw_call(command, c"!0SCMEv", words));
        let errno = io::Error::last_os_error().raw_os_error();
        let reply = reply.ok_or(CallError::Refused)?;
        // Redis 7.0 words it as no command does.
        let is_refused = reply.part().is_error() && errno == Some(NOT_ALLOWED);
        let text = reply.part().text().unwrap_or_default();
        let says_acl = text.windows(ACL.len()).any(|words| words == ACL);
        if is_refused && says_acl {
            return Err(CallError::NotAllowed);
        }
        Ok(reply)
    }

    /// Why the server would refuse such a call by the rights of the client or because scripts may
    /// not call it. The command does not run. `None` where nothing is wrong, and where there is no
    /// such command.
    ///
    /// Servers from 7.2 on know a dry run. It is not used: on Valkey 9.1 a call in script mode that
    /// fails without a text crashes.
    pub(crate) fn refusal_of(&mut self, words: &[Arg<'_>]) -> Option<Error> {
        let (name, next) = (words.first()?.bytes(), words.get(1));
        // A command may have subcommands with flags of their own.
        let subcommand = next.map(|next| [name, b"|", next.bytes()].concat());
        let mut is_noscript = |name: &[u8]| self.command_has_flag(name, b"noscript");
        let subcommand = subcommand.and_then(|name| is_noscript(&name));
        let is_noscript = subcommand.or_else(|| is_noscript(name))?;
        if !self.0.may_run(words) {
            return Some(Error::NoPermission);
        }
        is_noscript.then_some(Error::NotInScripts)
    }

    /// Whether COMMAND INFO shows a flag for a command; `None` where there is no such command.
    pub(crate) fn command_has_flag(&mut self, name: &[u8], flag: &[u8]) -> Option<bool> {
        let reply = self.call_with(c"COMMAND", &[b"INFO", name]).ok()?;
        let flags = reply.part().element(0)?.element(2)?;
        let mut flags = (0..).map_while(|at| flags.element(at)?.text());
        Some(flags.any(|is| is == flag))
    }

    /// The string under a key, and for how long it lives yet, if that is asked for. GET keeps its
    /// encoding, which direct access to its memory would not.
    pub(crate) fn string(&mut self, key: &[u8], with_ttl: bool) -> Found {
        let name = OwnedString::new(self.0, key);
        let value = match self.call(c"GET", &[name.arg()]) {
            Ok(reply) => reply.part().text().map(Rc::from),
            Err(CallError::WrongType) => return Found::OtherType,
            Err(_) => return Found::Elsewhere,
        };
        let Some(value) = value else {
            return Found::Nothing;
        };
        let ttl = with_ttl.then(|| self.call(c"PTTL", &[name.arg()]).ok());
        let ttl_ms = ttl.flatten().and_then(|reply| reply.part().number());
        Found::Value(value, ttl_ms.and_then(|ms| u64::try_from(ms).ok()))
    }

    /// How many clients of this node have subscribed to a shard channel. `None` if the server does
    /// not say.
    pub(crate) fn shard_subscribers(&mut self, channel: &[u8]) -> Option<i64> {
        let reply = self.call_with(c"PUBSUB", &[b"SHARDNUMSUB", channel]);
        reply.ok()?.part().element(1)?.number()
    }

    /// Sends a keyspace event of the class of module events. Other modules may listen.
    pub(crate) fn notify_keyspace(&mut self, event: &CStr, key: Arg<'_>) {
        // SAFETY: the context and the two strings are alive.
        unsafe {
            call!(RedisModule_NotifyKeyspaceEvent(
                self.0.as_ptr(),
                raw::REDISMODULE_NOTIFY_MODULE as c_int,
                event.as_ptr(),
                key.as_ptr(),
            ))
        };
    }
}

/// The reply of a call that was made just now, or why it was refused.
fn unless_error(reply: Option<CallReply>) -> Result<CallReply, CallError> {
    // The server sets errno to the reason of a refusal before it makes the text of the error. A
    // command's own error leaves errno unchanged, so the text decides.
    let by_errno = || match io::Error::last_os_error().raw_os_error() {
        Some(NOT_HERE) => CallError::NotHere,
        _ => CallError::Refused,
    };
    let reply = reply.ok_or_else(by_errno)?;
    if !reply.part().is_error() {
        return Ok(reply);
    }
    Err(match reply.part().first_word() {
        b"ERR" => by_errno(),
        b"WRONGTYPE" => CallError::WrongType,
        b"MOVED" | b"ASK" | b"TRYAGAIN" => CallError::NotHere,
        _ => CallError::Refused,
    })
}

impl CallReply {
    /// The whole reply.
    pub(crate) const fn part(&self) -> ReplyPart<'_> {
        ReplyPart {
            raw: self.raw,
            whole: PhantomData,
        }
    }

    /// Replies to the running command with it.
    pub(crate) fn pass_on(self, ctx: Context<'_>) {
        // SAFETY: the context and the reply are alive.
        unsafe {
            call!(RedisModule_ReplyWithCallReply(
                ctx.as_ptr(),
                self.raw.as_ptr()
            ))
        };
    }
}

impl Drop for CallReply {
    fn drop(&mut self) {
        // SAFETY: this value owns the reply, and frees it only here.
        unsafe { call!(RedisModule_FreeCallReply(self.raw.as_ptr())) };
    }
}

impl<'r> ReplyPart<'r> {
    /// The text of a string, a status or an error.
    pub(crate) fn text(self) -> Option<&'r [u8]> {
        let mut len = 0;
        // SAFETY: the reply is alive as long as the whole of it. A reply without text gives null,
        // and a text has `len` bytes.
        unsafe {
            let text = call!(RedisModule_CallReplyStringPtr(self.raw.as_ptr(), &mut len));
            (!text.is_null()).then(|| std::slice::from_raw_parts(text.cast::<u8>(), len))
        }
    }

    /// The value of an integer.
    pub(crate) fn number(self) -> Option<i64> {
        // SAFETY: the reply is alive as long as the whole of it.
        let kind = unsafe { call!(RedisModule_CallReplyType(self.raw.as_ptr())) };
        // SAFETY: the same.
        let number = unsafe { call!(RedisModule_CallReplyInteger(self.raw.as_ptr())) };
        (kind == raw::REDISMODULE_REPLY_INTEGER as c_int).then_some(number)
    }

    /// An element of an array.
    pub(crate) fn element(self, at: usize) -> Option<Self> {
        // SAFETY: the reply is alive. A reply without such an element gives null, and an element
        // lives as long as the whole.
        let raw = unsafe { call!(RedisModule_CallReplyArrayElement(self.raw.as_ptr(), at)) };
        Some(Self {
            raw: NonNull::new(raw)?,
            whole: PhantomData,
        })
    }

    fn is_error(self) -> bool {
        // SAFETY: the reply is alive.
        let kind = unsafe { call!(RedisModule_CallReplyType(self.raw.as_ptr())) };
        kind == raw::REDISMODULE_REPLY_ERROR as c_int
    }

    /// The code of an error. Some servers keep the minus sign before it.
    fn first_word(self) -> &'r [u8] {
        let text = self.text().unwrap_or_default();
        let text = text.strip_prefix(b"-").unwrap_or(text);
        let word = text.split(|byte| byte.is_ascii_whitespace()).next();
        word.unwrap_or_default()
    }
}

/// The value of a field in a line of CLIENT LIST. The words in it that a client has chosen contain
/// no spaces.
pub(crate) fn client_field<'a>(line: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut fields = line.split(|byte| *byte == b' ');
    fields.find_map(|field| field.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}
