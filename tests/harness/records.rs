//! Reads back the effects that the module sends to replicas and writes into the append-only file.

use redis_lock::lock::codec::{decode_held, encode_effect};
use redis_lock::lock::{Effect, Token};

/// The record in a command of an append-only file or a replication link, in its self-contained
/// form. `None` for the server's own commands.
#[allow(dead_code)] // Only the campaign uses it.
pub fn record_of(args: &[impl AsRef<[u8]>]) -> Option<Vec<u8>> {
    let arg = |n: usize| args[n].as_ref();
    let effect = match arg(0).to_ascii_lowercase().as_slice() {
        b"lock._apply" if args.len() == 3 || arg(3).is_empty() => return Some(arg(2).to_vec()),
        b"lock._apply" => decode_held(arg(2), arg(3)).expect("a hold"),
        b"lock._release" => Effect::Release {
            // The only hold has ended, so no other holds can have expired.
            now_ms: 0,
            token: Token::new(arg(2)).expect("a token"),
        },
        _ => return None,
    };
    let mut record = Vec::new();
    encode_effect(&effect, &mut record);
    Some(record)
}
