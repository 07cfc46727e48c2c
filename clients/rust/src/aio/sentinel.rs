use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::ConnectionLike;
use redis::{Client, Cmd, ConnectionInfo, RedisResult, Value};
use tokio::time::timeout;

use super::link::{CONNECT_TIME, connect_to, within};
use crate::sentinel::{Sentinel, is_primary};

/// The time after which the next sentinel is asked, too. One that works answers in it.
const NEXT_AFTER: Duration = Duration::from_millis(200);

/// The primary that sentinels name.
///
/// A caller may have no more time than one that is silent takes. So the next ones are asked meanwhile.
pub(super) async fn primary(sentinel: Sentinel) -> RedisResult<Client> {
    let mut last = None;
    let mut rest = sentinel.in_turn();
    let mut asked = FuturesUnordered::new();
    loop {
        let next = rest.next();
        let has_asked_all = next.is_none();
        if let Some((number, address)) = next {
            asked.push(named_by(&sentinel, number, address));
        }
        let named = match has_asked_all {
            true => asked.next().await,
            false => match timeout(NEXT_AFTER, asked.next()).await {
                Ok(named) => named,
                Err(_) => continue,
            },
        };
        match named {
            Some(Ok(client)) => return Ok(client),
            Some(Err(error)) => last = Some(error),
            None => return Err(last.unwrap_or_else(|| sentinel.nobody())),
        }
    }
}

async fn named_by(
    sentinel: &Sentinel,
    number: usize,
    address: &ConnectionInfo,
) -> RedisResult<Client> {
    let asked = Client::open(address.clone())?;
    let address = sentinel.read(&ask(asked, &sentinel.question()).await?)?;
    let client = Client::open(sentinel.server(&address)?)?;
    let role = ask(client.clone(), &redis::cmd("ROLE")).await;
    match is_primary(&role) {
        true => {
            sentinel.has_named(number);
            Ok(client)
        }
        false => Err(sentinel.nobody()),
    }
}

async fn ask(client: Client, command: &Cmd) -> RedisResult<Value> {
    let mut connection = connect_to(&client).await?;
    within(CONNECT_TIME, connection.req_packed_command(command))
        .await
        .and_then(Value::extract_error)
}
