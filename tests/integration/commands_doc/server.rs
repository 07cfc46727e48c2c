//! A server's description of the commands, in the terms of the document.

use std::collections::BTreeSet;

use super::page::Described;
use crate::harness::{Client, Reply};

/// The description from COMMAND INFO and COMMAND DOCS.
pub fn described(c: &mut Client, name: &str) -> Described {
    let reply = c.call(&format!("COMMAND INFO {name}"));
    let info = reply.items()[0].items();
    assert_eq!(info[0].to_text(), name);
    // The first key, the last one, and the step.
    let (first, specs) = (info[3].as_int(), info[8].items());
    let last = first.min(1) * specs.len() as i64;
    assert_eq!(
        info[3..6],
        [first, last, first.min(1)].map(Reply::Int),
        "{name}"
    );
    let mut said = Described {
        arity: info[1].as_int(),
        flags: info[2].words(),
        categories: info[6].words(),
        ..Described::default()
    };
    said.tips = info[7].words();
    said.keys = specs.iter().map(key).collect();
    let docs = c.call(&format!("COMMAND DOCS {name}")).field(name);
    add_docs(&mut said, name, &docs);
    said
}

fn add_docs(said: &mut Described, name: &str, docs: &Reply) {
    let field = |field: &str| docs.field(field).to_text();
    assert_eq!((&*field("group"), &*field("module")), ("module", "lock"));
    said.summary = field("summary");
    said.since = field("since");
    said.complexity = field("complexity");
    let arguments = docs.field("arguments");
    let arguments = arguments.items().iter().map(argument);
    let words: Vec<_> = [name.to_uppercase()].into_iter().chain(arguments).collect();
    said.syntax = words.join(" ");
    // The server leaves it out if it is empty.
    if let Some(history) = docs.get("history") {
        let entries = history.items().iter().map(Reply::items);
        let pairs = entries.map(|entry| (entry[0].to_text(), entry[1].to_text()));
        said.history = pairs.collect();
    }
}

/// An argument in the form of redis-cli.
fn argument(argument: &Reply) -> String {
    let parts = || {
        let parts = argument.field("arguments");
        let parts: Vec<_> = parts.items().iter().map(self::argument).collect();
        parts
    };
    let token = argument.get("token").map(|token| token.to_text());
    let value = match &*argument.field("type").to_text() {
        "pure-token" => None,
        "oneof" => Some(parts().join("|")),
        "block" => Some(parts().join(" ")),
        _ => Some(argument.field("name").to_text()),
    };
    let flags = argument.get("flags");
    let flags: BTreeSet<String> = flags.map_or_else(BTreeSet::new, |flags| flags.words());
    let is_optional_value = flags.contains("optional") && token.is_none();
    let value = value.map(
        |value| match (flags.contains("multiple"), is_optional_value) {
            (true, true) => format!("{value} ..."),
            (true, false) => format!("{value} [{value} ...]"),
            (false, _) => value,
        },
    );
    let words: Vec<_> = token.into_iter().chain(value).collect();
    match flags.contains("optional") {
        true => format!("[{}]", words.join(" ")),
        false => words.join(" "),
    }
}

/// A key spec: the position of the key, and its access flags.
fn key(spec: &Reply) -> (i64, BTreeSet<String>) {
    let search = spec.field("begin_search");
    assert_eq!(search.field("type").to_text(), "index");
    let found = spec.field("find_keys");
    let numbers = found.field("spec");
    match found.field("type").to_text().as_str() {
        "range" => assert_eq!(numbers.field("lastkey"), Reply::Int(0), "one key"),
        // The word at the place is the number of the keys right after it.
        "keynum" => {
            let is = |name, n| assert_eq!(numbers.field(name), Reply::Int(n), "{name}");
            is("keynumidx", 0);
            is("firstkey", 1);
            is("keystep", 1);
        }
        other => panic!("{other}"),
    }
    let place = search.field("spec").field("index").as_int();
    (place, spec.field("flags").words())
}
