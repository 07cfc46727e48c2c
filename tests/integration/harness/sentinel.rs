use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::client::{Client, Reply};
use super::kind::Kind;
use super::server::{free_port, temporary_dir, wait_for, Server};

/// Three sentinels that watch one primary. Dropping it ends them and removes their directory.
pub struct Sentinels {
    sentinels: Vec<(Child, u16)>,
    dir: PathBuf,
}

/// The name under which the sentinels know the primary.
const NAME: &str = "locks";

const COUNT: usize = 3;

/// A sentinel that notices a pause of two seconds takes no action for thirty.
const PATIENCE: Duration = Duration::from_secs(90);

impl Sentinels {
    /// Starts three sentinels, and waits until each knows the others and the only replica.
    pub fn watch(primary: &Server) -> Self {
        Self::watch_at(primary.kind, primary.port, 1)
    }

    /// The same for a primary behind this port that has so many replicas.
    pub fn watch_at(kind: Kind, port: u16, replicas: usize) -> Self {
        let dir = temporary_dir();
        let mut group = Self {
            sentinels: Vec::new(),
            dir,
        };
        for _ in 0..COUNT {
            let sentinel = group.launch(kind, port);
            group.sentinels.push(sentinel);
        }
        group.wait_until_settled(replicas);
        group
    }

    /// Waits until each sentinel knows the others, a primary that is up, and so many replicas.
    #[track_caller]
    pub fn wait_until_settled(&self, replicas: usize) {
        let replicas = replicas.to_string();
        for (_, port) in &self.sentinels {
            self.wait_for("a sentinel to know the others", || {
                let mut c = Client::connect(*port);
                let known = c.call(&format!("SENTINEL MASTER {NAME}"));
                let is = |field: &str, value: &str| known.field(field) == Reply::from(value);
                let all = is("num-other-sentinels", "2") && is("num-slaves", &replicas);
                (all && is("flags", "master")).then_some(())
            });
        }
    }

    fn launch(&self, kind: Kind, watched: u16) -> (Child, u16) {
        // Another process may take the port between the check and the bind.
        for _ in 0..10 {
            let port = free_port();
            let config = self.dir.join(format!("{port}.conf"));
            let log = self.dir.join(format!("{port}.log"));
            let text = format!(
                "port {port}\nbind 127.0.0.1\ndir {dir}\n\
                 sentinel monitor {NAME} 127.0.0.1 {watched} 2\n\
                 sentinel down-after-milliseconds {NAME} 500\n\
                 sentinel failover-timeout {NAME} 6000\n",
                dir = self.dir.display(),
            );
            fs::write(&config, text).unwrap();
            let mut child = Command::new(kind.binary())
                .arg(&config)
                .arg("--sentinel")
                .stdin(Stdio::null())
                .stdout(File::create(&log).unwrap())
                .stderr(Stdio::null())
                .spawn()
                .expect("to start a sentinel");
            let ready = wait_for("a sentinel", || {
                if child.try_wait().unwrap().is_some() {
                    return Some(false);
                }
                Client::is_ready(port, child.id()).then_some(true)
            });
            if ready {
                // From 7.0 on their checks can be made more frequent, which saves the test seconds.
                let mut c = Client::connect(port);
                for period in ["info-period", "publish-period", "ask-period"] {
                    c.call(&format!("SENTINEL DEBUG {period} 300"));
                }
                return (child, port);
            }
            let log = fs::read_to_string(log).unwrap_or_default();
            assert!(log.contains("in use"), "a sentinel did not start:\n{log}");
        }
        panic!("found no port for a sentinel");
    }

    /// The port of the primary, as a sentinel reports it.
    pub fn primary(&self) -> u16 {
        let mut c = Client::connect(self.sentinels[0].1);
        let address = c.call(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {NAME}"));
        let port = String::from_utf8(address.items()[1].as_bytes().to_vec());
        port.unwrap().parse().unwrap()
    }

    /// Waits until the sentinels have elected another primary than this one. Returns how long it
    /// took.
    #[track_caller]
    pub fn wait_for_another_than(&self, old: u16) -> Duration {
        let start = Instant::now();
        self.wait_for("a failover", || (self.primary() != old).then_some(()));
        start.elapsed()
    }

    /// Has a sentinel replace a primary that is up.
    pub fn fail_over(&self, how: &str) {
        self.wait_for("a replica that may lead", || {
            let mut c = Client::connect(self.sentinels[0].1);
            let reply = c.call(&format!("SENTINEL FAILOVER {NAME} {how}"));
            (reply == Reply::Simple("OK".into())).then_some(())
        });
    }

    /// Waits for what the sentinels do.
    #[track_caller]
    pub fn wait_for<T>(&self, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(value) = condition() {
                return value;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "waited in vain for {what}:\n{}",
                self.logs()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn logs(&self) -> String {
        let logs = self.sentinels.iter().map(|(_, port)| {
            let log = self.dir.join(format!("{port}.log"));
            fs::read_to_string(log).unwrap_or_default()
        });
        logs.collect()
    }
}

impl Drop for Sentinels {
    fn drop(&mut self) {
        for (child, _) in &mut self.sentinels {
            child.kill().ok();
            child.wait().ok();
        }
        fs::remove_dir_all(&self.dir).ok();
    }
}
