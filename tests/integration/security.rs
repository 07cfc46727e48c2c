//! The limits of a client: other users' keys, forged effects, the log, and the server's memory and
//! time.

mod calls;
mod effects;
mod keys;
mod limits;
mod log;
mod write_check;

use crate::harness::Client;

/// A function that calls one command, for servers that have functions: `FCALL call 1 key command
/// rest…`.
fn load_function(c: &mut Client) {
    c.load_functions("redis.register_function('call', function(keys, args) return redis.call(args[1], keys[1], unpack(args, 2)) end)");
}

/// A line in a script that declares its key, in one that does not, and in a function.
fn in_scripts(line: &str) -> Vec<Vec<Vec<u8>>> {
    let words: Vec<&str> = line.split(' ').collect();
    let (name, key, rest) = (words[0], words[1], &words[2..]);
    let declared = "return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))";
    let hidden = "return redis.call(unpack(ARGV))";
    let scripts = [
        [&["EVAL", declared, "1", key, name], rest].concat(),
        [&["EVAL", hidden, "0", name, key], rest].concat(),
        [&["FCALL", "call", "1", key, name], rest].concat(),
    ];
    let bytes = |words: Vec<&str>| words.iter().map(|word| word.as_bytes().to_vec()).collect();
    scripts.into_iter().map(bytes).collect()
}
