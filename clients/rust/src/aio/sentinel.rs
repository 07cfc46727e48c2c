use std::sync::Mutex;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Client, RedisResult};
use tokio::time::timeout;

use super::link::{CONNECT_TIME, Own};
use crate::sentinel::Sentinel;

/// The time after which the next sentinel is asked, too. One that works answers in it.
const NEXT_AFTER: Duration = Duration::from_millis(200);

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
        asked.extend(next.map(|next| sentinel.named_by::<Own>(next, &known, CONNECT_TIME)));
        match timeout(time, asked.next()).await {
            Ok(Some(Ok(server))) => return Ok(server),
            Ok(Some(Err(error))) => last = error,
            Ok(None) => return Err(last),
            Err(_) => {}
        }
    }
}
