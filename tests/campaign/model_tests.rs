//! Forged records of one server: the model accepts a right one, and each rule refuses what breaks it,
//! and no other rule does.

mod ends;
mod places;
mod starts;

use std::collections::{BTreeMap, BTreeSet};

use super::journal::Line;
use super::model::{judge, Counts};
use super::record::Record;

const TTL_MS: u64 = 100;

/// How long the server works until what was due is late.
const LATE_MS: u64 = 350;

/// A record of the lock `k` under construction, and of `o` for requests for two keys. Each request
/// has a client of its own, which has its number. Looks show the state that the builder has.
struct Forged {
    lines: Vec<Line>,
    us: u64,
    requests: u64,
    keys: BTreeMap<&'static str, Shown>,
    /// When a hold was first granted, by fence.
    since_ms: BTreeMap<u64, u64>,
}

#[derive(Clone, Default)]
struct Shown {
    /// Token, mode, fence and deadline.
    holders: Vec<(String, String, u64, u64)>,
    /// Token, mode, and how somebody listens.
    places: Vec<(String, String, char)>,
}

fn start() -> Forged {
    Forged {
        lines: Vec::new(),
        us: 1_000_000_000,
        requests: 0,
        keys: BTreeMap::from([("k", Shown::default()), ("o", Shown::default())]),
        since_ms: BTreeMap::new(),
    }
}

/// `a` holds the lock alone, with the fence 1.
fn held() -> Forged {
    let mut h = start();
    h.takes("a", "1", 1);
    h
}

/// A request for a hold in a mode.
fn acquire(token: &str, mode: &str, more: &str) -> String {
    match mode {
        "shared" => format!("RWLOCK.RLOCK k {token} {TTL_MS}{more}"),
        "1" => format!("LOCK.ACQUIRE k {token} {TTL_MS}{more}"),
        limit => format!("LOCK.ACQUIRE k {token} {TTL_MS} LIMIT {limit}{more}"),
    }
}

impl Forged {
    fn note(&mut self, who: &str, what: &str, text: &str) {
        self.us += 1;
        self.lines.push(Line {
            at_us: self.us,
            who: who.into(),
            to: 7001,
            what: what.into(),
            text: text.into(),
        });
    }

    fn log(&mut self, what: &str, text: &str) {
        self.note("log", what, text);
    }

    fn after(&mut self, ms: u64) {
        self.us += ms * 1_000;
    }

    fn now_ms(&self) -> u64 {
        self.us / 1_000
    }

    fn k(&mut self) -> &mut Shown {
        self.keys.get_mut("k").expect("the lock")
    }

    fn shown(&self) -> String {
        let now_ms = self.now_ms();
        let words = self.keys.iter().map(|(key, shown)| {
            let live = shown.holders.iter().filter(|one| one.3 >= now_ms);
            let modes = live.clone().map(|one| &one.1[..]);
            let mode = modes.min_by_key(|mode| mode.parse().unwrap_or(usize::MAX));
            let holders =
                live.map(|(token, _, fence, end)| format!("{token}:{fence}:{}", end - now_ms));
            let places = shown.places.iter();
            let places = places.map(|(token, mode, by)| format!("{token}:{mode}:{by}"));
            let (mode, holders) = (mode.unwrap_or("-"), holders.collect::<Vec<_>>().join(","));
            format!(
                "{key}={mode}[{holders}]{{{}}}",
                places.collect::<Vec<_>>().join(",")
            )
        });
        words.collect::<Vec<_>>().join(" ")
    }

    fn arrives(&mut self, who: &str, line: &str, shown: &str) -> u64 {
        self.requests += 1;
        let number = self.requests;
        let who = if who.is_empty() {
            format!("c{number}")
        } else {
            who.into()
        };
        self.note(&who, "send", &format!("{line} #{number}@{number}"));
        self.note(&who, "look", &format!("#{number} {} {shown}", self.us));
        self.log("mark", &number.to_string());
        number
    }

