//! The commands of the module, and the replies that need reading.

use std::time::Duration;

use redis::{Cmd, Value};

use crate::Mode;

/// A key and the token that asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) key: Vec<u8>,
    pub(crate) token: Vec<u8>,
}

/// A token that nobody else has.
pub(crate) fn new_token() -> Vec<u8> {
    uuid::Uuid::new_v4().simple().to_string().into_bytes()
}

impl Place {
    /// The words of an acquire up to its options.
    pub(crate) fn acquire(&self, mode: Mode, is_rwlock: bool, ttl: Duration) -> Cmd {
        let name = match (mode, is_rwlock) {
            (Mode::Shared, _) => "RWLOCK.RLOCK",
            (Mode::Exclusive, true) => "RWLOCK.WLOCK",
            (Mode::Exclusive, false) => "LOCK.ACQUIRE",
        };
        let mut command = self.command(name);
        command.arg(millis(ttl));
        command
    }

    pub(crate) fn release(&self) -> Cmd {
        self.command("LOCK.RELEASE")
    }

    pub(crate) fn renew(&self, ttl: Duration) -> Cmd {
        let mut command = self.command("LOCK.RENEW");
        command.arg(millis(ttl));
        command
    }

    pub(crate) fn info(&self) -> Cmd {
        let mut command = redis::cmd("LOCK.INFO");
        command.arg(self.key.as_slice());
        command
    }

    /// Whether the reply to `LOCK.INFO` names the token among the waiters.
    pub(crate) fn is_waiting(&self, info: &Value) -> bool {
        let Some(Value::Array(waiters)) = field(info, "waiters") else {
            return false;
        };
        waiters.iter().any(
            |waiter| matches!(field(waiter, "token"), Some(Value::BulkString(token)) if *token == self.token),
        )
    }

    fn command(&self, name: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(self.key.as_slice()).arg(self.token.as_slice());
        command
    }
}

/// Whole milliseconds, rounded up: 0 would mean for ever where a time is waited for.
pub(crate) fn millis(time: Duration) -> u64 {
    let rounded = time.saturating_add(Duration::from_nanos(999_999));
    u64::try_from(rounded.as_millis())
        .unwrap_or(u64::MAX)
        .clamp(1, 1 << 48)
}

/// A field of a record, which is a map in RESP3 and a flat array in RESP2.
fn field<'a>(record: &'a Value, name: &str) -> Option<&'a Value> {
    let is_name = |value: &Value| match value {
        Value::BulkString(bytes) => bytes == name.as_bytes(),
        Value::SimpleString(text) => text == name,
        _ => false,
    };
    match record {
        Value::Map(fields) => fields
            .iter()
            .find_map(|(key, value)| is_name(key).then_some(value)),
        Value::Array(fields) => fields.chunks_exact(2).find_map(|pair| match pair {
            [key, value] if is_name(key) => Some(value),
            _ => None,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn milliseconds_are_rounded_up_and_never_0() {
        assert_eq!(millis(Duration::ZERO), 1);
        assert_eq!(millis(Duration::from_micros(1_001)), 2);
        assert_eq!(millis(Duration::from_millis(7)), 7);
        assert_eq!(millis(Duration::MAX), 1 << 48);
    }

    #[test]
    fn waiters_are_found_in_both_protocols() {
        let place = |token: &str| Place {
            key: b"k".to_vec(),
            token: token.into(),
        };
        let flat = Value::Array(vec![
            text("holders"),
            Value::Array(vec![Value::Array(vec![text("token"), text("holder")])]),
            text("waiters"),
            Value::Array(vec![Value::Array(vec![
                text("mode"),
                text("shared"),
                text("token"),
                text("waiter"),
            ])]),
        ]);
        let map = Value::Map(vec![(
            text("waiters"),
            Value::Array(vec![Value::Map(vec![(text("token"), text("waiter"))])]),
        )]);
        assert!(place("waiter").is_waiting(&flat));
        assert!(place("waiter").is_waiting(&map));
        assert!(!place("holder").is_waiting(&flat));
        assert!(!place("waiter").is_waiting(&Value::Nil));
    }
}
