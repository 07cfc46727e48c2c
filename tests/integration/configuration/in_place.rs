//! `replicate-in-place`: whether an effect replaces the client's command for replication. It can be
//! switched off on servers where that turns out to be wrong.

use crate::harness::aof;
use crate::harness::workload::words;
use crate::harness::{Client, Kind, Server};

on_every_server![the_setting_decides_how_an_effect_is_replicated];

/// The number of arguments of an acquire's effect, in place of the command and otherwise.
const IN_PLACE: usize = 4;
const BESIDE: usize = 3;

/// The number of arguments of the last effect on `k` in the append-only file.
#[track_caller]
fn last_effect(server: &Server) -> usize {
    let mut commands = aof::read(server.dir()).0.into_iter();
    let is_effect = |words: &Vec<Vec<u8>>| words[0].eq_ignore_ascii_case(b"LOCK._APPLY");
    let last = commands.rfind(|words| is_effect(words) && words[1] == b"k");
    last.expect("an effect in the append-only file").len()
}

/// Runs a line in some context.
type Run = fn(&mut Client, &str);

/// Acquires a lock by a client, a transaction and a script, and checks the effect of each.
#[track_caller]
pub(super) fn assert_goes_out(server: &Server, in_place: bool) {
    let mut c = server.client();
    let expected = if in_place { IN_PLACE } else { BESIDE };
    let line = "LOCK.ACQUIRE k me 600000";
    let ways: [(&str, Run); 3] = [
        ("a client", |c, line| assert!(c.int(line) > 0)),
        ("MULTI", |c, line| assert!(c.multi(&[line])[0].as_int() > 0)),
        ("EVAL", |c, line| {
            let mut script = words("EVAL return(redis.call(unpack(ARGV))) 0");
            script.extend(words(line));
            assert!(c.send(&script).as_int() > 0);
        }),
    ];
    for (way, run) in ways {
        c.call("DEL k");
        run(&mut c, line);
        assert_eq!(last_effect(server), expected, "{way}");
    }
}

pub(super) fn setting(c: &mut Client) -> String {
    c.setting("lock.replicate-in-place")
}

fn the_setting_decides_how_an_effect_is_replicated(kind: Kind) {
    // While the server synchronizes the file in the background, it may put off what it appends.
    let file = ["--appendonly", "yes", "--appendfsync", "no"];
    let server = Server::start_with(kind, &file);
    assert_goes_out(&server, true);
    let without = [&["replicate-in-place", "no"], &file[..]].concat();
    let of_argument = Server::start_with(kind, &without);
    assert_goes_out(&of_argument, false);
    assert_eq!(setting(&mut of_argument.client()), "no");
    let mut c = server.client();
    assert_eq!(setting(&mut c), "yes");
    // At run time, as an operator would change it.
    for (value, in_place) in [("no", false), ("yes", true), ("NO", false)] {
        let set = format!("CONFIG SET lock.replicate-in-place {value}");
        assert_eq!(c.text(&set), "OK");
        assert_eq!(setting(&mut c), value.to_lowercase());
        assert_goes_out(&server, in_place);
    }
    for bad in ["maybe", "1", "\u{2713}"] {
        let error = c.error(&format!("CONFIG SET lock.replicate-in-place {bad}"));
        assert!(error.contains("must be 'yes' or 'no'"), "{error}");
        assert_eq!(setting(&mut c), "no");
    }
}
