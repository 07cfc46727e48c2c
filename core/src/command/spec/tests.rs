//! Tests of the descriptions of all commands.

use super::*;
use crate::command::{acquire, check, resetstat, Command};

/// As a command for several keys would have it, with most kinds of arguments.
const SEVERAL: Spec = Spec {
    name: c"test.several",
    keys: KeyWords::Counted {
        key_use: KeyUse::Updates,
        count_at: 1,
    },
    args: &[
        Arg::integer(c"numkeys"),
        Arg::KEY.multiple(),
        Arg::text(c"token"),
        Arg::one_of(c"mode", MODES)
            .after(c"MODES")
            .multiple()
            .optional(),
        acquire::WAIT,
    ],
    ..acquire::SPEC
};
const MODES: &[Arg] = &[
    Arg::pure_token(c"exclusive", c"EXCLUSIVE"),
    Arg::pure_token(c"shared", c"SHARED"),
];

/// As a command that runs another one would have it.
const RUNS: Spec = Spec {
    name: c"test.runs",
    flags: &[Flag::Write, Flag::DenyScript],
    keys: KeyWords::ByCallback {
        first: KeyUse::Reads,
    },
    args: &[
        Arg::KEY,
        Arg::text(c"token"),
        Arg::text(c"command"),
        Arg::text(c"arg").optional().multiple(),
    ],
    ..acquire::SPEC
};

/// Where the arguments are among the words of the shortest call: each required one with its kind.
fn required(spec: &Spec) -> Vec<Kind> {
    let required = spec.args.iter().filter(|arg| !arg.is_optional);
    required.map(|arg| arg.kind).collect()
}

fn has(spec: &Spec, flag: Flag) -> bool {
    spec.flags.contains(&flag)
}

/// All commands, each with its description.
fn specs() -> impl Iterator<Item = &'static Spec> {
    Command::ALL.iter().map(|command| command.spec())
}

/// Counts the words outside of brackets.
#[test]
fn the_arity_follows_from_the_arguments() {
    for spec in specs().chain([&SEVERAL, &RUNS]) {
        let (mut depth, mut words) = (0, 0);
        for word in spec.syntax().split(' ') {
            words += i32::from(depth == 0 && !word.starts_with('['));
            depth = depth + word.matches('[').count() - word.matches(']').count();
        }
        let sign = if spec.syntax().contains('[') { -1 } else { 1 };
        assert_eq!(spec.arity(), sign * words, "{:?}", spec.name);
    }
}

#[test]
fn the_arity_counts_the_fewest_words_of_each_kind() {
    const PAIR: &[Arg] = &[Arg::KEY, Arg::text(c"b")];
    const UNEQUAL: &[Arg] = &[Arg::KEY, Arg::block(c"pair", PAIR)];
    let words = |arg: Arg| arg.words();
    assert_eq!(words(Arg::integer(c"a")), (1, false));
    assert_eq!(words(Arg::integer(c"a").after(c"A")), (2, false));
    assert_eq!(words(Arg::integer(c"a").optional()), (0, true));
    assert_eq!(words(Arg::KEY.multiple()), (1, true));
    assert_eq!(words(Arg::KEY.multiple().optional()), (0, true));
    assert_eq!(words(Arg::pure_token(c"a", c"A")), (1, false));
    assert_eq!(words(Arg::block(c"pair", PAIR)), (2, false));
    assert_eq!(words(Arg::block(c"pair", PAIR).after(c"A")), (3, false));
    assert_eq!(words(Arg::one_of(c"a", PAIR)), (1, false));
    assert_eq!(words(Arg::one_of(c"a", UNEQUAL)), (1, true));
    assert_eq!(words(Arg::one_of(c"mode", MODES)), (1, false));
}

/// So a reader of the file and a reader of COMMAND DOCS see the same.
#[test]
fn the_grammar_in_a_file_is_that_of_its_spec() {
    for command in Command::ALL {
        let head = format!("//! ```text\n//! {}\n//! ```\n", command.spec().syntax());
        // A long line goes on in the next one.
        let file = command.source().replace("\n//!     ", " ");
        assert!(file.starts_with(&head), "not at the head of a file: {head}");
    }
}

#[test]
fn several_keys_and_nested_options_can_be_said() {
    assert_eq!(
        SEVERAL.syntax(),
        "TEST.SEVERAL numkeys key [key ...] token [MODES EXCLUSIVE|SHARED [EXCLUSIVE|SHARED ...]] \
         [BLOCK timeout|NOTIFY timeout channel]"
    );
    assert_eq!(RUNS.syntax(), "TEST.RUNS key token command [arg ...]");
}

#[test]
fn keys_are_where_the_arguments_have_them() {
    for spec in specs().chain([&SEVERAL, &RUNS]) {
        let first = spec.args.first().map(|arg| arg.kind);
        let keys = spec.args.iter().filter(|arg| matches!(arg.kind, Kind::Key));
        match spec.keys {
            KeyWords::None => assert_eq!(keys.count(), 0, "{:?}", spec.name),
            KeyWords::Two(..) => assert_eq!(keys.count(), 2, "{:?}", spec.name),
            KeyWords::One(_) | KeyWords::ByCallback { .. } => {
                assert!(matches!(first, Some(Kind::Key)), "{:?}", spec.name);
                assert_eq!(keys.count(), 1, "{:?}", spec.name);
            }
            KeyWords::Counted { count_at, .. } => {
                let count_at = usize::try_from(count_at).unwrap();
                let kinds = required(spec);
                assert!(matches!(kinds[count_at - 1], Kind::Integer));
                assert!(matches!(kinds[count_at], Kind::Key));
            }
        }
    }
}

#[test]
fn the_position_says_what_numbers_can_say() {
    let key_use = KeyUse::Updates;
    assert_eq!(KeyWords::None.position(), (0, 0, 0));
    assert_eq!(KeyWords::One(key_use).position(), (1, 1, 1));
    assert_eq!(SEVERAL.keys.position(), (0, 0, 0));
    assert_eq!(RUNS.keys.position(), (1, 1, 1));
}

#[test]
fn the_flags_are_words_of_the_module_api() {
    for (spec, flags) in [
        (acquire::SPEC, "write deny-oom fast blocking"),
        (
            resetstat::SPEC,
            "admin deny-script allow-loading allow-stale",
        ),
        (SEVERAL, "write deny-oom fast blocking getkeys-api"),
        (RUNS, "write deny-script getkeys-api"),
    ] {
        assert_eq!(spec.flags(), flags, "{:?}", spec.name);
    }
}

/// The server gives native commands their categories by these rules.
#[test]
fn the_categories_follow_from_the_flags() {
    for (spec, categories) in [
        (acquire::SPEC, "write fast blocking"),
        (resetstat::SPEC, "admin dangerous slow"),
        (check::SPEC, "read fast"),
        (RUNS, "write slow"),
    ] {
        assert_eq!(spec.categories(), categories, "{:?}", spec.name);
    }
}

#[test]
fn a_command_that_writes_says_so_of_its_keys() {
    for spec in specs() {
        let writes = match spec.keys {
            KeyWords::Two(key_use, _)
            | KeyWords::One(key_use)
            | KeyWords::Counted { key_use, .. } => key_use != KeyUse::Reads,
            // Its command may write to keys of its own.
            KeyWords::ByCallback { .. } => true,
            _ => false,
        };
        assert_eq!(writes, has(spec, Flag::Write), "{:?}", spec.name);
    }
}
