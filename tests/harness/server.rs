use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::client::Client;
use super::files::copy_files;
use super::kind::Kind;
use super::memcheck::{self, Report};

/// The shared object that `make build` creates.
pub fn module() -> PathBuf {
    let module = std::env::var_os("REDIS_LOCK_MODULE").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/release/libredis_lock.so"),
        PathBuf::from,
    );
    assert!(module.exists(), "{module:?} is missing: run `make build`");
    module
}

/// Deviations from the default way to start a server.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Options as on its command line.
    pub options: Vec<String>,
    /// A program and its arguments that start the server, with the server's command line behind
    /// them.
    pub under: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Whether it runs under valgrind's memcheck.
    pub memcheck: bool,
}

/// A running server. Dropping it ends the process and removes its directory.
pub struct Server {
    pub kind: Kind,
    pub port: u16,
    dir: PathBuf,
    setup: Setup,
    child: Child,
}

impl Setup {
    fn of(options: &[&str]) -> Self {
        Self {
            options: options.iter().map(ToString::to_string).collect(),
            ..Self::default()
        }
    }

    /// The module and further options.
    pub fn with_module(options: &[&str]) -> Self {
        Self::with_module_at(&module(), options)
    }

    /// Another build of the module, or a copy of it, and further options.
    pub fn with_module_at(module: &Path, options: &[&str]) -> Self {
        Self::of(&[&["--loadmodule", &path(module)], options].concat())
    }
}

/// The configuration file in a server's directory, if a test has written one.
const CONFIG: &str = "server.conf";

/// The time limit for anything that a test waits for. It is no measure of speed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `condition` returns a value. Fails the test if that takes too long.
#[track_caller]
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    wait_until(|| condition().ok_or_else(|| what.to_string()))
}

