//! Checks KEEP: a place outlives its listener for its grace. Its token finds it again, and those
//! behind it enter only if they fit beside it.

use std::collections::{BTreeMap, BTreeSet};

use redis_lock::lock::Mode;

use super::checker::Checker;
use super::history::{Outcome, Pause, Request, Sample, Shown};
use super::info_replies::{Due, AFTER_A_PAUSE_US};
use super::replay::tolerates;
use super::rule::Rule;
use super::timeline::Timeline;

/// For how long the place of a request outlives it.
#[derive(Clone, Copy)]
pub struct Kept {
    /// Until this instant it is surely there, if nothing else has ended it. 0 if it is not certain.
    surely_until_us: u64,
    /// From this instant on it is surely over.
    perhaps_until_us: u64,
    /// The position from which on the server's timer has surely ended it.
    over_at: usize,
}

/// The server notices a lost connection so much later, and takes back what it has granted to it.
const NOTICED_US: u64 = 20_000;

/// The timer that ends a place may be as late as this, where that can only excuse. A server that was
/// stalled is later, but so are the looks at it.
const LATE_US: u64 = 100_000;

impl Kept {
    /// The request came before `arrived_us`. `gone_us` is when the server has surely noticed that a
    /// client has gone, `put_off` until when a pause has a timer wait, and `over_at` the position from
    /// which on a timer of an instant has surely fired.
    pub fn of(
        request: &Request,
        block: Option<u64>,
        (arrived_us, gone_us): (u64, u64),
        put_off: impl FnOnce(u64) -> u64,
        pauses: &[Pause],
        over_at: impl FnOnce(u64) -> usize,
    ) -> Option<Self> {
        let grace_us = request.keep_ms? * 1_000;
        let timeout_us = match block {
            None => 0,
            Some(0) => u64::MAX,
            Some(ms) => ms * 1_000,
        };
        let times_out_us = request.asked_us.saturating_add(timeout_us);
        // The place of a client that listened by a channel becomes absent when its turn comes, or the
        // timer tells of its timeout. A pause puts the timer off, and the grace begins after it.
        let gone_us = match request.by_channel {
            true => gone_us.max(put_off(request.ended_us.saturating_add(timeout_us))),
            false => gone_us,
        };
        let (earliest_us, latest_us) = match &request.outcome {
            // One that waits for ever was told null because its place was given up.
            Outcome::Null if timeout_us == u64::MAX => (0, request.ended_us),
            Outcome::Null => (times_out_us, request.ended_us),
            // After a pause the server may execute the mark, and not the rest, if the client has gone.
            Outcome::Cut { since_us } if *since_us < arrived_us => {
                (0, gone_us.saturating_add(NOTICED_US))
            }
            Outcome::Cut { since_us } => (
                times_out_us.min(*since_us),
                gone_us.saturating_add(NOTICED_US),
            ),
            Outcome::Closed if request.by_channel => (0, gone_us.saturating_add(NOTICED_US)),
            Outcome::Closed => (0, request.ended_us + NOTICED_US),
            Outcome::Error(error) if error.starts_with("UNBLOCKED ") => (0, request.ended_us),
            // A grant, or a refusal for good.
            _ => return None,
        };
        // A grace during which the server holds writes back begins anew after that.
        let mut over_us = latest_us.saturating_add(grace_us);
        for pause in pauses {
            let acts_again_us = pause.until_us + AFTER_A_PAUSE_US;
            if pause.from_us <= over_us.saturating_add(LATE_US) && acts_again_us >= earliest_us {
                over_us = over_us.max(acts_again_us + grace_us);
            }
        }
        Some(Self {
            surely_until_us: match earliest_us {
                0 => 0,
                ends_us => ends_us + grace_us,
            },
            perhaps_until_us: over_us,
            over_at: over_at(over_us),
        })
    }

    /// How long a request by a channel stands whose client has gone: until its timeout at most.
    pub fn of_deaf(
        request: &Request,
        block: Option<u64>,
        over_at: impl FnOnce(u64) -> usize,
    ) -> Option<Self> {
        let has_gone = matches!(request.outcome, Outcome::Cut { .. } | Outcome::Closed);
        let timeout_ms = block.filter(|_| request.by_channel && has_gone)?;
        // It came before the client had gone.
        let latest_us = request.ended_us + timeout_ms * 1_000;
        Some(Self {
            surely_until_us: 0,
            perhaps_until_us: latest_us,
            over_at: over_at(latest_us),
        })
    }
}

impl Timeline<'_> {
    /// Whether its place may be there at this position of the log, at or after this instant.
    pub fn may_have_place(&self, at: usize, not_before_ms: u64) -> bool {
        self.may_last(self.kept, at, not_before_ms) || self.may_stand(at, not_before_ms)
    }

    /// Whether it may wait, as the server sees it: by a channel that nobody hears, too.
    pub fn may_stand(&self, at: usize, not_before_ms: u64) -> bool {
        self.may_last(self.deaf, at, not_before_ms) || self.may_wait(at, not_before_ms)
    }

    fn may_last(&self, kept: Option<Kept>, at: usize, not_before_ms: u64) -> bool {
        kept.is_some_and(|kept| {
            let over_us = kept.perhaps_until_us.saturating_add(LATE_US);
            let may_be_late = not_before_ms * 1_000 <= over_us || at <= kept.over_at;
            self.arrived < at && at <= self.ended && may_be_late
        })
    }

    /// Whether its place was there at this position of the log, at or before this instant, even if
    /// nobody listened. With its next request, the words of that one count.
    pub fn surely_has_place(&self, at: usize, not_after_ms: u64) -> bool {
        let is_kept = self.kept.is_some_and(|kept| {
            let is_here = self.next_command <= at && at < self.struck && at < self.ended;
            let surely_over_us = not_after_ms.saturating_add(1).saturating_mul(1_000);
            is_here && at <= self.resumed && surely_over_us <= kept.surely_until_us
        });
        is_kept || self.surely_waits(at, not_after_ms)
    }
}

