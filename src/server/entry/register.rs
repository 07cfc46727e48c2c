//! Registers the commands: translates a [`Spec`] into the structures of the server. From 7.2 on it
//! also gets the ACL categories. From Redis 7.4 and Valkey 8 on all commands are in a category of
//! their own, too.

use std::ffi::{c_char, c_int, CStr, CString};
use std::mem::size_of;
use std::ptr;

use redis_module::raw;

use crate::server::api::{call, optional, Context, Level};
use redis_lock_core::command::spec::{Arg, Change, KeyUse, KeyWords, Kind, Spec};

/// A command's handler, as the server calls it.
pub(in crate::server) type Handler = unsafe extern "C" fn(
    *mut raw::RedisModuleCtx,
    *mut *mut raw::RedisModuleString,
    c_int,
) -> c_int;

/// The ACL category of all commands of the module.
const CATEGORY: &CStr = c"lock";

/// Makes the ACL category of the module, which must come before its commands.
///
/// It is a convenience, so no failure fails the load. Older servers cannot have it. A server has
/// room for 64 categories. Another module may have made one of this name: the commands join it.
pub(in crate::server) fn category(ctx: Context<'_>) {
    if let Some(add) = optional!(RedisModule_AddACLCategory) {
        // SAFETY: the context is alive; the server copies the name.
        unsafe { add(ctx.as_ptr(), CATEGORY.as_ptr()) };
    }
}

/// Registers a command with its handler. False if the server refuses it.
pub(in crate::server) fn command(ctx: Context<'_>, spec: &Spec, handler: Handler) -> bool {
    let registered = create(ctx, spec, handler) && describe(ctx, spec);
    if !registered {
        ctx.log(Level::Warning, c"a command could not be registered");
    }
    registered
}

fn create(ctx: Context<'_>, spec: &Spec, handler: Handler) -> bool {
    let Ok(flags) = CString::new(spec.flags()) else {
        return false;
    };
    let (first, last, step) = spec.keys.position();
    // SAFETY: the context is alive, and the server copies the strings.
    let status = unsafe {
        call!(RedisModule_CreateCommand(
            ctx.as_ptr(),
            spec.name.as_ptr(),
            Some(handler),
            flags.as_ptr(),
            first,
            last,
            step,
        ))
    };
    status == raw::REDISMODULE_OK as c_int
}

/// Tells the server what [`create`] cannot express.
fn describe(ctx: Context<'_>, spec: &Spec) -> bool {
    // SAFETY: the context is alive; the command was created just now.
    let command = unsafe { call!(RedisModule_GetCommand(ctx.as_ptr(), spec.name.as_ptr())) };
    if command.is_null() {
        return false;
    }
    // SAFETY: the server copies what it is given, strings and arrays, before it returns.
    let status = with_info(spec, |info| unsafe {
        call!(RedisModule_SetCommandInfo(command, info))
    });
    if status != raw::REDISMODULE_OK as c_int {
        return false;
    }
    let Some(set_categories) = optional!(RedisModule_SetCommandACLCategories) else {
        return true;
    };
    let set = |categories: String| {
        let categories = CString::new(categories).unwrap_or_default();
        // SAFETY: the command exists; the server reads the string before it returns.
        let status = unsafe { set_categories(command, categories.as_ptr()) };
        status == raw::REDISMODULE_OK as c_int
    };
    // The server refuses all categories of a command if it does not know one of them.
    let (all, own) = (spec.categories(), CATEGORY.to_string_lossy());
    let has_own = optional!(RedisModule_AddACLCategory).is_some();
    (has_own && set(format!("{own} {all}"))) || set(all)
}

/// Passes the spec in the server's form to `set`.
fn with_info<R>(spec: &Spec, set: impl FnOnce(*const raw::RedisModuleCommandInfo) -> R) -> R {
    let second = match spec.keys {
        KeyWords::Two(_, key_use) => Some(key_at(2, key_use)),
        _ => None,
    };
    let first = key_spec(spec.keys);
    let mut key_specs = [first, second, None].map(|spec| spec.unwrap_or(END_OF_KEY_SPECS));
    let mut groups = Groups::default();
    let args = groups.add(spec.args);
    let mut history: Vec<_> = spec.history.iter().map(change).collect();
    // COMMAND DOCS shows even an empty history, unless there is no array.
    let history_start = if history.is_empty() {
        ptr::null_mut()
    } else {
        history.push(END_OF_HISTORY);
        history.as_mut_ptr()
    };
    let info = raw::RedisModuleCommandInfo {
        version: &FORM,
        summary: spec.summary.as_ptr(),
        complexity: spec.complexity.as_ptr(),
        since: spec.since.as_ptr(),
        history: history_start,
        tips: spec.tips.map_or(ptr::null(), CStr::as_ptr),
        arity: spec.arity(),
        key_specs: key_specs.as_mut_ptr(),
        args,
    };
    set(&raw const info)
}

