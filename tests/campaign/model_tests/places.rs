//! Queues: their order, who waits, and places that outlive their listeners.

use super::{acquire, held, start, Forged, LATE_MS, TTL_MS};

const GRACE_MS: u64 = 50;

/// Longer than any client waits for an answer.
const PATIENCE_MS: u64 = 31_000;

/// Asks with KEEP, gets null, and nobody listens at its place.
fn polls(h: &mut Forged, token: &str, mode: &str) {
    h.answered(&acquire(token, mode, &format!(" KEEP {GRACE_MS}")), "nil");
    h.k().places.push((token.into(), mode.into(), '-'));
}

#[test]
fn a_grant_out_of_order_is_refused() {
    // The holder, who waits first, and who is granted.
    for (holder, first, second) in [
        ("1", "1", "1"),
        ("shared", "1", "shared"),
        ("1", "shared", "1"),
    ] {
        let mut h = start();
        h.takes("a", holder, 1);
        let b = h.waits("b", first, " BLOCK 0");
        let c = h.waits("c", second, " BLOCK 0");
        if holder == "1" {
            h.is_deleted();
        }
        h.grants(c, "c", second, 2);
        h.after(TTL_MS + 1);
        h.looks();
        h.grants(b, "b", first, 3);
        h.looks();
        h.refused_for("order");
    }
    // A request that does not wait overtakes one that does, by a channel too.
    for way in ["BLOCK", "NOTIFY"] {
        let mut h = start();
        h.takes("a", "shared", 1);
        let b = h.waits("b", "1", &format!(" {way} 50 ear"));
        h.takes("c", "shared", 2);
        h.looks();
        h.after(51);
        h.replied(b, "nil");
        h.leaves_queue("b");
        h.looks();
        h.refused_for("order");
    }
    // An earlier reader overtakes an upgrade.
    let mut h = start();
    h.takes("a", "shared", 1);
    h.takes("b", "shared", 2);
    let w = h.waits("w", "1", " BLOCK 0");
    let c = h.waits("c", "shared", " BLOCK 0");
    let b = h.asks(&acquire("b", "1", " BLOCK 0"));
    h.k().places.insert(0, ("b".into(), "1".into(), 'c'));
    h.is_killed(w);
    h.leaves_queue("w");
    h.grants(c, "c", "shared", 3);
    h.looks();
    h.is_killed(b);
    h.leaves_queue("b");
    h.looks();
    h.refused_for("order");
}

/// Two clients ask with one token. The first reads its answer late, or its time is over by then.
#[test]
fn a_grant_that_is_heard_of_late_has_left_the_queue() {
    let mut h = held();
    let first = h.waits("b", "1", " BLOCK 0");
    h.is_deleted();
    h.gives("b", "1", 2);
    h.releases("b");
    h.takes("a", "1", 3);
    let second = h.waits("b", "1", " BLOCK 10");
    h.looks();
    h.after(11);
    h.replied(second, "nil");
    h.leaves_queue("b");
    h.looks_like("");
    h.looks();
    h.replied(first, "2");
    let first = h.waits("e", "1", " BLOCK 10");
    let c = h.waits("c", "1", " BLOCK 0");
    h.after(11);
    h.is_deleted();
    let second = h.asks(&acquire("e", "1", " BLOCK 10"));
    h.leaves_queue("e");
    h.grants(c, "c", "1", 4);
    h.k().places.push(("e".into(), "1".into(), 'c'));
    h.looks();
    h.replied(first, "nil");
    h.is_killed(second);
    h.leaves_queue("e");
    h.looks();
    h.accepted();
}

#[test]
fn whose_hold_is_over_comes_again_at_the_end() {
    let mut h = held();
    let b = h.waits("b", "1", " BLOCK 500");
    let c = h.waits("c", "1", " BLOCK 0");
    h.is_deleted();
    h.grants(b, "b", "1", 2);
    h.after(TTL_MS + 1);
    h.log("gone", "k");
    h.k().holders.clear();
    // Nobody knows what it has met.
    let line = acquire("b", "1", " BLOCK 9") + " #again@99";
    h.note("again", "send", &line);
    h.log("mark", "again");
    h.k().places.push(("b".into(), "1".into(), 'c'));
    h.looks();
    h.after(10);
    h.note("again", "reply", "nil");
    h.leaves_queue("b");
    h.grants(c, "c", "1", 3);
    h.looks();
    h.accepted();
}