    /// A request comes, and meets the state of the builder.
    fn asks(&mut self, line: &str) -> u64 {
        let shown = self.shown();
        self.arrives("", line, &shown)
    }

    fn operates(&mut self, line: &str) {
        let shown = self.shown();
        self.arrives("op", line, &shown);
    }

    /// A look at the state of the builder, or at another one.
    fn looks(&mut self) {
        let shown = self.shown();
        self.looks_like(&shown);
    }

    fn looks_like(&mut self, shown: &str) {
        self.arrives("pulse", "LOOK", shown);
    }

    /// The server works for so long.
    fn works(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(4) {
            self.after(4);
            self.looks();
        }
    }

    /// A request that waits.
    fn waits(&mut self, token: &str, mode: &str, more: &str) -> u64 {
        let number = self.asks(&acquire(token, mode, more));
        let by = if more.contains("NOTIFY") { 'n' } else { 'c' };
        self.k().places.push((token.into(), mode.into(), by));
        number
    }

    /// A request for both locks.
    fn waits_for_two(&mut self, token: &str, more: &str) -> u64 {
        let line = format!("LOCK.MACQUIRE 2 k o {token} {TTL_MS} MODES EXCLUSIVE EXCLUSIVE{more}");
        let number = self.asks(&line);
        for shown in self.keys.values_mut() {
            shown.places.push((token.into(), "1".into(), 'c'));
        }
        number
    }

    fn leaves_queue(&mut self, token: &str) {
        for shown in self.keys.values_mut() {
            shown.places.retain(|place| place.0 != token);
        }
    }

    /// Nobody listens for its place any more.
    fn is_absent(&mut self, token: &str) {
        for shown in self.keys.values_mut() {
            let own = shown.places.iter_mut().filter(|place| place.0 == token);
            own.for_each(|place| place.2 = '-');
        }
    }

    fn replied(&mut self, number: u64, text: &str) {
        self.note(&format!("c{number}"), "reply", text);
    }

    /// The client of a request closes its connection.
    fn vanishes(&mut self, number: u64) {
        self.note("", "leaves", &number.to_string());
        self.note(&format!("c{number}"), "left", "");
    }

    fn is_killed(&mut self, number: u64) {
        self.operates(&format!("CLIENT KILL ID {number}"));
        self.replied(number, "lost");
    }

    /// The server grants a hold, or keeps it.
    fn gives(&mut self, token: &str, mode: &str, fence: u64) {
        let end_ms = self.now_ms() + TTL_MS;
        self.gives_until("k", token, mode, fence, end_ms);
    }

    fn gives_until(&mut self, key: &'static str, token: &str, mode: &str, fence: u64, end_ms: u64) {
        let now_ms = self.now_ms();
        let since_ms = *self.since_ms.entry(fence).or_insert(now_ms);
        self.log(
            "hold",
            &format!("{key} {token} {mode} {fence} {end_ms} {since_ms} {now_ms}"),
        );
        let shown = self.keys.get_mut(key).expect("a lock");
        shown.places.retain(|place| place.0 != token);
        shown.holders.retain(|one| one.0 != token);
        shown
            .holders
            .push((token.into(), mode.into(), fence, end_ms));
    }

    fn ends_hold(&mut self, token: &str) {
        let text = format!("k {token} {}", self.now_ms());
        self.log("release", &text);
        self.k().holders.retain(|one| one.0 != token);
    }

    /// Asks without BLOCK, and has it at once.
    fn takes(&mut self, token: &str, mode: &str, fence: u64) {
        let number = self.asks(&acquire(token, mode, ""));
        self.grants(number, token, mode, fence);
    }

    /// The server grants what a request asks for, and its client hears of it.
    fn grants(&mut self, number: u64, token: &str, mode: &str, fence: u64) {
        self.gives(token, mode, fence);
        self.replied(number, &fence.to_string());
    }

