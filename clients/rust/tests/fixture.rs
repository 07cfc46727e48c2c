//! What README.md links under "How do I test my code?": a server that ends with its test.
#![allow(clippy::unwrap_used)]

use redis_lock_client::{Options, sync::LockClient};

struct Server(std::process::Child, u16);

impl Server {
    fn start(program: &str, module: &str) -> std::io::Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        drop(listener);
        let child = std::process::Command::new(program)
            .args(["--port", &port.to_string(), "--save", ""])
            .args(["--loadmodule", module])
            .spawn()?;
        Ok(Self(child, port))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

#[test]
fn a_private_server_with_the_module() {
    let program = std::env::var("REDIS_SERVER").unwrap_or("redis-server".to_owned());
    let module = std::env::var("REDIS_LOCK_MODULE").unwrap();
    let server = Server::start(&program, &module).unwrap();
    let address = format!("redis://127.0.0.1:{}", server.1);
    let options = Options::default().reconnect(std::time::Duration::from_secs(20));
    // It waits for the server.
    let locks = LockClient::open(address, options).unwrap();
    locks.lock("tested").lock().unwrap().unlock().unwrap();
}
