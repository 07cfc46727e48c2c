//! Replies to the running command, or to a blocked client in its reply callback.

use std::ffi::{c_char, c_long, c_longlong, CStr};

use redis_module::raw;

use super::{call, Context};
use redis_lock_core::command::Reply;

/// The value of a field in a map.
#[derive(Clone, Copy)]
pub(crate) enum Field<'v> {
    Bytes(&'v [u8]),
    Integer(u64),
    Null,
    /// An array of so many replies, which the function sends.
    Array(usize, &'v dyn Fn()),
}

impl Context<'_> {
    pub(crate) fn reply_integer(self, n: u64) {
        let n = c_longlong::try_from(n).unwrap_or(c_longlong::MAX);
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_ReplyWithLongLong(self.as_ptr(), n)) };
    }

    pub(crate) fn reply_null(self) {
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_ReplyWithNull(self.as_ptr())) };
    }

    pub(crate) fn reply_ok(self) {
        self.reply_status(c"OK");
    }

    fn reply_status(self, status: &'static CStr) {
        // SAFETY: the context is alive; the server copies the text.
        unsafe {
            call!(RedisModule_ReplyWithSimpleString(
                self.as_ptr(),
                status.as_ptr()
            ))
        };
    }

    /// `message` is one line.
    pub(crate) fn reply_error(self, message: &CStr) {
        // SAFETY: the context is alive; the server copies the message.
        unsafe { call!(RedisModule_ReplyWithError(self.as_ptr(), message.as_ptr())) };
    }

    pub(crate) fn reply_bytes(self, bytes: &[u8]) {
        let (start, len) = (bytes.as_ptr().cast::<c_char>(), bytes.len());
        // SAFETY: the context is alive; the server copies `len` bytes.
        unsafe { call!(RedisModule_ReplyWithStringBuffer(self.as_ptr(), start, len)) };
    }

    /// Opens an array; `len` replies must follow.
    pub(crate) fn reply_array(self, len: usize) {
        let len = c_long::try_from(len).unwrap_or(c_long::MAX);
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_ReplyWithArray(self.as_ptr(), len)) };
    }

    /// Opens a map; `len` pairs of replies must follow. RESP2 has no maps: there it is a flat
    /// array.
    fn reply_map(self, len: usize) {
        let len = c_long::try_from(len).unwrap_or(c_long::MAX);
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_ReplyWithMap(self.as_ptr(), len)) };
    }

    /// Replies with a map of the fields that there are, in this order.
    pub(crate) fn reply_fields(self, fields: &[(&str, Option<Field<'_>>)]) {
        let there = || {
            fields
                .iter()
                .filter_map(|(name, value)| value.map(|value| (name, value)))
        };
        self.reply_map(there().count());
        for (name, value) in there() {
            self.reply_bytes(name.as_bytes());
            match value {
                Field::Bytes(bytes) => self.reply_bytes(bytes),
                Field::Integer(n) => self.reply_integer(n),
                Field::Null => self.reply_null(),
                Field::Array(len, send) => {
                    self.reply_array(len);
                    send();
                }
            }
        }
    }

    /// Replies to a command.
    pub(crate) fn reply(self, reply: Reply<'_>) {
        match reply {
            Reply::Fence(fence) => self.reply_integer(fence.get()),
            Reply::Pair(token, fence) => {
                self.reply_array(2);
                self.reply_bytes(token);
                self.reply_integer(fence.get());
            }
            Reply::Value(value) => self.reply_bytes(value),
            Reply::Done(done) => self.reply_integer(done.into()),
            Reply::Count(n) => self.reply_integer(u64::try_from(n).unwrap_or_default()),
            Reply::Queued => self.reply_status(c"QUEUED"),
            Reply::Null => self.reply_null(),
            Reply::Error(error) => self.reply_error(error.message()),
        }
    }
}
