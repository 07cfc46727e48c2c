//! The server's replies, read into the model.

use redis::Value;

use crate::model::lock::{Detail, Holder, Listener, Lock, Oldest, Place, Waiter};
use crate::model::past::{Contended, Forced};

/// A map, which RESP2 sends as a flat array.
struct Fields<'a>(Vec<(&'a Value, &'a Value)>);

impl<'a> Fields<'a> {
    fn of(value: &'a Value) -> Option<Self> {
        value.as_map_iter().map(|pairs| Self(pairs.collect()))
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        let found = self
            .0
            .iter()
            .find(|(key, _)| bytes(key) == Some(name.as_bytes()));
        found.map(|(_, value)| *value)
    }

    fn number(&self, name: &str) -> u64 {
        self.get(name).and_then(number).unwrap_or_default()
    }

    fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        self.get(name).and_then(bytes).map(Vec::from)
    }

    fn text(&self, name: &str) -> String {
        let bytes = self.get(name).and_then(bytes).unwrap_or_default();
        crate::text::escape(bytes)
    }

    /// None for null.
    fn word(&self, name: &str) -> Option<String> {
        self.get(name).and_then(bytes).map(crate::text::escape)
    }

    fn list(&self, name: &str) -> impl Iterator<Item = Fields<'a>> {
        let list = self
            .get(name)
            .and_then(Value::as_sequence)
            .unwrap_or_default();
        list.iter().filter_map(Fields::of)
    }
}

pub(super) fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
    }
}

pub(super) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => std::str::from_utf8(bytes(value)?).ok()?.parse().ok(),
    }
}

/// Of LOCK.TOP.
pub(super) fn top(value: &Value, db: u32) -> Vec<Lock> {
    let locks = value
        .as_sequence()
        .unwrap_or_default()
        .iter()
        .filter_map(Fields::of);
    let lock = |fields: Fields<'_>| {
        let oldest = fields.bytes("token").map(|token| Oldest {
            token,
            held_ms: fields.number("held"),
            ttl_ms: None,
            unrenewed_ms: 0,
        });
        Some(Lock {
            place: Place {
                db,
                key: fields.bytes("key")?,
            },
            mode: fields.text("mode"),
            holders: fields.number("holders"),
            waiters: fields.number("waiters"),
            waited_ms: fields.number("waited"),
            oldest,
        })
    };
    locks.filter_map(lock).collect()
}

/// Of LOCK.INFO; none if the lock is free and nobody waits.
pub(super) fn detail(value: &Value, now_ms: u64) -> Option<Detail> {
    let fields = Fields::of(value)?;
    let holder = |fields: Fields<'_>| {
        let since_ms = fields.number("since");
        Holder {
            token: fields.bytes("token").unwrap_or_default(),
            fence: fields.number("fence"),
            ttl_ms: fields.number("ttl"),
            since_ms,
            held_ms: now_ms.saturating_sub(since_ms),
        }
    };
    let waiter = |fields: Fields<'_>| Waiter {
        token: fields.bytes("token").unwrap_or_default(),
        mode: fields.text("mode"),
        limit: fields.get("limit").and_then(number),
        waited_ms: fields.number("waited"),
        listener: match (
            fields.get("client").and_then(number),
            fields.bytes("channel"),
        ) {
            (Some(id), _) => Listener::Client(id),
            (None, Some(channel)) => Listener::Channel(channel),
            (None, None) => Listener::None,
        },
        result: fields.bytes("result"),
    };
    let holders: Vec<_> = fields.list("holders").map(holder).collect();
    let waiters: Vec<_> = fields.list("waiters").map(waiter).collect();
    // An older module shows all of them and says no numbers.
    let count = |name, shown| fields.get(name).and_then(number).unwrap_or(shown);
    Some(Detail {
        mode: fields.text("mode"),
        limit: fields.get("limit").and_then(number),
        holder_count: count("holder-count", holders.len() as u64),
        waiter_count: count("waiter-count", waiters.len() as u64),
        holders,
        waiters,
    })
}

