//! Which clients may load the module into a running server.

use super::{commented, example};
use crate::harness::{module, Kind, Reply, Server};

on_every_server![module_load_obeys_enable_module_command];

fn module_load_obeys_enable_module_command(kind: Kind) {
    let load = format!("MODULE LOAD {} max-waiters 5", module().display());
    let loaded = Reply::Simple("OK".into());
    let [of_example] = &commented("enable-module-command ")[..] else {
        panic!("more than one");
    };
    for (line, allowed) in [
        ("", false),
        (&**of_example, false),
        ("enable-module-command local", true),
        ("enable-module-command yes", true),
    ] {
        let server = Server::start_with_config(kind, &format!("{line}\n"));
        let mut c = server.client();
        if allowed {
            assert_eq!(c.call(&load), loaded, "{line}");
            assert!(c.int("LOCK.ACQUIRE k me 30000") > 0);
        } else {
            let error = c.error(&load);
            assert!(error.contains("MODULE command not allowed"), "{error}");
        }
    }
    // Loading at the start needs no permission.
    let config = format!("{}{of_example}\n", example());
    let server = Server::start_with_config(kind, &config);
    assert!(server.client().int("LOCK.ACQUIRE k me 30000") > 0);
}
