//! What a restart must keep.

use super::{acquire, held, start, Forged, LATE_MS};

impl Forged {
    /// The server starts again, with what it promises to keep, and shows its locks.
    fn starts(&mut self, kept: &str) {
        let struck_us = self.us;
        self.log("starts", &format!("{kept} {struck_us}"));
        for shown in self.keys.values_mut() {
            shown.places.clear();
        }
        self.looks();
    }
}

const ALL: &str = "answered 18446744073709551615";

#[test]
fn what_was_answered_is_there_after_a_start() {
    let mut h = held();
    h.starts(ALL);
    h.accepted();
    // The hold is gone, is another one, ends at another time, or is back after its end.
    for shown in [
        "-[]",
        "1[a:2:100]",
        "1[b:1:100]",
        "shared[a:1:100]",
        "1[a:1:99]",
        "1[a:1:101]",
    ] {
        let mut h = held();
        h.log("starts", &format!("{ALL} 0"));
        h.looks_like(&format!("k={shown}{{}}"));
        h.refused_for("shown holds");
    }
    let mut h = held();
    h.releases("a");
    h.log("starts", &format!("{ALL} 0"));
    h.looks_like("k=1[a:1:100]{}");
    h.refused_for("shown holds");
    // Nobody waits at a server that has just started.
    let mut h = held();
    let b = h.waits("b", "1", " BLOCK 0");
    h.replied(b, "lost");
    h.log("starts", &format!("{ALL} 0"));
    h.looks_like("k=1[a:1:100]{b:1:c}");
    h.leaves_queue("b");
    h.looks();
    h.refused_for("shown queue");
}

#[test]
fn a_server_that_ends_need_not_answer() {
    for is_ended in [true, false] {
        let mut h = held();
        h.waits("b", "1", " NOTIFY 10 ear");
        h.leaves_queue("b");
        if is_ended {
            h.starts(ALL);
        }
        h.works(LATE_MS);
        h.judged(is_ended, "unanswered");
    }
}

#[test]
fn an_answer_that_the_file_lacks_is_refused() {
    // With `everysec` it may be one of the last moment.
    for is_promised in [true, false] {
        let mut h = start();
        h.note("c1", "send", "LOCK.ACQUIRE k a 100 #1@1");
        h.requests = 1;
        let before = h.us;
        h.note("c1", "reply", "1");
        let promised = if is_promised { h.us + 1 } else { before };
        h.starts(&format!("answered {promised}"));
        h.judged(!is_promised, "lost");
    }
    // Its mark is there, and its grant is not.
    for is_promised in [true, false] {
        let mut h = start();
        let a = h.asks(&acquire("a", "1", ""));
        let before = h.us;
        h.replied(a, "1");
        let promised = if is_promised { h.us + 1 } else { before };
        h.starts(&format!("answered {promised}"));
        h.judged(!is_promised, "unknown fence");
    }
}

#[test]
fn a_state_that_is_no_instant_after_the_save_is_refused() {
    // `a`, then a look that the save follows, then `b` under another key.
    for (k, o, is_right) in [
        ("1[a:1:100]", "-[]", true),
        ("1[a:1:100]", "1[b:2:100]", true),
        ("-[]", "1[b:2:100]", false),
        ("-[]", "-[]", false),
    ] {
        let mut h = held();
        h.looks();
        let saved = h.requests;
        let b = h.asks("LOCK.ACQUIRE o b 100");
        let end_ms = h.now_ms() + 100;
        h.gives_until("o", "b", "1", 2, end_ms);
        h.replied(b, "2");
        h.log("starts", &format!("since {saved} 0"));
        h.looks_like(&format!("k={k}{{}} o={o}{{}}"));
        let (rules, text, _) = h.rules();
        assert_eq!(rules.contains("lost"), !is_right, "{k} {o}: {text}");
    }
}

#[test]
fn a_fence_that_repeats_or_falls_over_a_start_is_refused() {
    for (fence, is_right) in [(6, true), (5, false), (4, false)] {
        let mut h = start();
        h.takes("a", "1", 5);
        h.releases("a");
        h.starts(ALL);
        h.takes("b", "1", fence);
        h.judged(is_right, "fences");
    }
    // Also one that was told, and is not in the file.
    let mut h = start();
    h.note("c1", "send", "LOCK.ACQUIRE k a 100 #1@1");
    h.requests = 1;
    h.note("c1", "reply", "5");
    h.starts("answered 0");
    h.takes("b", "1", 5);
    h.refused_for("fences");
}
