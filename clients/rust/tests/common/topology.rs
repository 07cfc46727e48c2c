use std::env;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use redis::{Client, Value};

use super::{Admin, Server, eventually, free_port, program};

/// The name under which the sentinel knows the primary.
pub const NAME: &str = "locks";

/// A primary and a replica, which a sentinel watches.
pub struct Sentinels {
    pub servers: Vec<Server>,
    pub port: u16,
    process: Child,
    config: PathBuf,
}

impl Sentinels {
    pub fn start() -> Self {
        let primary = Server::start_with(&["--repl-diskless-sync-delay", "0"]);
        let port = primary.port.to_string();
        let replica = Server::start_with(&["--replicaof", "127.0.0.1", &port]);
        let mut follower = replica.admin();
        eventually("the replica follows", || {
            let info = format!("{:?}", follower.run(&["INFO", "replication"]));
            info.contains("master_link_status:up")
        });
        let (process, port, config) = Self::watch(&primary);
        let sentinels = Self {
            servers: vec![primary, replica],
            port,
            process,
            config,
        };
        eventually("the sentinel knows the replica", || {
            let Some(mut sentinel) = sentinels.admin() else {
                return false;
            };
            match sentinel.ask(&["SENTINEL", "REPLICAS", NAME]) {
                Ok(replicas) => {
                    let text = format!("{replicas:?}");
                    text.contains("name") && text.contains("\"ok\"")
                }
                Err(_) => false,
            }
        });
        sentinels
    }

    fn watch(primary: &Server) -> (Child, u16, PathBuf) {
        let port = free_port();
        let config = env::temp_dir().join(format!("redis-lock-rust-sentinel-{port}.conf"));
        let text = format!(
            "port {port}\nbind 127.0.0.1\n\
             sentinel monitor {NAME} 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds {NAME} 500\n\
             sentinel failover-timeout {NAME} 6000\n",
            primary.port
        );
        std::fs::write(&config, text).unwrap();
        let process = Command::new(program())
            .arg(&config)
            .arg("--sentinel")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("the sentinel answers", || {
            let client = Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
            let Ok(mut connection) = client.get_connection() else {
                return false;
            };
            // From 7.0 on its checks can be made more frequent, which saves seconds.
            for period in ["info-period", "publish-period", "ask-period"] {
                let _ = redis::cmd("SENTINEL")
                    .arg(&["DEBUG", period, "300"])
                    .query::<Value>(&mut connection);
            }
            true
        });
        (process, port, config)
    }

    fn admin(&self) -> Option<Admin> {
        let client = Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap();
        client.get_connection().ok().map(Admin)
    }

    /// The sentinel, behind one that is not there.
    pub fn addresses(&self) -> [String; 2] {
        [
            format!("redis://127.0.0.1:{}", free_port()),
            format!("redis://127.0.0.1:{}", self.port),
        ]
    }
}

impl Drop for Sentinels {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.config);
    }
}

/// Three primaries with a third of the slots each, and a replica of the first one.
pub struct Cluster {
    pub nodes: Vec<Server>,
}

impl Cluster {
    pub fn start() -> Self {
        let mut settings = vec!["--cluster-enabled", "yes"];
        settings.extend(["--cluster-node-timeout", "1500"]);
        settings.extend(["--repl-diskless-sync-delay", "0"]);
        let nodes: Vec<Server> = (0..4).map(|_| Server::start_with(&settings)).collect();
        for (number, slots) in ["0 5460", "5461 10922", "10923 16383"].iter().enumerate() {
            let mut node = nodes[number].admin();
            let slots: Vec<&str> = slots.split(' ').collect();
            node.run(&["CLUSTER", "ADDSLOTSRANGE", slots[0], slots[1]]);
        }
        for (number, node) in nodes.iter().enumerate() {
            let mut node = node.admin();
            let epoch = (number + 1).to_string();
            node.run(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
        }
        let mut first = nodes[0].admin();
        for node in &nodes[1..] {
            first.run(&["CLUSTER", "MEET", "127.0.0.1", &node.port.to_string()]);
        }
        let cluster = Self { nodes };
        for node in &cluster.nodes {
            let mut node = node.admin();
            eventually("the cluster is up", || {
                let info = format!("{:?}", node.run(&["CLUSTER", "INFO"]));
                info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:4")
            });
        }
        let mut replica = cluster.nodes[3].admin();
        let first = cluster.id(0);
        eventually("the replica knows the primary", || {
            replica.ask(&["CLUSTER", "REPLICATE", &first]).is_ok()
        });
        eventually("the replica follows", || {
            let info = format!("{:?}", replica.run(&["INFO", "replication"]));
            info.contains("master_link_status:up")
        });
        // A replica that the others do not know of is not elected.
        for node in &cluster.nodes {
            let mut node = node.admin();
            eventually("all know the replica", || {
                let known = format!("{:?}", node.run(&["CLUSTER", "NODES"]));
                known.contains(&format!("slave {first}"))
            });
        }
        cluster
    }

    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }

    pub fn id(&self, node: usize) -> String {
        let id = self.nodes[node].admin().run(&["CLUSTER", "MYID"]);
        redis::from_redis_value(id).unwrap()
    }

    /// A key of a node's first slots.
    pub fn key_of(&self, node: usize, name: &str) -> String {
        let mut admin = self.nodes[node].admin();
        let range = [0..=5_460, 5_461..=10_922, 10_923..=16_383][node].clone();
        (0..)
            .map(|number| format!("{name}:{number}"))
            .find(|key| range.contains(&admin.int(&["CLUSTER", "KEYSLOT", key])))
            .unwrap()
    }

    /// Begins to move the slot of a key from one node to another.
    pub fn begin_to_move(&self, key: &str, from: usize, to: usize) -> String {
        let mut source = self.nodes[from].admin();
        let mut target = self.nodes[to].admin();
        let slot = source.int(&["CLUSTER", "KEYSLOT", key]).to_string();
        target.run(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.id(from)]);
        source.run(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.id(to)]);
        slot
    }

    pub fn move_slot(&self, key: &str, from: usize, to: usize) {
        let slot = self.begin_to_move(key, from, to);
        let mut source = self.nodes[from].admin();
        let port = self.nodes[to].port.to_string();
        source.run(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        self.end_move(&slot, from, to);
    }

    pub fn end_move(&self, slot: &str, from: usize, to: usize) {
        let id = self.id(to);
        for node in [to, from] {
            let mut node = self.nodes[node].admin();
            node.run(&["CLUSTER", "SETSLOT", slot, "NODE", &id]);
        }
    }
}
