//! The servers. Each has a thread and a connection of its own, so that one that hangs holds up
//! neither the others nor the keys.

mod connection;
mod look;
mod past;
mod release;
mod reply;
mod scan;

use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use redis::{cmd, ConnectionAddr, ConnectionInfo};

use crate::args::name_of;
use crate::model::{Snapshot, Target};
use connection::Line;
use look::Looker;
pub(crate) use release::Claim;

/// Longer than the longest look at a server that does not answer: to connect, and to ask.
pub(crate) const LONGEST_LOOK: Duration = Duration::from_secs(8);

/// Between two looks at the nodes of a cluster.
const NODES_EVERY: Duration = Duration::from_secs(2);

/// What is wished to be seen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wishes {
    pub(crate) databases: Databases,
    /// Also locks that nobody waits for.
    pub(crate) all: bool,
    pub(crate) top: u32,
    pub(crate) interval: Duration,
    pub(crate) paused: bool,
    pub(crate) detail: Option<Target>,
    pub(crate) past: Past,
}

/// Which questions about what has happened are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Past {
    pub(crate) contended: bool,
    pub(crate) log: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Databases {
    One(u32),
    All,
}

/// What a thread reports.
#[derive(Debug)]
pub(crate) enum Report {
    Looked {
        server: String,
        result: Box<Result<Snapshot, String>>,
    },
    /// What came of an end by force.
    Ended(String),
    /// The primaries of the cluster.
    Nodes(Vec<ConnectionInfo>),
    /// No node of the cluster could say which there are.
    NoNodes(String),
}

enum Order {
    Look(Wishes),
    End(Claim),
}

struct Worker {
    server: String,
    orders: Sender<Order>,
}

/// The threads of all servers. A thread ends when its worker is dropped.
pub(crate) struct Watch {
    workers: Vec<Worker>,
    wishes: Wishes,
    reports: Sender<Report>,
    start: Instant,
}

impl Watch {
    pub(crate) fn new(wishes: Wishes, reports: Sender<Report>) -> Self {
        Self {
            workers: Vec::new(),
            wishes,
            reports,
            start: Instant::now(),
        }
    }

    /// Looks at these servers from now on, and at no others.
    pub(crate) fn set_servers(&mut self, servers: &[ConnectionInfo]) -> Vec<String> {
        let names: Vec<_> = servers.iter().map(name_of).collect();
        self.workers.retain(|worker| names.contains(&worker.server));
        for (name, info) in names.iter().zip(servers) {
            if self.workers.iter().all(|worker| worker.server != *name) {
                let (orders, inbox) = channel();
                let worker = Worker {
                    server: name.clone(),
                    orders,
                };
                self.send(&worker, Order::Look(self.wishes.clone()));
                self.workers.push(worker);
                let (name, info) = (name.clone(), info.clone());
                let (reports, start) = (self.reports.clone(), self.start);
                thread::spawn(move || serve(&name, info, &inbox, &reports, start));
            }
        }
        names
    }

    /// If the wishes have changed, looks at once, and from now on as it is wished.
    pub(crate) fn set_wishes(&mut self, wishes: &Wishes) {
        if self.wishes == *wishes {
            return;
        }
        self.wishes = wishes.clone();
        for worker in &self.workers {
            self.send(worker, Order::Look(self.wishes.clone()));
        }
    }

    pub(crate) fn end(&self, server: &str, claim: Claim) {
        if let Some(worker) = self.workers.iter().find(|worker| worker.server == server) {
            self.send(worker, Order::End(claim));
        }
    }

    /// A thread that has ended has panicked, which its server's silence shows.
    fn send(&self, worker: &Worker, order: Order) {
        let _ = worker.orders.send(order);
    }
}

/// The life of a server's thread.
fn serve(
    server: &str,
    info: ConnectionInfo,
    inbox: &Receiver<Order>,
    reports: &Sender<Report>,
    start: Instant,
) {
    let mut looker = Looker::new(info);
    let mut wishes: Option<Wishes> = None;
    loop {
        let order = match &wishes {
            Some(wishes) if !wishes.paused => inbox.recv_timeout(wishes.interval),
            _ => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let mut ended = None;
        match order {
            Ok(Order::Look(new)) => wishes = Some(new),
            Ok(Order::End(claim)) => ended = Some(looker.end(&claim)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if let Some(result) = ended {
            let text = result
                .unwrap_or_else(|error| format!("nobody knows whether it was ended: {error}"));
            let _ = reports.send(Report::Ended(text));
        }
        let Some(wishes) = &wishes else {
            continue;
        };
        let target = wishes
            .detail
            .as_ref()
            .filter(|target| target.server == server);
        let detail = target.map(|target| &target.place);
        let result = Box::new(looker.look(wishes, detail, start.elapsed()));
        let server = server.to_owned();
        if reports.send(Report::Looked { server, result }).is_err() {
            return;
        }
    }
}

/// Asks the seeds, and later the nodes that they named, for the primaries of the cluster, again and
/// again.
pub(crate) fn follow_cluster(seeds: Vec<ConnectionInfo>, reports: Sender<Report>) {
    thread::spawn(move || {
        let mut known = Vec::new();
        loop {
            let asked: Vec<_> = known.iter().chain(&seeds).cloned().collect();
            let report = match primaries(&asked) {
                Ok(nodes) => {
                    known.clone_from(&nodes);
                    Report::Nodes(nodes)
                }
                Err(error) => Report::NoNodes(error),
            };
            if reports.send(report).is_err() {
                return;
            }
            thread::sleep(NODES_EVERY);
        }
    });
}

/// The primaries of the cluster, from the first of its nodes that can tell.
pub(crate) fn primaries(nodes: &[ConnectionInfo]) -> Result<Vec<ConnectionInfo>, String> {
    let mut why = "no address".to_owned();
    for node in nodes {
        let host = match node.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
            _ => "127.0.0.1".to_owned(),
        };
        let asked = Line::new(node.clone()).ask_one(cmd("CLUSTER").arg("SLOTS").take());
        why = match asked {
            Ok(Ok(slots)) => {
                let found = reply::primaries(&slots, &host);
                if !found.is_empty() {
                    return Ok(found
                        .into_iter()
                        .map(|(host, port)| with(node, host, port))
                        .collect());
                }
                "the cluster has no slots yet".to_owned()
            }
            Ok(Err(refusal)) => refusal.text,
            Err(error) => error,
        };
        why = format!("{}: {why}", name_of(node));
    }
    Err(why)
}

/// The same connection to another node.
fn with(like: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let mut addr = like.addr().clone();
    match &mut addr {
        ConnectionAddr::TcpTls {
            host: of_like,
            port: port_of_like,
            ..
        } => {
            (*of_like, *port_of_like) = (host, port);
        }
        _ => addr = ConnectionAddr::Tcp(host, port),
    }
    like.clone().set_addr(addr)
}
