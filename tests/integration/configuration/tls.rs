//! Locks over TLS. The test generates a certificate and uses redis-cli as the client.

use std::process::{Command, Output, Stdio};

use super::{commented, example};
use crate::harness::{free_port, redis_cli, wait_for, Kind, Server};

on_every_server![
    locks_are_acquired_waited_for_and_lost_over_tls,
    a_replica_follows_over_tls,
];

const CERTIFICATE: &str = "server.crt";
const KEY: &str = "server.key";

/// The fetched binaries of Redis 6.2.14 and 8.2.3 have no TLS, independently of the module.
fn has_tls(kind: Kind) -> bool {
    let has = kind.is_of_debian();
    if !has {
        println!("{kind:?}: not tried, for this build of the server has no TLS");
    }
    has
}

/// A server with the TLS lines of the example and a TLS port.
struct Secure {
    server: Server,
    port: u16,
}

impl Secure {
    fn start(kind: Kind, certificate: &Certificate, more: &str) -> Self {
        let port = free_port();
        let lines = commented("tls-").join("\n");
        let config = lines
            .replace("tls-port 6380", &format!("tls-port {port}"))
            .replace("/etc/redis/tls/redis.crt", CERTIFICATE)
            .replace("/etc/redis/tls/redis.key", KEY)
            // The certificate is self-signed.
            .replace("/etc/redis/tls/ca.crt", CERTIFICATE);
        assert!(!config.contains("/etc/"), "{config}");
        let config = format!("{}{config}\n{more}\n", example());
        let files = [
            (CERTIFICATE, &certificate.public[..]),
            (KEY, &certificate.key),
        ];
        let server = Server::start_with_files(kind, &config, &files);
        Self { server, port }
    }

    /// redis-cli, which checks the server's certificate.
    fn cli(&self, line: &str) -> Command {
        let mut cli = Command::new(redis_cli());
        cli.args(["--no-raw", "--tls", "--cacert"])
            .arg(self.server.dir().join(CERTIFICATE))
            .args(["-p", &self.port.to_string()])
            .args(line.split(' '))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        cli
    }

    fn call(&self, line: &str) -> String {
        printed(self.cli(line).output().expect("to run redis-cli"))
    }
}

fn printed(output: Output) -> String {
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// A self-signed certificate for the address of the tests.
struct Certificate {
    public: Vec<u8>,
    key: Vec<u8>,
}

impl Certificate {
    fn make() -> Self {
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
            .args(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"])
            .args([
                "-subj",
                "/CN=127.0.0.1",
                "-addext",
                "subjectAltName=IP:127.0.0.1",
            ])
            .args(["-keyout", "-", "-out", "-"])
            .output()
            .expect("to run openssl");
        let text = String::from_utf8_lossy(&made.stdout).into_owned();
        assert!(made.status.success(), "{}", printed(made));
        let part = |kind: &str| {
            let (from, to) = (
                format!("-----BEGIN {kind}-----"),
                format!("-----END {kind}-----\n"),
            );
            let start = text.find(&from).expect(kind);
            let end = text.find(&to).expect(kind) + to.len();
            text.as_bytes()[start..end].to_vec()
        };
        Self {
            public: part("CERTIFICATE"),
            key: part("PRIVATE KEY"),
        }
    }
}

fn locks_are_acquired_waited_for_and_lost_over_tls(kind: Kind) {
    if !has_tls(kind) {
        return;
    }
    let secure = Secure::start(kind, &Certificate::make(), "");
    let mut c = secure.server.client();
    let fence = |printed: &str| {
        let digits = printed.trim().strip_prefix("(integer) ");
        let number = digits.and_then(|digits| digits.parse::<u64>().ok());
        number.unwrap_or_else(|| panic!("no fence: {printed}"))
    };
    let first = fence(&secure.call("LOCK.ACQUIRE k a 600000"));
    assert_eq!(secure.call("LOCK.ACQUIRE k b 600000").trim(), "(nil)");
    assert_eq!(
        secure.call("LOCK.ACQUIRE k b 600000 BLOCK 5").trim(),
        "(nil)"
    );
    assert!(secure
        .call("-3 LOCK.INFO k")
        .contains("1# \"mode\" => \"exclusive\""));

    // One client waits over TLS and disconnects, two are granted: one after a holder without TLS,
    // one after a holder with it.
    let wait = |token: &str| {
        let line = format!("LOCK.ACQUIRE k {token} 600000 BLOCK 0");
        let cli = secure.cli(&line).spawn().expect("to run redis-cli");
        wait_for("it to wait", || {
            let waiters = secure.server.client().waiters("k");
            waiters.iter().any(|waiter| waiter == token).then_some(())
        });
        cli
    };
    let mut leaves = wait("leaves");
    let (b, d) = (wait("b"), wait("d"));
    leaves.kill().expect("to kill redis-cli");
    leaves.wait().expect("its end");
    wait_for("it to be out of the queue", || {
        (c.waiters("k") == ["b", "d"]).then_some(())
    });
    assert_eq!(c.int("LOCK.RELEASE k a"), 1);
    let second = fence(&printed(b.wait_with_output().expect("a reply")));
    assert_eq!(secure.call("LOCK.RELEASE k b").trim(), "(integer) 1");
    let third = fence(&printed(d.wait_with_output().expect("a reply")));
    assert!(first < second && second < third);
    assert_eq!(c.holders("k"), ["d"]);

    // The port speaks TLS.
    let plain = Command::new(redis_cli())
        .args(["-p", &secure.port.to_string(), "PING"])
        .output()
        .expect("to run redis-cli");
    assert!(!printed(plain).contains("PONG"));
}

fn a_replica_follows_over_tls(kind: Kind) {
    if !has_tls(kind) {
        return;
    }
    let certificate = Certificate::make();
    let primary = Secure::start(kind, &certificate, "");
    let follow = format!("replicaof 127.0.0.1 {}", primary.port);
    let replica = Secure::start(kind, &certificate, &follow);
    replica.server.wait_until_link_is_up();
    primary.call("LOCK.ACQUIRE k a 600000");
    primary.call("RWLOCK.RLOCK shared b 600000");
    replica.server.wait_until_it_follows(&primary.server);
    let mut c = replica.server.client();
    assert_eq!(
        (c.holders("k"), c.holders("shared")),
        (vec!["a".into()], vec!["b".into()])
    );
    assert!(replica.call("LOCK.RELEASE k a").contains("READONLY"));
}
