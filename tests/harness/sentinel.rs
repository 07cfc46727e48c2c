use std::time::{Duration, Instant};

use super::client::{Client, Reply};
use super::cut_link::CutLink;
use super::kind::Kind;
use super::server::{Server, Setup};

/// Three sentinels that watch one primary.
pub struct Sentinels {
    sentinels: Vec<Server>,
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
        let sentinels = (0..COUNT).map(|_| launch(kind, port)).collect();
        let group = Self { sentinels };
        group.wait_until_settled(replicas);
        group
    }

    /// Waits until each sentinel knows the others, a primary that is up, and so many replicas.
    #[track_caller]
    pub fn wait_until_settled(&self, replicas: usize) {
        let replicas = replicas.to_string();
        for sentinel in &self.sentinels {
            self.wait_for("a sentinel to know the others", || {
                let known = sentinel.client().call(&format!("SENTINEL MASTER {NAME}"));
                let is = |field: &str, value: &str| known.field(field) == Reply::from(value);
                let all = is("num-other-sentinels", "2") && is("num-slaves", &replicas);
                (all && is("flags", "master")).then_some(())
            });
        }
    }

    /// The port of the primary, as a sentinel reports it.
    pub fn primary(&self) -> u16 {
        let mut c = self.sentinels[0].client();
        let address = c.call(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {NAME}"));
        address.items()[1].to_text().parse().unwrap()
    }

    /// Waits until the sentinels have elected another primary than this one. Returns how long it
    /// took.
    #[track_caller]
    pub fn wait_for_another_than(&self, old: u16) -> Duration {
        let start = Instant::now();
        self.wait_for("a failover", || (self.primary() != old).then_some(()));
        start.elapsed()
    }

    /// Has a sentinel replace a primary that is up, and waits until it has chosen a replica.
    ///
    /// It chooses one of which it has heard lately. One that writes its configuration to a busy
    /// disk meanwhile finds none, says so and has done nothing. Then it is asked again.
    #[track_caller]
    pub fn fail_over(&self, how: &str) {
        let sentinel = &self.sentinels[0];
        self.wait_for("a replica that may lead", || {
            let before = sentinel.log().len();
            let mut c = sentinel.client();
            let reply = c.call(&format!("SENTINEL FAILOVER {NAME} {how}"));
            if reply != Reply::Simple("OK".into()) {
                return None;
            }
            let has_chosen = self.wait_for("a choice", || {
                let log = sentinel.log();
                let said = |event: &str| log[before..].contains(event);
                let is_decided = said("+selected-slave") || said("-failover-abort-no-good-slave");
                is_decided.then(|| said("+selected-slave"))
            });
            has_chosen.then_some(())
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
        self.sentinels.iter().map(Server::log).collect()
    }
}

fn launch(kind: Kind, watched: u16) -> Server {
    let config = format!(
        "sentinel monitor {NAME} 127.0.0.1 {watched} 2\n\
         sentinel down-after-milliseconds {NAME} 500\n\
         sentinel failover-timeout {NAME} 6000\n",
    );
    let setup = Setup {
        options: vec!["--sentinel".into()],
        // Never under memcheck: the module is not in it.
        under: vec!["env".into()],
        ..Setup::default()
    };
    let sentinel = Server::start_with_config_as(kind, &config, setup);
    // More frequent checks save the test seconds.
    let mut c = sentinel.client();
    for period in ["info-period", "publish-period", "ask-period"] {
        c.call(&format!("SENTINEL DEBUG {period} 300"));
    }
    sentinel
}

/// Three servers, one of which leads.
pub struct SentinelGroup {
    pub servers: Vec<Server>,
    #[allow(dead_code)] // Only the campaign uses it.
    pub links: Vec<CutLink>,
    pub sentinels: Sentinels,
}

impl SentinelGroup {
    pub fn start(kind: Kind, options: &[&str]) -> Self {
        let options = [options, &["--repl-diskless-sync-delay", "0"]].concat();
        let servers: Vec<_> = (0..3).map(|_| Server::start_with(kind, &options)).collect();
        let links: Vec<_> = servers.iter().map(|s| CutLink::to(s.port)).collect();
        for (server, link) in servers.iter().zip(&links) {
            let line = format!("CONFIG SET replica-announce-port {}", link.port);
            server.client().text(&line);
        }
        for replica in &servers[1..] {
            replica.follow_port(links[0].port);
            replica.wait_until_it_follows(&servers[0]);
        }
        let sentinels = Sentinels::watch_at(kind, links[0].port, 2);
        let group = Self {
            servers,
            links,
            sentinels,
        };
        if options[0] == "guard" {
            group.client(0).until_info("lock_guard", "open");
        }
        group
    }

    pub fn client(&self, server: usize) -> Client {
        self.servers[server].client()
    }

    /// Whether a server says so. The sentinels close connections when they promote one.
    pub fn leads(&self, server: usize) -> bool {
        self.info(server, "role").as_deref() == Some("master")
    }

    /// A field of INFO, unless the connection is closed meanwhile.
    pub fn info(&self, server: usize, field: &str) -> Option<String> {
        Client::try_connect(self.servers[server].port)?.try_info(field)
    }
}
