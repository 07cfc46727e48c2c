//! The completion of names and the hints for arguments, as an operator sees them in redis-cli or
//! valkey-cli.

use crate::harness::{redis_cli, valkey_cli, Kind, Server, Terminal};

on_every_server![
    redis_cli_completes_and_hints_the_commands;
    from 7.0: // COMMAND DOCS
        valkey_cli_hints_the_remaining_arguments,
        redis_cli_help_describes_the_commands,
];

/// The arguments of the commands that take a hold.
const ACQUIRE: &str =
    "key token|* ttl [LIMIT n] [BLOCK timeout|NOTIFY timeout channel] [KEEP grace] [LINGER milliseconds]";
const READER_OR_WRITER: &str =
    "key token|* ttl [BLOCK timeout|NOTIFY timeout channel] [KEEP grace] [LINGER milliseconds]";
const TAB: &str = "\t";
/// Control-U empties the line.
const CLEAR: &str = "\x15";

fn redis_cli_completes_and_hints_the_commands(kind: Kind) {
    let server = Server::start(kind);
    let mut terminal = Terminal::open(&server, &redis_cli());
    // 6.2 does not describe arguments, so there are no hints.
    let hint = |of: &'static str| match (kind.is_7_0_or_later(), of) {
        (true, _) => of,
        (false, "") => "...options...",
        (false, _) => "key ...options...",
    };
    terminal.shows("LOCK.AC", "> LOCK.AC");
    terminal.shows(TAB, &format!("> LOCK.ACQUIRE {}", hint(ACQUIRE)));
    terminal.shows(" ", &format!("> LOCK.ACQUIRE {}", hint(ACQUIRE)));
    if kind.is_7_0_or_later() {
        terminal.shows(
            "k ",
            "> LOCK.ACQUIRE k token|* ttl [LIMIT n] [BLOCK timeout|NOTIFY timeout channel] [KEEP grace] [LINGER milliseconds]",
        );
        terminal.shows(
            "me ",
            "> LOCK.ACQUIRE k me ttl [LIMIT n] [BLOCK timeout|NOTIFY timeout channel] [KEEP grace] [LINGER milliseconds]",
        );
        terminal.shows(
            "1000 ",
            "> LOCK.ACQUIRE k me 1000 [LIMIT n] [BLOCK timeout|NOTIFY timeout channel] [KEEP grace] [LINGER milliseconds]",
        );
    }
    for (start, name, arguments) in [
        ("rwlock.w", "RWLOCK.WLOCK", READER_OR_WRITER),
        ("rwlock.r", "RWLOCK.RLOCK", READER_OR_WRITER),
        (
            "lock.rel",
            "LOCK.RELEASE",
            "key token [ATLEAST milliseconds]",
        ),
        ("lock.can", "LOCK.CANCEL", "key [TOKEN token]"),
        ("lock.ren", "LOCK.RENEW", "key token ttl"),
        ("lock.i", "LOCK.INFO", "key [HOLDERS n] [WAITERS n]"),
        ("lock.res", "LOCK.RESETSTAT", ""),
    ] {
        terminal.shows(CLEAR, "> ");
        terminal.shows(
            &format!("{start}{TAB} "),
            &format!("> {name} {}", hint(arguments)),
        );
    }
}

/// It matches the typed text with each argument, as redis-cli does from 7.2 on.
fn valkey_cli_hints_the_remaining_arguments(kind: Kind) {
    let server = Server::start(kind);
    let mut terminal = Terminal::open(&server, &valkey_cli());
    terminal.shows(
        &format!("lock.ac{TAB} "),
        &format!("> LOCK.ACQUIRE {ACQUIRE}"),
    );
    terminal.shows(
        "k * 1000 ",
        "> LOCK.ACQUIRE k * 1000 [LIMIT n] [BLOCK timeout|NOTIFY timeout channel] [KEEP grace] [LINGER milliseconds]",
    );
    terminal.shows(
        "LIMIT 10 ",
        "> LOCK.ACQUIRE k * 1000 LIMIT 10 [BLOCK timeout|NOTIFY timeout channel] [KEEP grace] [LINGER milliseconds]",
    );
    terminal.shows(
        "BLOCK ",
        "> LOCK.ACQUIRE k * 1000 LIMIT 10 BLOCK timeout [KEEP grace] [LINGER milliseconds]",
    );
}

fn redis_cli_help_describes_the_commands(kind: Kind) {
    let server = Server::start(kind);
    let mut terminal = Terminal::open(&server, &redis_cli());
    terminal.shows("help lock.renew\r", "");
    terminal.has_shown("LOCK.RENEW key token ttl");
    terminal.has_shown("summary: Sets the deadline of a token's hold to now + ttl.");
    terminal.has_shown("since: 0.1.0");
    terminal.has_shown("group: module");
}