/// The version of the structures below, for servers with a later one.
const FORM: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

// In the server's form an array ends at an element of zeroes.
// SAFETY: a structure of numbers and pointers: all zeroes is a valid value.
const END_OF_KEY_SPECS: raw::RedisModuleCommandKeySpec = unsafe { std::mem::zeroed() };
// SAFETY: a structure of numbers and pointers: all zeroes is a valid value.
const END_OF_ARGS: raw::RedisModuleCommandArg = unsafe { std::mem::zeroed() };
const END_OF_HISTORY: raw::RedisModuleCommandHistoryEntry = raw::RedisModuleCommandHistoryEntry {
    since: ptr::null(),
    changes: ptr::null(),
};

const fn change(change: &Change) -> raw::RedisModuleCommandHistoryEntry {
    raw::RedisModuleCommandHistoryEntry {
        since: change.since.as_ptr(),
        changes: change.what.as_ptr(),
    }
}

/// How the server finds the keys, and how the command uses them.
fn key_spec(keys: KeyWords) -> Option<raw::RedisModuleCommandKeySpec> {
    let mut spec = match keys {
        KeyWords::None => return None,
        KeyWords::One(key_use)
        | KeyWords::Two(key_use, _)
        | KeyWords::ByCallback { first: key_use } => key_at(1, key_use),
        KeyWords::Counted { key_use, count_at } => key_at(count_at, key_use),
    };
    match keys {
        KeyWords::None | KeyWords::One(_) | KeyWords::Two(..) => {}
        // With this flag the server asks the handler and does not rely on the spec.
        KeyWords::ByCallback { .. } => {
            spec.flags |= u64::from(raw::REDISMODULE_CMD_KEY_INCOMPLETE);
        }
        KeyWords::Counted { .. } => {
            spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM;
            // Both are counted from the word that is the number of keys.
            spec.fk.keynum = raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_2 {
                keynumidx: 0,
                firstkey: 1,
                keystep: 1,
            };
        }
    }
    Some(spec)
}

/// One key at a word.
fn key_at(pos: c_int, key_use: KeyUse) -> raw::RedisModuleCommandKeySpec {
    let mut spec = END_OF_KEY_SPECS;
    spec.flags = flags_of(key_use).into();
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    spec.bs.index.pos = pos;
    spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    spec.fk.range = raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
        // Counted from the first key.
        lastkey: 0,
        keystep: 1,
        limit: 0,
    };
    spec
}

const fn flags_of(key_use: KeyUse) -> u32 {
    match key_use {
        KeyUse::Reads => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        KeyUse::Updates => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE,
        KeyUse::Deletes => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_DELETE,
    }
}

/// Groups of arguments in the server's form. Each is an array of its own, which does not move while
/// others point at it.
#[derive(Default)]
struct Groups {
    all: Vec<Box<[raw::RedisModuleCommandArg]>>,
    /// How many of the arguments are keys. Each has a key spec.
    keys: c_int,
}

impl Groups {
    /// Adds a group and all groups in it. The answer points at its first argument.
    fn add(&mut self, args: &[Arg]) -> *mut raw::RedisModuleCommandArg {
        let mut group: Vec<_> = args.iter().map(|arg| self.arg(arg)).collect();
        group.push(END_OF_ARGS);
        let mut group = group.into_boxed_slice();
        let start = group.as_mut_ptr();
        self.all.push(group);
        start
    }

    fn arg(&mut self, arg: &Arg) -> raw::RedisModuleCommandArg {
        let subargs = match arg.kind {
            Kind::OneOf(args) | Kind::Block(args) => self.add(args),
            Kind::Key | Kind::Text | Kind::Integer | Kind::PureToken => ptr::null_mut(),
        };
        let is_key = matches!(arg.kind, Kind::Key);
        let key_spec_index = if is_key { self.keys } else { -1 };
        self.keys = self.keys.saturating_add(is_key.into());
        raw::RedisModuleCommandArg {
            name: arg.name.as_ptr().cast::<c_char>(),
            type_: type_of(arg.kind),
            key_spec_index,
            token: arg.token.map_or(ptr::null(), CStr::as_ptr),
            flags: flags_of_arg(arg) as c_int,
            subargs,
            ..END_OF_ARGS
        }
    }
}

