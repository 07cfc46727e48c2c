//! No step lasts for as long as somebody could want.

use crate::harness::{Kind, Server};
use crate::places::fixture::Subscriber;

on_every_server![one_step_grants_no_more_than_a_thousand_keys];

const KEYS: usize = 128;
const READERS: usize = 30;

fn one_step_grants_no_more_than_a_thousand_keys(kind: Kind) {
    let server = Server::start(kind);
    let mut c = server.client();
    let _subscriber = Subscriber::new(&server, "SUBSCRIBE c");
    c.int("LOCK.ACQUIRE k0 writer 60000");
    let keys: Vec<String> = (0..KEYS).map(|n| format!("k{n}")).collect();
    let (keys, modes) = (keys.join(" "), "SHARED ".repeat(KEYS));
    for n in 0..READERS {
        let line = format!("LOCK.MACQUIRE {KEYS} {keys} r{n} 60000 MODES {modes}NOTIFY 0 c");
        assert_eq!(c.text(&line), "QUEUED");
    }
    c.text("MULTI");
    for line in ["LOCK.RELEASE k0 writer", "INFO lock"] {
        assert_eq!(c.text(line), "QUEUED");
    }
    let replies = c.call("EXEC");
    let info = replies.items()[1].to_text();
    let held = info
        .lines()
        .find_map(|line| line.strip_prefix("lock_held_shared:"));
    let held: usize = held.expect("a gauge").trim().parse().unwrap();
    assert!((1..=1_000 + KEYS).contains(&held), "{held}");
    c.until_info("lock_held_shared", &(READERS * KEYS).to_string());
}
