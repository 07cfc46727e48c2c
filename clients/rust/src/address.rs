//! Addresses of servers that other servers name.

use redis::{ConnectionAddr, ConnectionInfo, Value};

/// The host and the port of a server.
pub(crate) type Address = (String, u16);

/// The same connection to another server.
pub(crate) fn with_address(like: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let mut addr = like.addr().clone();
    match &mut addr {
        ConnectionAddr::TcpTls {
            host: of_like,
            port: port_of_like,
            ..
        } => (*of_like, *port_of_like) = (host.to_owned(), port),
        _ => addr = ConnectionAddr::Tcp(host.to_owned(), port),
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
