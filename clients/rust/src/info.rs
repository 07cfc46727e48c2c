//! How connections are made.

use redis::{ConnectionInfo, IntoConnectionInfo, RedisResult};

/// An address whose connections do not tell the server the name of their library.
///
/// redis-rs waits for the answer to that, so a silent server takes the time of another one.
pub(crate) fn unnamed(address: impl IntoConnectionInfo) -> RedisResult<ConnectionInfo> {
    let info = address.into_connection_info()?;
    let settings = info.redis_settings().clone().set_skip_set_lib_name();
    Ok(info.set_redis_settings(settings))
}