/// The same with a condition that says what it lacks.
#[track_caller]
pub(super) fn wait_until<T>(mut condition: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match condition() {
            Ok(value) => return value,
            Err(what) => assert!(
                start.elapsed() < memcheck::patience(PATIENCE),
                "waited in vain for {what}"
            ),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Looks at something again and again for so many milliseconds.
#[track_caller]
pub fn for_ms(ms: u64, mut look: impl FnMut()) {
    let start = Instant::now();
    wait_for("the time to pass", || {
        look();
        (start.elapsed() > Duration::from_millis(ms)).then_some(())
    });
}

/// Options of a primary that synchronizes its replicas without delay, and sends nothing on its own.
pub const AT_ONCE: [&str; 4] = [
    "--repl-diskless-sync-delay",
    "0",
    "--repl-ping-replica-period",
    "3600",
];

/// Options of a server that answers when its append-only file has what it did.
pub const SYNCED: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// Options of a server whose append-only file has nothing but commands.
pub const COMMANDS_ONLY: [&str; 4] = ["--appendonly", "yes", "--aof-use-rdb-preamble", "no"];

impl Server {
    /// Starts a server with the module and the defaults.
    pub fn start(kind: Kind) -> Self {
        Self::start_with(kind, &[])
    }

    /// Starts a server with the module and further options, as on its command line:
    /// `["--appendonly", "yes"]`.
    pub fn start_with(kind: Kind, options: &[&str]) -> Self {
        Self::start_as(kind, Setup::with_module(options))
    }

    /// Starts a server as the setup specifies, and with nothing else: not even the module.
    pub fn start_as(kind: Kind, setup: Setup) -> Self {
        Self::start_in(kind, temporary_dir(), setup)
    }

    /// Starts a server without the module.
    pub fn start_without_module(kind: Kind, options: &[&str]) -> Self {
        Self::start_as(kind, Setup::of(options))
    }

    /// Starts a server on a configuration file that loads the module itself.
    pub fn start_with_config(kind: Kind, config: &str) -> Self {
        Self::start_with_config_as(kind, config, Setup::default())
    }

    /// The same as the setup specifies.
    pub(super) fn start_with_config_as(kind: Kind, config: &str, setup: Setup) -> Self {
        let dir = temporary_dir();
        fs::write(dir.join(CONFIG), config).unwrap();
        Self::start_in(kind, dir, setup)
    }

    /// The same, with more files in the server's directory, which the configuration may name.
    pub fn start_with_files(kind: Kind, config: &str, files: &[(&str, &[u8])]) -> Self {
        let dir = temporary_dir();
        for (name, content) in files.iter().chain(&[(CONFIG, config.as_bytes())]) {
            fs::write(dir.join(name), content).unwrap();
        }
        Self::start_in(kind, dir, Setup::default())
    }

    /// Starts a server on copies of the files in `folder`: its RDB and append-only files.
    pub fn start_on(kind: Kind, folder: &Path, setup: Setup) -> Self {
        let dir = temporary_dir();
        copy_files(folder, &dir);
        Self::start_in(kind, dir, setup)
    }

    /// The current content of the configuration file that the server was started on.
    pub fn config(&self) -> String {
        fs::read_to_string(self.dir.join(CONFIG)).expect("a configuration file")
    }

    fn start_in(kind: Kind, dir: PathBuf, setup: Setup) -> Self {
        let mut setup = setup;
        setup.memcheck |= setup.under.is_empty() && memcheck::is_for_all_tests();
        let (port, child) = launch_until_ready(kind, &dir, &setup);
        Self {
            kind,
            port,
            dir,
            setup,
            child,
        }
    }

    /// Starts a server that is expected to exit on its own. Returns its log and its status.
    pub fn start_that_ends(kind: Kind, options: &[&str]) -> (String, ExitStatus) {
        run_to_the_end(kind, &temporary_dir(), &Setup::of(options))
    }

    /// Starts a server that is expected to exit on its own. Returns its log.
    #[track_caller]
    pub fn log_of_failed_start(kind: Kind, options: &[&str]) -> String {
        fail_to_start(kind, &temporary_dir(), &Setup::of(options))
    }

    /// The same on a configuration file.
    #[track_caller]
    pub fn log_of_failed_start_with_config(kind: Kind, config: &str) -> String {
        let dir = temporary_dir();
        fs::write(dir.join(CONFIG), config).unwrap();
        fail_to_start(kind, &dir, &Setup::default())
    }

    pub fn client(&self) -> Client {
        Client::connect(self.port)
    }

    /// A connection of a new user without a password.
    #[track_caller]
    pub fn user(&self, name: &str, rules: &str) -> Client {
        let rules = format!("ACL SETUSER {name} reset on nopass {rules}");
        assert_eq!(self.client().text(&rules), "OK");
        let mut c = self.client();
        assert_eq!(c.text(&format!("AUTH {name} any")), "OK");
        c
    }

    pub fn client_resp3(&self) -> Client {
        Client::connect_resp3(self.port)
    }

    /// The server's working directory, with its RDB and AOF.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.dir.join("log")).unwrap_or_default()).into_owned()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal: `STOP`, `CONT`, `TERM`.
    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "kill -s {name}"
        );
        // A process that is at work stops a moment later.
        if name == "STOP" {
            wait_for("the server to stop", || {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
                stat.contains(") T ").then_some(())
            });
        }
    }

    /// Whether it is running, and was not ended by `kill` or `shut_down`.
    pub fn is_running(&self) -> bool {
        std::path::Path::new(&format!("/proc/{}/exe", self.pid())).exists()
    }

    /// Ends the server at once, like a crash or a power cut.
    pub fn kill(&mut self) {
        self.child.kill().expect("to kill the server");
        self.child.wait().expect("to reap the server");
        self.look_at_report();
    }

    /// Whether the server has exited on its own.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Shuts the server down with SHUTDOWN and the configured saves.
    pub fn shut_down(&mut self) {
        self.shut_down_by("SHUTDOWN");
    }

    /// Shuts the server down after it wrote its RDB.
    pub fn shut_down_saving(&mut self) {
        self.shut_down_by("SHUTDOWN SAVE");
    }

    /// Shuts the server down with this command.
    pub fn shut_down_by(&mut self, line: &str) {
        // The end of the connection is the reply.
        self.client().try_call(line).ok();
        wait_for("the server to shut down", || self.child.try_wait().unwrap());
        self.look_at_report();
    }

    /// The report of memcheck on this server so far.
    pub fn report(&self) -> Option<Report> {
        self.setup.memcheck.then(|| Report::read(&self.dir))
    }

    #[track_caller]
    fn look_at_report(&self) {
        if let Some(report) = self.report() {
            report.assert_clean();
        }
    }

    /// Ends the process, normally if memcheck has to report leaks.
    fn end(&mut self) {
        if self.setup.memcheck {
            for signal in ["CONT", "TERM"] {
                self.signal(signal);
            }
            let start = Instant::now();
            while start.elapsed() < PATIENCE {
                if self.child.try_wait().is_ok_and(|status| status.is_some()) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// Restarts the server after `kill` or `shut_down`, on its own files and a new port.
    pub fn start_again(&mut self) {
        let (port, child) = launch_until_ready(self.kind, &self.dir, &self.setup);
        (self.port, self.child) = (port, child);
    }

    /// The same as another setup specifies.
    #[allow(dead_code)] // Only the campaign and benchmarks use it.
    pub fn start_again_as(&mut self, setup: Setup) {
        self.setup = setup;
        self.start_again();
    }

    /// The same with one more option.
    pub fn start_again_with(&mut self, options: &[&str]) {
        let all = &mut self.setup.options;
        all.extend(options.iter().map(ToString::to_string));
        self.start_again();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.try_wait().ok().flatten().is_none() {
            self.end();
        } else if std::thread::panicking() {
            eprintln!("the server had ended by itself; its log:\n{}", self.log());
        }
        let report = self.report();
        fs::remove_dir_all(&self.dir).ok();
        if let (Some(report), false) = (report, std::thread::panicking()) {
            report.assert_clean();
        }
    }
}

/// Ends the server on drop, unless it became ready.
struct Starting(Option<Child>);

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

fn launch_until_ready(kind: Kind, dir: &Path, setup: &Setup) -> (u16, Child) {
    // Another process may take the port between our check and the server's bind.
    for _ in 0..10 {
        let port = free_port();
        let mut starting = Starting(Some(launch(kind, dir, port, setup)));
        let child = starting.0.as_mut().unwrap();
        let ready = wait_for("the server to be ready", || {
            if child.try_wait().unwrap().is_some() {
                return Some(false);
            }
            Client::is_ready(port, child.id()).then_some(true)
        });
        if ready {
            return (port, starting.0.take().unwrap());
        }
        let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
        let port_was_taken = log.contains("in use");
        assert!(port_was_taken, "{kind:?} did not start:\n{log}");
        fs::remove_file(dir.join("log")).ok();
    }
    panic!("found no port for {kind:?}");
}

#[track_caller]
fn fail_to_start(kind: Kind, dir: &Path, setup: &Setup) -> String {
    let (log, status) = run_to_the_end(kind, dir, setup);
    // A crash would show a signal instead of a status.
    let in_order = status.code().is_some_and(|code| code != 0);
    assert!(in_order, "the server ended by {status}: {log}");
    log
}

#[track_caller]
fn run_to_the_end(kind: Kind, dir: &Path, setup: &Setup) -> (String, ExitStatus) {
    let mut starting = Starting(Some(launch(kind, dir, free_port(), setup)));
    let child = starting.0.as_mut().unwrap();
    let status = wait_for("the server to give up", || child.try_wait().unwrap());
    // It may quote arbitrary bytes.
    let log = fs::read(dir.join("log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log).into_owned();
    fs::remove_dir_all(dir).ok();
    (log, status)
}

fn launch(kind: Kind, dir: &Path, port: u16, setup: &Setup) -> Child {
    let log = File::options()
        .create(true)
        .append(true)
        .open(dir.join("log"))
        .unwrap();
    let under = match setup.memcheck {
        true => memcheck::command(dir),
        false => setup.under.clone(),
    };
    let mut command = match under.split_first() {
        Some((program, args)) => {
            let mut command = Command::new(program);
            command.args(args).arg(kind.binary());
            command
        }
        None => Command::new(kind.binary()),
    };
    if dir.join(CONFIG).exists() {
        command.arg(dir.join(CONFIG));
    }
    command
        .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
        .args(["--dir", &path(dir), "--save", ""]);
    command.args(["--enable-debug-command", "yes"]);
    if setup.memcheck {
        command.args(memcheck::OPTIONS);
    }
    command
        .args(&setup.options)
        .envs(setup.env.iter().cloned())
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("{kind:?} cannot be run: {error}"))
}

pub fn free_port() -> u16 {
    listener().1
}

/// At a port that this process has never used: whoever followed or asked a server that has ended
/// would meet the one that came next there. So it is none that the system gives to others, either.
pub(super) fn listener() -> (TcpListener, u16) {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        // A node of a cluster also takes the port 10000 above.
        let port = rand::random_range(10_000..32_000);
        let Ok(socket) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) else {
            continue;
        };
        if GIVEN.lock().unwrap().insert(port) {
            return (socket, port);
        }
    }
}

pub(super) fn temporary_dir() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("redis-lock-test-{}-{n}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        match fs::create_dir(&dir) {
            // Left by a killed process with the same pid.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => {
                made.expect("a temporary directory");
                return dir;
            }
        }
    }
}

fn path(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_string()
}
