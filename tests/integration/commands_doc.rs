//! The pages of docs/commands agree with what the servers report about the commands. Their examples
//! print what they show, and so do those of docs/COMMANDS.md, README.md and docs/CONCEPTS.md.

mod page;
mod server;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use redis_lock::command::Command;

use crate::harness::commands::{self, text};
use crate::harness::{project_file, run_examples, Kind, Raw, Server};

on_every_server![
    command_info_and_the_pages_agree,
    a_server_has_exactly_the_commands_of_the_table,
    the_examples_print_the_documented_replies,
    the_examples_of_other_pages_print_the_documented_replies,
    nulls_and_maps_match_the_pages,
];

/// The pages of docs/commands, by name.
fn pages() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/commands");
    let files = fs::read_dir(folder).expect("the folder");
    let paths = files.map(|file| file.expect("a file").path());
    let mut pages: Vec<_> = paths
        .map(|path| {
            let name = path.file_name().expect("its name").to_string_lossy();
            (name.into(), fs::read_to_string(&path).expect("its text"))
        })
        .collect();
    pages.sort();
    pages
}

fn command_info_and_the_pages_agree(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let documents = page::commands(pages().iter().map(|(_, text)| &**text));
    let all: BTreeSet<_> = Command::ALL
        .iter()
        .map(|one| text(one.spec().name))
        .collect();
    assert_eq!(
        documents
            .keys()
            .map(String::as_str)
            .collect::<BTreeSet<_>>(),
        all
    );
    for (name, mut documented) in documents {
        documented.flags.insert("module".into());
        if !kind.is_7_2_or_later() {
            documented.categories.clear();
        }
        // The document says once that all are in it.
        if kind.has_module_categories() {
            documented.categories.insert("@lock".into());
        }
        let said = server::described(&mut c, &name);
        assert_eq!(said, documented, "{name}");
    }
}

fn our_commands() -> BTreeSet<String> {
    let names = commands::commands().map(|spec| text(spec.name).into());
    names.collect()
}

fn a_server_has_exactly_the_commands_of_the_table(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let all = c.call("COMMAND");
    let names = all.items().iter().map(|info| info.items()[0].to_text());
    let ours: BTreeSet<_> = names.filter(|name| name.contains("lock.")).collect();
    assert_eq!(ours, our_commands());
}

fn the_examples_print_the_documented_replies(kind: Kind) {
    let server = Server::start(kind);
    let (log, others): (Vec<_>, Vec<_>) = pages()
        .into_iter()
        .partition(|(name, _)| name == "lock.log.md");
    let mut run = 0;
    // The server finds the clients of a few forced releases in a second only, so this page comes
    // first. Valkey from 8.1 on tells them.
    let [(_, log)] = &log[..] else {
        panic!("there is no page of LOCK.LOG")
    };
    if kind == Kind::Valkey9 {
        run += run_examples(&server, log);
    }
    for (name, page) in others {
        let of_page = run_examples(&server, &page);
        assert!(of_page > 0, "{name} has no example");
        run += of_page;
    }
    assert!(run >= 40, "the pages have lost their examples");
}

fn the_examples_of_other_pages_print_the_documented_replies(kind: Kind) {
    for (page, least) in [
        ("README.md", 4),
        ("docs/CONCEPTS.md", 5),
        ("docs/COMMANDS.md", 5),
    ] {
        let run = run_examples(&Server::start(kind), &project_file(page));
        assert!(run >= least, "{page} has lost its examples");
    }
}

/// Read from the wire, because redis-cli and client libraries map two replies to one.
fn nulls_and_maps_match_the_pages(kind: Kind) {
    let server = Server::start(kind);
    let mut raw = server.raw();
    for (protocol, null, map) in [("2", "$-1", "*10"), ("3", "_", "%5")] {
        server.client().call("FLUSHALL");
        first_line(&mut raw, &format!("HELLO {protocol}"));
        for (line, expected) in [
            ("LOCK.INFO k", null),
            ("LOCK.ACQUIRE k me 30000", ":"),
            ("LOCK.ACQUIRE k you 30000", null),
            ("LOCK.ACQUIRE k you 30000 BLOCK 1", null),
            ("LOCK.ACQUIRE k you 30000 NOTIFY 0 c", "+QUEUED"),
            ("LOCK.ACQUIRE new * 30000", "*2"),
            ("LOCK.RENEW k me 30000", ":1"),
            ("LOCK.RELEASE k you", ":0"),
            ("LOCK.INFO k", map),
        ] {
            let found = first_line(&mut raw, line);
            assert!(found.starts_with(expected), "{line}: {found}");
        }
    }
}

/// The first line of a reply. The rest is read and discarded.
fn first_line(raw: &mut Raw, line: &str) -> String {
    const MARK: &str = "the-next-one";
    raw.send(line);
    raw.send(&format!("ECHO {MARK}"));
    let first = raw.line().expect("a reply");
    while raw.line().expect("the rest") != MARK {}
    first
}