    fn answered(&mut self, line: &str, text: &str) -> u64 {
        let number = self.asks(line);
        self.replied(number, text);
        number
    }

    fn releases(&mut self, token: &str) {
        self.answered(&format!("LOCK.RELEASE k {token}"), "1");
        self.ends_hold(token);
    }

    fn is_deleted(&mut self) {
        self.operates("DEL k");
        self.log("gone", "k");
        self.k().holders.clear();
    }

    fn rules(&mut self) -> (BTreeSet<&'static str>, String, Counts) {
        // The file goes on, and tells how late it is.
        self.looks_like("");
        let record = Record::of(&self.lines);
        let (found, counts) = judge(&record);
        let rules = found.iter().map(|one| one.judge).collect();
        (rules, format!("{found:#?}"), counts)
    }

    #[track_caller]
    fn accepted(mut self) -> Counts {
        let (rules, text, counts) = self.rules();
        assert!(rules.is_empty(), "{text}");
        counts
    }

    /// For this rule, and no other.
    #[track_caller]
    fn refused_for(mut self, rule: &'static str) {
        let (rules, text, _) = self.rules();
        assert_eq!(rules, BTreeSet::from([rule]), "{text}");
    }

    #[track_caller]
    fn judged(self, is_right: bool, rule: &'static str) {
        match is_right {
            true => drop(self.accepted()),
            false => self.refused_for(rule),
        }
    }
}

#[test]
fn a_right_record_is_accepted() {
    let mut h = held();
    let b = h.waits("b", "shared", " BLOCK 0");
    let c = h.waits("c", "shared", " BLOCK 0");
    let d = h.waits("d", "1", " BLOCK 10");
    h.looks();
    h.after(11);
    h.replied(d, "nil");
    h.leaves_queue("d");
    h.releases("a");
    h.grants(b, "b", "shared", 2);
    h.grants(c, "c", "shared", 3);
    // Converts ahead of the queue, in which one client is killed.
    let w = h.waits("w", "1", " BLOCK 0");
    let upgrade = h.asks(&acquire("b", "1", " BLOCK 0"));
    h.k().places.insert(0, ("b".into(), "1".into(), 'c'));
    h.looks();
    h.releases("c");
    h.grants(upgrade, "b", "1", 2);
    h.is_killed(w);
    h.leaves_queue("w");
    h.looks();
    // A grant to a client that has gone is taken back.
    let x = h.waits("x", "1", " BLOCK 0");
    h.is_deleted();
    h.gives("x", "1", 4);
    h.vanishes(x);
    h.ends_hold("x");
    h.looks();
    let counts = h.accepted();
    assert_eq!(
        (counts.grants, counts.handed_over, counts.taken_back),
        (4, 3, 1)
    );
}

#[test]
fn two_holders_are_refused() {
    for (first, second) in [
        ("1", "1"),
        ("1", "shared"),
        ("shared", "1"),
        ("2", "1"),
        ("1", "2"),
    ] {
        let mut h = start();
        h.takes("a", first, 1);
        h.after(TTL_MS); // The deadline itself still belongs to the hold.
        h.takes("b", second, 2);
        h.refused_for("two holders");
    }
    let mut h = held();
    h.after(TTL_MS + 1);
    h.takes("b", "1", 2);
    h.accepted();
    // More than a limit allows.
    for (limits, is_right) in [(["2", "2", "3"], false), (["3", "3", "3"], true)] {
        let mut h = start();
        for (n, limit) in limits.into_iter().enumerate() {
            h.takes(["a", "b", "c"][n], limit, n as u64 + 1);
        }
        h.judged(is_right, "two holders");
    }
}

