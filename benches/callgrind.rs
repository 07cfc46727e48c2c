//! A server whose instructions callgrind counts.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{wait_for, Kind, Server, Setup, AT_ONCE};
use crate::load::{run, token, Connection, Requests, Tally};
use crate::peers::{CHECK_AND_SET, COMPARE_AND_DELETE};

const PIPELINE: usize = 16;
const LONGEST_TURN: Duration = Duration::from_secs(10);
/// Work that the server does periodically, independent of its clients: its round, and what comes and
/// goes over the bus of a cluster.
const HOUSEKEEPING: [&str; 3] = ["serverCron", "clusterReadHandler", "clusterWriteHandler"];
/// A command's name is looked up when it arrives, and again when it is rewritten for replicas.
const LOOK_UPS: [&str; 2] = ["lookupCommandLogic", "lookupCommandOrOriginal"];
const USUAL_LOOK_UP: f64 = 240.0;
/// What modules do periodically, as the beats of a guard.
const TIMERS: &str = "moduleTimerHandler";
/// What a replica acknowledges, each second and after each beat.
const ACKNOWLEDGEMENT: &str = "replconfCommand";
/// For how long they are counted alone.
const REST: Duration = Duration::from_secs(4);

/// A server under callgrind.
pub struct Counted {
    server: Server,
    connections: Vec<Connection>,
    folder: PathBuf,
    dumps: usize,
    /// They are not counted.
    replicas: Vec<Server>,
    /// The instructions that come with an acknowledgement of a replica: the turns of the event loop
    /// for it, and for the beat before.
    acknowledgement: f64,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.server.kill();
        fs::remove_dir_all(&self.folder).ok();
    }
}

impl Counted {
    pub fn start(kind: Kind) -> Self {
        Self::start_as(kind, Setup::with_module(&[]))
    }

    pub fn start_with(kind: Kind, arguments: &[&str]) -> Self {
        Self::start_as(kind, Setup::with_module(arguments))
    }

    pub fn port(&self) -> u16 {
        self.server.port
    }

    /// Counts nothing, and is much faster, until [`Self::resume`].
    pub fn pause(&mut self) {
        self.tell("instrumentation off");
    }

    pub fn resume(&mut self) {
        self.tell("instrumentation on");
    }

    pub fn start_without_module(kind: Kind) -> Self {
        Self::start_as(kind, Setup::default())
    }

