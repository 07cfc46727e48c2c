#![no_main]

use std::cell::RefCell;

#[allow(dead_code)] // The tests use more of it.
#[path = "../../tests/integration/hostile/payload.rs"]
mod payload;
#[path = "../properties/restore.rs"]
mod restore;

thread_local! {
    /// `scripts/check/fuzz.sh` starts the server and ends it.
    static SERVER: RefCell<restore::Server> = RefCell::new({
        let port = std::env::var("FUZZ_PORT").expect("FUZZ_PORT to name a server with the module");
        restore::Server::connect(port.parse().expect("a port"))
    });
}

libfuzzer_sys::fuzz_target!(
    |data: &[u8]| SERVER.with_borrow_mut(|server| restore::run(data, server))
);
