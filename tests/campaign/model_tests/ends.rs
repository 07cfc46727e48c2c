//! Answers, guarded writes, grants of several keys, and holds that end.

use super::{acquire, held, start, Forged, LATE_MS, TTL_MS};

#[test]
fn an_answer_that_the_holds_refute_is_refused() {
    for line in ["LOCK.RELEASE k a", "LOCK.RENEW k a 100"] {
        for answer in ["1", "0"] {
            let mut h = held();
            h.answered(line, answer);
            h.looks();
            h.refused_for("answer");
        }
        let mut h = held();
        h.answered(line, "0");
        h.after(TTL_MS + 1);
        h.looks();
        // The hold may have ended by then.
        h.accepted();
    }
    for answer in [
        "nil",
        "DEADLOCK a cycle of 2 waits: k",
        "PARTIAL no",
        "ERR of any kind",
        "CANCELLED no",
    ] {
        let mut h = start();
        h.answered(&acquire("a", "1", ""), answer);
        h.refused_for("answer");
    }
    // A null is right where others hold the lock, or wait for it.
    let mut h = held();
    h.answered(&acquire("b", "1", ""), "nil");
    h.accepted();
}

#[test]
fn a_deadlock_without_a_cycle_is_refused() {
    let told = "DEADLOCK a cycle of 2 waits: o waits for a token that waits for k";
    for waits in [true, false] {
        let mut h = held();
        let end_ms = h.now_ms() + TTL_MS;
        let b = h.asks("LOCK.ACQUIRE o b 100");
        h.gives_until("o", "b", "1", 2, end_ms);
        h.replied(b, "2");
        let a = h.asks("LOCK.ACQUIRE o a 100 BLOCK 0");
        match waits {
            true => h
                .keys
                .get_mut("o")
                .unwrap()
                .places
                .push(("a".into(), "1".into(), 'c')),
            false => h.replied(a, "UNBLOCKED x"),
        }
        if !waits {
            h.operates(&format!("CLIENT UNBLOCK {a} ERROR"));
        }
        h.looks();
        h.answered(&acquire("b", "1", " BLOCK 0"), told);
        if waits {
            h.is_killed(a);
            h.leaves_queue("a");
            h.looks();
        }
        h.judged(waits, "answer");
    }
}

fn executes(h: &mut Forged, token: &str, writes: usize, answer: &str) {
    let number = h.asks(&format!("LOCK.EXEC k {token} INCR guarded:k"));
    (0..writes).for_each(|_| h.log("counted", "k"));
    h.replied(number, answer);
    h.looks();
}

#[test]
fn a_guarded_write_without_its_hold_is_refused() {
    for (token, after_ms, writes, answer, rule) in [
        ("a", 0, 1, "7", None),
        ("a", TTL_MS, 1, "7", None),
        ("a", TTL_MS + 1, 1, "7", Some("unguarded")),
        ("b", 0, 1, "7", Some("unguarded")),
        ("a", 0, 2, "7", Some("unguarded")),
        ("a", 0, 0, "7", Some("answer")),
        ("b", 0, 0, "NOTHELD no", None),
        ("b", 0, 1, "NOTHELD no", Some("unguarded")),
        ("a", TTL_MS + 1, 0, "NOTHELD no", None),
        ("a", TTL_MS - 2, 0, "NOTHELD no", Some("answer")),
    ] {
        let mut h = held();
        h.after(after_ms);
        executes(&mut h, token, writes, answer);
        match rule {
            None => drop(h.accepted()),
            Some(rule) => h.refused_for(rule),
        }
    }
    // Nobody has asked for it.
    let mut h = held();
    h.operates("PING");
    h.log("counted", "k");
    h.refused_for("unguarded");
}

#[test]
fn a_wrong_answer_to_a_check_is_refused() {
    for (token, after_ms, answer, is_right) in [
        ("a", 0, "1", true),
        ("a", 0, "2", false),
        ("a", 0, "nil", false),
        ("a", TTL_MS + 1, "nil", true),
        ("a", TTL_MS + 1, "1", false),
        ("b", 0, "nil", true),
        ("b", 0, "1", false),
    ] {
        let mut h = held();
        h.after(after_ms);
        h.answered(&format!("LOCK.CHECK k {token}"), answer);
        h.looks();
        h.judged(is_right, "answer");
    }
}

#[test]
fn a_release_with_another_deadline_than_atleast_says_is_refused() {
    for (at_least_ms, ends_after_ms, is_right) in [
        (20, 20, true),
        (20, 19, false),
        (20, 21, false),
        // It brings the deadline forward, and never back.
        (TTL_MS + 50, TTL_MS, true),
        (TTL_MS + 50, TTL_MS + 50, false),
    ] {
        let mut h = held();
        let since_ms = h.now_ms();
        h.after(5);
        h.answered(&format!("LOCK.RELEASE k a ATLEAST {at_least_ms}"), "1");
        h.gives_until("k", "a", "1", 1, since_ms + ends_after_ms);
        h.looks();
        h.judged(is_right, "at least");
    }
    for (at_least_ms, is_right) in [(5, true), (6, false)] {
        let mut h = held();
        h.after(5);
        h.answered(&format!("LOCK.RELEASE k a ATLEAST {at_least_ms}"), "1");
        h.ends_hold("a");
        h.takes("b", "1", 2);
        h.judged(is_right, "at least");
    }
    let mut h = held();
    h.answered("LOCK.RELEASE k a ATLEAST 20", "1");
    h.looks();
    h.refused_for("answer");
}