    fn start_as(kind: Kind, mut setup: Setup) -> Self {
        // Housekeeping runs once per second instead of ten times, because its instructions are
        // counted too.
        let seldom = ["--hz", "1", "--dynamic-hz", "no"].map(String::from);
        setup.options.extend(seldom);
        let folder = format!("redis-lock-counts-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        fs::create_dir(&folder).expect("a temporary directory");
        let file = folder.join("counts");
        let words = [
            "valgrind",
            "--quiet",
            "--tool=callgrind",
            "--instr-atstart=no",
        ];
        setup.under = words.map(String::from).to_vec();
        // The server would otherwise return memory to the system by the clock, and request it
        // again.
        let never = "dirty_decay_ms:-1,muzzy_decay_ms:-1".to_string();
        setup.env.push(("MALLOC_CONF".into(), never));
        let to = format!("--callgrind-out-file={}", file.display());
        setup.under.push(to);
        let server = Server::start_as(kind, setup);
        let connections = vec![Connection::to(server.port), Connection::to(server.port)];
        let mut counted = Self {
            server,
            connections,
            folder,
            dumps: 0,
            replicas: Vec::new(),
            acknowledgement: 0.0,
        };
        counted.tell("instrumentation on");
        counted
    }

    /// A primary with two replicas, to which one of them has handed over. So the guard is open if it
    /// has any, and stays so whatever `max-ttl` becomes.
    pub fn start_with_replicas(kind: Kind, guard: &[&str]) -> Self {
        let options = [guard, &AT_ONCE, &["--repl-timeout", "3600"]].concat();
        let mut counted = Self::start_with(kind, &options);
        counted.pause();
        let replicas = [0, 1].map(|_| Server::start_with(kind, &options));
        let [old, other] = &replicas;
        let follow = |server: &Server, of: &Server| {
            let line = format!("REPLICAOF 127.0.0.1 {}", of.port);
            server.client().text(&line);
            server.wait_until_it_follows(of);
        };
        let wait_until_open = |server: &Server| {
            let mut c = server.client();
            let mut is_open = || ["off", "open"].contains(&&c.info("lock_guard")[..]);
            wait_for("the end of the guard", || is_open().then_some(()));
        };
        let server = &counted.server;
        follow(server, old);
        follow(other, old);
        wait_until_open(old);
        let hand_over = format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 15000", server.port);
        old.client().text(&hand_over);
        let mut c = server.client();
        wait_for("the hand-over", || {
            (c.info("role") == "master").then_some(())
        });
        follow(other, server);
        wait_until_open(server);
        c.text("CONFIG SET lock.max-ttl 3600000");
        wait_until_open(server);
        old.wait_until_it_follows(server);
        counted.replicas.extend(replicas);
        counted.resume();
        counted.dump();
        thread::sleep(REST);
        let dump = counted.dump();
        let acknowledgements = called(&dump, ACKNOWLEDGEMENT).calls;
        counted.acknowledgement = counted.instructions_in(&dump) / acknowledgements;
        counted
    }

    /// Brings the server to a steady size.
    pub fn prepare(&mut self, resident: usize, holders: usize) -> Scripts {
        // Keys that stay keep the server from shrinking its tables at a moment that its clock
        // chooses.
        let resident = (0..resident).map(|n| format!("SET resident:{n} x PX 3600000"));
        self.run(&Requests::of(resident));
        let clients = (0..holders).map(|n| format!("RWLOCK.RLOCK crowd {} 3600000", token(n)));
        self.run(&Requests::of(clients));
        let clients = (0..holders).map(|n| {
            format!(
                "LOCK.ACQUIRE pool {} 3600000 LIMIT {}",
                token(n),
                2 * holders
            )
        });
        self.run(&Requests::of(clients));
        let mut client = self.server.client();
        client.call("DEBUG SET-ACTIVE-EXPIRE 0");
        let mut load = |text: &str| {
            let script = client.send(&["SCRIPT", "LOAD", text]);
            String::from_utf8_lossy(script.as_bytes()).into_owned()
        };
        let scripts = Scripts {
            compare_and_delete: load(COMPARE_AND_DELETE),
            check_and_set: load(CHECK_AND_SET),
        };
        drop(client);
        self.instructions();
        scripts
    }

    /// Sends a command to callgrind in the server's process.
    fn tell(&mut self, words: &str) {
        let pid = format!("--pid={}", self.server.pid());
        let mut vgdb = Command::new("vgdb");
        let output = vgdb.arg(pid).args(words.split(' ')).output();
        let output = output.expect("vgdb, which comes with valgrind");
        assert!(output.status.success(), "vgdb {words}: {output:?}");
    }

    /// The instructions since the last call, with each look-up of a command's name at its usual
    /// cost. By chance, a name may share its bucket of the hash table with another one. Each of its
    /// look-ups then costs 75 to 300 instructions more, for as long as the server runs.
    pub fn instructions(&mut self) -> f64 {
        let dump = self.dump();
        self.instructions_in(&dump)
    }

    fn instructions_in(&self, dump: &str) -> f64 {
        let all = instructions_of(dump);
        if self.replicas.is_empty() {
            return all;
        }
        let acknowledgements = called(dump, ACKNOWLEDGEMENT).calls;
        all - called(dump, TIMERS).cost - acknowledgements * self.acknowledgement
    }

    /// What callgrind has counted since the last call.
    pub fn dump(&mut self) -> String {
        self.tell("dump");
        self.dumps += 1;
        let file = self.folder.join(format!("counts.{}", self.dumps));
        fs::read_to_string(file).expect("a dump of callgrind")
    }

    pub fn run(&mut self, requests: &Requests) -> Tally {
        run(&mut self.connections[..1], requests, PIPELINE)
    }

    /// Two clients pass one lock to and fro. The result is the instructions per hand-off, including
    /// the next wait.
    pub fn hand_off(&mut self, count: usize, by: &HandOff) -> f64 {
        let dump = self.dump_of_hand_offs(count, by);
        self.instructions_in(&dump) / count as f64
    }

    /// The same, with all that callgrind has counted.
    pub fn dump_of_hand_offs(&mut self, count: usize, by: &HandOff) -> String {
        let takes = [0, 1].map(|n| Requests::of([(by.take)(n)]));
        let gives = [0, 1].map(|n| Requests::of([(by.give)(n)]));
        self.one(0, &takes[0]);
        self.dump();
        for n in 0..count {
            let (holder, next) = (n % 2, (n + 1) % 2);
            self.connections[next].send(takes[next].bytes());
            self.wait_until_idle();
            self.one(holder, &gives[holder]);
            assert_eq!(self.connections[next].receive(1).yes, 1);
            self.wait_until_idle();
        }
        let dump = self.dump();
        self.one(count % 2, &gives[count % 2]);
        dump
    }

    /// One client passes a lock from token to token, and the other one listens to `channel`.
    pub fn dump_of_grants(&mut self, count: usize, channel: &str, by: &HandOff) -> String {
        let takes = [0, 1].map(|n| Requests::of([(by.take)(n)]));
        let gives = [0, 1].map(|n| Requests::of([(by.give)(n)]));
        self.one(1, &Requests::of([format!("SUBSCRIBE {channel}")]));
        self.one(0, &takes[0]);
        self.dump();
        for n in 0..count {
            self.one(0, &takes[(n + 1) % 2]);
            self.wait_until_idle();
            self.one(0, &gives[n % 2]);
            assert_eq!(self.connections[1].receive(1).yes, 1);
            self.wait_until_idle();
        }
        let dump = self.dump();
        self.one(0, &gives[count % 2]);
        self.one(1, &Requests::of([format!("UNSUBSCRIBE {channel}")]));
        dump
    }

    /// Waits until the server has done all that it was sent, and sleeps. Otherwise the speed of the
    /// clients decides how many requests share a turn of the event loop. Where somebody waits for a
    /// lock, a turn costs more than 2,000 instructions.
    pub fn wait_until_idle(&self) {
        let file = format!("/proc/{}/stat", self.server.pid());
        let until = Instant::now() + LONGEST_TURN;
        loop {
            let stat = fs::read_to_string(&file).expect("the state of the server");
            if stat.contains(") S ") {
                return;
            }
            assert!(Instant::now() < until, "the server does not sleep: {stat}");
            thread::yield_now();
        }
    }

    fn one(&mut self, client: usize, request: &Requests) {
        let connection = &mut self.connections[client];
        connection.send(request.bytes());
        assert_eq!(connection.receive(1).errors, 0);
    }
}

/// The SHA sums of the scripts.
pub struct Scripts {
    pub compare_and_delete: String,
    pub check_and_set: String,
}

/// The commands of the clients that pass a lock to and fro.
pub struct HandOff {
    pub take: fn(usize) -> String,
    pub give: fn(usize) -> String,
}

/// All instructions of a dump but housekeeping, with each look-up at its usual cost.
fn instructions_of(dump: &str) -> f64 {
    let evened_out = LOOK_UPS.map(|function| {
        let look_ups = called(dump, function);
        look_ups.calls * USUAL_LOOK_UP - look_ups.cost
    });
    let housekeeping = HOUSEKEEPING.map(|function| called(dump, function).cost);
    total(dump) - housekeeping.iter().sum::<f64>() + evened_out.iter().sum::<f64>()
}

fn total(dump: &str) -> f64 {
    let total = dump.lines().find_map(|line| line.strip_prefix("totals: "));
    total.expect("a total").trim().parse().expect("a number")
}

/// How often a function was called, and the cost of these calls including all that it called.
#[derive(Default)]
struct Called {
    calls: f64,
    cost: f64,
}

/// Reads a dump of callgrind. A line `cfn=(id) name` names the function, with the name only at its
/// first occurrence. A line `calls=number …` follows, and one that ends in the cost.
fn called(dump: &str, function: &str) -> Called {
    let is_it = |line: &str| line.ends_with(&format!(") {function}"));
    let id_of = |line: &str| Some(line.split_once('(')?.1.split_once(')')?.0.to_string());
    let mut called = Called::default();
    let Some(id) = dump.lines().find(|line| is_it(line)).and_then(id_of) else {
        return called;
    };
    let mut lines = dump.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("cfn=") && id_of(line).as_ref() == Some(&id) {
            let calls = lines.next().and_then(|line| line.strip_prefix("calls="));
            let calls = calls.and_then(|calls| calls.split(' ').next());
            let cost = lines.next().and_then(|line| line.rsplit(' ').next());
            let number = |text: Option<&str>| text.and_then(|n| n.parse::<f64>().ok());
            called.calls += number(calls).expect("a number of calls");
            called.cost += number(cost).expect("a cost");
        }
    }
    called
}
