//! The name and the rights of the context's user.

use std::ffi::c_int;
use std::{io, ptr};

use redis_module::raw;

use super::caller::for_client;
use super::{call, optional, Arg, Caller, Context, OwnedString};

/// Whether a user may run a command in a database. Valkey from 9.1 on has it, where users have
/// rights to databases. The bindings lack it.
type CheckPermissions = unsafe extern "C" fn(
    *mut raw::RedisModuleUser,
    *mut *mut raw::RedisModuleString,
    c_int,
    c_int,
    *mut c_int,
) -> c_int;

fn check_permissions() -> Option<CheckPermissions> {
    let find = optional!(RedisModule_GetApi)?;
    let mut found: Option<CheckPermissions> = None;
    let name = c"RedisModule_ACLCheckPermissions";
    // SAFETY: the server writes a pointer to a function of this signature, or nothing.
    unsafe { find(name.as_ptr(), (&raw mut found).cast()) };
    found
}

impl Context<'_> {
    /// The name of the context's user. It is empty where the server does not say it: in calls that
    /// modules make.
    pub(crate) fn user_name(self) -> Box<[u8]> {
        // The client of a script has no connection, by which the server looks it up. The client of
        // a module's call, and of a script that a module calls, has no user, which the second
        // function does not survive. SAFETY: the context is alive. The name is ours, and is freed
        // once.
        unsafe {
            let mut name = self.name_of_client();
            if name.is_null() && self.is_in_script() && Caller::new(self).has_user() {
                name = call!(RedisModule_GetCurrentUserName(self.as_ptr()));
            }
            if name.is_null() {
                return Box::default();
            }
            let mut len = 0;
            let bytes = call!(RedisModule_StringPtrLen(name, &raw mut len));
            let text = std::slice::from_raw_parts(bytes.cast::<u8>(), len).into();
            call!(RedisModule_FreeString(self.as_ptr(), name));
            text
        }
    }

    /// Whether the context's user may publish to a channel. No in a call that another module makes.
    pub(crate) fn may_publish(self, channel: &[u8]) -> bool {
        let channel = OwnedString::new(self, channel);
        let publishes = raw::REDISMODULE_CMD_CHANNEL_PUBLISH as c_int;
        let channel = channel.arg().as_ptr();
        self.is_allowed(|user| {
            // SAFETY: the user and the string are alive.
            unsafe {
                call!(RedisModule_ACLCheckChannelPermissions(
                    user, channel, publishes
                ))
            }
        })
    }

    /// The name of the user of the context's client, or of the one for which a call is made; null
    /// where there is none. The caller frees it.
    fn name_of_client(self) -> *mut raw::RedisModuleString {
        let name = self.user_name_of(self.client_id());
        match for_client().filter(|_| name.is_null()) {
            Some(client) => self.user_name_of(client.get()),
            None => name,
        }
    }

    /// Whether the context's user may read a key in a database. No where no client with a
    /// connection asks: the server aborts if a context has a client without a user.
    pub(crate) fn may_read(self, key: &[u8], db: c_int) -> bool {
        self.may_read_in_any_db(key) && self.may_read_in(key, db)
    }

    /// Whether one of these commands would tell the user of the key in that database. Yes where
    /// users have no rights to databases.
    fn may_read_in(self, key: &[u8], db: c_int) -> bool {
        let Some(check) = check_permissions() else {
            return true;
        };
        let commands: [&[&[u8]]; 3] = [
            &[b"LOCK.INFO", key],
            &[b"EXISTS", key],
            &[b"LOCK.ACQUIRE", key, b"*", b"1"],
        ];
        commands.iter().any(|words| {
            let words = words.iter().map(|word| OwnedString::new(self, word));
            let words: Vec<_> = words.collect();
            let mut pointers: Vec<_> = words.iter().map(|word| word.arg().as_ptr()).collect();
            let count = c_int::try_from(pointers.len()).unwrap_or(c_int::MAX);
            self.is_allowed(|user| {
                let (words, no_reason) = (pointers.as_mut_ptr(), ptr::null_mut());
                // SAFETY: the user and the words are alive; the server only reads the words, and
                // gives no reason to a null pointer.
                unsafe { check(user, words, count, db, no_reason) }
            })
        })
    }

    fn may_read_in_any_db(self, key: &[u8]) -> bool {
        let (key, access) = (
            OwnedString::new(self, key),
            raw::REDISMODULE_CMD_KEY_ACCESS as c_int,
        );
        let key = key.arg().as_ptr();
        self.connection().is_some()
            && self.is_allowed(|user| {
                // SAFETY: the user and the string are alive.
                unsafe { call!(RedisModule_ACLCheckKeyPermissions(user, key, access)) }
            })
    }

    /// Whether the context's user may run a command with these words. Yes if there is no such
    /// command, or if it has the wrong number of words: Redis 8.6 looks at that, too. No in a call
    /// that another module makes.
    pub(crate) fn may_run(self, words: &[Arg<'_>]) -> bool {
        let mut words: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
        let count = c_int::try_from(words.len()).unwrap_or(c_int::MAX);
        let words = words.as_mut_ptr();
        self.is_allowed(|user| {
            // SAFETY: the user and the words are alive; the server only reads the words.
            let status =
                unsafe { call!(RedisModule_ACLCheckCommandPermissions(user, words, count)) };
            let errno = io::Error::last_os_error().raw_os_error();
            match status == raw::REDISMODULE_ERR as c_int && errno == Some(libc::EINVAL) {
                true => raw::REDISMODULE_OK as c_int,
                false => status,
            }
        })
    }

    /// Asks a question about the context's user. A user that was deleted meanwhile has no rights.
    fn is_allowed(self, ask: impl FnOnce(*mut raw::RedisModuleUser) -> c_int) -> bool {
        // SAFETY: the context is alive. The name and the user are ours until they are freed.
        unsafe {
            let name = self.name_of_client();
            if name.is_null() {
                return false;
            }
            let user = call!(RedisModule_GetModuleUserFromUserName(name));
            call!(RedisModule_FreeString(self.as_ptr(), name));
            if user.is_null() {
                return false;
            }
            let status = ask(user);
            call!(RedisModule_FreeModuleUser(user));
            status == raw::REDISMODULE_OK as c_int
        }
    }

    /// The name of the user of a client with a connection; null where there is none. The user of
    /// this function frees it.
    pub(super) fn user_name_of(self, client: u64) -> *mut raw::RedisModuleString {
        // SAFETY: the context is alive.
        unsafe { call!(RedisModule_GetClientUserNameById(self.as_ptr(), client)) }
    }
}
