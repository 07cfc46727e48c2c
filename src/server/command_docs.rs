//! What COMMAND DOCS, COMMAND INFO and COMMAND GETKEYS answer (7.0+): arity, key flags, summary and arguments.

use std::ffi::{c_char, c_int, CStr};
use std::mem::size_of;
use std::ptr;

use redis_module::raw;

/// A command's description.
#[derive(Clone, Copy)]
pub(super) struct Docs {
    summary: &'static CStr,
    complexity: &'static CStr,
    /// As COMMAND INFO counts: the name included, negative when more may follow.
    arity: c_int,
    key: Option<KeyUse>,
    /// Those after the key.
    args: &'static [Arg],
}

/// What the command does to its key: the ground of the ACL rules `%R~` and `%W~`.
#[derive(Clone, Copy)]
enum KeyUse {
    /// Needs the permission to read.
    Reads,
    /// Needs the permission to write.
    Updates,
    /// Needs the permission to write.
    Deletes,
}

#[derive(Clone, Copy)]
enum Arg {
    Text(&'static CStr),
    Integer(&'static CStr),
    /// `[BLOCK timeout]`
    Block,
}

const TAKE: &[Arg] = &[Arg::Text(c"token"), Arg::Integer(c"ttl"), Arg::Block];

pub(super) const ACQUIRE: Docs = Docs {
    summary: c"Takes the exclusive hold of a lock and returns its fence.",
    complexity: c"O(1)",
    arity: -4,
    key: Some(KeyUse::Updates),
    args: TAKE,
};
pub(super) const WLOCK: Docs = Docs {
    summary: c"Takes the exclusive (writer's) hold of a lock and returns its fence.",
    ..ACQUIRE
};
pub(super) const RLOCK: Docs = Docs {
    summary: c"Takes a shared (reader's) hold of a lock and returns its fence.",
    complexity: c"O(log(N)) where N is the number of shared holds.",
    ..ACQUIRE
};
pub(super) const RELEASE: Docs = Docs {
    summary: c"Ends a token's hold of a lock.",
    complexity: c"O(1) for an exclusive hold, O(log(N)) for one of N shared holds.",
    arity: 3,
    key: Some(KeyUse::Deletes),
    args: &[Arg::Text(c"token")],
};
pub(super) const RENEW: Docs = Docs {
    summary: c"Sets the deadline of a token's hold to now + ttl.",
    complexity: c"O(1) for an exclusive hold, O(log(N)) for one of N shared holds.",
    arity: 4,
    key: Some(KeyUse::Updates),
    args: &[Arg::Text(c"token"), Arg::Integer(c"ttl")],
};
pub(super) const INFO: Docs = Docs {
    summary: c"Returns who holds a lock and who waits for it.",
    complexity: c"O(N*log(N)) where N is the number of holds.",
    arity: 2,
    key: Some(KeyUse::Reads),
    args: &[],
};
pub(super) const RESETSTAT: Docs = Docs {
    summary: c"Resets the counters and percentiles of the section lock of INFO.",
    complexity: c"O(1)",
    arity: 1,
    key: None,
    args: &[],
};
pub(super) const APPLY: Docs = Docs {
    summary: c"Carries a decided change to replicas and the append-only file. Refused to clients.",
    complexity: c"As the command whose effect it carries.",
    arity: -3,
    key: Some(KeyUse::Updates),
    args: &[Arg::Text(c"record")],
};

pub(super) const APPLY_RELEASE: Docs = Docs {
    summary: c"Carries a release to replicas and the append-only file. Refused to clients.",
    complexity: c"O(1)",
    arity: 3,
    key: Some(KeyUse::Updates),
    args: &[Arg::Text(c"token")],
};

impl Docs {
    /// Where the key stands among the words of the command; 0 is nowhere.
    pub(super) const fn key_position(&self) -> c_int {
        match self.key {
            Some(_) => 1,
            None => 0,
        }
    }

    /// Lends the description in the server's form to `tell`.
    pub(super) fn with_info<R>(
        &self,
        tell: impl FnOnce(*const raw::RedisModuleCommandInfo) -> R,
    ) -> R {
        let key_spec = self.key.map_or(END_OF_KEY_SPECS, KeyUse::spec);
        let mut key_specs = [key_spec, END_OF_KEY_SPECS];
        let mut block = [
            Arg::with_token(c"BLOCK"),
            Arg::Integer(c"timeout").raw(ptr::null_mut()),
            END_OF_ARGS,
        ];
        let mut args = Vec::from_iter(self.key.map(|_| key_arg()));
        for arg in self.args {
            args.push(arg.raw(block.as_mut_ptr()));
        }
        args.push(END_OF_ARGS);
        let info = raw::RedisModuleCommandInfo {
            version: &FORM,
            summary: self.summary.as_ptr(),
            complexity: self.complexity.as_ptr(),
            since: SINCE.as_ptr(),
            history: ptr::null_mut(),
            tips: ptr::null(),
            arity: self.arity,
            key_specs: key_specs.as_mut_ptr(),
            args: args.as_mut_ptr(),
        };
        tell(&raw const info)
    }
}

/// The form of the structures below, for servers that know a later one.
const FORM: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

/// The version of the module in which the commands came.
const SINCE: &CStr = c"0.1.0";

impl KeyUse {
    fn spec(self) -> raw::RedisModuleCommandKeySpec {
        let flags = match self {
            Self::Reads => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
            Self::Updates => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE,
            Self::Deletes => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_DELETE,
        };
        let mut spec = END_OF_KEY_SPECS;
        spec.flags = flags.into();
        spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
        spec.bs.index.pos = 1;
        spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
        spec.fk.range = raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
            lastkey: 0,
            keystep: 1,
            limit: 0,
        };
        spec
    }
}

/// The server takes an array to end at an element of zeroes.
// SAFETY: a structure of numbers and pointers: all zeroes is a value of it.
const END_OF_KEY_SPECS: raw::RedisModuleCommandKeySpec = unsafe { std::mem::zeroed() };
// SAFETY: a structure of numbers and pointers: all zeroes is a value of it.
const END_OF_ARGS: raw::RedisModuleCommandArg = unsafe { std::mem::zeroed() };

impl Arg {
    fn raw(self, block: *mut raw::RedisModuleCommandArg) -> raw::RedisModuleCommandArg {
        match self {
            Self::Text(name) => named(
                name,
                raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
            ),
            Self::Integer(name) => named(
                name,
                raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
            ),
            Self::Block => raw::RedisModuleCommandArg {
                flags: raw::REDISMODULE_CMD_ARG_OPTIONAL as c_int,
                subargs: block,
                ..named(
                    c"block",
                    raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
                )
            },
        }
    }

    fn with_token(token: &'static CStr) -> raw::RedisModuleCommandArg {
        raw::RedisModuleCommandArg {
            token: token.as_ptr(),
            ..named(
                c"block",
                raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
            )
        }
    }
}

fn key_arg() -> raw::RedisModuleCommandArg {
    named(
        c"key",
        raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
    )
}

fn named(name: &'static CStr, type_: raw::RedisModuleCommandArgType) -> raw::RedisModuleCommandArg {
    let is_key = type_ == raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY;
    raw::RedisModuleCommandArg {
        name: name.as_ptr().cast::<c_char>(),
        type_,
        key_spec_index: if is_key { 0 } else { -1 },
        ..END_OF_ARGS
    }
}