/// It came while its lock was elsewhere, so nobody has seen that it became one.
#[test]
fn an_upgrade_by_a_lock_that_moved_goes_back_to_its_place() {
    let mut h = start();
    h.takes("b", "shared", 1);
    h.after(5);
    h.takes("c", "shared", 2);
    let w = h.waits("w", "1", " BLOCK 0");
    h.log("swapped", "");
    let away = std::mem::take(&mut h.k().holders);
    let b = h.asks(&acquire("b", "1", " BLOCK 0"));
    h.log("swapped", "");
    h.k().holders = away;
    h.k().places.insert(0, ("b".into(), "1".into(), 'c'));
    h.after(TTL_MS - 3);
    h.looks();
    h.k().places.reverse();
    h.looks();
    h.is_killed(w);
    h.is_killed(b);
    h.k().places.clear();
    h.looks();
    h.accepted();
}

#[test]
fn a_missing_hand_off_is_refused() {
    // The first one, and the second of two readers.
    for served in [0, 1] {
        let mut h = held();
        let waiters = ["b", "c"].map(|token| (token, h.waits(token, "shared", " BLOCK 0")));
        h.releases("a");
        for (n, (token, number)) in waiters.into_iter().enumerate() {
            if n == served {
                h.works(LATE_MS);
            }
            h.grants(number, token, "shared", n as u64 + 2);
        }
        h.looks();
        h.refused_for("idle");
    }
    // A lock that is free by itself. A server that stands still is no judge of its time.
    for (works, is_right) in [(LATE_MS, false), (LATE_MS / 2, true), (0, true)] {
        let mut h = held();
        let b = h.waits("b", "1", " BLOCK 0");
        h.is_deleted();
        h.looks();
        h.after(if works == 0 { 10 * LATE_MS } else { 0 });
        h.works(works);
        h.grants(b, "b", "1", 2);
        h.looks();
        h.judged(is_right, "idle");
    }
}

#[test]
fn a_look_that_shows_a_wrong_queue_is_refused() {
    for (queue, is_right) in [
        ("b:1:c,c:1:c", true),
        ("c:1:c,b:1:c", false),
        ("b:1:c", false),
        ("b:1:c,c:1:c,c:1:c", false),
        ("b:1:c,c:1:c,d:shared:c", false),
        ("b:1:c,c:shared:c", false),
        ("b:1:c,c:1:-", false),
    ] {
        let mut h = held();
        let [b, c] = ["b", "c"].map(|token| h.waits(token, "1", " BLOCK 0"));
        h.looks_like(&format!("k=1[a:1:100]{{{queue}}}"));
        h.leaves_queue("b");
        h.leaves_queue("c");
        h.looks();
        h.after(TTL_MS + 1);
        let mut told = [(b, "b", 2), (c, "c", 3)];
        if is_right {
            told = [(b, "b", 0), (c, "c", 0)];
        }
        for (number, token, fence) in told {
            match fence {
                0 => h.is_killed(number),
                _ => {
                    h.grants(number, token, "1", fence);
                    h.ends_hold(token);
                }
            }
        }
        let (rules, text, _) = h.rules();
        assert_eq!(rules.contains("shown queue"), !is_right, "{queue}: {text}");
        assert!(!is_right || rules.is_empty(), "{queue}: {text}");
    }
    // Those that have no reason to change their order.
    let mut h = held();
    let [b, c] = ["b", "c"].map(|token| h.waits(token, "1", " BLOCK 0"));
    h.looks();
    h.k().places.reverse();
    h.looks();
    for (token, number) in [("b", b), ("c", c)] {
        h.is_killed(number);
        h.leaves_queue(token);
    }
    h.looks();
    h.refused_for("shown queue");
}

#[test]
fn a_look_that_shows_wrong_holds_is_refused() {
    for shown in [
        "1[a:2:100]",
        "1[b:1:100]",
        "shared[a:1:100]",
        "1[a:1:100,b:2:100]",
        "-[]",
        "1[a:1:101]",
    ] {
        let mut h = held();
        h.looks_like(&format!("k={shown}{{}}"));
        h.refused_for("shown holds");
    }
    // Of holds that end meanwhile it may show some, and the limit of none.
    for (mode, is_right) in [("shared", true), ("2", true), ("3", false)] {
        let mut h = start();
        h.takes("a", "2", 1);
        h.after(1);
        h.takes("b", "shared", 2);
        h.after(TTL_MS - 1);
        let until_ms = 1;
        h.looks_like(&format!("k={mode}[b:2:{until_ms}]{{}}"));
        h.after(1);
        h.looks_like("k=shared[b:2:0]{}");
        h.judged(is_right, "shown holds");
    }
}

