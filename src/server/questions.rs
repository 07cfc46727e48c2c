//! What the server says only to commands.

use std::ffi::{c_longlong, CStr};

use redis_module::raw;

use super::api::{call, Context};

impl Context<'_> {
    /// Whether the server is about to close the client of a reply callback, so that no reply reaches it any more. It says so nowhere but
    /// in CLIENT LIST, by the flag `A`.
    pub(super) fn is_closing(self) -> bool {
        self.client_has_flag(b'A') == Some(true)
    }

    /// Whether the context's client is closed by its own will, after its replies: not known is yes.
    pub(super) fn closes_after_replies(self) -> bool {
        self.client_has_flag(b'c') != Some(false)
    }

    /// Whether CLIENT LIST has a flag for the context's client.
    fn client_has_flag(self, flag: u8) -> Option<bool> {
        let id = c_longlong::try_from(self.client_id()).ok()?;
        // SAFETY: the context is alive; the format takes two strings that end with NUL and a number.
        let reply = unsafe {
            let (list, by_id) = (c"LIST".as_ptr(), c"ID".as_ptr());
            call!(RedisModule_Call(
                self.as_ptr(),
                c"CLIENT".as_ptr(),
                c"ccl".as_ptr(),
                list,
                by_id,
                id
            ))
        };
        read_reply(reply, |reply| read_text(reply, |line| has_flag(line, flag)))
    }

    /// Whether a setting of the server has this value. One that the server does not have, or does not show, has none.
    pub(super) fn config_is(self, name: &CStr, value: &[u8]) -> bool {
        // SAFETY: the context is alive; the format takes two strings that end with NUL.
        let reply = unsafe {
            call!(RedisModule_Call(
                self.as_ptr(),
                c"CONFIG".as_ptr(),
                c"cc".as_ptr(),
                c"GET".as_ptr(),
                name.as_ptr()
            ))
        };
        let is = read_reply(reply, |reply| {
            // SAFETY: the reply is alive; what has no such element gives null.
            let element = unsafe { call!(RedisModule_CallReplyArrayElement(reply, 1)) };
            read_text(element, |text| text == value)
        });
        is == Some(true)
    }
}

/// Reads a reply of the server's and frees it.
fn read_reply<R>(
    reply: *mut raw::RedisModuleCallReply,
    read: impl FnOnce(*mut raw::RedisModuleCallReply) -> Option<R>,
) -> Option<R> {
    if reply.is_null() {
        return None;
    }
    let answer = read(reply);
    // SAFETY: the reply is ours, and freed only here.
    unsafe { call!(RedisModule_FreeCallReply(reply)) };
    answer
}

/// Reads the text of a reply that is one.
fn read_text<R>(reply: *mut raw::RedisModuleCallReply, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
    if reply.is_null() {
        return None;
    }
    let mut len = 0;
    // SAFETY: the reply is one that `read_reply` lends, or a part of it; its text, if it is one, has `len` bytes.
    let text = unsafe {
        let text = call!(RedisModule_CallReplyStringPtr(reply, &mut len));
        (!text.is_null()).then(|| std::slice::from_raw_parts(text.cast::<u8>(), len))
    };
    text.map(read)
}

/// Whether a line of CLIENT LIST has a flag. A client's own words in it have no spaces.
fn has_flag(line: &[u8], flag: u8) -> bool {
    let mut fields = line.split(|byte| *byte == b' ');
    let flags = fields.find_map(|field| field.strip_prefix(b"flags="));
    flags.is_some_and(|flags| flags.contains(&flag))
}
