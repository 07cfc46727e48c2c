use std::sync::Arc;

use redis::aio::ConnectionLike;
use redis::{Client, Cmd, ConnectionInfo, RedisResult, Value};

use super::link::{CONNECT_TIME, connect_to, within};
use crate::address::Address;
use crate::sentinel::{Sentinel, is_primary};

/// The primary that sentinels name.
#[derive(Clone)]
pub(super) struct Primary(pub(super) Arc<Sentinel>);

impl Primary {
    pub(super) async fn client(&self) -> RedisResult<Client> {
        let mut last = None;
        let mut tried = Vec::new();
        for sentinel in &self.0.sentinels {
            match self.named_by(sentinel, &mut tried).await {
                Ok(client) => return Ok(client),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| self.0.nobody()))
    }

    async fn named_by(
        &self,
        sentinel: &ConnectionInfo,
        tried: &mut Vec<Address>,
    ) -> RedisResult<Client> {
        let sentinel = Client::open(sentinel.clone())?;
        let address = self.0.read(&ask(sentinel, &self.0.question()).await?)?;
        // Most sentinels name the same one, and one that is silent takes its time.
        if tried.contains(&address) {
            return Err(self.0.nobody());
        }
        tried.push(address.clone());
        let client = Client::open(self.0.server(&address)?)?;
        let role = ask(client.clone(), &redis::cmd("ROLE")).await;
        match is_primary(&role) {
            true => Ok(client),
            false => Err(self.0.nobody()),
        }
    }
}

async fn ask(client: Client, command: &Cmd) -> RedisResult<Value> {
    let mut connection = connect_to(&client).await?;
    within(CONNECT_TIME, connection.req_packed_command(command))
        .await
        .and_then(Value::extract_error)
}