impl<'h> Checker<'h> {
    /// A grant that passes absent places fits beside all of them, as if they had their holds.
    pub(super) fn check_beside_kept(
        &mut self,
        at: usize,
        key: &'h str,
        now_ms: u64,
        granted: u64,
        what: &str,
    ) {
        let first = &self.timelines[&granted];
        if self.is_ahead(key, first, now_ms) {
            return;
        }
        let token = &first.request.token;
        let kept = self.queue(key).filter(|other| {
            other.request.token != *token
                && other.place.1 < first.place.0
                && !other.surely_waits(at, now_ms)
                && other.surely_has_place(at, now_ms)
        });
        let kept: Vec<_> = kept.collect();
        // A place for several keys stops all behind it.
        let stops = kept.iter().any(|other| other.request.parts.are_several());
        let kept = kept.into_iter();
        let kept: BTreeMap<_, _> = kept.map(|p| (p.request.token.as_bytes(), p.mode)).collect();
        if kept.is_empty() {
            return;
        }
        let state = self.replayed(key);
        let live = state.map_or(Vec::new(), |state| state.live_modes(now_ms));
        let others = live
            .iter()
            .map(|(token, mode, _)| (token.as_bytes(), *mode));
        let others = others.filter(|(other, _)| *other != token.as_bytes());
        if stops || !fits_beside(others, &kept, first.mode) {
            let text = format!("{what} past {kept:?} beside {live:?}");
            self.refuse(Rule::PastKept, at, text);
        }
    }

    /// Whether the first listening request of a queue enters beside the absent places ahead of it,
    /// as all are shown.
    pub(super) fn shown_kept_admit(
        &self,
        key: &str,
        shown: &Shown,
        kept: &[(String, Mode)],
        (token, mode): &(String, Mode),
    ) -> bool {
        let is_several = |token: &str| {
            let mut own = self.queue(key).filter(|t| t.request.token == *token);
            own.any(|timeline| timeline.request.parts.are_several())
        };
        let holds = |token: &str| shown.holders.iter().any(|holder| holder.token == *token);
        // An upgrade is decided by other rules, and a place for several keys by other keys, too. It
        // stops all behind it.
        let mut all = kept.iter().map(|(token, _)| token).chain([token]);
        if all.any(|token| is_several(token) || holds(token)) {
            return false;
        }
        let by_holders = shown.mode.unwrap_or(Mode::Shared);
        let others = shown.holders.iter();
        let others = others.map(|holder| (holder.token.as_bytes(), by_holders));
        let kept = kept.iter().map(|(token, mode)| (token.as_bytes(), *mode));
        fits_beside(others, &kept.collect(), *mode)
    }

    /// Absent places are those of requests with KEEP, and end after their grace.
    pub(super) fn check_absent(
        &mut self,
        at: usize,
        sample: &Sample,
        key: &'h str,
        shown: &'h Shown,
    ) {
        self.findings.absent += shown.absent.len();
        let mut overdue = BTreeMap::new();
        for token in &shown.absent {
            let ends_us = self.queue(key).filter(|t| t.request.token == *token);
            let ends_us = ends_us.filter_map(|t| Some(t.kept?.perhaps_until_us));
            let Some(ends_us) = ends_us.max() else {
                let text = format!("{key} has the absent {token} without KEEP: {shown:?}");
                self.refuse(Rule::ShownQueue, at, text);
                continue;
            };
            let before = self.overdue.remove(&(key, &token[..]));
            let before = before.filter(|due| due.since_us == ends_us);
            let mut due = before.unwrap_or(Due::since(ends_us));
            if due.is_over(sample) && !self.was_paused(ends_us, sample) {
                let text = format!("{key} has {token} since {ends_us} us: {shown:?}");
                self.refuse(Rule::KeptTooLong, at, text);
            }
            overdue.insert((key, &token[..]), due);
        }
        self.overdue.retain(|(of, _), _| *of != key);
        self.overdue.extend(overdue);
    }
}

/// Whether a hold fits beside others and absent places that count as holders.
fn fits_beside<'t>(
    others: impl Iterator<Item = (&'t [u8], Mode)>,
    kept: &BTreeMap<&'t [u8], Mode>,
    mode: Mode,
) -> bool {
    let mut tokens: BTreeSet<_> = kept.keys().copied().collect();
    let mut most = kept.values().copied().map(tolerates).min();
    for (token, mode) in others {
        tokens.insert(token);
        most = most.map(|most| most.min(tolerates(mode)));
    }
    tokens.len() < most.map_or(tolerates(mode), |most| most.min(tolerates(mode)))
}