#[test]
fn the_expiry_of_a_key_cuts_its_holds() {
    let end_in = |h: &mut Forged, ms: u64| {
        let end_ms = h.now_ms() + ms;
        h.operates(&format!("PEXPIREAT k {end_ms}"));
        h.log("ends", &format!("k {end_ms}"));
        h.k()
            .holders
            .iter_mut()
            .for_each(|one| one.3 = one.3.min(end_ms));
        end_ms
    };
    let mut h = held();
    end_in(&mut h, 5);
    h.after(6);
    h.takes("b", "1", 2);
    h.accepted();
    // Also if effects are written later.
    for is_cut in [false, true] {
        let mut h = start();
        h.takes("a", "shared", 1);
        let end_ms = end_in(&mut h, 5);
        if is_cut {
            h.log("cap", &format!("k {end_ms}"));
        }
        h.takes("b", "shared", 2);
        h.judged(is_cut, "lengthened");
    }
    // A later one lengthens no hold.
    let mut h = held();
    h.operates("PERSIST k");
    h.log("ends", "k");
    h.after(TTL_MS + 1);
    h.looks_like("k=1[a:1:5]{}");
    h.refused_for("shown holds");
}

#[test]
fn fences_that_do_not_rise_are_refused() {
    for second in [7, 6] {
        let mut h = start();
        h.takes("a", "1", 7);
        h.releases("a");
        h.after(1);
        h.since_ms.clear();
        h.takes("b", "1", second);
        h.refused_for("fences");
    }
    // A hold keeps its fence.
    let mut h = held();
    h.takes("a", "shared", 2);
    h.refused_for("kept fence");
}

#[test]
fn an_effect_from_the_past_is_refused() {
    for lead in ["0", "1"] {
        let mut h = start();
        h.note("driver", "lead", lead);
        h.takes("a", "shared", 1);
        let b = h.waits("b", "shared", " BLOCK 0");
        h.us -= 1_000;
        h.gives("b", "shared", 2);
        h.us += 1_000;
        h.vanishes(b);
        h.judged(lead == "1", "time");
    }
}

#[test]
fn an_invented_fence_is_refused() {
    let mut h = start();
    h.takes("a", "shared", 1);
    h.answered(&acquire("b", "shared", ""), "1"); // The fence of another request.
    h.refused_for("unknown fence");
    let mut h = start();
    let a = h.asks(&acquire("a", "shared", ""));
    h.replied(a, "1"); // Before it was granted.
    h.after(1);
    h.takes("a", "shared", 1);
    h.refused_for("unknown fence");
}

#[test]
fn a_grant_without_a_request_is_refused() {
    let mut h = start();
    h.takes("a", "shared", 1);
    h.gives("b", "shared", 2);
    h.looks();
    h.refused_for("ghost");
    // To a killed client, and to one whose place nobody listens at.
    for is_there in [false, true] {
        let mut h = held();
        let b = h.waits("b", "1", " BLOCK 0 KEEP 50");
        h.is_killed(b);
        match is_there {
            true => h.is_absent("b"),
            false => h.leaves_queue("b"),
        }
        h.is_deleted();
        h.gives("b", "1", 2);
        h.looks();
        h.refused_for("ghost");
    }
    // To one that did not wait.
    let mut h = held();
    let b = h.asks(&acquire("b", "1", ""));
    h.vanishes(b);
    h.is_deleted();
    h.gives("b", "1", 2);
    h.looks();
    h.refused_for("ghost");
    // In another mode.
    let mut h = held();
    let b = h.waits("b", "shared", " BLOCK 0");
    h.is_deleted();
    h.grants(b, "b", "1", 2);
    h.looks();
    h.refused_for("ghost");
    // A renewal does not take a lost lock again.
    let mut h = start();
    let renewal = h.asks("LOCK.RENEW k a 100");
    h.gives("a", "1", 1);
    h.vanishes(renewal);
    h.looks();
    h.refused_for("ghost");
}

#[test]
fn a_grant_that_nobody_is_told_of_is_refused() {
    let mut h = held();
    let b = h.waits("b", "1", " BLOCK 10");
    h.after(11);
    h.replied(b, "nil");
    h.log("gone", "k");
    h.k().holders.clear();
    h.gives("b", "1", 2);
    h.looks();
    h.refused_for("unheard");
}
