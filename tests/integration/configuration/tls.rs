//! Locks over TLS, by the lines of the example. openssl makes the certificate, and redis-cli is the
//! client.

use std::process::{Child, Command, Stdio};

use super::{commented, example};
use crate::harness::{free_port, redis_cli, wait_for, Kind, Server};

// The binary of Redis 8.2.3 that the tests have is built without TLS.
on_servers![[redis_7_0 Redis7_0, redis_8_6 Redis8_6, valkey_8_0 Valkey8_0, valkey_9 Valkey9] clients_wait_and_replicas_follow_over_tls];

/// A self-signed certificate for the address of the tests, and its key.
const PEM: &str = "server.pem";

fn certificate() -> Vec<u8> {
    let line = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 \
                -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -keyout - -out -";
    let made = Command::new("openssl").args(line.split(' ')).output();
    let made = made.expect("to run openssl");
    assert!(made.status.success(), "{made:?}");
    made.stdout
}

/// A server with the TLS lines of the example, and its TLS port.
fn start(kind: Kind, pem: &[u8], more: &str) -> (Server, u16) {
    let port = free_port();
    let lines = commented("tls-").join("\n");
    let config = lines
        .replace("tls-port 6380", &format!("tls-port {port}"))
        .replace("/etc/redis/tls/redis.crt", PEM)
        .replace("/etc/redis/tls/redis.key", PEM)
        .replace("/etc/redis/tls/ca.crt", PEM);
    assert!(!config.contains("/etc/"), "{config}");
    let config = format!("{}{config}\n{more}\n", example());
    (Server::start_with_files(kind, &config, &[(PEM, pem)]), port)
}

#[track_caller]
fn is_fence(cli: Child) {
    let output = cli.wait_with_output().expect("a reply");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.starts_with("(integer) "), "{output:?}");
}

fn clients_wait_and_replicas_follow_over_tls(kind: Kind) {
    let pem = certificate();
    let (primary, port) = start(kind, &pem, "");
    let (replica, _) = start(kind, &pem, &format!("replicaof 127.0.0.1 {port}"));
    // It checks the server's certificate.
    let cli = |line: &str| {
        let mut cli = Command::new(redis_cli());
        cli.args(["--no-raw", "--tls", "--cacert"])
            .arg(primary.dir().join(PEM))
            .args(["-p", &port.to_string()])
            .args(line.split(' '))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        cli.spawn().expect("to run redis-cli")
    };
    is_fence(cli("LOCK.ACQUIRE k a 600000"));
    let waits = cli("LOCK.ACQUIRE k b 600000 BLOCK 0");
    let mut c = primary.client();
    wait_for("it to wait", || (c.waiters("k") == ["b"]).then_some(()));
    assert_eq!(c.int("LOCK.RELEASE k a"), 1);
    is_fence(waits);
    replica.wait_until_it_follows(&primary);
    assert_eq!(replica.client().holders("k"), ["b"]);
}
