//! LOCK.ACQUIRE, RWLOCK.WLOCK and RWLOCK.RLOCK.

use crate::harness::{wait_for, Kind, Reply, Server};

on_all_servers![
    a_free_lock_is_granted_and_a_held_one_refused,
    a_holder_that_asks_again_keeps_its_fence_and_gets_a_new_deadline,
    fences_rise_over_all_keys_and_databases,
    a_star_as_token_asks_the_server_for_one,
    an_expired_lock_can_be_acquired_and_its_late_owner_gets_zero,
    readers_share_and_keep_a_writer_out,
    a_writer_keeps_readers_out,
    an_exclusive_holder_becomes_a_reader_in_one_step,
    the_only_reader_becomes_exclusive_and_one_of_two_does_not,
    one_reader_expires_while_another_stays,
    tokens_and_keys_are_bytes,
    any_ttl_up_to_2_to_the_48_is_accepted,
];

fn a_free_lock_is_granted_and_a_held_one_refused(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for command in ["LOCK.ACQUIRE", "RWLOCK.WLOCK"] {
        let fence = c.int(&format!("{command} k me 10000"));
        assert!(fence > 0 && fence < 1 << 53);
        for other in ["LOCK.ACQUIRE", "RWLOCK.WLOCK", "RWLOCK.RLOCK"] {
            assert_eq!(c.call(&format!("{other} k you 10000")), Reply::Nil);
        }
        assert_eq!(c.text("TYPE k"), "redislock");
        assert_eq!(c.int("LOCK.RELEASE k you"), 0);
        assert_eq!(c.int("LOCK.RELEASE k me"), 1);
        assert_eq!(c.int("LOCK.RELEASE k me"), 0);
        assert_eq!(c.int("EXISTS k"), 0);
    }
}

fn a_holder_that_asks_again_keeps_its_fence_and_gets_a_new_deadline(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for command in ["LOCK.ACQUIRE", "RWLOCK.RLOCK"] {
        let fence = c.int(&format!("{command} k me 1000"));
        assert_eq!(c.int(&format!("{command} k me 90000")), fence);
        assert!((80_001..=90_000).contains(&c.int("PTTL k")));
        assert_eq!(c.int(&format!("{command} k me 30000")), fence);
        assert!(
            (20_001..=30_000).contains(&c.int("PTTL k")),
            "it follows down too"
        );
        assert_eq!(c.int("LOCK.RELEASE k me"), 1);
    }
}

fn fences_rise_over_all_keys_and_databases(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut last = 0;
    for n in 0..200 {
        if n % 10 == 0 {
            c.call(&format!("SELECT {}", n / 10 % 3));
        }
        let fence = c.int(&format!("LOCK.ACQUIRE k{n} me 10000"));
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        if n % 50 == 0 {
            c.call("FLUSHALL");
        }
    }
}

fn a_star_as_token_asks_the_server_for_one(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let reply = c.call("LOCK.ACQUIRE k * 10000");
    let [token, fence] = reply.items() else {
        panic!("{reply:?}")
    };
    let token = String::from_utf8(token.as_bytes().to_vec()).unwrap();
    let uuid = token.as_bytes();
    assert_eq!((uuid.len(), uuid[14]), (36, b'4'), "{token} is no UUIDv4");
    assert_eq!(c.call("LOCK.ACQUIRE k * 10000"), Reply::Nil);
    assert_eq!(c.call(&format!("LOCK.ACQUIRE k {token} 10000")), *fence);
    assert_eq!(c.int(&format!("LOCK.RENEW k {token} 10000")), 1);
    assert_eq!(c.int(&format!("LOCK.RELEASE k {token}")), 1);
    let readers = [
        c.call("RWLOCK.RLOCK k * 10000"),
        c.call("RWLOCK.RLOCK k * 10000"),
    ];
    assert_ne!(readers[0].items()[0], readers[1].items()[0]);
}

fn an_expired_lock_can_be_acquired_and_its_late_owner_gets_zero(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let first = c.int("LOCK.ACQUIRE k early 30");
    let second = wait_for("the deadline", || {
        match c.call("LOCK.ACQUIRE k late 60000") {
            Reply::Int(fence) => Some(fence),
            _ => None,
        }
    });
    assert!(second > first);
    assert_eq!(c.int("LOCK.RENEW k early 60000"), 0);
    assert_eq!(c.int("LOCK.RELEASE k early"), 0);
    assert_eq!(c.call("LOCK.ACQUIRE k early 60000"), Reply::Nil);
    assert_eq!(c.call("LOCK.INFO k").field("holders").items().len(), 1);
}

