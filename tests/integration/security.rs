//! The limits of a client: other users' keys, forged effects, the log, and the server's memory and
//! time.

mod effects;
mod keys;
mod limits;
mod log;
mod write_check;

use crate::harness::{Client, Reply, Server};

/// A connection of a new user without a password.
#[track_caller]
fn user(server: &Server, name: &str, rules: &str) -> Client {
    let mut admin = server.client();
    let reply = admin.call(&format!("ACL SETUSER {name} on nopass {rules}"));
    assert_eq!(reply, Reply::Simple("OK".into()), "{rules}");
    let mut c = server.client();
    let reply = c.call(&format!("AUTH {name} any"));
    assert_eq!(reply, Reply::Simple("OK".into()));
    c
}

/// A function that calls one command, for servers that have functions: `FCALL call 1 key command
/// rest…`.
fn load_function(c: &mut Client) {
    let code = b"#!lua name=test\nredis.register_function('call', function(keys, args) return redis.call(args[1], keys[1], unpack(args, 2)) end)";
    let loaded = c.send(&[b"FUNCTION".as_slice(), &b"LOAD"[..], code]);
    assert_eq!(loaded, Reply::from("test"));
}

/// A line in a script that declares its key, in one that does not, and in a function.
fn in_scripts(line: &str, has_functions: bool) -> Vec<Vec<Vec<u8>>> {
    let words: Vec<&str> = line.split(' ').collect();
    let (name, key, rest) = (words[0], words[1], &words[2..]);
    let declared = "return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))";
    let hidden = "return redis.call(unpack(ARGV))";
    let mut scripts = vec![
        [&["EVAL", declared, "1", key, name], rest].concat(),
        [&["EVAL", hidden, "0", name, key], rest].concat(),
    ];
    if has_functions {
        scripts.push([&["FCALL", "call", "1", key, name], rest].concat());
    }
    let bytes = |words: Vec<&str>| words.iter().map(|word| word.as_bytes().to_vec()).collect();
    scripts.into_iter().map(bytes).collect()
}
