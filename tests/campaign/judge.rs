//! What the record of a round tells.
//!
//! A client believes it holds a lock from the reply until its lease ends by its own clock. It counts
//! the lease from the sending of the request, less 1 % of it and 2 ms. A grant that came later than
//! that counts from the first renewal. A release, a downgrade and a shorter lease count from their
//! sending. A lease that has ended by the client's clock is lost, whatever a renewal says.

use std::collections::BTreeMap;

use super::journal::Line;
use super::requests::{answer, sent, Answer, Finding, Request};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub grants: usize,
    /// Holds of adapters.
    pub held: usize,
    /// Pairs of clients that believed at one instant, of which one must not.
    pub overlaps: Vec<Finding>,
    /// Those of them whose first hold the new primary knew, so that it had no reason for the second.
    pub known: Vec<Finding>,
    /// Pairs of grants whose fences are not in their order.
    pub fences: Vec<Finding>,
    /// From the last promotion, or the last start, to the first new grant.
    pub pause_us: Option<u64>,
    /// The same from when the new primary first heard of a majority.
    pub pause_of_majority_us: Option<u64>,
    pub requests: usize,
    /// How long the round took.
    pub us: u64,
    /// The holders at that time that the new primary knew and that renewed, and how many could
    /// before their leases ended.
    pub renewing: usize,
    pub kept: usize,
    /// An old primary was demoted too late. So the round was not within the conditions.
    pub is_void: bool,
}

/// A piece of work: its token is its name.
struct Piece {
    key: String,
    /// When it was asked for first.
    asked_us: u64,
    is_granted: bool,
    /// As it was granted.
    is_shared: bool,
    /// Whether it is shared, and from when on. Empty before the belief begins.
    modes: Vec<(u64, bool)>,
    until_us: u64,
}

struct Grant<'l> {
    to: u16,
    token: &'l str,
    sent_us: u64,
    told_us: u64,
    fence: u64,
}

/// A holder at the time of the promotion.
#[derive(Default)]
struct Holder {
    is_known: bool,
    /// Until when the new primary knows that it holds the lock alone.
    alone_until_us: u64,
    was_renewed: Option<bool>,
}

#[derive(Default)]
struct Judge<'l> {
    pieces: BTreeMap<&'l str, Piece>,
    /// By client.
    open: BTreeMap<&'l str, Request<'l>>,
    grants: Vec<Grant<'l>>,
    /// Whether fences rise for each key, and not at each server.
    is_by_key: bool,
    promoting_us: u64,
    /// The ports, and when. The last one is the primary.
    promoted: Vec<(u16, u64)>,
    /// When the last one first had a guard that ends by itself.
    heard_us: Option<u64>,
    /// What the primary has said last of its guard.
    guard: Option<&'l Line>,
    holders: BTreeMap<&'l str, Holder>,
    verdict: Verdict,
}

/// Clients try again after less.
const LAST_TRY_US: u64 = 50_000;

/// The end of the lease that a request asks for.
fn end_us(request: &Request<'_>) -> u64 {
    request.sent_us + request.ttl_ms.expect("a ttl") * 990 - 2_000
}

/// What a client believed of a lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Belief {
    key: String,
    from_us: u64,
    until_us: u64,
    is_shared: bool,
    token: String,
}

pub fn judge(lines: &[Line], slack_ms: Option<u64>) -> Verdict {
    read_all(lines, slack_ms).conclude()
}

fn read_all(lines: &[Line], slack_ms: Option<u64>) -> Judge<'_> {
    let mut judge = Judge::default();
    for line in lines {
        match &line.what[..] {
            "send" => judge.send(line),
            "reply" => judge.reply(line),
            "held" => judge.held(line),
            "round" => judge.is_by_key = line.text.contains("topology=cluster"),
            "promoting" => judge.promoting_us = line.at_us,
            "promoted" => judge.promoted(line),
            "guard" => judge.has_guard(line),
            "knows" => judge.knows(line),
            "demoted" => {
                let latest_us = slack_ms.map(|ms| judge.promoting_us + ms * 1_000);
                judge.verdict.is_void |= latest_us.is_some_and(|latest| line.at_us > latest);
            }
            _ => {}
        }
    }
    judge.verdict.us = lines.last().map_or(0, |line| line.at_us);
    judge
}

impl<'l> Judge<'l> {
    fn send(&mut self, line: &'l Line) {
        self.verdict.requests += 1;
        let request = sent(line).unwrap_or_else(|| panic!("{line:?}"));
        let is_shared = request.is_shared();
        let piece = self.pieces.entry(request.token).or_insert_with(|| Piece {
            key: request.key.into(),
            asked_us: line.at_us,
            is_granted: false,
            is_shared,
            modes: Vec::new(),
            until_us: 0,
        });
        if request.command == "LOCK.RELEASE" {
            piece.end(line.at_us);
        } else if request.ttl_ms.is_some() {
            piece.end(end_us(&request));
        }
        if piece.is_granted && is_shared {
            piece.change(line.at_us, true);
        }
        self.open.insert(&line.who, request);
    }

