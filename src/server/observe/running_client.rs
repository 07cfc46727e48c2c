//! The client whose command is running, while a method of the type is called.
//!
//! The server calls the methods of a type without a client. `CLIENT LIST` tells the client: the
//! words of a command are in the field `argv-mem` from their arrival until the command is done. So
//! the running client is among those with a value there that are not blocked. Where there is more
//! than one, because others have sent a command in part, or the server's threads have read some
//! ahead, nobody is named.
//!
//! Valkey from 8.1 on tells it exactly: `CLIENT LIST SKIPME YES` leaves the running client out,
//! also when a module calls it. There, a removal that no client has run names nobody.
//!
//! On the other servers such a removal could be blamed on a client that is sending a command just
//! then. So the command must be one that writes. In a cluster the slot must be served here:
//! otherwise the server has removed the key by itself, because its slot has gone.
//!
//! The calls change nothing and open no lock, so they are safe in the middle of a deletion. EXISTS
//! would delete a key that has expired, so the name that it asks for is one that nobody can know.

use std::cell::Cell;

use uuid::Uuid;

use crate::lock::slot::hashed_part;
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

/// Whether this server knows SKIPME in CLIENT LIST, once that is known.
#[derive(Default)]
pub(in crate::server) struct Knowledge {
    knows_skipme: Cell<Option<bool>>,
}

impl Knowledge {
    /// The client that has removed `key`, or the whole database; `None` if that is not certain.
    pub(in crate::server) fn client_that_removes(
        &self,
        caller: &mut Caller<'_>,
        key: Option<&[u8]>,
    ) -> Option<Client> {
        let reply = caller.call_with(c"CLIENT", &[b"LIST"]).ok()?;
        let mut candidates: Vec<_> = candidates(reply.part().text()?).collect();
        drop(reply);
        let is_exact = self.retain_skipped(caller, &mut candidates);
        let client = candidates.pop().filter(|_| candidates.is_empty())?;
        let is_own = client.command.starts_with(b"lock.") || client.command.starts_with(b"rwlock.");
        let ends_nothing = is_own && *client.command != *b"lock.exec";
        if ends_nothing || caller.command_has_flag(&client.command, b"readonly") == Some(true) {
            return None; // It has found a key that had ended already.
        }
        let is_certain = is_exact || is_served_here(caller, key);
        is_certain.then_some(client)
    }

    /// Leaves only the candidates that SKIPME leaves out. False if the server does not know it.
    fn retain_skipped(&self, caller: &mut Caller<'_>, candidates: &mut Vec<Client>) -> bool {
        if self.knows_skipme.get() == Some(false) || candidates.is_empty() {
            return false;
        }
        let ids = candidates.iter().map(|client| client.id.to_string());
        let ids: Vec<_> = ids.collect();
        let mut words = vec![&b"LIST"[..], b"ID"];
        words.extend(ids.iter().map(|id| id.as_bytes()));
        words.extend([&b"SKIPME"[..], b"YES"]);
        let reply = caller.call_with(c"CLIENT", &words);
        self.knows_skipme.set(Some(reply.is_ok()));
        let Ok(reply) = reply else {
            return false;
        };
        let others = reply.part().text().unwrap_or_default();
        let others: Vec<_> = lines(others).filter_map(id_of).collect();
        candidates.retain(|client| !others.contains(&client.id));
        true
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

/// Whether this node of a cluster serves the slot of a key. Another name in the same slot is asked
/// for: the key itself is being removed.
fn is_served_here(caller: &mut Caller<'_>, key: Option<&[u8]>) -> bool {
    let is_cluster = caller.context().is_cluster();
    let Some(key) = key.filter(|_| is_cluster) else {
        return true;
    };
    neighbour_of(key).is_some_and(|neighbour| caller.may_read(&neighbour))
}

/// Another name in the slot of a key; `None` if there is none by way of a hash tag.
fn neighbour_of(key: &[u8]) -> Option<Vec<u8>> {
    let tag = hashed_part(key);
    if tag.is_empty() || tag.contains(&b'}') {
        return None;
    }
    let unknown = Uuid::new_v4().hyphenated().to_string();
    Some([b"{", tag, b"}:redis-lock:", unknown.as_bytes()].concat())
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

    #[test]
    fn a_neighbour_has_the_same_tag() {
        for (key, tag) in [
            ("jobs:1", "jobs:1"),
            ("{a}b", "a"),
            ("x{a}{b}", "a"),
            ("x{{a}", "{a"),
            ("{}x", "{}x"),
            ("{x", "{x"),
            ("", ""),
        ] {
            assert_eq!(hashed_part(key.as_bytes()), tag.as_bytes(), "{key}");
            let neighbour = neighbour_of(key.as_bytes());
            let same_tag = |neighbour: Vec<u8>| hashed_part(&neighbour) == tag.as_bytes();
            let has_none = tag.is_empty() || tag.contains('}');
            assert!(neighbour.clone().map_or(has_none, same_tag), "{key}");
            // Nobody can have made a key of this name, which would be deleted if it has expired.
            assert!(
                has_none || neighbour != neighbour_of(key.as_bytes()),
                "{key}"
            );
        }
    }
}
