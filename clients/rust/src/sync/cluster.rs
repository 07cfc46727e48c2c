use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::{Client, Cmd, RedisResult, Value};

use super::connect::{Connect, Connection};
use crate::cluster::{Route, SLOTS_TIME, Topology, is_stale, slot_of_command};
use crate::driver::rest_for_answer;
use crate::info::Address;
use crate::replies::{is_demoted, is_unanswered};

/// The number of connections to a node that are kept for the next command.
const MAX_IDLE: usize = 64;

/// A cluster's nodes, each with connections of its own.
#[derive(Clone)]
pub(super) struct Nodes(Arc<Inner>);

struct Inner {
    topology: Topology,
    idle: Mutex<HashMap<Address, Vec<redis::Connection>>>,
}

impl Nodes {
    pub(super) fn new(topology: Topology) -> Self {
        Self(Arc::new(Inner {
            topology,
            idle: Mutex::default(),
        }))
    }
}

impl Connect for Nodes {
    fn connect(&self, _timeout: Duration) -> RedisResult<Box<dyn Connection>> {
        // It takes connections when it has a command to send.
        Ok(Box::new(self.clone()))
    }
}

impl Connection for Nodes {
    fn ask(&mut self, command: &Cmd, timeout: Duration) -> RedisResult<Value> {
        let slot = slot_of_command(command);
        let mut route = Route::new(slot, self.0.owner(slot, timeout)?);
        loop {
            let answer = self.0.send(&route.node, command, route.is_asking, timeout);
            let Err(error) = &answer else {
                return answer;
            };
            if is_stale(error) {
                self.0.topology.forget();
            }
            if route.follow(error, &self.0.topology).is_none() {
                return answer;
            }
        }
    }
}

impl Inner {
    fn owner(&self, slot: u16, timeout: Duration) -> RedisResult<Address> {
        if let Some(address) = self.topology.owner(slot) {
            return Ok(address);
        }
        let mut last = None;
        for node in self.topology.candidates() {
            let question = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
            match self.send(&node, &question, false, timeout.min(SLOTS_TIME)) {
                Ok(slots) if self.topology.learn(&slots, &node) => break,
                Ok(_) => {}
                Err(error) => last = Some(error),
            }
        }
        // A slot of nobody's is told by any node.
        self.topology.owner_or(slot, last)
    }

    fn send(
        &self,
        address: &Address,
        command: &Cmd,
        is_asking: bool,
        timeout: Duration,
    ) -> RedisResult<Value> {
        let start = Instant::now();
        let answer = self
            .connection(address, timeout)
            .and_then(|mut connection| {
                let timeout = rest_for_answer(start, timeout);
                let asking = match is_asking {
                    true => connection.ask(&redis::cmd("ASKING"), timeout),
                    false => Ok(Value::Okay),
                };
                let answer = asking
                    .and_then(|_| connection.ask(command, timeout))
                    .and_then(Value::extract_error);
                if answer
                    .as_ref()
                    .err()
                    .is_none_or(|error| !is_unanswered(error))
                {
                    self.put_back(address, connection);
                }
                answer
            });
        let has_failed = |error| is_unanswered(error) || is_demoted(error);
        if answer.as_ref().err().is_some_and(has_failed) {
            // The others are of the same server, and older.
            self.idle().remove(address);
        }
        answer
    }

    fn connection(&self, address: &Address, timeout: Duration) -> RedisResult<redis::Connection> {
        let idle = self.idle().get_mut(address).and_then(Vec::pop);
        match idle {
            Some(connection) => Ok(connection),
            None => Client::open(self.topology.info(address))?
                .get_connection_with_timeout(timeout.min(super::connect::CONNECT_TIME)),
        }
    }

    fn put_back(&self, address: &Address, connection: redis::Connection) {
        let mut idle = self.idle();
        let idle = idle.entry(address.clone()).or_default();
        if idle.len() < MAX_IDLE {
            idle.push(connection);
        }
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<Address, Vec<redis::Connection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