/// Of LOCK.TOP CONTENDED.
pub(super) fn contended(value: &Value, db: u32) -> Vec<Contended> {
    let keys = value.as_sequence().unwrap_or_default();
    let keys = keys.iter().filter_map(Fields::of);
    let key = |fields: Fields<'_>| {
        Some(Contended {
            place: Place {
                db,
                key: fields.bytes("key")?,
            },
            waits: fields.number("waits"),
            waited_ms: fields.number("waited"),
            longest_ms: fields.number("longest"),
            error_ms: fields.number("error"),
        })
    };
    keys.filter_map(key).collect()
}

/// Of LOCK.LOG.
pub(super) fn log(value: &Value, now_ms: u64) -> Vec<Forced> {
    let entries = value.as_sequence().unwrap_or_default();
    let entries = entries.iter().filter_map(Fields::of);
    let entry = |fields: Fields<'_>| {
        let number = |name: &str| fields.get(name).and_then(number);
        let time_ms = number("time")?;
        Some(Forced {
            time_ms,
            age_ms: now_ms.saturating_sub(time_ms),
            clock: crate::text::clock(time_ms, &chrono::Local),
            db: number("db"),
            key: fields.bytes("key"),
            token: fields.bytes("token"),
            fence: number("fence"),
            holders: number("holders"),
            by: fields.word("by"),
            user: fields.word("user"),
            address: fields.word("address"),
            client: number("client"),
            name: fields.word("name"),
        })
    };
    entries.filter_map(entry).collect()
}

