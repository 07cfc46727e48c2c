//! Two builds of the module in one group of servers, two in one server, and a file that is replaced
//! while a server uses it.

use std::fs;
use std::path::PathBuf;

use super::files::{make, Folder};
use super::holds;
use crate::harness::{module, other_build, Client, Kind, Server, Setup, MODULE_COMMAND};

on_every_server![
    servers_are_upgraded_one_after_the_other,
    a_second_module_is_refused_by_its_name,
    a_replaced_module_file_takes_effect_at_the_restart,
];

fn take_some(c: &mut Client) {
    c.int("LOCK.ACQUIRE exclusive me 100000000");
    c.int("RWLOCK.RLOCK shared a 100000000");
    c.int("RWLOCK.RLOCK shared b 200000000");
    c.int("LOCK.ACQUIRE free me 100000000");
    c.int("LOCK.RELEASE free me");
}

/// The order of docs/UPGRADING.md: the replica first, then a failover, then the old primary. Either
/// build may be the new one.
fn servers_are_upgraded_one_after_the_other(kind: Kind) {
    let builds = [module(), other_build()];
    for (old, new) in [(&builds[0], &builds[1]), (&builds[1], &builds[0])] {
        let at_once = ["--repl-diskless-sync-delay", "0"];
        let mut primary = Server::start_as(kind, Setup::with_module_at(old, &at_once));
        let port = primary.port.to_string();
        let following = [&at_once[..], &["--replicaof", "127.0.0.1", &port]].concat();
        let replica = Server::start_as(kind, Setup::with_module_at(new, &following));
        replica.wait_until_it_follows(&primary);
        // By the RDB, and by effects.
        let mut c = primary.client();
        take_some(&mut c);
        replica.wait_until_it_follows(&primary);
        let before = holds::of(&mut c);
        assert_eq!(before.len(), 3);
        let mut r = replica.client();
        holds::assert_same(&holds::of(&mut r), &before, "on the replica");
        let fence = c.int("LOCK.ACQUIRE free me 100000000");
        c.int("LOCK.RELEASE free me");
        replica.wait_until_it_follows(&primary);

        // The failover. The old primary returns as a replica with the new build.
        primary.kill();
        r.call("REPLICAOF NO ONE");
        assert!(r.int("LOCK.ACQUIRE free me 100000000") > fence);
        let port = replica.port.to_string();
        let following = [&at_once[..], &["--replicaof", "127.0.0.1", &port]].concat();
        let second = Server::start_as(kind, Setup::with_module_at(new, &following));
        second.wait_until_it_follows(&replica);
        let after = holds::of(&mut r);
        assert_eq!(after.len(), 4);
        holds::assert_same(&holds::of(&mut second.client()), &after, "at the end");
        assert_eq!(r.int("LOCK.RELEASE shared a"), 1);
        second.wait_until_it_follows(&replica);
        assert_eq!(second.client().holders("shared"), ["b"]);
    }
}

fn a_second_module_is_refused_by_its_name(kind: Kind) {
    let server = Server::start_with(kind, &MODULE_COMMAND);
    let mut c = server.client();
    take_some(&mut c);
    let before = holds::of(&mut c);
    let modules = c.call("MODULE LIST"); // Redis 8 has some of its own.
    let folder = Folder::new();
    let copy = folder.path().join("copy.so");
    fs::copy(module(), &copy).unwrap();
    for second in [module(), copy, other_build()] {
        c.refused_saying(
            &format!("MODULE LOAD {}", second.display()),
            "Error loading the extension",
        );
        assert_eq!(c.call("MODULE LIST"), modules);
        assert_eq!(holds::of(&mut c).len(), before.len());
    }
    // The first module is unchanged.
    holds::assert_same(&holds::of(&mut c), &before, "after the refusals");
    let waiter = server.blocked("LOCK.ACQUIRE exclusive you 100000 BLOCK 0");
    assert_eq!(c.int("LOCK.RELEASE exclusive me"), 1);
    assert!(waiter.fence() > 0);
}

/// `make install` over a module that a server has loaded: the server keeps its file, and loads the
/// new one at the next start.
fn a_replaced_module_file_takes_effect_at_the_restart(kind: Kind) {
    let folder = Folder::new();
    let install = |module: &PathBuf| make("install", folder.path(), "/usr/local", module);
    install(&module());
    let installed = folder
        .path()
        .join("usr/local/lib/redis/modules/libredis_lock.so");
    let mut server = Server::start_as(kind, Setup::with_module_at(&installed, &[]));
    let mapped = |server: &Server| {
        let maps = fs::read_to_string(format!("/proc/{}/maps", server.pid())).unwrap();
        let lines = maps
            .lines()
            .filter(|line| line.contains("libredis_lock.so"));
        lines.map(str::to_string).collect::<Vec<_>>()
    };
    let before = mapped(&server);
    assert!(!before.is_empty());
    let mut c = server.client();
    take_some(&mut c);

    install(&other_build());
    let after = mapped(&server);
    assert_eq!(after.len(), before.len());
    assert!(
        after.iter().all(|line| line.ends_with("(deleted)")),
        "{after:?}"
    );
    // Code that has not run yet also comes from the old file.
    assert_eq!(c.int("LOCK.RENEW exclusive me 100000000"), 1);
    let waiter = server.blocked("RWLOCK.WLOCK shared you 100000 BLOCK 0");
    for token in ["a", "b"] {
        assert_eq!(c.int(&format!("LOCK.RELEASE shared {token}")), 1);
    }
    assert!(waiter.fence() > 0);

    let holds = holds::of(&mut c);
    server.shut_down_saving();
    server.start_again();
    assert!(mapped(&server).iter().all(|line| !line.contains("deleted")));
    holds::assert_same(
        &holds::of(&mut server.client()),
        &holds,
        "with the new file",
    );
}
