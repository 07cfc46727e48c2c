//! Addresses of servers, and how connections to them are made.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisResult, Value};

/// An address whose connections do not tell the server the name of their library.
///
/// redis-rs waits for the answer to that, so a silent server takes the time of another one.
pub(crate) fn unnamed(address: impl IntoConnectionInfo) -> RedisResult<ConnectionInfo> {
    let info = address.into_connection_info()?;
    let settings = info.redis_settings().clone().set_skip_set_lib_name();
    Ok(info.set_redis_settings(settings))
}

/// The host and the port of a server.
pub(crate) type Address = (String, u16);

/// The same connection to another server.
pub(crate) fn with_address(like: &ConnectionInfo, (host, port): &Address) -> ConnectionInfo {
    let mut addr = like.addr().clone();
    if let ConnectionAddr::TcpTls {
        host: of_like,
        port: port_of_like,
        ..
    } = &mut addr
    {
        (*of_like, *port_of_like) = (host.clone(), *port);
    } else {
        addr = ConnectionAddr::Tcp(host.clone(), *port);
    }
    like.clone().set_addr(addr)
}

/// A word of an answer.
pub(crate) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}