/// Of CLUSTER SLOTS: the host and the port of each primary that has slots. A node that does not
/// know its own address is where the answer came from.
pub(super) fn primaries(value: &Value, asked: &str) -> Vec<(String, u16)> {
    let primary = |range: &Value| {
        let node = range.as_sequence()?.get(2)?.as_sequence()?;
        let host = node.first().and_then(bytes).unwrap_or_default();
        let host = std::str::from_utf8(host).ok()?;
        let port = node.get(1).and_then(number)?;
        let host = if host.is_empty() || host == "?" {
            asked
        } else {
            host
        };
        Some((host.to_owned(), u16::try_from(port).ok()?))
    };
    let ranges = value.as_sequence().unwrap_or_default();
    let mut all: Vec<_> = ranges.iter().filter_map(primary).collect();
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn list<const N: usize>(values: [Value; N]) -> Value {
        Value::Array(values.into())
    }

    #[test]
    fn reads_the_flat_arrays_of_resp2() {
        let line = [
            word("key"),
            Value::BulkString(vec![0, 255]),
            word("mode"),
            word("free"),
            word("holders"),
            Value::Int(0),
            word("waiters"),
            Value::Int(2),
            word("waited"),
            Value::Int(77),
            word("token"),
            Value::Nil,
            word("held"),
            Value::Int(0),
            word("something-new"),
            Value::Int(1),
        ];
        let locks = top(&list([list(line)]), 3);
        assert_eq!(locks.len(), 1);
        assert_eq!(
            locks[0].place,
            Place {
                db: 3,
                key: vec![0, 255]
            }
        );
        assert_eq!((locks[0].waiters, locks[0].waited_ms), (2, 77));
        assert_eq!((locks[0].mode.as_str(), &locks[0].oldest), ("free", &None));
    }

    #[test]
    fn reads_the_maps_of_resp3() {
        let pair = |name: &str, value| (word(name), value);
        let holder = Value::Map(vec![
            pair("token", word("a")),
            pair("fence", Value::Int(9)),
            pair("ttl", Value::Int(500)),
            pair("since", Value::Int(1_000)),
        ]);
        let blocked = [
            pair("token", word("b")),
            pair("mode", word("counted")),
            pair("limit", Value::Int(5)),
            pair("waited", Value::Int(12)),
            pair("client", Value::Int(7)),
        ];
        let notified = [pair("token", word("c")), pair("channel", word("ch"))];
        let absent = [pair("token", word("d"))];
        let waiters = [Vec::from(blocked), Vec::from(notified), Vec::from(absent)];
        let mut fields = vec![
            pair("mode", word("counted")),
            pair("limit", Value::Int(2)),
            pair("holders", list([holder])),
            pair("waiters", Value::Array(waiters.map(Value::Map).into())),
        ];
        let all_shown = detail(&Value::Map(fields.clone()), 3_500).unwrap();
        assert_eq!((all_shown.holder_count, all_shown.waiter_count), (1, 3));
        fields.push(pair("holder-count", Value::Int(1_500)));
        fields.push(pair("waiter-count", Value::Int(9)));
        let detail = detail(&Value::Map(fields), 3_500).unwrap();
        assert_eq!((detail.holder_count, detail.waiter_count), (1_500, 9));
        assert_eq!((detail.mode.as_str(), detail.limit), ("counted", Some(2)));
        assert_eq!(
            (detail.holders[0].fence, detail.holders[0].held_ms),
            (9, 2_500)
        );
        assert_eq!(
            (detail.waiters[0].limit, detail.waiters[0].waited_ms),
            (Some(5), 12)
        );
        let listeners: Vec<_> = detail.waiters.iter().map(|w| w.listener.clone()).collect();
        assert_eq!(
            listeners,
            [
                Listener::Client(7),
                Listener::Channel(b"ch".into()),
                Listener::None
            ]
        );
    }

    #[test]
    fn free_locks_and_odd_replies_are_nothing() {
        assert_eq!(detail(&Value::Nil, 0), None);
        assert_eq!(detail(&Value::Int(3), 0), None);
        assert_eq!(top(&Value::Okay, 0), vec![]);
        assert_eq!(top(&list([Value::Nil, list([])]), 0), vec![]);
    }

    #[test]
    fn reads_the_contended_keys() {
        let line = [
            word("key"),
            Value::BulkString(vec![0, 255]),
            word("waits"),
            Value::Int(3),
            word("waited"),
            Value::Int(77),
            word("longest"),
            Value::Int(50),
            word("error"),
            Value::Int(9),
        ];
        let expected = Contended {
            place: Place {
                db: 3,
                key: vec![0, 255],
            },
            waits: 3,
            waited_ms: 77,
            longest_ms: 50,
            error_ms: 9,
        };
        assert_eq!(contended(&list([list(line), Value::Nil]), 3), [expected]);
    }

    #[test]
    fn reads_the_log_with_what_the_server_does_not_know() {
        let pair = |name: &str, value| (word(name), value);
        let known = Value::Map(vec![
            pair("time", Value::Int(1_000)),
            pair("db", Value::Int(2)),
            pair("key", Value::BulkString(vec![7])),
            pair("token", word("t")),
            pair("fence", Value::Int(9)),
            pair("holders", Value::Int(1)),
            pair("by", word("del")),
            pair("user", word("a\x1bb")),
            pair("address", word("10.0.0.1:5")),
            pair("client", Value::Int(17)),
            pair("name", word("")),
        ]);
        let unknown = Value::Map(vec![
            pair("time", Value::Int(900)),
            pair("key", Value::Nil),
            pair("user", Value::Nil),
        ]);
        let entries = log(&list([known, unknown, list([])]), 3_500);
        assert_eq!(entries.len(), 2);
        let first = &entries[0];
        assert_eq!((first.time_ms, first.age_ms), (1_000, 2_500));
        assert_eq!(
            (first.db, first.fence, first.holders),
            (Some(2), Some(9), Some(1))
        );
        assert_eq!(
            (first.key.as_deref(), first.token.as_deref()),
            (Some(&[7][..]), Some(&b"t"[..]))
        );
        let texts = [&first.by, &first.user, &first.address, &first.name];
        let texts = texts.map(|text| text.as_deref().unwrap());
        assert_eq!(texts, ["del", "a\\x1bb", "10.0.0.1:5", ""]);
        assert_eq!(first.client, Some(17));
        let expected = Forced {
            time_ms: 900,
            age_ms: 2_600,
            clock: entries[1].clock.clone(),
            ..Forced::default()
        };
        assert_eq!(entries[1], expected);
    }

    #[test]
    fn each_primary_of_a_cluster_is_found_once() {
        let range = |host: Value, port| {
            let node = list([host, Value::Int(port), word("id")]);
            let replica = list([word("r"), Value::Int(9), word("id")]);
            list([Value::Int(0), Value::Int(1), node, replica])
        };
        let slots = list([
            range(word("b"), 2),
            range(word("a"), 1),
            range(word("b"), 2),
            range(word(""), 3),
            range(Value::Nil, 3),
        ]);
        let own = |host: &str, port| (host.to_owned(), port);
        assert_eq!(
            primaries(&slots, "seed"),
            [own("a", 1), own("b", 2), own("seed", 3)]
        );
    }
}
