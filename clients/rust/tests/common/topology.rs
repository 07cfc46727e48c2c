use super::{Launched, Server};

/// A primary and a replica, which a sentinel watches under the name `locks`.
pub struct Sentinels {
    pub servers: Vec<Server>,
    sentinel: Server,
}

impl Sentinels {
    pub fn start() -> Self {
        let mut servers = Launched::start(&["sentinel"]);
        let sentinel = servers.pop().unwrap();
        Self { servers, sentinel }
    }

    /// The sentinel, behind one that is not there.
    pub fn addresses(&self) -> [String; 2] {
        ["redis://127.0.0.1:1".to_owned(), self.sentinel.url()]
    }
}

/// Three primaries with a third of the slots each, and a replica of the first one.
pub struct Cluster {
    pub nodes: Vec<Server>,
}

impl Cluster {
    pub fn start() -> Self {
        Self {
            nodes: Launched::start(&["cluster"]),
        }
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
