//! The rights of the context's user, where the server can be asked (7.0+).

use std::ffi::c_int;

use redis_module::raw;

use super::caller::for_client;
use super::{call, optional, Arg, Caller, Context, OwnedString};

impl Context<'_> {
    /// The name of the context's user. It is empty where the server does not say it: in scripts
    /// before 7.0, and in calls that modules make. `None` on a server that never says it, 6.2.0.
    pub(crate) fn user_name(self) -> Option<Box<[u8]>> {
        let by_client = optional!(RedisModule_GetClientUserNameById);
        let current = optional!(RedisModule_GetCurrentUserName);
        // The client of a script has no connection, by which the server looks it up. The client of
        // a module's call, and of a script that a module calls, has no user, which the second
        // function does not survive. SAFETY: the context is alive. The name is ours, and is freed
        // once.
        unsafe {
            let of_client = by_client?(self.as_ptr(), self.client_id());
            let of_client = Some(of_client).filter(|name| !name.is_null());
            let may_have = of_client.is_none() && self.is_in_script();
            let current = current.filter(|_| may_have && Caller::new(self).has_user());
            let name = of_client.or_else(|| Some(current?(self.as_ptr())));
            let Some(name) = name.filter(|name| !name.is_null()) else {
                return Some(Box::default());
            };
            let mut len = 0;
            let bytes = call!(RedisModule_StringPtrLen(name, &raw mut len));
            let text = std::slice::from_raw_parts(bytes.cast::<u8>(), len).into();
            call!(RedisModule_FreeString(self.as_ptr(), name));
            Some(text)
        }
    }

    /// Whether the context's user may publish to a channel. Yes before 7.0. No in a call that
    /// another module makes.
    pub(crate) fn may_publish(self, channel: &[u8]) -> bool {
        let channel = OwnedString::new(self, channel);
        let publishes = raw::REDISMODULE_CMD_CHANNEL_PUBLISH as c_int;
        let check = optional!(RedisModule_ACLCheckChannelPermissions);
        self.is_allowed(|user| {
            // SAFETY: the user and the string are alive.
            check.map(|check| unsafe { check(user, channel.arg().as_ptr(), publishes) })
        })
    }

    /// Whether the context's user may read a key. No before 7.0, and where no client with a
    /// connection asks: the server aborts if a context has a client without a user.
    pub(crate) fn may_read(self, key: &[u8]) -> bool {
        let (key, access) = (
            OwnedString::new(self, key),
            raw::REDISMODULE_CMD_KEY_ACCESS as c_int,
        );
        let check = optional!(RedisModule_ACLCheckKeyPermissions);
        let check = check.filter(|_| self.connection().is_some());
        check.is_some_and(|check| {
            // SAFETY: the user and the string are alive.
            self.is_allowed(|user| unsafe { Some(check(user, key.arg().as_ptr(), access)) })
        })
    }

    /// Whether the context's user may run a command with these words. Yes before 7.0, and if there
    /// is no such command. No in a call that another module makes.
    pub(crate) fn may_run(self, words: &[Arg<'_>]) -> bool {
        let mut words: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
        let count = c_int::try_from(words.len()).unwrap_or(c_int::MAX);
        let check = optional!(RedisModule_ACLCheckCommandPermissions);
        self.is_allowed(|user| {
            // SAFETY: the user and the words are alive; the server only reads the words.
            check.map(|check| unsafe { check(user, words.as_mut_ptr(), count) })
        })
    }

    /// Asks a question about the context's user. A user that was deleted meanwhile has no rights.
    fn is_allowed(self, ask: impl FnOnce(*mut raw::RedisModuleUser) -> Option<c_int>) -> bool {
        let (Some(by_client), Some(user_of), Some(free)) = (
            optional!(RedisModule_GetClientUserNameById),
            optional!(RedisModule_GetModuleUserFromUserName),
            optional!(RedisModule_FreeModuleUser),
        ) else {
            return true;
        };
        // SAFETY: the context is alive. The name and the user are ours until they are freed.
        unsafe {
            let mut name = by_client(self.as_ptr(), self.client_id());
            if let (true, Some(client)) = (name.is_null(), for_client()) {
                name = by_client(self.as_ptr(), client.get());
            }
            if name.is_null() {
                return false;
            }
            let user = user_of(name);
            call!(RedisModule_FreeString(self.as_ptr(), name));
            if user.is_null() {
                return false;
            }
            let status = ask(user);
            free(user);
            status.is_none_or(|status| status == raw::REDISMODULE_OK as c_int)
        }
    }
}
