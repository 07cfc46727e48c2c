//! People and programs read the log: client input must not look like a line of it, or control a
//! terminal.

use crate::harness::{Client, Kind, Reply, Server};

on_every_server![client_input_is_never_logged];

/// The text to search for. The dangerous bytes surround it.
const MARK: &str = "M4RK";

fn dangerous() -> Vec<Vec<u8>> {
    let parts: [(&[u8], &[u8]); 6] = [
        (b"%s%n%p%x", b"%n%n%n%n"),
        (b"\r\n1:M 01 Jan 1970 00:00:00.000 # ", b"\r\n"),
        (b"\x1b[31m\x1b]0;", b"\x07\x1b[2J"),
        (b"\0", b"\0\0"),
        (b"\xff\xfe\xc3\x28", b"\xe2\x80\xae"),
        (b"'\"\\$(", b")`;"),
    ];
    let join = |(before, after): &(&[u8], &[u8])| [before, MARK.as_bytes(), after].concat();
    parts.iter().map(join).collect()
}

fn client_input_is_never_logged(kind: Kind) {
    let server = Server::start_with(kind, &["--loglevel", "debug", "--appendonly", "yes"]);
    let replica = Server::start_replica_of(&server, &["--loglevel", "debug"]);
    let mut c = server.client();
    for bytes in dangerous() {
        say(&mut c, &bytes);
        // A client waits for such a key, under such a name, and is killed.
        let mut waiter = server.client();
        let id = waiter.int("CLIENT ID");
        c.send(&[
            b"LOCK.ACQUIRE".as_slice(),
            &bytes[..],
            b"holder",
            b"1000000",
        ]);
        let wait: Vec<Vec<u8>> = [b"LOCK.ACQUIRE", &bytes[..], &bytes, b"1000", b"BLOCK", b"0"]
            .map(<[u8]>::to_vec)
            .to_vec();
        let waiting = std::thread::spawn(move || waiter.try_send(&wait).is_err());
        let info = [b"LOCK.INFO".to_vec(), bytes.clone()];
        crate::harness::wait_for("it to wait", || {
            let info = c.send(&info);
            (info != Reply::Nil && info.field("waiters").items().len() == 1).then_some(())
        });
        c.int(&format!("CLIENT KILL ID {id}"));
        assert!(waiting.join().unwrap());
    }
    replica.wait_until_it_follows(&server);
    for server in [&server, &replica] {
        let log = server.log();
        assert!(log.lines().count() > 10, "{log}");
        assert!(!log.contains(MARK), "{log}");
    }
    assert!(c.text("DEBUG DIGEST").len() == 40, "it is alive");
}

/// The bytes in place of every argument.
fn say(c: &mut Client, bytes: &[u8]) {
    for args in [
        &[b"LOCK.ACQUIRE", bytes, bytes, b"1000000"][..],
        &[b"LOCK.ACQUIRE", b"k", bytes, bytes],
        &[b"LOCK.ACQUIRE", b"k", bytes, b"1000", bytes],
        &[b"LOCK.ACQUIRE", b"k", bytes, b"1000", b"BLOCK", bytes],
        &[b"RWLOCK.RLOCK", bytes, bytes, b"1000000"],
        &[b"LOCK.RENEW", bytes, bytes, bytes],
        &[b"LOCK.RENEW", bytes, bytes, b"1000000"],
        &[b"LOCK.INFO", bytes],
        &[b"LOCK.INFO", bytes, bytes],
        &[b"LOCK._APPLY", bytes, bytes],
        &[b"RESTORE", bytes, b"0", bytes],
        &[b"CONFIG", b"SET", b"lock.max-waiters", bytes],
        &[
            b"EVAL",
            b"return redis.call('LOCK.ACQUIRE', KEYS[1], ARGV[1], 5)",
            b"1",
            bytes,
            bytes,
        ],
        &[b"LOCK.RELEASE", bytes, bytes],
    ] {
        c.send(args);
    }
}
