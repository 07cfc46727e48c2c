//! LIMIT: counted holds, the permits of a semaphore. One test for each rule of the contract.

mod fixture;
mod rate;

use crate::harness::{Kind, Reply, Server};
use fixture::{permit, refused};

on_every_server![info_and_top_show_permits];

fn info_and_top_show_permits(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client_resp3();
    permit(&mut c, "k", "a", 5);
    permit(&mut c, "k", "b", 2);
    for line in [
        "LOCK.ACQUIRE k c 60000 LIMIT 7 KEEP 600000",
        "RWLOCK.RLOCK k r 60000 KEEP 600000",
        "LOCK.ACQUIRE k w 60000 KEEP 600000",
    ] {
        refused(&mut c, line);
    }
    let info = c.call("LOCK.INFO k");
    let names = |reply: &Reply| match reply {
        Reply::Map(pairs) => pairs.iter().map(|(name, _)| name.clone()).collect(),
        flat => flat.items().iter().step_by(2).cloned().collect::<Vec<_>>(),
    };
    let expected = |names: &[&str]| {
        names
            .iter()
            .map(|name| Reply::from(*name))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names(&info),
        expected(&[
            "mode",
            "limit",
            "holders",
            "waiters",
            "holder-count",
            "waiter-count"
        ])
    );
    assert_eq!(info.field("mode"), "counted".into());
    assert_eq!(info.field("limit"), Reply::Int(2));
    for holder in info.field("holders").items() {
        assert_eq!(names(holder), expected(&["token", "fence", "ttl", "since"]));
    }
    let waiters = info.field("waiters");
    let [permit, reader, writer] = waiters.items() else {
        panic!("{waiters:?}");
    };
    assert_eq!(
        names(permit),
        expected(&["token", "mode", "limit", "waited"])
    );
    assert_eq!(permit.field("mode"), "counted".into());
    assert_eq!(permit.field("limit"), Reply::Int(7));
    for (waiter, mode) in [(reader, "shared"), (writer, "exclusive")] {
        assert_eq!(names(waiter), expected(&["token", "mode", "waited"]));
        assert_eq!(waiter.field("mode"), mode.into());
    }
    let top = c.call("LOCK.TOP").items()[0].clone();
    assert_eq!(top.field("mode"), "counted".into());
    assert_eq!(top.field("holders"), Reply::Int(2));
    assert_eq!(top.field("waiters"), Reply::Int(3));
    assert_eq!(top.field("token"), "a".into());
}