#[test]
fn a_waiter_without_an_answer_is_refused() {
    // Unless the server stands still, or ends, before it can answer.
    for (more, works_ms, is_right) in [
        (" BLOCK 10", LATE_MS, false),
        (" BLOCK 10", 100, true),
        (" NOTIFY 10 ear", LATE_MS, false),
        (" NOTIFY 10 ear", 100, true),
        (" NOTIFY 200 ear", LATE_MS, true),
    ] {
        let mut h = held();
        h.waits("b", "1", more);
        h.leaves_queue("b");
        h.works(works_ms);
        h.after(PATIENCE_MS);
        h.works(LATE_MS);
        h.judged(is_right, "unanswered");
    }
    for reply in ["lost", "UNBLOCKED by nobody"] {
        let mut h = held();
        h.answered(&acquire("b", "1", " BLOCK 0"), reply);
        h.refused_for("unanswered");
    }
    // Nobody is told where the token itself gives its place up.
    for is_given_up in [true, false] {
        let mut h = held();
        h.waits("b", "1", " NOTIFY 300 ear");
        if is_given_up {
            h.answered("LOCK.RELEASE k b", "0");
        }
        h.leaves_queue("b");
        h.works(300 + LATE_MS);
        h.judged(is_given_up, "unanswered");
    }
}

#[test]
fn a_timeout_that_is_early_or_late_is_refused() {
    for (timeout_ms, after_ms, is_right) in [(10, 10, true), (10, 9, false), (0, 1_000, false)] {
        let mut h = held();
        let b = h.asks(&acquire("b", "1", &format!(" BLOCK {timeout_ms}")));
        h.after(after_ms);
        h.replied(b, "nil");
        h.judged(is_right, "early timeout");
    }
    // Somebody who holds for long, and somebody whose time is over: by a channel whether or not its
    // client is there. A client that has gone leaves the queue.
    for (way, vanishes, works_ms, is_right) in [
        ("BLOCK", false, 200, true),
        ("BLOCK", false, 100 + LATE_MS, false),
        ("NOTIFY", true, 200, true),
        ("NOTIFY", true, 100 + LATE_MS, false),
        ("BLOCK", true, LATE_MS + 50, false),
    ] {
        let mut h = start();
        let a = h.asks("LOCK.ACQUIRE k a 9000");
        let end_ms = h.now_ms() + 9_000;
        h.gives_until("k", "a", "1", 1, end_ms);
        h.replied(a, "1");
        let timeout_ms = if vanishes && way == "BLOCK" { 0 } else { 100 };
        let b = h.waits("b", "1", &format!(" {way} {timeout_ms} ear"));
        h.after(1);
        if vanishes {
            h.vanishes(b);
        }
        h.works(works_ms);
        h.leaves_queue("b");
        if !vanishes {
            h.replied(b, "nil");
        }
        h.looks();
        h.judged(is_right, "late");
    }
}

#[test]
fn a_place_is_kept_for_its_grace_and_no_longer() {
    // It is gone before, it is gone then, and it stays.
    for (works_ms, stays_ms, rule) in [
        (GRACE_MS / 2, 0, Some("kept too short")),
        (GRACE_MS + 5, 0, None),
        (GRACE_MS + 5, LATE_MS + 50, Some("kept too long")),
    ] {
        let mut h = start();
        let a = h.asks("LOCK.ACQUIRE k a 9000");
        let end_ms = h.now_ms() + 9_000;
        h.gives_until("k", "a", "1", 1, end_ms);
        h.replied(a, "1");
        polls(&mut h, "b", "1");
        h.works(works_ms + stays_ms);
        h.leaves_queue("b");
        h.looks();
        match rule {
            None => drop(h.accepted()),
            Some(rule) => h.refused_for(rule),
        }
    }
    // A pause begins it anew. Nobody is absent without KEEP.
    let mut h = held();
    h.answered(&acquire("b", "1", ""), "nil");
    h.k().places.push(("b".into(), "1".into(), '-'));
    h.looks();
    h.leaves_queue("b");
    h.looks();
    h.refused_for("shown queue");
}

