//! Calls of the commands, from their table.

use std::ffi::CStr;

use redis_lock::command::spec::{Arg, Flag, KeyUse, KeyWords, Kind as ArgKind, Spec};
use redis_lock::command::Command;

pub fn text(of: &'static CStr) -> &'static str {
    of.to_str().unwrap()
}

/// All commands.
pub fn commands() -> impl Iterator<Item = &'static Spec> {
    Command::ALL.iter().map(|command| command.spec())
}

/// The commands of one key that every client may call. LOCK.EXEC needs the rights of its command,
/// too.
pub fn of_one_key() -> impl Iterator<Item = &'static Spec> {
    commands()
        .filter(|spec| !spec.flags.contains(&Flag::Admin))
        .filter(|spec| matches!(spec.keys, KeyWords::One(_)))
}

/// The shortest calls of [`of_one_key`] that only read.
pub fn reads() -> impl Iterator<Item = String> {
    let reads = |spec: &&Spec| spec.keys == KeyWords::One(KeyUse::Reads);
    of_one_key().filter(reads).map(shortest)
}

/// The shortest calls of [`of_one_key`] that write.
pub fn writes() -> impl Iterator<Item = String> {
    let reads = |spec: &&Spec| spec.keys == KeyWords::One(KeyUse::Reads);
    of_one_key().filter(move |spec| !reads(spec)).map(shortest)
}

/// The shortest calls of the commands for operators, and of those for the module itself.
pub fn dangerous() -> impl Iterator<Item = String> {
    let all = Command::ALL.iter().map(|command| command.spec());
    all.filter(|spec| spec.flags.contains(&Flag::Admin))
        .map(shortest)
}

/// A call with the fewest words, but with the key, which is `{}`.
pub fn shortest(spec: &Spec) -> String {
    let is_needed = |arg: &&Arg| !arg.is_optional || matches!(arg.kind, ArgKind::Key);
    let args = spec.args.iter().filter(is_needed).map(call_of);
    [text(spec.name).to_string()]
        .into_iter()
        .chain(args)
        .collect::<Vec<_>>()
        .join(" ")
}

/// An argument as a call has it.
pub fn call_of(arg: &Arg) -> String {
    let of_all = |args: &[Arg]| args.iter().map(call_of).collect::<Vec<_>>().join(" ");
    let value = match (text(arg.name), arg.kind) {
        (_, ArgKind::OneOf(args)) => call_of(&args[0]),
        (_, ArgKind::Block(args)) => of_all(args),
        (_, ArgKind::PureToken) => String::new(),
        (_, ArgKind::Key) => "{}".into(),
        ("token", _) => "me".into(),
        ("ttl", _) => "1000000".into(),
        ("command", _) => "PING".into(),
        (_, ArgKind::Integer) => "1".into(),
        (_, ArgKind::Text) => "x".into(),
    };
    let token = arg.token.map(text).unwrap_or_default();
    [token, &value].join(" ").trim().into()
}
