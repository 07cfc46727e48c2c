//! The client whose command is running, while a method of the type is called.
//!
//! The server calls the methods of a type without a client. Valkey from 8.1 on tells it all the
//! same: `CLIENT LIST SKIPME YES` leaves the running client out, also when a module calls it. A
//! removal that no client has run names nobody. Other servers do not tell it, so nobody is named.
//!
//! The calls change nothing and open no lock, so they are safe in the middle of a deletion.

use std::cell::Cell;

use crate::server::api::{client_field, Caller};

/// How many bytes of a name are kept.
const LONGEST_NAME: usize = 256;

/// A client as CLIENT LIST shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::server) struct Client {
    pub(in crate::server) id: u64,
    pub(in crate::server) user: Box<[u8]>,
    pub(in crate::server) address: Box<[u8]>,
    pub(in crate::server) name: Box<[u8]>,
    /// Its command, in lower case.
    pub(in crate::server) command: Box<[u8]>,
}

/// Whether it is known that this server has no SKIPME in CLIENT LIST.
#[derive(Default)]
pub(in crate::server) struct Knowledge {
    lacks_skipme: Cell<bool>,
}

impl Knowledge {
    /// The client that removes a lock or empties a database now; `None` if the server does not tell
    /// it.
    pub(in crate::server) fn client_that_removes(&self, caller: &mut Caller<'_>) -> Option<Client> {
        if self.lacks_skipme.get() {
            return None;
        }
        let client = self.running_client(caller)?;
        let is_own = client.command.starts_with(b"lock.") || client.command.starts_with(b"rwlock.");
        let ends_nothing = is_own && *client.command != *b"lock.exec";
        if ends_nothing || caller.command_has_flag(&client.command, b"readonly") == Some(true) {
            return None; // It has found a key that had ended already.
        }
        Some(client)
    }

    fn running_client(&self, caller: &mut Caller<'_>) -> Option<Client> {
        let reply = caller.call_with(c"CLIENT", &[b"LIST"]).ok()?;
        let candidates: Vec<_> = candidates(reply.part().text()?).collect();
        drop(reply);
        if candidates.is_empty() {
            return None;
        }
        let ids: Vec<_> = candidates.iter().map(|one| one.id.to_string()).collect();
        let ids = ids.iter().map(|id| id.as_bytes());
        let words = [&b"LIST"[..], b"ID"].into_iter().chain(ids);
        let words: Vec<_> = words.chain([&b"SKIPME"[..], b"YES"]).collect();
        let reply = caller.call_with(c"CLIENT", &words);
        self.lacks_skipme.set(reply.is_err());
        let reply = reply.ok()?;
        let others: Vec<_> = lines(reply.part().text()?).filter_map(id_of).collect();
        let is_other = |client: &Client| others.contains(&client.id);
        candidates.into_iter().find(|client| !is_other(client))
    }
}

/// The clients that may be running a command now.
fn candidates(list: &[u8]) -> impl Iterator<Item = Client> + '_ {
    lines(list).filter(|line| may_run(line)).filter_map(client)
}

fn lines(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == b'\n')
}

fn number(line: &[u8], name: &str) -> Option<u64> {
    std::str::from_utf8(client_field(line, name)?)
        .ok()?
        .parse()
        .ok()
}

fn id_of(line: &[u8]) -> Option<u64> {
    number(line, "id")
}

/// Whether it has sent a command that is not done, and is not blocked.
fn may_run(line: &[u8]) -> bool {
    let is_blocked = client_field(line, "flags").is_some_and(|flags| flags.contains(&b'b'));
    number(line, "argv-mem").is_some_and(|bytes| bytes > 0) && !is_blocked
}

fn client(line: &[u8]) -> Option<Client> {
    let text = |name| {
        let text = client_field(line, name).unwrap_or_default();
        text.get(..LONGEST_NAME).unwrap_or(text).into()
    };
    Some(Client {
        id: id_of(line)?,
        user: text("user"),
        address: text("addr"),
        name: text("name"),
        command: client_field(line, "cmd")?.to_ascii_lowercase().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &[u8] = b"id=3 addr=127.0.0.1:50742 laddr=127.0.0.1:6379 fd=8 name= age=1 idle=0 \
        flags=N db=0 sub=0 psub=0 multi=-1 qbuf=26 qbuf-free=0 argv-mem=10 obl=0 oll=0 omem=0 \
        tot-mem=1 events=r cmd=del user=default redir=-1\n\
        id=4 addr=[::1]:1 name=cmd=x flags=b argv-mem=40 cmd=blpop user=bob\n\
        id=5 addr=/tmp/socket:0 name=argv-mem=7 flags=x argv-mem=0 cmd=EXEC user=bob\n\
        id=6 addr=? name=w flags=N argv-mem=3 cmd=config|set user=bob\n";

    #[test]
    fn candidates_have_words_and_are_not_blocked() {
        let found: Vec<_> = candidates(LIST).collect();
        let expected = |id, address: &str, user: &str, name: &str, command: &str| Client {
            id,
            user: user.as_bytes().into(),
            address: address.as_bytes().into(),
            name: name.as_bytes().into(),
            command: command.as_bytes().into(),
        };
        let all = [
            expected(3, "127.0.0.1:50742", "default", "", "del"),
            expected(6, "?", "bob", "w", "config|set"),
        ];
        assert_eq!(found, all);
        assert_eq!(candidates(b"").count(), 0);
    }
}
