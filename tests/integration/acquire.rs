//! LOCK.ACQUIRE, RWLOCK.WLOCK and RWLOCK.RLOCK.

use crate::harness::{Kind, Reply, Server};

on_every_server![
    a_star_as_token_asks_the_server_for_one,
    tokens_and_keys_are_bytes,
];

fn a_star_as_token_asks_the_server_for_one(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let reply = c.call("LOCK.ACQUIRE k * 10000");
    let [token, fence] = reply.items() else {
        panic!("{reply:?}")
    };
    let token = token.to_text();
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