const fn type_of(kind: Kind) -> raw::RedisModuleCommandArgType {
    match kind {
        Kind::Key => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
        Kind::Text => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
        Kind::Integer => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
        Kind::PureToken => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
        Kind::OneOf(_) => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
        Kind::Block(_) => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
    }
}

const fn flags_of_arg(arg: &Arg) -> u32 {
    let mut flags = raw::REDISMODULE_CMD_ARG_NONE;
    if arg.is_optional {
        flags |= raw::REDISMODULE_CMD_ARG_OPTIONAL;
    }
    if arg.is_multiple {
        flags |= raw::REDISMODULE_CMD_ARG_MULTIPLE;
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the search begins, and the numbers of the range.
    fn range(keys: KeyWords) -> (c_int, c_int, c_int, u64) {
        let spec = key_spec(keys).unwrap();
        let is_range = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
        assert_eq!(spec.find_keys_type, is_range);
        // SAFETY: the type of the search says which form is there.
        let (index, range) = unsafe { (spec.bs.index, spec.fk.range) };
        (index.pos, range.lastkey, range.keystep, spec.flags)
    }

    #[test]
    fn key_specs_say_where_the_keys_are() {
        let key_use = KeyUse::Reads;
        let reads = u64::from(raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS);
        let incomplete = u64::from(raw::REDISMODULE_CMD_KEY_INCOMPLETE);
        assert!(key_spec(KeyWords::None).is_none());
        assert_eq!(range(KeyWords::One(key_use)), (1, 0, 1, reads));
        let by_callback = KeyWords::ByCallback { first: key_use };
        assert_eq!(range(by_callback), (1, 0, 1, reads | incomplete));

        let count_at = 1;
        let counted = key_spec(KeyWords::Counted { key_use, count_at }).unwrap();
        let is_counted = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM;
        assert_eq!(counted.find_keys_type, is_counted);
        // SAFETY: the type of the search says which form is there.
        let (index, keynum) = unsafe { (counted.bs.index, counted.fk.keynum) };
        assert_eq!((index.pos, counted.flags), (1, reads));
        let numbers = (keynum.keynumidx, keynum.firstkey, keynum.keystep);
        assert_eq!(numbers, (0, 1, 1));
    }

    #[test]
    fn groups_of_arguments_stay_where_they_are() {
        const NOTIFY: &[Arg] = &[Arg::integer(c"timeout"), Arg::text(c"channel")];
        const WAIT: &[Arg] = &[
            Arg::integer(c"timeout").after(c"BLOCK"),
            Arg::block(c"notify", NOTIFY).after(c"NOTIFY"),
        ];
        let args = [
            Arg::KEY.multiple(),
            Arg::one_of(c"wait", WAIT).optional(),
            Arg::text(c"last"),
        ];
        let mut groups = Groups::default();
        let mut found = Vec::new();
        // SAFETY: each array ends at an element of zeroes, and `groups` keeps all of them.
        unsafe { walk(groups.add(&args), 0, &mut found) };
        let (key, integer, text) = (3, 1, 0);
        let (one_of, block) = (7, 8);
        let expected = [
            (0, "key", "", key, 0, 2),
            (0, "wait", "", one_of, -1, 1),
            (1, "timeout", "BLOCK", integer, -1, 0),
            (1, "notify", "NOTIFY", block, -1, 0),
            (2, "timeout", "", integer, -1, 0),
            (2, "channel", "", text, -1, 0),
            (0, "last", "", text, -1, 0),
        ];
        assert_eq!(found, expected);
    }

    /// Depth, name, token, type, key spec and flags.
    type Found = (usize, &'static str, &'static str, u32, c_int, c_int);

    /// # Safety
    /// `arg` points at an array that ends at an element of zeroes, and so do all arrays in it.
    unsafe fn walk(
        mut arg: *const raw::RedisModuleCommandArg,
        depth: usize,
        found: &mut Vec<Found>,
    ) {
        let text = |start: *const c_char| match start.is_null() {
            true => "",
            // SAFETY: the strings are constants that end with NUL.
            false => unsafe { CStr::from_ptr(start) }.to_str().unwrap(),
        };
        // SAFETY: the caller's word.
        while let Some(one) = unsafe { arg.as_ref() }.filter(|one| !one.name.is_null()) {
            let (name, token) = (text(one.name), text(one.token));
            found.push((depth, name, token, one.type_, one.key_spec_index, one.flags));
            // SAFETY: as above; no array is the null pointer, which has no elements.
            unsafe { walk(one.subargs, depth + 1, found) };
            // SAFETY: the end of the array has not been reached.
            arg = unsafe { arg.add(1) };
        }
    }
}
