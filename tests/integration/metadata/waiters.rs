//! The waiters of LOCK.INFO.

use std::time::Instant;

use super::{flat, map, Form};
use crate::harness::{for_ms, Kind, Reply, Server};

on_every_server![info_lists_the_waiters_in_resp2_and_resp3];

fn info_lists_the_waiters_in_resp2_and_resp3(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k me 1000000");
    let asks = Instant::now();
    let waiters = ["RWLOCK.RLOCK k reader", "LOCK.ACQUIRE k writer"]
        .map(|request| server.blocked(&format!("{request} 1000000 BLOCK 0")));
    let notified = c.call("RWLOCK.RLOCK k shares 1000000 NOTIFY 0 the-channel");
    assert_eq!(notified, Reply::Simple("QUEUED".into()));
    for polls in ["polls 1000000", "permit 1000000 LIMIT 7"] {
        let polled = c.call(&format!("LOCK.ACQUIRE k {polls} KEEP 3600000"));
        assert_eq!(polled, Reply::Nil);
    }
    let listeners = [
        Some(("client", Reply::Int(waiters[0].id))),
        Some(("client", Reply::Int(waiters[1].id))),
        Some(("channel", "the-channel".into())),
        None,
        None,
    ];
    for_ms(20, || ());
    for (mut c, pairs) in [
        (server.client(), flat as Form),
        (server.client_resp3(), map),
    ] {
        let info = c.call("LOCK.INFO k");
        let shown = info.field("waiters");
        let longest = i64::try_from(asks.elapsed().as_millis()).unwrap() + 1;
        let places = [
            ("reader", "shared", None),
            ("writer", "exclusive", None),
            ("shares", "shared", None),
            ("polls", "exclusive", None),
            ("permit", "counted", Some(7)),
        ];
        assert_eq!(shown.items().len(), places.len(), "{shown:?}");
        let places = places.into_iter().zip(listeners.clone());
        let expected: Vec<_> = shown
            .items()
            .iter()
            .zip(places)
            .map(|(waiter, ((token, mode, limit), listener))| {
                let waited = waiter.field("waited");
                assert!((20..=longest).contains(&waited.as_int()), "{waited:?}");
                let mut fields: Vec<(&str, Reply)> =
                    vec![("token", token.into()), ("mode", mode.into())];
                fields.extend(limit.map(|limit| ("limit", Reply::Int(limit))));
                fields.push(("waited", waited));
                fields.extend(listener);
                pairs(fields)
            })
            .collect();
        assert_eq!(shown, Reply::Array(expected));
        let all = pairs(vec![
            ("mode", "exclusive".into()),
            ("holders", info.field("holders")),
            ("waiters", shown),
            ("holder-count", Reply::Int(1)),
            ("waiter-count", Reply::Int(5)),
        ]);
        assert_eq!(info, all);
    }
}
