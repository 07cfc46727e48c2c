//! Checks the replies of LOCK.INFO at one position of the append-only file.

use redis_lock::lock::Mode;

use super::checker::Checker;
use super::history::{Entry, Request, Sample, Shown, What};
use super::rule::Rule;
use super::timeline::Timeline;

/// A task of the server's timer.
#[derive(Clone)]
pub(super) struct Due {
    pub(super) since_us: u64,
    /// How often the observer has read since it was due.
    late_looks: usize,
}

/// The server's timers count in milliseconds. One that is due at once may fire in the next
/// millisecond, one at a deadline another one later.
pub(super) const ALARM_US: u64 = 3_000;

/// A timer that is due in one turn of the server's loop has fired before the next, and two samples
/// are never in one turn.
pub(super) const LOOKS_UNTIL_DONE: usize = 2;

impl Due {
    pub(super) fn since(since_us: u64) -> Self {
        Self {
            since_us,
            late_looks: 0,
        }
    }

    /// Whether it was due when this sample was taken.
    pub(super) fn is_over(&mut self, sample: &Sample) -> bool {
        self.late_looks += usize::from(sample.server_us >= self.since_us.saturating_add(ALARM_US));
        self.late_looks >= LOOKS_UNTIL_DONE
    }
}

/// The retry interval of the server after a pause.
pub(super) const AFTER_A_PAUSE_US: u64 = 30_000;

impl<'h> Checker<'h> {
    pub(super) fn sampled(&mut self, at: usize, sample: &'h Sample) {
        self.findings.samples += 1;
        self.check_unheard(sample);
        self.check_bound(at, sample);
        for (key, shown) in &sample.shown {
            self.findings.waiters_seen += shown.waiters.len();
            self.check_holds(at, sample, key, shown);
            self.check_queue(at, sample, key, shown);
            self.check_absent(at, sample, key, shown);
            self.check_head(at, sample, key, shown);
        }
    }

    /// The reply shows the holds of the replay, except those that expire during the sample.
    fn check_holds(&mut self, at: usize, sample: &Sample, key: &str, shown: &Shown) {
        let (from_ms, to_ms) = (sample.server_us / 1_000, sample.ended_us / 1_000);
        let Some(state) = self.replayed(key) else {
            if !shown.holders.is_empty() {
                self.refuse(Rule::ShownHolds, at, format!("{key} is free: {shown:?}"));
            }
            return;
        };
        // Some may end in between, and leave holds that tolerate more.
        let mut modes = (from_ms..=to_ms).map(|ms| state.mode(ms));
        let mut fits = shown.holders.is_empty() || modes.any(|mode| mode == shown.mode);
        let mut left: Vec<_> = shown.holders.iter().collect();
        for (token, hold) in state.live(from_ms) {
            let end_ms = state.end_ms(hold);
            let same = left.iter().position(|holder| {
                holder.token.as_bytes() == token.as_bytes()
                    && holder.fence == hold.fence.get()
                    && holder.ttl_ms + from_ms <= end_ms
                    && holder.ttl_ms + to_ms >= end_ms
            });
            match same {
                Some(same) => drop(left.remove(same)),
                None => fits &= end_ms <= to_ms,
            }
        }
        if !fits || !left.is_empty() {
            let live = state.live(from_ms);
            let text = format!("{key} from {from_ms} to {to_ms} has {live:?}: {shown:?}");
            self.refuse(Rule::ShownHolds, at, text);
        }
    }