    fn reply(&mut self, line: &'l Line) {
        let request = self.open.remove(&line.who[..]).expect("a request");
        let token = request.token;
        let piece = self.pieces.get_mut(token).expect("a piece of work");
        match (request.command, answer(&line.text)) {
            (_, Answer::Number(fence)) if request.is_acquire() && !piece.is_granted => {
                piece.is_granted = true;
                piece.is_shared = request.is_shared();
                piece.begin(line.at_us, end_us(&request));
                self.grants.push(Grant {
                    to: line.to,
                    token,
                    sent_us: piece.asked_us,
                    told_us: line.at_us,
                    fence,
                });
            }
            (_, Answer::Number(_)) if request.is_acquire() => {
                piece.change(line.at_us, request.is_shared());
                piece.extend(line.at_us, end_us(&request));
            }
            ("LOCK.RENEW", Answer::Number(renewed)) => {
                match renewed {
                    0 => piece.end(line.at_us),
                    _ if piece.modes.is_empty() => piece.begin(line.at_us, end_us(&request)),
                    _ => piece.extend(line.at_us, end_us(&request)),
                }
                self.was_renewed(token, line.to, renewed > 0);
            }
            // It has tried until its lease ended.
            ("LOCK.RENEW", _) if piece.until_us < line.at_us + LAST_TRY_US => {
                self.was_renewed(token, line.to, false);
            }
            ("LOCK.CHECK", Answer::Nil) => piece.end(line.at_us),
            _ => {}
        }
    }

    /// What the new primary has answered to a holder first.
    fn was_renewed(&mut self, token: &str, to: u16, is_renewed: bool) {
        let primary = self.promoted.last().map(|(port, _)| *port);
        if let Some(holder) = self.holders.get_mut(token).filter(|_| primary == Some(to)) {
            holder.was_renewed.get_or_insert(is_renewed);
        }
    }

    /// An adapter's own words: the key, the token, the fence, from when on, until when.
    fn held(&mut self, line: &'l Line) {
        let words: Vec<_> = line.text.split(' ').collect();
        let [key, token, _, from_us, until_us] = words[..] else {
            panic!("{line:?}");
        };
        let us = |word: &str| word.parse().expect("a time");
        self.verdict.held += 1;
        let piece = Piece {
            key: key.into(),
            asked_us: us(from_us),
            is_granted: true,
            is_shared: false,
            modes: vec![(us(from_us), false)],
            until_us: us(until_us),
        };
        self.pieces.insert(token, piece);
    }

    fn promoted(&mut self, line: &Line) {
        self.promoted.push((line.to, line.at_us));
        let guard = self.guard.filter(|guard| guard.to == line.to);
        let has_majority = guard.is_some_and(|guard| guard.text != "alone");
        self.heard_us = has_majority.then_some(line.at_us);
        let holders = self
            .pieces
            .iter()
            .filter(|(_, piece)| !piece.modes.is_empty() && piece.until_us > line.at_us);
        self.holders = holders
            .map(|(token, _)| (*token, Holder::default()))
            .collect();
    }

    /// A token, its ttl and the mode of the lock.
    fn knows(&mut self, line: &Line) {
        let mut words = line.text.split(' ');
        let holder = words.next().and_then(|token| self.holders.get_mut(token));
        let Some(holder) = holder else {
            return;
        };
        holder.is_known = true;
        let ttl_ms: u64 = words.next().and_then(|ms| ms.parse().ok()).unwrap_or(0);
        if words.next() == Some("exclusive") {
            // Clocks differ by less than a hundredth.
            holder.alone_until_us = line.at_us + ttl_ms * 990;
        }
    }

    fn has_guard(&mut self, line: &'l Line) {
        self.guard = Some(line);
        let primary = self.promoted.last().map(|(port, _)| *port);
        if primary == Some(line.to) && line.text != "alone" {
            self.heard_us.get_or_insert(line.at_us);
        }
    }

    fn conclude(mut self) -> Verdict {
        self.find_overlaps();
        self.find_fences();
        let mut verdict = self.verdict;
        verdict.grants = self.grants.len();
        if let Some((port, at_us)) = self.promoted.last() {
            let there = self.grants.iter().filter(|grant| grant.to == *port);
            let after = there.map(|grant| grant.told_us).filter(|us| us >= at_us);
            let first_us = after.min();
            verdict.pause_us = first_us.map(|us| us - at_us);
            let pause_us = |heard_us| Some(first_us?.saturating_sub(heard_us));
            verdict.pause_of_majority_us = self.heard_us.and_then(pause_us);
        }
        let known = self.holders.values().filter(|holder| holder.is_known);
        let renewing: Vec<_> = known.filter_map(|holder| holder.was_renewed).collect();
        verdict.renewing = renewing.len();
        verdict.kept = renewing.iter().filter(|kept| **kept).count();
        verdict
    }

