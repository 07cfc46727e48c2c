//! RESTORE on a real server, given records in a valid envelope. It accepts what the codec accepts,
//! DUMP returns the same bytes, and the restored locks work. The fuzzer is guided by the coverage
//! of the codec in this process, which is the same code.

use std::time::{SystemTime, UNIX_EPOCH};

use redis::{Cmd, Connection, Value};
use redis_lock::lock::codec::{decode, Record};

use super::payload::Payload;

/// A server with the module, which saves without compression.
pub struct Server {
    connection: Connection,
    /// A payload of its own, in which the record is replaced.
    envelope: Payload,
}

impl Server {
    pub fn connect(port: u16) -> Self {
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}/"));
        let mut connection = client
            .and_then(|client| client.get_connection())
            .expect("a connection");
        let take = ["LOCK.ACQUIRE", "seed", "me", "100000"];
        command(&take).exec(&mut connection).expect("a lock");
        let dump = command(&["DUMP", "seed"]).query::<Vec<u8>>(&mut connection);
        Self {
            envelope: Payload::read(&dump.expect("its payload")),
            connection,
        }
    }

    /// Runs one transaction. Returns the replies to its commands.
    fn transact(&mut self, commands: &[Vec<&[u8]>]) -> Vec<Value> {
        let mut packed = command(&["MULTI"]).get_packed_command();
        for args in commands {
            packed.extend(command(args).get_packed_command());
        }
        packed.extend(command(&["EXEC"]).get_packed_command());
        let sent = self.connection.send_packed_command(&packed);
        sent.expect("the server to read");
        let mut last = Value::Nil;
        for _ in 0..commands.len() + 2 {
            last = self
                .connection
                .recv_response()
                .expect("the server to answer");
        }
        match last {
            Value::Array(replies) if replies.len() == commands.len() => replies,
            other => panic!("{other:?}"),
        }
    }
}

fn command<A: AsRef<[u8]>>(args: &[A]) -> Cmd {
    let mut command = Cmd::new();
    args.iter().for_each(|arg| {
        command.arg(arg.as_ref());
    });
    command
}

/// The input is a record.
pub fn run(data: &[u8], server: &mut Server) {
    server.envelope.record = data.to_vec();
    let payload = server.envelope.write();
    let replies = server.transact(&[
        vec![b"RESTORE", b"fuzz", b"0", &payload, b"REPLACE"],
        vec![b"DUMP", b"fuzz"],
        vec![b"LOCK.INFO", b"fuzz"],
        vec![b"LOCK.RENEW", b"fuzz", b"nobody", b"100000"],
        vec![b"RWLOCK.RLOCK", b"fuzz", b"somebody", b"100000"],
        vec![b"LOCK.RELEASE", b"fuzz", b"somebody"],
        vec![b"DEL", b"fuzz"],
    ]);
    let is_error = |reply: &Value| matches!(reply, Value::ServerError(_));
    let taken = replies[0] == Value::Okay;
    assert!(taken || is_error(&replies[0]), "{:?}", replies[0]);
    assert!(!replies[1..].iter().any(is_error), "{replies:?}");
    if let Some(expected) = is_taken(data) {
        assert_eq!(taken, expected, "{}", data.escape_ascii());
    }
    if taken {
        assert_eq!(replies[1], Value::BulkString(payload));
    } else {
        assert_eq!(replies[1..3], [Value::Nil, Value::Nil]);
    }
}

/// Whether RESTORE must accept a record: a lock without a fence more than a year ahead. `None` if
/// that is so close that only the server's own clock can decide.
fn is_taken(record: &[u8]) -> Option<bool> {
    const HOUR_US: u64 = 3_600_000_000;
    let Ok(Record::State(lock)) = decode(record) else {
        return Some(false);
    };
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_us = since_epoch.map_or(0, |since| since.as_micros() as u64);
    let a_year_ahead_us = now_us + 365 * 24 * HOUR_US;
    let latest = lock
        .holders()
        .last()
        .map_or(0, |(_, hold)| hold.fence.get());
    match latest {
        fence if fence < a_year_ahead_us - HOUR_US => Some(true),
        fence if fence > a_year_ahead_us + HOUR_US => Some(false),
        _ => None,
    }
}
