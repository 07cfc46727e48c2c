//! Payloads of RESTORE with limits, as nobody has dumped them: each of them is refused.

use crate::harness::{Client, Kind, Reply, Server};
use crate::hostile::payload::Payload;

on_every_server![hostile_limits_are_refused];

/// A hold in a record: its mode with the limit, its fence and its token.
type Hold<'a> = (&'a [u8], u64, &'a [u8]);

fn record(version: u8, holds: &[Hold<'_>]) -> Vec<u8> {
    let mut bytes = vec![version, 1];
    for (mode, fence, token) in holds {
        bytes.extend(*mode);
        bytes.extend(fence.to_le_bytes());
        bytes.extend(4_000_000_000_000_u64.to_le_bytes()); // In the year 2096.
        bytes.extend(1_700_000_000_000_u64.to_le_bytes());
        bytes.extend(u16::try_from(token.len()).unwrap().to_le_bytes());
        bytes.extend(*token);
    }
    bytes
}

fn counted(limit: u32) -> Vec<u8> {
    [&[3][..], &limit.to_le_bytes()].concat()
}

#[track_caller]
fn restore(c: &mut Client, payload: &Payload, record: Vec<u8>) -> Reply {
    let mut payload = payload.clone();
    payload.record = record;
    c.call("DEL k");
    c.send(&[&b"RESTORE"[..], b"k", b"0", &payload.write()])
}

fn hostile_limits_are_refused(kind: Kind) {
    let server = Server::start_with(kind, &["--rdbcompression", "no"]);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k me 60000 LIMIT 2");
    let payload = Payload::read(c.call("DUMP k").as_bytes());
    let (two, three, shared, exclusive) = (counted(2), counted(3), vec![2], vec![1]);
    // Those that are right, so that it is the fault of each that is refused.
    for holds in [
        &[(&two[..], 1, &b"a"[..])][..],
        &[(&two, 1, b"a"), (&two, 1, b"b")],
        &[(&three, 1, b"a"), (&shared, 2, b"b"), (&shared, 3, b"c")],
        &[(&counted(2_147_483_647), 9, b"a")],
    ] {
        let restored = restore(&mut c, &payload, record(2, holds));
        assert_eq!(restored, Reply::Simple("OK".into()), "{holds:?}");
        assert_eq!(c.holders("k").len(), holds.len());
        assert_eq!(super::mode(&mut c, "k"), "counted");
    }
    let one = record(2, &[(&two, 1, b"a")]);
    let mut bad: Vec<Vec<u8>> = (1..one.len()).map(|len| one[..len].to_vec()).collect();
    bad.push([&one[..], b"x"].concat());
    for limit in [0, 1, 2_147_483_648, u32::MAX] {
        bad.push(record(2, &[(&counted(limit), 1, b"a")]));
    }
    for (version, holds) in [
        (1, &[(&two[..], 1, &b"a"[..])][..]),
        (3, &[(&two, 1, b"a")]),
        (0, &[(&two, 1, b"a")]),
        // The later version needs a limit.
        (2, &[(&shared, 1, b"a")]),
        (2, &[(&exclusive, 1, b"a")]),
        (2, &[(&shared, 1, b"a"), (&shared, 2, b"b")]),
        // More holders than one of them tolerates.
        (2, &[(&two, 1, b"a"), (&two, 2, b"b"), (&two, 3, b"c")]),
        (2, &[(&three, 1, b"a"), (&shared, 2, b"b"), (&two, 3, b"c")]),
        (2, &[(&exclusive, 1, b"a"), (&two, 2, b"b")]),
        (2, &[(&two, 1, b"a"), (&exclusive, 2, b"b")]),
        // A token twice, and holds out of their order.
        (2, &[(&three, 1, b"a"), (&three, 2, b"a")]),
        (2, &[(&three, 2, b"a"), (&three, 1, b"b")]),
        (2, &[(&three, 1, b"b"), (&three, 1, b"a")]),
        (2, &[(&two, 0, b"a")]),
        (2, &[(&two, 1 << 53, b"a")]),
        (2, &[(&two, 1, b"")]),
        (2, &[(&two, 1, &[b'x'; 513])]),
    ] {
        bad.push(record(version, holds));
    }
    for bytes in bad {
        let text = bytes.escape_ascii().to_string();
        let reply = restore(&mut c, &payload, bytes);
        assert!(
            matches!(&reply, Reply::Error(error) if error.contains("Bad data format")),
            "{text}: {reply:?}"
        );
        assert_eq!(c.int("EXISTS k"), 0);
    }
    assert!(c.int("LOCK.ACQUIRE k me 60000 LIMIT 2") > 0);
}