    fn beliefs(&self) -> Vec<Belief> {
        let all = self.pieces.iter().flat_map(|(token, piece)| {
            piece
                .beliefs()
                .map(|(from_us, until_us, is_shared)| Belief {
                    key: piece.key.clone(),
                    from_us,
                    until_us,
                    is_shared,
                    token: (*token).into(),
                })
        });
        let mut beliefs: Vec<_> = all.collect();
        beliefs.sort();
        beliefs
    }

    /// Whether the last primary has granted a lock to the second one that, as it knew, the first held.
    fn is_known(&self, first: &str, second: &str) -> bool {
        let Some((primary, promoted_us)) = self.promoted.last() else {
            return false;
        };
        let holder = self.holders.get(first);
        let alone_until_us = holder.map_or(0, |holder| holder.alone_until_us);
        self.grants.iter().any(|grant| {
            let is_it = grant.token == second && grant.to == *primary;
            is_it
                && (*promoted_us..alone_until_us).contains(&grant.told_us)
                && grant.sent_us > *promoted_us
        })
    }

    fn find_overlaps(&mut self) {
        let beliefs = self.beliefs();
        for (n, one) in beliefs.iter().enumerate() {
            let later = beliefs[n + 1..].iter();
            let at_once =
                later.take_while(|other| other.key == one.key && other.from_us < one.until_us);
            for other in at_once {
                if !(one.is_shared && other.is_shared) && one.token != other.token {
                    let (key, token, second) = (&one.key, &one.token, &other.token);
                    let finding = Finding {
                        judge: "beliefs",
                        from_us: other.from_us,
                        until_us: one.until_us.min(other.until_us),
                        text: format!("{token} and {second} believed they held {key}"),
                    };
                    if self.is_known(token, second) {
                        self.verdict.known.push(finding.clone());
                    }
                    self.verdict.overlaps.push(finding);
                }
            }
        }
    }

    /// Fences rise at one server, and those of a new primary are larger than all before. An old one
    /// that lives on may still give smaller ones. In a cluster they rise in each slot.
    fn find_fences(&mut self) {
        let rank = |port| self.promoted.iter().position(|(to, _)| *to == port);
        let key = |grant: &Grant<'_>| &self.pieces[grant.token].key;
        for later in &self.grants {
            let falls = |grant: &&Grant<'_>| {
                grant.told_us < later.sent_us
                    && grant.fence >= later.fence
                    && rank(grant.to) <= rank(later.to)
                    && (!self.is_by_key || key(grant) == key(later))
            };
            let earlier = self.grants.iter().filter(falls);
            let pairs = earlier.map(|grant| {
                let tell =
                    |grant: &Grant<'_>| format!("{} at {}: {}", grant.token, grant.to, grant.fence);
                Finding {
                    judge: "fences",
                    from_us: grant.sent_us,
                    until_us: later.told_us,
                    text: format!("fences: {}, then {}", tell(grant), tell(later)),
                }
            });
            self.verdict.fences.extend(pairs);
        }
    }
}

impl Piece {
    fn begin(&mut self, at_us: u64, end_us: u64) {
        if end_us > at_us {
            self.modes.push((at_us, self.is_shared));
            self.until_us = end_us;
        }
    }

    /// A lease that has ended is lost.
    fn extend(&mut self, at_us: u64, end_us: u64) {
        if self.until_us > at_us {
            self.until_us = end_us;
        }
    }

    fn change(&mut self, at_us: u64, is_shared: bool) {
        if self
            .modes
            .last()
            .is_some_and(|(_, last)| *last != is_shared)
        {
            self.modes.push((at_us, is_shared));
        }
    }

    fn end(&mut self, at_us: u64) {
        self.until_us = self.until_us.min(at_us);
    }

    /// From, until, whether it is shared.
    fn beliefs(&self) -> impl Iterator<Item = (u64, u64, bool)> + '_ {
        let nexts = self.modes.iter().skip(1).map(|(at_us, _)| *at_us);
        let ends = nexts.chain([self.until_us]);
        let beliefs = self.modes.iter().zip(ends);
        beliefs
            .map(|((from_us, is_shared), end_us)| (*from_us, end_us.min(self.until_us), *is_shared))
            .filter(|(from_us, until_us, _)| from_us < until_us)
    }
}
