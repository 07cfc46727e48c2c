//! The fixture of the refusal tests: a primary with a replica, and everything that a command could
//! change.

use std::fmt::Debug;

use redis_lock::command::Command;

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
    pub server: Server,
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
            server,
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
        let is_told = self.server.kind.is_7_0_or_later();
        let c = &mut self.c;
        let end_ms = |key| {
            if is_told {
                return c.int(&format!("PEXPIRETIME {key}"));
            }
            let (now_ms, rest) = (c.now_us() as i64 / 1000, c.int(&format!("PTTL {key}")));
            if rest < 0 {
                rest
            } else {
                now_ms + rest
            }
        };
        KEYS.into_iter().map(end_ms).collect()
    }

    /// Runs `f` and fails if it changed anything.
    #[track_caller]
    pub fn unchanged<R>(&mut self, what: &dyn Debug, f: impl FnOnce(&mut Client) -> R) -> R {
        // Redis 6.2 does not expose the instant, so it is compared with a tolerance. The ttls in
        // these tests differ by hours.
        let slack_ms = if self.server.kind.is_7_0_or_later() {
            0
        } else {
            5_000
        };
        let (before, ends_before) = (self.state(), self.ends_ms());
        let result = f(&mut self.c);
        assert_eq!(self.c.call("PING"), Reply::Simple("PONG".into()));
        let (after, ends_after) = (self.state(), self.ends_ms());
        assert_eq!(after, before, "changed by {what:?}");
        for (key, (before, after)) in KEYS.iter().zip(ends_before.iter().zip(ends_after)) {
            let moved_ms = (after - before).abs();
            assert!(
                moved_ms <= slack_ms,
                "{what:?} moved the end of {key} by {moved_ms} ms"
            );
        }
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
        let mut error = format!("ERR wrong number of arguments for '{name}' command");
        // From 7.0 on the server itself counts the words that no call can do without.
        if !self.server.kind.is_7_0_or_later() {
            let mut commands = Command::ALL.iter().map(|command| command.spec().syntax());
            let syntax = commands.find(|syntax| syntax.starts_with(&format!("{name} ")));
            error += ", expected ";
            error += &syntax.unwrap();
        }
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