#[test]
fn a_grant_of_several_keys_that_is_not_whole_is_refused() {
    for (is_one_step, keys, fences) in [
        (true, 2, [2, 2]),
        (true, 1, [2, 2]),
        (false, 2, [2, 2]),
        (true, 2, [2, 3]),
    ] {
        let mut h = held();
        let b = h.waits_for_two("b", " BLOCK 0");
        h.releases("a");
        if is_one_step {
            h.log("begin", "");
        }
        let end_ms = h.now_ms() + TTL_MS;
        for (n, key) in ["k", "o"].into_iter().enumerate().take(keys) {
            h.gives_until(key, "b", "1", fences[n], end_ms);
        }
        if is_one_step {
            h.log("end", "");
        }
        h.leaves_queue("b");
        h.replied(b, "2");
        h.looks();
        let (rules, text, counts) = h.rules();
        let is_whole = is_one_step && keys == 2 && fences[0] == fences[1];
        assert_eq!(rules.contains("torn"), !is_whole, "{text}");
        assert_eq!(
            (rules.is_empty(), counts.of_several),
            (is_whole, usize::from(is_whole)),
            "{text}"
        );
    }
}

#[test]
fn a_hold_that_ends_without_a_reason_is_refused() {
    // A share that its owner was told of stays, also if its upgrade was not heard.
    let mut h = start();
    h.takes("a", "shared", 1);
    h.takes("b", "shared", 2);
    let b = h.asks(&acquire("b", "1", " BLOCK 0"));
    h.k().places.push(("b".into(), "1".into(), 'c'));
    h.releases("a");
    h.gives("b", "1", 2);
    h.is_killed(b);
    h.ends_hold("b");
    h.looks();
    h.refused_for("taken away");
}

/// `b` is granted in the step in which its client is killed.
fn unheard(more: &str) -> Forged {
    let mut h = held();
    let b = h.asks(&format!("LOCK.ACQUIRE k b 9000{more}"));
    let by = if more.contains("NOTIFY") { 'n' } else { 'c' };
    h.k().places.push(("b".into(), "1".into(), by));
    h.operates("LOCK.RELEASE k a");
    h.note("op", "reply", "1");
    h.ends_hold("a");
    let end_ms = h.now_ms() + 9_000;
    h.gives_until("k", "b", "1", 2, end_ms);
    let shown = h.shown();
    h.arrives("op-at-once", &format!("CLIENT KILL ID {b}"), &shown);
    h.replied(b, "lost");
    h
}

#[test]
fn a_grant_that_nobody_heard_ends_at_once_or_after_its_grace() {
    for (more, works_ms, is_right) in [
        (" BLOCK 0", 20, true),
        (" BLOCK 0", LATE_MS, false),
        (" BLOCK 0 KEEP 100", LATE_MS, true),
        (" BLOCK 0 KEEP 100", LATE_MS + 120, false),
        // A channel has received it.
        (" NOTIFY 9000 ear", LATE_MS, true),
    ] {
        let mut h = unheard(more);
        h.works(works_ms);
        h.ends_hold("b");
        h.looks();
        h.judged(is_right, "not taken back");
    }
}

#[test]
fn a_hold_that_outlives_the_connection_it_is_bound_to_is_refused() {
    for (works_ms, is_right) in [(50, true), (LATE_MS, false)] {
        let mut h = start();
        let a = h.asks("LOCK.ACQUIRE k a 9000 LINGER 0");
        let end_ms = h.now_ms() + 9_000;
        h.gives_until("k", "a", "1", 1, end_ms);
        h.replied(a, "1");
        h.note("", "leaves", &a.to_string());
        h.works(works_ms);
        h.ends_hold("a");
        h.looks();
        h.judged(is_right, "lingers");
    }
}

#[test]
fn a_hold_with_another_lease_than_was_asked_for_is_refused() {
    for (ends_after_ms, is_right) in [(TTL_MS, true), (TTL_MS / 2, false), (TTL_MS + 1, false)] {
        let mut h = start();
        let a = h.asks(&acquire("a", "1", ""));
        let end_ms = h.now_ms() + ends_after_ms;
        h.gives_until("k", "a", "1", 1, end_ms);
        h.replied(a, "1");
        h.looks();
        h.judged(is_right, "lease");
        let mut h = held();
        h.after(5);
        h.answered(&format!("LOCK.RENEW k a {TTL_MS}"), "1");
        let end_ms = h.now_ms() + ends_after_ms;
        h.gives_until("k", "a", "1", 1, end_ms);
        h.looks();
        h.judged(is_right, "lease");
    }
}
