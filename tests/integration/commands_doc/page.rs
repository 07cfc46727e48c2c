//! Parses the pages of docs/commands: the syntax and the lines at the head of each command.

use std::collections::{BTreeMap, BTreeSet};

/// The description of a command, by the document or by a server.
#[derive(Debug, Default, PartialEq)]
pub struct Described {
    /// The form that redis-cli prints: `LOCK.RENEW key token ttl`.
    pub syntax: String,
    pub summary: String,
    pub since: String,
    pub complexity: String,
    pub arity: i64,
    pub flags: BTreeSet<String>,
    /// The position of each key, or of their number, and its access flags.
    pub keys: Vec<(i64, BTreeSet<String>)>,
    pub categories: BTreeSet<String>,
    pub tips: BTreeSet<String>,
    /// A version and a change.
    pub history: Vec<(String, String)>,
}

/// The commands of the pages by name, in lower case.
pub fn commands<'a>(pages: impl Iterator<Item = &'a str>) -> BTreeMap<String, Described> {
    let plain: String = pages.map(|page| format!("\n{page}")).collect();
    let plain = plain.replace("\\_", "_");
    // A section with its own heading belongs to the command before it. Only its history is
    // compared.
    let mut found = BTreeMap::new();
    let mut last = None;
    for section in plain.split("\n#") {
        let Some((title, body)) = section.split_once('\n') else {
            continue;
        };
        let title = title.trim_start_matches('#').trim();
        if is_command(title) {
            let name = title.to_lowercase();
            found.insert(name.clone(), described(body));
            last = Some(name);
        } else if title == "History" {
            let name = last.as_ref().expect("a history is a command's");
            found.get_mut(name).expect("it is there").history = history(body);
        }
    }
    found
}

fn is_command(title: &str) -> bool {
    let of_name = |c: char| c.is_ascii_uppercase() || "._".contains(c);
    title.contains('.') && title.chars().all(of_name)
}

fn described(body: &str) -> Described {
    let (_, rest) = body.split_once("```\n").expect("a block with the syntax");
    let (syntax, rest) = rest.split_once("\n```\n").expect("its end");
    let summary = rest.trim_start().lines().next().expect("a summary");
    let get = |name: &str| {
        let start = format!("**{name}**: ");
        let mut lines = rest.lines().filter_map(|line| line.strip_prefix(&start));
        lines.next().map(|line| line.trim_end_matches('\\'))
    };
    let field = |name: &str| get(name).unwrap_or_else(|| panic!("{syntax} has no {name}"));
    let arity = field("Arity").parse().expect("an arity is an integer");
    let key = |spec: &str| {
        let (place, flags) = spec.split_once(',')?;
        Some((
            place.trim().parse().expect("a place is a number"),
            quoted(flags),
        ))
    };
    Described {
        syntax: in_one_line(syntax),
        summary: summary.into(),
        since: field("Since").into(),
        complexity: field("Time complexity").into(),
        arity,
        flags: quoted(field("Command flags")),
        keys: field("Key specs").split(';').filter_map(key).collect(),
        categories: quoted(field("ACL categories")),
        tips: quoted(get("Tips").unwrap_or_default()),
        history: Vec::new(),
    }
}

/// The syntax as redis-cli prints it: without line breaks and `<a | b>`.
fn in_one_line(syntax: &str) -> String {
    let words: Vec<_> = syntax.split_whitespace().collect();
    words.join(" ").replace(" | ", "|").replace(['<', '>'], "")
}

/// The words in backquotes.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(String::from)
        .collect()
}

/// `- 0.2.0: what has changed`
fn history(body: &str) -> Vec<(String, String)> {
    let items = body.lines().filter_map(|line| line.strip_prefix("- "));
    items
        .map(|item| {
            let (version, change) = item.split_once(": ").expect("a version and a change");
            (version.into(), change.into())
        })
        .collect()
}