fn readers_share_and_keep_a_writer_out(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let a = c.int("RWLOCK.RLOCK k a 20000");
    let b = c.int("RWLOCK.RLOCK k b 40000");
    assert!(b > a);
    assert!(
        (30_001..=40_000).contains(&c.int("PTTL k")),
        "the longest hold's"
    );
    assert_eq!(c.call("RWLOCK.WLOCK k w 1000"), Reply::Nil);
    assert_eq!(c.int("LOCK.RELEASE k b"), 1);
    assert!(
        (10_001..=20_000).contains(&c.int("PTTL k")),
        "and down again"
    );
    assert_eq!(c.int("LOCK.RELEASE k w"), 0);
    assert_eq!(c.call("RWLOCK.WLOCK k w 1000"), Reply::Nil);
    assert_eq!(c.int("LOCK.RELEASE k a"), 1);
    assert!(c.int("RWLOCK.WLOCK k w 1000") > b);
}

fn a_writer_keeps_readers_out(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("RWLOCK.WLOCK k w 60000");
    assert_eq!(c.call("RWLOCK.RLOCK k a 60000"), Reply::Nil);
    assert_eq!(c.int("LOCK.RELEASE k w"), 1);
    c.int("RWLOCK.RLOCK k a 60000");
}

fn an_exclusive_holder_becomes_a_reader_in_one_step(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = c.int("RWLOCK.WLOCK k me 60000");
    assert_eq!(c.int("RWLOCK.RLOCK k me 60000"), fence);
    assert_eq!(c.call("LOCK.INFO k").field("mode"), Reply::from("shared"));
    assert!(c.int("RWLOCK.RLOCK k you 60000") > fence);
}

fn the_only_reader_becomes_exclusive_and_one_of_two_does_not(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let fence = c.int("RWLOCK.RLOCK k me 60000");
    c.int("RWLOCK.RLOCK k you 60000");
    assert_eq!(c.call("RWLOCK.WLOCK k me 60000"), Reply::Nil);
    assert_eq!(
        c.call("LOCK.INFO k").field("holders").items().len(),
        2,
        "its share stands"
    );
    c.int("LOCK.RELEASE k you");
    assert_eq!(c.int("RWLOCK.WLOCK k me 60000"), fence);
    assert_eq!(c.call("RWLOCK.RLOCK k you 60000"), Reply::Nil);
    assert_eq!(
        c.call("LOCK.INFO k").field("mode"),
        Reply::from("exclusive")
    );
}

fn one_reader_expires_while_another_stays(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("RWLOCK.RLOCK k short 30");
    let long = c.int("RWLOCK.RLOCK k long 60000");
    wait_for("the short hold to end", || {
        let holders = c.call("LOCK.INFO k").field("holders");
        (holders.items().len() == 1).then_some(())
    });
    assert_eq!(c.int("LOCK.RELEASE k short"), 0);
    assert_eq!(c.int("LOCK.RENEW k short 1000"), 0);
    assert_eq!(
        c.int("RWLOCK.WLOCK k long 60000"),
        long,
        "it is the only reader now"
    );
}

fn tokens_and_keys_are_bytes(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let longest = [b'x'; 512];
    let odd: [&[u8]; 7] = [
        b"\0",
        b"a\0b",
        b"\r\n",
        b"+OK\r\n",
        b"\xff\xfe",
        b"%s%n",
        &longest,
    ];
    for key in odd {
        for token in odd {
            let fence = c
                .send(&[b"LOCK.ACQUIRE".as_slice(), key, token, b"60000"])
                .as_int();
            let info = c.send(&[&b"LOCK.INFO"[..], key]);
            let holders = info.field("holders");
            assert_eq!(holders.items()[0].field("token").as_bytes(), token);
            assert_eq!(holders.items()[0].field("fence").as_int(), fence);
            assert_eq!(
                c.send(&[b"LOCK.RELEASE".as_slice(), key, b"other"]),
                Reply::Int(0)
            );
            assert_eq!(
                c.send(&[b"LOCK.RELEASE".as_slice(), key, token]),
                Reply::Int(1)
            );
        }
    }
    assert_eq!(c.int("DBSIZE"), 0);
}

fn any_ttl_up_to_2_to_the_48_is_accepted(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    for ttl in [5_000, 1 << 32, 1 << 48] {
        for command in ["LOCK.ACQUIRE", "RWLOCK.RLOCK"] {
            c.int(&format!("{command} k me {ttl}"));
            let pttl = c.int("PTTL k");
            assert!((ttl - 4_000..=ttl).contains(&pttl), "{pttl} of {ttl}");
            c.int("LOCK.RELEASE k me");
        }
    }
}
