//! Checks the journal of the load clients: no two holders of one lock, fences in the order of the
//! grants, no acknowledged hold lost.

use std::ops::AddAssign;

use super::journal::{Account, Hold};

/// The holds that a promotion may lose because replication is asynchronous: those that the new
/// primary did not have.
pub struct Promotion<'a> {
    /// Everything that the node received before it became primary, and what it did afterwards.
    pub account: &'a Account,
    /// The instant just before the old primary failed.
    pub struck_us: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    pub holds: usize,
    /// Pairs of holds of one lock that were compared.
    pub pairs: usize,
    /// Grants of two keys that the new primary received.
    pub both: usize,
    /// Holds that the new primary never received.
    pub unreplicated: usize,
    /// Pairs that were held at once, one of them unreplicated.
    pub excused: usize,
}

impl AddAssign for Checked {
    fn add_assign(&mut self, other: Self) {
        self.holds += other.holds;
        self.pairs += other.pairs;
        self.both += other.both;
        self.unreplicated += other.unreplicated;
        self.excused += other.excused;
    }
}

/// How long before the failure an effect may have been in flight to the replica.
const REPLICATION_US: u64 = 2_000_000;

/// Checks all rules. Overlapping holders, or a lost hold, are excused only if the promoted node
/// never received the hold.
pub fn check(holds: &[Hold], promotion: Option<&Promotion<'_>>) -> Result<Checked, Vec<String>> {
    let mut checked = Checked::default();
    let mut breaches = Vec::new();
    if let Some(promotion) = promotion {
        checked.both = promotion.account.of_both.len();
        breaches.extend(halves(promotion.account));
    }
    let is_lost = |hold: &Hold| promotion.is_some_and(|p| !p.account.knows(hold));
    for hold in holds {
        checked.holds += 1;
        checked.unreplicated += usize::from(is_lost(hold));
        let early = |p: &Promotion<'_>| hold.delivered_us + REPLICATION_US < p.struck_us;
        if is_lost(hold) && promotion.is_some_and(early) {
            breaches.push(format!("long replicated, and yet not known: {hold:?}"));
        }
        // A reply may be lost in a crash, and the release is then sent again.
        let answered = promotion.is_some_and(|p| p.account.knows_the_release_of(hold));
        if hold.released == Some(false) && !is_lost(hold) && !answered {
            breaches.push(format!("lost while it was held: {hold:?}"));
        }
    }
    let mut sorted: Vec<&Hold> = holds.iter().collect();
    sorted.sort_by(|a, b| (&a.key, a.delivered_us).cmp(&(&b.key, b.delivered_us)));
    for (n, a) in sorted.iter().enumerate() {
        for b in sorted[n + 1..].iter().take_while(|b| b.key == a.key) {
            checked.pairs += 1;
            let excused = is_lost(a) || is_lost(b);
            let excludes = !(a.is_shared && b.is_shared);
            if excludes && b.delivered_us < a.end_us {
                checked.excused += usize::from(excused);
                if !excused {
                    breaches.push(format!("two holders:\n  {a:?}\n  {b:?}"));
                }
            }
            // The grant lies between request and reply. Of two holds that exclude each other, the
            // one delivered first was granted first.
            let in_order = a.delivered_us < b.asked_us || excludes;
            if in_order && !excused && a.fence >= b.fence {
                breaches.push(format!("the later fence is smaller:\n  {a:?}\n  {b:?}"));
            }
        }
    }
    match breaches.is_empty() {
        true => Ok(checked),
        false => Err(breaches),
    }
}

/// The grants of two keys of which a node applied only a half.
pub fn halves(account: &Account) -> impl Iterator<Item = String> + '_ {
    let halves = account.of_both.iter().filter(|(_, keys)| keys.len() != 2);
    halves.map(|(fence, keys)| format!("half of a grant: {fence} for {keys:?} alone"))
}

fn hold(token: &str, fence: u64, instants: [u64; 3]) -> Hold {
    Hold::exclusive("k", token, fence, instants)
}

#[test]
fn holds_one_after_another_are_accepted() {
    let checked = check(&[hold("a", 1, [0, 1, 5]), hold("b", 2, [2, 7, 9])], None);
    assert_eq!(checked.unwrap().pairs, 1);
}

#[test]
fn two_holders_at_once_are_detected() {
    let both = [hold("a", 1, [0, 1, 5]), hold("b", 2, [2, 4, 9])];
    assert!(check(&both, None).unwrap_err()[0].starts_with("two holders"));
    let shared = both.clone().map(|hold| Hold {
        is_shared: true,
        ..hold
    });
    assert!(check(&shared, None).is_ok());
    let mut account = Account::default();
    account.grants.extend([("k".into(), 1), ("k".into(), 2)]);
    let replicated = Promotion {
        account: &account,
        struck_us: 0,
    };
    assert!(check(&both, Some(&replicated)).is_err());
    let mut account = Account::default();
    account.grants.insert(("k".into(), 2));
    let unreplicated = Promotion {
        account: &account,
        struck_us: 0,
    };
    assert_eq!(check(&both, Some(&unreplicated)).unwrap().excused, 1);
    let long_ago = Promotion {
        account: &account,
        struck_us: 10 * REPLICATION_US,
    };
    assert!(check(&both, Some(&long_ago)).unwrap_err()[0].starts_with("long replicated"));
}

#[test]
fn a_smaller_fence_is_detected() {
    let falls = [hold("a", 2, [0, 1, 5]), hold("b", 2, [2, 7, 9])];
    assert!(check(&falls, None).unwrap_err()[0].starts_with("the later fence"));
}

#[test]
fn a_lost_hold_is_detected() {
    let mut gone = hold("a", 1, [0, 1, 5]);
    gone.released = Some(false);
    let breaches = check(&[gone], None).unwrap_err();
    assert!(breaches[0].starts_with("lost while it was held"));
}

#[test]
fn half_a_grant_is_detected() {
    let judge = |of_both: &[(u64, &[&str])]| {
        let own = |(fence, keys): &(u64, &[&str])| {
            (*fence, keys.iter().map(|key| key.to_string()).collect())
        };
        let account = &Account {
            of_both: of_both.iter().map(own).collect(),
            ..Account::default()
        };
        let struck_us = 0;
        check(&[], Some(&Promotion { account, struck_us }))
    };
    assert_eq!(judge(&[(1, &["k", "{k}twin"])]).unwrap().both, 1);
    let breaches = judge(&[(1, &["k", "{k}twin"]), (2, &["k"])]).unwrap_err();
    assert!(breaches[0].starts_with("half of a grant"), "{breaches:?}");
}
