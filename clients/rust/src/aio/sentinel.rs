use std::sync::Mutex;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::ConnectionLike;
use redis::{Client, Cmd, ConnectionInfo, RedisResult, Value};
use tokio::time::timeout;

use super::driver::Tasks;
use super::link::{CONNECT_TIME, connect_to, within};
use crate::sentinel::{Ask, Sentinel};

/// The time after which the next sentinel is asked, too. One that works answers in it.
const NEXT_AFTER: Duration = Duration::from_millis(200);

impl Ask for Tasks {
    async fn ask(server: ConnectionInfo, command: Cmd, time: Duration) -> RedisResult<Value> {
        let mut connection = connect_to(&Client::open(server)?).await?;
        let answer = within(time, connection.req_packed_command(&command)).await;
        answer.and_then(Value::extract_error)
    }
}

/// The primary that sentinels name.
///
/// A caller may have no more time than one that is silent takes. So the next ones are asked meanwhile.
pub(super) async fn primary(sentinel: Sentinel) -> RedisResult<Client> {
    let mut last = sentinel.nobody();
    let known = Mutex::default();
    let mut rest = sentinel.in_turn();
    let mut asked = FuturesUnordered::new();
    loop {
        let next = rest.next();
        let time = match next {
            Some(_) => NEXT_AFTER,
            None => Duration::MAX,
        };
        asked.extend(next.map(|next| sentinel.named_by::<Tasks>(next, &known, CONNECT_TIME)));
        match timeout(time, asked.next()).await {
            Ok(Some(Ok(server))) => return Client::open(server),
            Ok(Some(Err(error))) => last = error,
            Ok(None) => return Err(last),
            Err(_) => {}
        }
    }
}
