//! The fixture of the refusal tests: a primary with a replica, and everything that a command could
//! change.

use std::fmt::Debug;

use crate::harness::{Client, Kind, Reply, Server, AT_ONCE};

pub type Line = Vec<Vec<u8>>;

fn line(words: &[&[u8]]) -> Line {
    words.iter().map(|word| word.to_vec()).collect()
}

pub fn words(text: &str) -> Line {
    line(&text.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

/// A primary that counts every replicated byte, with a key of each kind.
pub struct Fixture {
    _server: Server,
    _replica: Server,
    pub c: Client,
}

const KEYS: [&str; 12] = [
    "free",
    "held",
    "shared",
    "capped",
    "persisted",
    "string",
    "list",
    "hash",
    "stream",
    "set",
    "zset",
    "legacy",
];

/// Everything that a command could change.
#[derive(Debug, PartialEq)]
struct State {
    dumps: Vec<Reply>,
    digests: Vec<Reply>,
    keys: i64,
    changes: String,
    offset: String,
}

impl Fixture {
    pub fn set_up(kind: Kind) -> Self {
        // Only commands may move the offset, so there are no pings and no second replica.
        let server = Server::start_with(kind, &AT_ONCE);
        let replica = Server::start(kind);
        let mut c = server.client();
        for command in [
            "LOCK.ACQUIRE held me 50000000",
            "RWLOCK.RLOCK shared a 50000000",
            "RWLOCK.RLOCK shared b 60000000",
            "LOCK.ACQUIRE capped me 50000000",
            "PEXPIRE capped 40000000",
            "LOCK.ACQUIRE persisted me 50000000",
            "PERSIST persisted",
            // The next command on the lock restores its ttl.
            "LOCK.RELEASE persisted nobody",
            "SET string v",
            "RPUSH list v",
            "HSET hash f v",
            "XADD stream * f v",
            "SADD set v",
            "ZADD zset 1 v",
            "SET legacy v NX PX 50000000",
        ] {
            let reply = c.call(command);
            assert!(!matches!(reply, Reply::Error(_)), "{command}: {reply:?}");
        }
        assert!(c.int("PTTL persisted") > 0);
        replica.follow(&server);
        server.wait_for_its_replica();
        replica.wait_until_link_is_up();
        Self {
            _server: server,
            _replica: replica,
            c,
        }
    }

    fn state(&mut self) -> State {
        let mut of_keys = |command: &[&[u8]]| {
            let commands: Vec<Line> = KEYS
                .iter()
                .map(|key| line(&[command, &[key.as_bytes()]].concat()))
                .collect();
            self.c.pipeline(&commands)
        };
        State {
            dumps: of_keys(&[b"DUMP"]),
            digests: of_keys(&[b"DEBUG", b"DIGEST-VALUE"]),
            keys: self.c.int("DBSIZE"),
            changes: self.c.info("rdb_changes_since_last_save"),
            offset: self.c.info("master_repl_offset"),
        }
    }

    /// The expiry of each key. Negative if it has none.
    fn ends_ms(&mut self) -> Vec<i64> {
        let end_ms = |key| self.c.int(&format!("PEXPIRETIME {key}"));
        KEYS.into_iter().map(end_ms).collect()
    }

    /// Runs `f` and fails if it changed anything.
    #[track_caller]
    pub fn unchanged<R>(&mut self, what: &dyn Debug, f: impl FnOnce(&mut Client) -> R) -> R {
        let (before, ends_before) = (self.state(), self.ends_ms());
        let result = f(&mut self.c);
        assert_eq!(self.c.call("PING"), Reply::Simple("PONG".into()));
        let (after, ends_after) = (self.state(), self.ends_ms());
        assert_eq!(after, before, "changed by {what:?}");
        assert_eq!(ends_after, ends_before, "ends moved by {what:?}");
        result
    }

    /// Runs `f` and fails if no byte of it reached the replica. This proves that `unchanged` would
    /// notice a change.
    #[track_caller]
    pub fn changed(&mut self, command: &str) -> i64 {
        let before = self.state();
        let reply = self.c.int(command);
        let after = self.state();
        assert_ne!(after.offset, before.offset, "{command}");
        assert_ne!(after.changes, before.changes, "{command}");
        assert_ne!(after.dumps, before.dumps, "{command}");
        assert_ne!(after.digests, before.digests, "{command}");
        reply
    }

    #[track_caller]
    pub fn refuses_arity(&mut self, command: &str) {
        let name = command.split(' ').next().unwrap();
        let error = format!("ERR wrong number of arguments for '{name}' command");
        self.refuses(&words(command), &error);
    }

    /// Fails unless the command returns this error and changes nothing.
    #[track_caller]
    pub fn refuses(&mut self, command: &Line, error: &str) {
        let shown: Vec<_> = command
            .iter()
            .map(|arg| arg[..arg.len().min(40)].escape_ascii().to_string())
            .collect();
        let reply = self.unchanged(&shown, |c| c.send(command));
        let Reply::Error(found) = reply else {
            panic!("{shown:?}: {reply:?}")
        };
        // The texts are constants, so none of them contains a byte from the user.
        assert!(
            found.eq_ignore_ascii_case(error),
            "{shown:?}: {found}, not {error}"
        );
    }
}
