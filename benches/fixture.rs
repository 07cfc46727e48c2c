//! The server under measurement. It runs on a core of its own if there are two, and reports its own
//! CPU time.

use std::process::Command;
use std::thread;

use crate::harness::{wait_for, Client, Kind, Server, Setup};
use crate::load::{Connection, Requests};

pub fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Redis7_0 => "Redis 7.0.15",
        Kind::Redis7_2 => "Redis 7.2.4",
        Kind::Redis7_4 => "Redis 7.4.1",
        Kind::Redis8_2 => "Redis 8.2.3",
        Kind::Redis8_6 => "Redis 8.6",
        Kind::Valkey8_0 => "Valkey 8.0.1",
        Kind::Valkey8_1 => "Valkey 8.1",
        Kind::Valkey9 => "Valkey 9",
    }
}

fn has_cores_to_choose() -> bool {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    cores > 1 && Command::new("taskset").arg("--version").output().is_ok()
}

/// Moves this process away from core 0, which the server uses. Threads started later follow.
pub fn take_the_other_core() -> bool {
    if !has_cores_to_choose() {
        return false;
    }
    let pid = std::process::id().to_string();
    let mut taskset = Command::new("taskset");
    let moved = taskset.args(["-cp", "1", &pid]).output();
    moved.is_ok_and(|output| output.status.success())
}

/// Load arguments under which any number of places may wait.
pub const WITHOUT_LIMITS: [&str; 8] = [
    "max-waiters-per-key",
    "1000000",
    "max-waiters",
    "1000000",
    "max-absent",
    "10000",
    "max-waiting-bytes",
    "1099511627776",
];

fn on_its_core(mut setup: Setup, options: &[&str]) -> Setup {
    setup
        .options
        .extend(options.iter().map(ToString::to_string));
    if Command::new("taskset").arg("--version").output().is_ok() {
        setup.under = ["taskset", "-c", "0"].map(String::from).to_vec();
    }
    setup
}

pub struct Fixture {
    pub server: Server,
    pub control: Client,
}

impl Fixture {
    pub fn start(kind: Kind, options: &[&str]) -> Self {
        Self::start_as(kind, Setup::with_module(&WITHOUT_LIMITS), options)
    }

    pub fn start_without_module(kind: Kind) -> Self {
        Self::start_as(kind, Setup::default(), &[])
    }

    pub fn start_as(kind: Kind, setup: Setup, options: &[&str]) -> Self {
        let server = Server::start_as(kind, on_its_core(setup, options));
        let control = server.client();
        Self { server, control }
    }

    /// Starts the server again after it has ended.
    pub fn start_again_as(&mut self, setup: Setup, options: &[&str]) {
        self.server.start_again_as(on_its_core(setup, options));
        self.control = self.server.client();
    }

    /// Moves the server to other cores. Where that fails, the machine has one.
    pub fn run_on(&self, cores: &str) {
        let pid = self.server.pid().to_string();
        let mut taskset = Command::new("taskset");
        taskset.args(["-acp", cores, &pid]).output().ok();
    }

    pub fn connections(&self, count: usize) -> Vec<Connection> {
        (0..count)
            .map(|_| Connection::to(self.server.port))
            .collect()
    }

    fn field(&mut self, section: &str, field: &str) -> Option<f64> {
        let text = self.control.text(&format!("INFO {section}"));
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        value.trim().parse().ok()
    }

    /// The CPU time of the thread that runs commands, in microseconds.
    pub fn cpu_us(&mut self) -> f64 {
        let text = self.control.text("INFO cpu");
        let part = |field: &str| {
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
            value
                .expect("a field of INFO")
                .trim()
                .parse::<f64>()
                .unwrap()
                * 1e6
        };
        part("used_cpu_user_main_thread") + part("used_cpu_sys_main_thread")
    }

    /// The cost of one call of a command since CONFIG RESETSTAT, in µs, by the server's own
    /// measurement.
    pub fn us_per_call(&mut self, command: &str) -> f64 {
        let text = self.control.text("INFO commandstats");
        let prefix = format!("cmdstat_{command}:");
        let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
        let mut fields = line.expect("a command that was called").split(',');
        let per_call = fields.find_map(|field| field.strip_prefix("usec_per_call="));
        per_call.expect("a mean").parse().unwrap()
    }

    /// The number of commands that the server has executed, including those of scripts.
    pub fn commands(&mut self) -> f64 {
        self.field("stats", "total_commands_processed").unwrap()
    }

    /// Whether `commands` counts a command whose client still waits: Redis 7.0 counts it when it
    /// begins, Redis 8.2 and Valkey when it ends.
    pub fn counts_who_waits(&mut self) -> bool {
        let mut waiter = self.connections(1).remove(0);
        waiter.send(Requests::of(["BLPOP who:waits 0".into()]).bytes());
        self.wait_for_blocked(1);
        let before = self.commands();
        self.control.call("LPUSH who:waits x");
        assert_eq!(waiter.receive(1).errors, 0);
        match (self.commands() - before) as usize {
            // The first INFO and the LPUSH count, and on some servers the BLPOP as well.
            2 => true,
            3 => false,
            other => panic!("{other} commands instead of 2 or 3"),
        }
    }

    pub fn used_memory(&mut self) -> f64 {
        self.field("memory", "used_memory").unwrap()
    }

    pub fn wait_for_blocked(&mut self, count: usize) {
        wait_for("the clients to block", || {
            let blocked = self.field("clients", "blocked_clients").unwrap();
            (blocked as usize == count).then_some(())
        });
    }

    /// Empties the server and waits until no other client is connected.
    pub fn clear(&mut self) {
        wait_for("the clients to leave", || {
            let connected = self.field("clients", "connected_clients").unwrap();
            (connected as usize == 1).then_some(())
        });
        self.control.call("FLUSHALL");
    }
}