    /// Every shown request may wait, every request that certainly waits is shown, and all are in
    /// the order of their places behind the conversions.
    fn check_queue(&mut self, at: usize, sample: &Sample, key: &str, shown: &Shown) {
        let (from_ms, to_ms) = (sample.server_us / 1_000, sample.ended_us / 1_000);
        let is = |timeline: &Timeline<'_>, (token, mode): &(String, Mode)| {
            timeline.request.token == *token && timeline.mode == *mode
        };
        let waiting = || self.queue(key).filter(|c| c.may_have_place(at, from_ms));
        let mut wrong = Vec::new();
        for timeline in self.queue(key).filter(|c| c.surely_has_place(at, to_ms)) {
            if !shown.waiters.iter().any(|waiter| is(timeline, waiter)) {
                wrong.push(format!("not shown: {:?}", timeline.request));
            }
        }
        let mut last = 0;
        let mut seen_line = false;
        for waiter in &shown.waiters {
            let same = shown.waiters.iter().filter(|other| *other == waiter);
            let timelines: Vec<_> = waiting().filter(|timeline| is(timeline, waiter)).collect();
            if same.count() > timelines.len() {
                wrong.push(format!("does not wait: {waiter:?}"));
            }
            let may_listen = timelines.iter().any(|t| t.may_stand(at, from_ms));
            if !may_listen && !shown.absent.contains(&waiter.0) {
                wrong.push(format!("does not listen: {waiter:?}"));
            }
            // Two requests with one token cannot be told apart, and the end of a conversion's
            // shared hold is not known exactly.
            // Of requests that follow one another with KEEP, the last one has the place.
            let timeline = match timelines[..] {
                [timeline] => timeline,
                [.., last]
                    if timelines
                        .iter()
                        .all(|t| t.kept.is_some() || t.number == last.number) =>
                {
                    last
                }
                _ => continue,
            };
            if self.is_ahead(key, timeline, to_ms) {
                if seen_line {
                    wrong.push(format!("not ahead: {waiter:?}"));
                }
            } else if !self.was_upgrade(timeline) {
                if timeline.place.1 < last {
                    let place = timeline.place;
                    wrong.push(format!(
                        "out of order: {waiter:?} of {place:?} after {last}"
                    ));
                }
                last = last.max(timeline.place.0);
                seen_line = true;
            }
        }
        for text in wrong {
            self.refuse(Rule::ShownQueue, at, format!("{key} {text} in {shown:?}"));
        }
    }

    /// No head of a queue waits without a reason.
    fn check_head(&mut self, at: usize, sample: &Sample, key: &'h str, shown: &Shown) {
        let mut waiters = shown.waiters.iter();
        let listens = |(token, _): &(String, Mode)| !shown.absent.contains(token);
        let first = waiters.position(listens);
        let first = first.map(|at| (&shown.waiters[..at], &shown.waiters[at]));
        let enters = first.filter(|(kept, head)| match kept {
            [] => self.shown_keys_admit(sample, key, head),
            kept => self.shown_kept_admit(key, shown, kept, head),
        });
        let enters = enters.map(|(_, head)| head);
        let Some((head, _)) = enters else {
            self.stuck.remove(key);
            return;
        };
        let mut due = match self.stuck.remove(key) {
            Some((before, due)) if before == *head => due,
            _ => Due::since(sample.server_us),
        };
        if due.is_over(sample) && !self.was_paused(due.since_us, sample) {
            let text = format!("{key} since {} us: {shown:?}", due.since_us);
            self.refuse(Rule::Idle, at, text);
        }
        self.stuck.insert(key, (head.clone(), due));
    }

    /// Undelivered holds end as quickly, with KEEP after the grace.
    fn check_unheard(&mut self, sample: &Sample) {
        for mut unheard in std::mem::take(&mut self.unheard) {
            if !unheard.due.is_over(sample) {
                self.unheard.push(unheard);
                continue;
            }
            let state = self.replayed(unheard.key);
            let own = state.and_then(|s| s.own(&unheard.token, sample.server_us / 1_000));
            let stands = own.is_some_and(|own| own.fence.get() == unheard.fence);
            if stands && !self.was_paused(unheard.due.since_us, sample) {
                let text = format!("{own:?} on {} at {sample:?}", unheard.key);
                self.refuse(Rule::NotTakenBack, unheard.at, text);
            }
        }
    }

    /// Records which requests are upgrades now.
    pub(super) fn note_upgrades(&mut self, at: usize, key: &str) {
        let Some(state) = self.replayed(key) else {
            return;
        };
        let waiting = self.queue(key).filter(|timeline| {
            let token = timeline.request.token.as_bytes();
            state.narrows(token, timeline.mode, self.now_ms)
                && !timeline.request.parts.are_several()
                && timeline.may_stand(at, self.now_ms)
        });
        let owned = waiting.filter_map(|timeline| {
            let own = state.own(timeline.request.token.as_bytes(), self.now_ms)?;
            Some((timeline.number, own.fence.get()))
        });
        let upgrades: Vec<_> = owned.collect();
        self.upgrades.extend(upgrades);
    }

    /// Whether a request may get DEADLOCK while it waits: after its lock was replaced by one that
    /// its token shares.
    pub(super) fn may_be_told_later(&self, at: usize, request: &Request) -> bool {
        let mut later = self.history.log.iter().skip(at);
        matches!(request.what, What::Acquire(Mode::Exclusive, Some(_)))
            && later.any(|entry| matches!(entry, Entry::Renamed(_, to) if *to == request.key))
    }

    /// Whether the server could not act at some time between an instant and a sample.
    pub(super) fn was_paused(&self, since_us: u64, sample: &Sample) -> bool {
        self.history.pauses.iter().any(|pause| {
            pause.from_us <= sample.ended_us && pause.until_us + AFTER_A_PAUSE_US >= since_us
        })
    }
}