#[test]
fn a_token_that_comes_back_has_its_place() {
    for is_in_time in [true, false] {
        let mut h = start();
        let a = h.asks("LOCK.ACQUIRE k a 9000");
        let end_ms = h.now_ms() + 9_000;
        h.gives_until("k", "a", "1", 1, end_ms);
        h.replied(a, "1");
        polls(&mut h, "b", "1");
        let c = h.waits("c", "1", " BLOCK 0");
        h.after(if is_in_time { 5 } else { GRACE_MS + 1 });
        let b = h.asks(&acquire("b", "1", " BLOCK 0"));
        // It is behind the other one now.
        h.leaves_queue("b");
        h.k().places.push(("b".into(), "1".into(), 'c'));
        h.looks();
        for (token, number) in [("b", b), ("c", c)] {
            h.is_killed(number);
            h.leaves_queue(token);
        }
        h.looks();
        h.judged(!is_in_time, "shown queue");
    }
}

#[test]
fn a_grant_that_does_not_fit_beside_an_absent_place_is_refused() {
    for (kept, mode, fits) in [
        ("shared", "shared", true),
        ("shared", "1", false),
        ("1", "shared", false),
        ("1", "1", false),
        ("2", "2", true),
        ("2", "5", true),
        ("2", "shared", true),
        ("5", "1", false),
    ] {
        for is_over in [false, true] {
            let mut h = held();
            polls(&mut h, "b", kept);
            let c = h.waits("c", mode, " BLOCK 0");
            h.after(if is_over { GRACE_MS + 1 } else { 1 });
            h.releases("a");
            h.grants(c, "c", mode, 2);
            if is_over {
                h.leaves_queue("b");
            }
            h.looks();
            h.after(GRACE_MS + 1);
            h.leaves_queue("b");
            h.looks();
            h.judged(fits || is_over, "past kept");
        }
    }
    // An absent permit takes one.
    for grants in [1, 2] {
        let mut h = held();
        polls(&mut h, "b", "2");
        let waiting = ["c", "d"].map(|token| (token, h.waits(token, "2", " BLOCK 0")));
        h.releases("a");
        for (n, (token, number)) in waiting.into_iter().enumerate().take(grants) {
            h.grants(number, token, "2", n as u64 + 2);
        }
        h.looks();
        if grants == 1 {
            h.is_killed(waiting[1].1);
        }
        h.after(GRACE_MS + 1);
        h.leaves_queue("b");
        h.leaves_queue("d");
        h.looks();
        h.judged(grants == 1, "past kept");
    }
    // An absent place for several keys stops all behind it.
    let mut h = held();
    let b = h.waits_for_two("b", " BLOCK 1 KEEP 50");
    h.after(2);
    h.replied(b, "nil");
    h.is_absent("b");
    let c = h.waits("c", "shared", " BLOCK 0");
    h.releases("a");
    h.grants(c, "c", "shared", 2);
    h.looks();
    h.after(GRACE_MS + 1);
    h.leaves_queue("b");
    h.looks();
    h.refused_for("past kept");
}

#[test]
fn a_head_waits_only_for_an_absent_place_beside_which_it_does_not_fit() {
    for (kept, mode, may_wait) in [
        ("1", "1", true),
        ("1", "shared", true),
        ("shared", "1", true),
        ("2", "1", true),
        ("shared", "shared", false),
        ("2", "2", false),
    ] {
        let mut h = held();
        h.answered(&acquire("b", kept, " KEEP 5000"), "nil");
        h.k().places.push(("b".into(), kept.into(), '-'));
        let c = h.waits("c", mode, " BLOCK 0");
        h.is_deleted();
        h.works(LATE_MS);
        h.is_killed(c);
        h.leaves_queue("c");
        h.answered("LOCK.RELEASE k b", "0");
        h.leaves_queue("b");
        h.looks();
        h.judged(may_wait, "idle");
    }
}

#[test]
fn what_is_left_in_the_end_is_refused() {
    let mut h = held();
    h.note("driver", "blocked", "1");
    h.refused_for("left over");
    let mut h = held();
    let b = h.waits("b", "1", " BLOCK 0");
    h.looks();
    h.vanishes(b);
    h.refused_for("left over");
}
