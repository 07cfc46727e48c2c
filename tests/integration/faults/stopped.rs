//! Processes that are stopped and resumed: the server, and the owner of a lock.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::super::harness::{redis_cli, wait_for, Kind, Reply, Server};

on_every_server![
    a_stopped_owner_loses_its_lock_to_the_next_waiter,
    a_stopped_waiter_delays_the_next_one_by_its_ttl,
    deadlines_passed_while_the_server_was_stopped_have_expired,
    those_in_time_come_first_after_a_standstill,
    nobody_is_granted_before_all_that_is_over_has_ended,
    commands_sent_while_the_server_was_stopped_are_answered_in_order,
];

/// A client in a process of its own.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(server: &Server) -> Self {
        let mut child = Command::new(redis_cli())
            .args(["-p", &server.port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-cli");
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut process = Self {
            child,
            input,
            output,
        };
        process.send("ECHO ready");
        assert_eq!(process.line(), "ready");
        process
    }

    fn send(&mut self, line: &str) {
        self.input
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_string()
    }

    /// Sends a signal, and waits until it has taken effect.
    fn signal(&self, name: &str, state: char) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(status.is_ok_and(|status| status.success()));
        let stat = format!("/proc/{pid}/stat");
        wait_for("the process to obey", || {
            let stat = std::fs::read_to_string(&stat).unwrap();
            let is = stat.split(") ").last()?.chars().next()?;
            (if state == 'T' { is == 'T' } else { is != 'T' }).then_some(())
        });
    }

    fn stop(&self) {
        self.signal("STOP", 'T');
    }

    fn go_on(&self) {
        self.signal("CONT", 'R');
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn a_stopped_owner_loses_its_lock_to_the_next_waiter(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut owner = Process::start(&server);
    owner.send("LOCK.ACQUIRE k owner 60000");
    let fence: i64 = owner.line().parse().unwrap();
    owner.send("LOCK.RENEW k owner 300");
    assert_eq!(owner.line(), "1");
    owner.stop();
    let next = c.int("LOCK.ACQUIRE k next 60000 BLOCK 0");
    assert!(
        next > fence,
        "a resource that remembers it refuses the late one"
    );
    owner.send("LOCK.RENEW k owner 60000");
    owner.send("LOCK.RELEASE k owner");
    owner.go_on();
    assert_eq!((owner.line(), owner.line()), ("0".into(), "0".into()));
    assert_eq!(c.holders("k"), ["next"]);
    assert_eq!(c.int("LOCK.RELEASE k next"), 1);
}

fn a_stopped_waiter_delays_the_next_one_by_its_ttl(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    c.int("LOCK.ACQUIRE k a 60000");
    let mut b = Process::start(&server);
    b.send("LOCK.ACQUIRE k b 400 BLOCK 0");
    c.until_waiters("k", &["b"]);
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    b.stop();
    let granted = Instant::now();
    c.int("LOCK.RELEASE k a");
    // The server cannot know that b does not read the reply.
    let (reply, at) = d.reply_and_instant();
    assert!(
        at - granted >= Duration::from_millis(400),
        "{:?}",
        at - granted
    );
    b.send("LOCK.RENEW k b 60000");
    b.send("LOCK.RELEASE k b");
    b.go_on();
    let late: i64 = b.line().parse().unwrap();
    assert_eq!((b.line(), b.line()), ("0".into(), "0".into()));
    assert!(reply.as_int() > late);
    assert_eq!(c.holders("k"), ["d"]);
}

fn deadlines_passed_while_the_server_was_stopped_have_expired(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let first = c.int("LOCK.ACQUIRE k a 60000");
    c.int("LOCK.ACQUIRE long a 60000");
    let b = server.blocked("LOCK.ACQUIRE k b 60000 BLOCK 0");
    let gone = server.raw_blocked("LOCK.ACQUIRE k gone 60000 BLOCK 0");
    let d = server.blocked("LOCK.ACQUIRE k d 60000 BLOCK 0");
    let e = server.blocked("LOCK.ACQUIRE long e 60000 BLOCK 800");
    c.int("LOCK.RENEW k a 800");
    server.signal("STOP");
    drop(gone);
    sleep(Duration::from_millis(1000)); // longer than the ttl and the timeout
    assert!(d.is_pending() && e.is_pending());
    server.signal("CONT");
    let second = b.fence();
    assert!(second > first);
    assert_eq!(e.reply(), Reply::Nil);
    assert_eq!(c.int("LOCK.RENEW k a 60000"), 0);
    assert_eq!(c.int("LOCK.RELEASE k b"), 1);
    assert!(d.fence() > second);
    assert_eq!(
        (c.holders("k"), c.holders("long")),
        (vec!["d".into()], vec!["a".into()])
    );
    assert_eq!(server.blocked_clients(), 0);
}

/// Each way by which a key is served: the first command that the server reads decides.
fn those_in_time_come_first_after_a_standstill(kind: Kind) {
    const MS: u64 = 2_000;
    let server = Server::start(kind);
    let mut c = server.client();
    let keys = ["{k}release", "{k}cancel", "{k}several"];
    let waiters = keys.map(|key| {
        c.int(&format!("LOCK.ACQUIRE {key} a 60000"));
        let late = server.blocked(&format!("LOCK.ACQUIRE {key} late 60000 BLOCK {MS}"));
        c.call(&format!("LOCK.ACQUIRE {key} gone 60000 KEEP {MS}"));
        let next = server.blocked(&format!("LOCK.ACQUIRE {key} next 60000 BLOCK 0"));
        (late, next)
    });
    let mut first = server.raw();
    server.signal("STOP");
    sleep(Duration::from_millis(MS + 200));
    let lines = [
        "LOCK.RELEASE {k}release a",
        "LOCK.ACQUIRE {k}release gone 60000 KEEP 60000",
        "DEL {k}cancel",
        "LOCK.CANCEL {k}cancel TOKEN nobody",
        "DEL {k}several",
        "LOCK.MACQUIRE 2 {k}several {k}other me 60000",
    ];
    first.send(&lines.join("\r\n"));
    server.signal("CONT");
    for expected in [":1", "$-1", ":1", ":0", ":1", "$-1"] {
        assert_eq!(first.line().unwrap(), expected);
    }
    for (key, (late, next)) in keys.iter().zip(waiters) {
        assert_eq!(late.reply(), Reply::Nil, "{key}");
        next.fence();
        assert_eq!(c.holders(key), ["next"]);
    }
    // The token whose grace was over begins at the end.
    assert_eq!(c.waiters("{k}release"), ["gone"]);
    assert!(c.waiters("{k}cancel").is_empty() && c.waiters("{k}several").is_empty());
}

fn nobody_is_granted_before_all_that_is_over_has_ended(kind: Kind) {
    const PLACES: usize = 9_000;
    let server = Server::start(kind);
    let mut c = server.client();
    let keys = (0..10).map(|n| format!("LOCK.ACQUIRE k:{n} a 60000"));
    c.send_all(keys.collect::<Vec<_>>());
    let places = (0..PLACES).map(|n| format!("LOCK.ACQUIRE k:{} t{n} 60000 KEEP 5000", n % 10));
    c.send_all(places.collect::<Vec<_>>());
    let next = server.blocked("LOCK.ACQUIRE k:0 next 60000 BLOCK 0");
    let mut first = server.raw();
    server.signal("STOP");
    sleep(Duration::from_millis(5_200));
    first.send("LOCK.RELEASE k:0 a");
    server.signal("CONT");
    assert_eq!(first.line().unwrap(), ":1");
    next.fence();
    assert_eq!(c.info("lock_passed_over"), PLACES.to_string());
    assert_eq!(c.info("lock_waiting"), "0");
}

fn commands_sent_while_the_server_was_stopped_are_answered_in_order(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let mut late = server.raw();
    let mut others: Vec<_> = (0..5).map(|_| server.raw()).collect();
    c.int("LOCK.ACQUIRE k a 400");
    server.signal("STOP");
    for (n, other) in others.iter_mut().enumerate() {
        other.send(&format!("LOCK.ACQUIRE k t{n} 60000 BLOCK 0"));
    }
    sleep(Duration::from_millis(600)); // longer than the ttl
    late.send("LOCK.RENEW k a 60000\r\nLOCK.RELEASE k a");
    server.signal("CONT");
    assert_eq!(
        (late.line().unwrap(), late.line().unwrap()),
        (":0".into(), ":0".into())
    );
    let mut last = 0;
    // The server may read the requests in any order, but it grants in the order of reading.
    for _ in 0..others.len() {
        let holder = wait_for("the next holder", || c.holders("k").pop());
        let n: usize = holder[1..].parse().unwrap();
        let fence: i64 = others[n].line().unwrap()[1..].parse().unwrap();
        assert!(fence > last);
        last = fence;
        assert_eq!(c.int(&format!("LOCK.RELEASE k {holder}")), 1);
    }
}
