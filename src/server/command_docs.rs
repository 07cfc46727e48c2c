//! What COMMAND DOCS, COMMAND INFO and COMMAND GETKEYS answer (7.0+): arity, key flags, summary, arguments and tips. docs/COMMANDS.md
//! says the same, which a test sees to.

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
    /// For clients and proxies, words with a space between: <https://redis.io/docs/latest/develop/reference/command-tips/>.
    tips: Option<&'static CStr>,
    /// The version of the module in which the command came. None has changed since: it would be told in `history`.
    since: &'static CStr,
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
    /// As `Updates`, of a key that may be left out.
    MayUpdate,
}

#[derive(Clone, Copy)]
enum Arg {
    Text(&'static CStr),
    Optional(&'static CStr),
    Integer(&'static CStr),
    /// `token|*`
    Owner,
    /// `[BLOCK timeout]`
    Block,
}

const TAKE: &[Arg] = &[Arg::Owner, Arg::Integer(c"ttl"), Arg::Block];

/// The same command on the same data may answer something else: fences and made tokens are new each time, and time passes.
const NEVER_TWICE: Option<&CStr> = Some(c"nondeterministic_output");

pub(super) const ACQUIRE: Docs = Docs {
    summary: c"Takes the exclusive hold of a lock and returns its fence.",
    complexity: c"O(1), and O(log(M)) to wait behind M others.",
    arity: -4,
    key: Some(KeyUse::Updates),
    args: TAKE,
    tips: NEVER_TWICE,
    since: c"0.1.0",
};
pub(super) const WLOCK: Docs = Docs {
    summary: c"Takes the exclusive (writer's) hold of a lock and returns its fence.",
    ..ACQUIRE
};
pub(super) const RLOCK: Docs = Docs {
    summary: c"Takes a shared (reader's) hold of a lock and returns its fence.",
    complexity: c"O(log(N)) for N shared holds, and O(log(M)) to wait behind M others.",
    ..ACQUIRE
};
pub(super) const RELEASE: Docs = Docs {
    summary: c"Ends a token's hold of a lock.",
    complexity: c"O(1) for an exclusive hold, O(log(N)) for one of N shared holds, and O(log(M)) of M waiters for each that is let in.",
    arity: 3,
    key: Some(KeyUse::Deletes),
    args: &[Arg::Text(c"token")],
    tips: None,
    since: c"0.1.0",
};
pub(super) const RENEW: Docs = Docs {
    summary: c"Sets the deadline of a token's hold to now + ttl.",
    complexity: c"O(1) for an exclusive hold, O(log(N)) for one of N shared holds.",
    arity: 4,
    key: Some(KeyUse::Updates),
    args: &[Arg::Text(c"token"), Arg::Integer(c"ttl")],
    tips: None,
    since: c"0.1.0",
};
pub(super) const INFO: Docs = Docs {
    summary: c"Returns who holds a lock and who waits for it.",
    complexity: c"O(N*log(N)+M) for N holds and M waiters.",
    arity: 2,
    key: Some(KeyUse::Reads),
    args: &[],
    tips: NEVER_TWICE,
    since: c"0.1.0",
};
pub(super) const RESETSTAT: Docs = Docs {
    summary: c"Resets the counters and percentiles of the section lock of INFO.",
    complexity: c"O(1)",
    arity: 1,
    key: None,
    args: &[],
    // Of a cluster, as CONFIG RESETSTAT.
    tips: Some(c"request_policy:all_nodes response_policy:all_succeeded"),
    since: c"0.1.0",
};
pub(super) const APPLY: Docs = Docs {
    summary: c"Carries a decided change to replicas and the append-only file. Refused to clients.",
    complexity: c"As the command whose effect it carries.",
    arity: -3,
    key: Some(KeyUse::Updates),
    args: &[Arg::Optional(c"token"), Arg::Text(c"record")],
    tips: None,
    since: c"0.1.0",
};

pub(super) const APPLY_RELEASE: Docs = Docs {
    summary: c"Carries a release to replicas and the append-only file. Refused to clients.",
    complexity: c"O(1)",
    arity: 3,
    key: Some(KeyUse::Updates),
    args: &[Arg::Text(c"token")],
    tips: None,
    since: c"0.1.0",
};

pub(super) const WRITABLE: Docs = Docs {
    summary: c"Asks for the module whether the server accepts writes now. Refused to clients.",
    complexity: c"O(1)",
    arity: -1,
    key: Some(KeyUse::MayUpdate),
    args: &[],
    tips: None,
    since: c"0.2.0",
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
        let mut owner = [
            named(c"token", TEXT),
            raw::RedisModuleCommandArg {
                token: c"*".as_ptr(),
                ..named(c"make", PURE_TOKEN)
            },
            END_OF_ARGS,
        ];
        let mut args = Vec::from_iter(self.key.map(KeyUse::arg));
        for arg in self.args {
            args.push(arg.raw(owner.as_mut_ptr()));
        }
        args.push(END_OF_ARGS);
        let info = raw::RedisModuleCommandInfo {
            version: &FORM,
            summary: self.summary.as_ptr(),
            complexity: self.complexity.as_ptr(),
            since: self.since.as_ptr(),
            history: ptr::null_mut(),
            tips: self.tips.map_or(ptr::null(), CStr::as_ptr),
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

impl KeyUse {
    fn arg(self) -> raw::RedisModuleCommandArg {
        let key = named(c"key", KEY);
        match self {
            Self::MayUpdate => optional(key),
            Self::Reads | Self::Updates | Self::Deletes => key,
        }
    }

    fn spec(self) -> raw::RedisModuleCommandKeySpec {
        let flags = match self {
            Self::Reads => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
            Self::Updates | Self::MayUpdate => {
                raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE
            }
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
    /// `owner` is what an [`Arg::Owner`] is one of.
    fn raw(self, owner: *mut raw::RedisModuleCommandArg) -> raw::RedisModuleCommandArg {
        match self {
            Self::Text(name) => named(name, TEXT),
            Self::Optional(name) => optional(named(name, TEXT)),
            Self::Integer(name) => named(name, INTEGER),
            Self::Owner => raw::RedisModuleCommandArg {
                subargs: owner,
                ..named(c"token", ONE_OF)
            },
            Self::Block => optional(raw::RedisModuleCommandArg {
                token: c"BLOCK".as_ptr(),
                ..named(c"timeout", INTEGER)
            }),
        }
    }
}

const KEY: raw::RedisModuleCommandArgType = raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY;
const TEXT: raw::RedisModuleCommandArgType =
    raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING;
const INTEGER: raw::RedisModuleCommandArgType =
    raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER;
const PURE_TOKEN: raw::RedisModuleCommandArgType =
    raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN;
const ONE_OF: raw::RedisModuleCommandArgType =
    raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF;

fn optional(arg: raw::RedisModuleCommandArg) -> raw::RedisModuleCommandArg {
    raw::RedisModuleCommandArg {
        flags: raw::REDISMODULE_CMD_ARG_OPTIONAL as c_int,
        ..arg
    }
}

fn named(name: &'static CStr, type_: raw::RedisModuleCommandArgType) -> raw::RedisModuleCommandArg {
    raw::RedisModuleCommandArg {
        name: name.as_ptr().cast::<c_char>(),
        type_,
        key_spec_index: if type_ == KEY { 0 } else { -1 },
        ..END_OF_ARGS
    }
}
