//! The timeline of a request for a hold: when it may have waited, and when it certainly did.
//!
//! Its arrival and its grant have exact positions in the append-only file. An end without a grant
//! is known only within bounds. So the two questions differ, and each rule uses the one that
//! accuses nobody wrongly.

use std::collections::{BTreeMap, HashMap, HashSet};

use redis_lock::lock::{Effect, Mode};

use super::history::{effect, Entry, History, Mark, Outcome, Parts, Pause, Request, What};
use super::info_replies::{AFTER_A_PAUSE_US, ALARM_US, LOOKS_UNTIL_DONE};
use super::kept::Kept;
use super::rule::{Breach, Rule};

/// A request for a hold that has arrived.
pub struct Timeline<'h> {
    pub number: u64,
    pub request: &'h Request,
    pub mode: Mode,
    pub block: Option<u64>,
    /// The positions of its arrival, and of the next command.
    pub arrived: usize,
    pub next_command: usize,
    /// The earliest and the latest position at which its place can have been taken. Requests of one
    /// token for one key that wait together have one place, that of the first.
    pub place: (usize, usize),
    /// The position of its grant, if it was delivered.
    pub granted: Option<usize>,
    /// From this position on, the operator may have ended its wait, or it may have been granted
    /// without delivery.
    pub(super) struck: usize,
    /// From this position on, its connection can no longer wait.
    gone: usize,
    /// With KEEP, how long its place outlives it.
    pub kept: Option<Kept>,
    /// With NOTIFY, how long it stands in the queue although its client has gone: the server notices
    /// that when its turn comes.
    pub(super) deaf: Option<Kept>,
    /// The position of the next request of its token for the key, which takes the place over.
    pub(super) resumed: usize,
    /// The position of the next grant to its token that was delivered, which ends the place.
    pub(super) ended: usize,
}

impl Timeline<'_> {
    /// Whether it could be granted at this position of the log, at or after this instant.
    pub fn may_wait(&self, at: usize, not_before_ms: u64) -> bool {
        let connected = self.arrived < at && at < self.gone;
        let waits = self.block.is_some() || at < self.next_command;
        connected
            && waits
            && match self.request.outcome {
                Outcome::Fence(_) => self.granted.is_some_and(|granted| at <= granted),
                Outcome::Null => {
                    self.block.is_some() && not_before_ms <= self.request.ended_us / 1_000
                }
                Outcome::Error(_) => self.gone < usize::MAX,
                _ => true,
            }
    }

    /// Whether it was in the queue at this position of the log, at or before this instant.
    pub fn surely_waits(&self, at: usize, not_after_ms: u64) -> bool {
        let request = self.request;
        let Some(timeout_ms) = self.block else {
            return false;
        };
        let surely_over_us = (not_after_ms + 1) * 1_000;
        let in_time = timeout_ms == 0 || surely_over_us <= request.asked_us + timeout_ms * 1_000;
        // Its own command first serves earlier waiters.
        self.next_command <= at
            && at < self.struck
            && match request.outcome {
                Outcome::Fence(_) => self.granted.is_some_and(|granted| at < granted),
                Outcome::Null | Outcome::Closed => in_time,
                Outcome::Cut { since_us } => in_time && surely_over_us <= since_us,
                Outcome::Error(_) => in_time && self.gone < usize::MAX,
                Outcome::Silence => true,
                Outcome::Done(_) => false,
            }
    }
}

/// The number of samples until the server has noticed a disconnection. It reads the remaining data
/// of the connection in one turn of its loop, and its end in the next. Two samples are never in one
/// turn.
const LOOKS_UNTIL_A_CUT_IS_SEEN: usize = 3;

/// An effect that grants a hold.
#[derive(Clone, Copy)]
struct Granted {
    at: usize,
    now_ms: u64,
    mode: Mode,
    fence: u64,
}

/// Positions in the log.
#[derive(Default)]
struct Index<'h> {
    /// Requests, with the position of the next command.
    arrivals: BTreeMap<u64, (usize, usize)>,
    /// By key and token.
    holds: HashMap<(&'h str, Vec<u8>), Vec<Granted>>,
    kills: HashMap<i64, Vec<usize>>,
    unblocks: HashMap<i64, Vec<usize>>,
    /// Releases that may have given up a place, by key and token.
    give_ups: HashMap<(&'h str, &'h str), Vec<usize>>,
    /// Requests for a hold, by key and token.
    acquires: HashMap<(&'h str, &'h str), Vec<usize>>,
    /// The delivered fences.
    delivered: HashSet<u64>,
    /// Positions before which it was at the latest that late.
    known: Vec<(usize, u64)>,
    /// The positions of the samples, with the times of their requests and of their replies.
    looks: Vec<(usize, u64, u64)>,
}

impl<'h> Index<'h> {
    fn of(history: &'h History) -> Self {
        let mut index = Self::default();
        let mut last: Option<Parts> = None;
        for (at, entry) in history.log.iter().enumerate() {
            match entry {
                Entry::Effect(key, bytes) => {
                    if let Effect::Hold {
                        now_ms,
                        mode,
                        token,
                        hold,
                    } = effect(bytes)
                    {
                        index.known.push((at, now_ms * 1_000 + 999));
                        let holds = index.holds.entry((key, token.as_bytes().to_vec()));
                        holds.or_default().push(Granted {
                            at,
                            now_ms,
                            mode,
                            fence: hold.fence.get(),
                        });
                    }
                }
                Entry::Mark(mark) => {
                    for part in last.take().into_iter().flat_map(Parts::numbers) {
                        let arrival = index.arrivals.entry(part);
                        arrival.and_modify(|(_, next)| *next = at);
                    }
                    match *mark {
                        Mark::Asked(number) => {
                            let request = &history.requests[&number];
                            for part in request.parts.numbers() {
                                index.arrivals.insert(part, (at, usize::MAX));
                                index.note_acquire(&history.requests[&part], at);
                            }
                            last = Some(request.parts);
                            if request.what == What::Release
                                && request.outcome != Outcome::Done(true)
                            {
                                let whose = (&request.key[..], &request.token[..]);
                                index.give_ups.entry(whose).or_default().push(at);
                            }
                        }
                        Mark::Sampled(number) => {
                            let sample = &history.samples[&number];
                            index.looks.push((at, sample.asked_us, sample.ended_us));
                            index.known.push((at, sample.ended_us));
                        }
                        Mark::Killed(id) => index.kills.entry(id).or_default().push(at),
                        Mark::Unblocked(id) => index.unblocks.entry(id).or_default().push(at),
                        Mark::Operated => {}
                    }
                }
                _ => {}
            }
        }
        index
    }

    fn note_acquire(&mut self, request: &'h Request, at: usize) {
        if let What::Acquire(..) = request.what {
            let whose = (&request.key[..], &request.token[..]);
            self.acquires.entry(whose).or_default().push(at);
            if let Outcome::Fence(fence) = request.outcome {
                self.delivered.insert(fence);
            }
        }
    }

    /// The position of the next request of the same token for the key.
    fn resumed(&self, request: &Request, arrived: usize) -> usize {
        let whose = (&request.key[..], &request.token[..]);
        let mut all = self.acquires[&whose].iter();
        all.find(|at| **at > arrived).copied().unwrap_or(usize::MAX)
    }

    /// The position of the next grant to a token that it was told. A hold that it has already may
    /// change meanwhile, by a renewal for example. That grants nothing but in the mode it waits for.
    fn ended(&self, request: &Request, mode: Mode, arrived: usize) -> usize {
        let whose = (&request.key[..], request.token.clone().into_bytes());
        let holds = self.holds.get(&whose).into_iter().flatten();
        let before = holds.clone().take_while(|hold| hold.at <= arrived).last();
        let had = before.map(|hold| hold.fence);
        let mut told =
            holds.filter(|hold| hold.at > arrived && self.delivered.contains(&hold.fence));
        let granted = told.find(|hold| hold.mode == mode || Some(hold.fence) != had);
        granted.map_or(usize::MAX, |hold| hold.at)
    }

    /// The position from which a kill after a given position works: behind its mark.
    fn after(strikes: &HashMap<i64, Vec<usize>>, connection: i64, at: usize) -> usize {
        let mut strikes = strikes.get(&connection).into_iter().flatten();
        let strike = strikes.find(|strike| **strike > at);
        strike.map_or(usize::MAX, |strike| strike + 1)
    }

    /// The position from which a release may have given up the place of a request.
    fn given_up(&self, history: &History, request: &Request, arrived: usize) -> usize {
        let parts = request.parts.numbers();
        let releases = parts.filter_map(|part| {
            let whose = (&history.requests[&part].key[..], &request.token[..]);
            let mut releases = self.give_ups.get(&whose)?.iter();
            releases.find(|release| **release > arrived)
        });
        releases.min().map_or(usize::MAX, |release| release + 1)
    }

    /// The position from which a connection is gone that was closed before this instant.
    fn cut_is_seen(&self, cut_us: u64) -> usize {
        self.look_after_a_cut(cut_us)
            .map_or(usize::MAX, |(at, _)| at + 1)
    }

    /// What arrived at a position came before this instant.
    fn known_after(&self, arrived: usize) -> u64 {
        let next = self.known.partition_point(|(at, _)| *at < arrived);
        self.known.get(next).map_or(u64::MAX, |(_, us)| *us)
    }

    /// The position from which a timer that was due at this instant has fired.
    fn timer_has_fired(&self, due_us: u64, pauses: &[Pause]) -> usize {
        let due_us = put_off(due_us, pauses);
        let first = self
            .looks
            .partition_point(|(_, asked_us, _)| *asked_us <= due_us);
        let seen = self.looks.get(first + LOOKS_UNTIL_DONE - 1);
        seen.map_or(usize::MAX, |(at, ..)| *at)
    }

    /// The look by which the server has noticed it, and when that was over.
    fn look_after_a_cut(&self, cut_us: u64) -> Option<(usize, u64)> {
        let first = self
            .looks
            .partition_point(|(_, asked_us, _)| *asked_us <= cut_us);
        let seen = self.looks.get(first + LOOKS_UNTIL_A_CUT_IS_SEEN - 1);
        seen.map(|(at, _, ended_us)| (*at, *ended_us))
    }
}

/// When a timer that is due at this instant fires at the latest, if nothing stalls the server.
fn put_off(due_us: u64, pauses: &[Pause]) -> u64 {
    let mut due_us = due_us.saturating_add(ALARM_US);
    for pause in pauses {
        let acts_again_us = pause.until_us + AFTER_A_PAUSE_US;
        if pause.from_us <= due_us && due_us < acts_again_us {
            due_us = acts_again_us;
        }
    }
    due_us
}

/// Follows every request, and refuses one whose reply alone, or the position of its grant, is
/// wrong.
pub fn follow<'h>(history: &'h History, breaches: &mut Vec<Breach>) -> BTreeMap<u64, Timeline<'h>> {
    let index = Index::of(history);
    let mut timelines = BTreeMap::new();
    let mut pauses = history.pauses.clone();
    pauses.sort_by_key(|pause| pause.from_us);
    for (&number, request) in &history.requests {
        let arrival = index.arrivals.get(&number).copied();
        // A connection that listens may have been killed before the request came over another one.
        let since = arrival.filter(|_| !request.by_channel);
        let killed = Index::after(&index.kills, request.connection, since.map_or(0, |a| a.0));
        let mut refuse = |rule, at: usize, why: &str| {
            let text = format!("{why}: {number} {request:?}");
            breaches.push(Breach { rule, at, text });
        };
        match &request.outcome {
            // Nothing is published where the token gives its place up.
            Outcome::Silence
                if request.by_channel
                    && arrival.is_some_and(|(arrived, _)| {
                        index.given_up(history, request, arrived) < usize::MAX
                    }) => {}
            Outcome::Silence => refuse(Rule::Unanswered, 0, "no answer came"),
            Outcome::Closed if arrival.is_some() && killed == usize::MAX => {
                refuse(Rule::Unanswered, 0, "closed by the server without a kill");
            }
            Outcome::Cut { .. } | Outcome::Closed => {}
            _ if arrival.is_none() => refuse(Rule::WrongAnswer, 0, "answered without arriving"),
            _ => {}
        }
        let Some((arrived, next_command)) = arrival else {
            continue;
        };
        let What::Acquire(mode, block) = request.what else {
            continue;
        };
        let unblocked = Index::after(&index.unblocks, request.connection, arrived);
        let given_up = index.given_up(history, request, arrived);
        let noticed = index.look_after_a_cut(request.ended_us);
        let mut timeline = Timeline {
            number,
            request,
            mode,
            block,
            arrived,
            next_command,
            place: (arrived, arrived),
            granted: None,
            struck: killed.min(unblocked).min(given_up),
            gone: usize::MAX,
            kept: Kept::of(
                request,
                block,
                (
                    index.known_after(arrived),
                    noticed.map_or(u64::MAX, |(_, us)| us),
                ),
                |us| put_off(us, &pauses),
                &pauses,
                |us| index.timer_has_fired(us, &pauses),
            ),
            deaf: Kept::of_deaf(request, block, |us| index.timer_has_fired(us, &pauses)),
            resumed: index.resumed(request, arrived),
            ended: index.ended(request, mode, arrived),
        };
        let whose = (&request.key[..], request.token.clone().into_bytes());
        let holds = index.holds.get(&whose).into_iter().flatten();
        let mut fitting = holds.filter(|hold| hold.at > arrived && hold.mode == mode);
        match &request.outcome {
            Outcome::Fence(fence) => match fitting.find(|hold| hold.fence == *fence) {
                Some(hold)
                    if hold.now_ms < request.asked_us / 1_000
                        || hold.now_ms > request.ended_us / 1_000 =>
                {
                    refuse(Rule::UnknownFence, arrived, "granted at another time");
                }
                Some(hold) => timeline.granted = Some(hold.at),
                None => refuse(Rule::UnknownFence, arrived, "the log has no such grant"),
            },
            // A release of its token that holds nothing ends its wait early.
            Outcome::Null if given_up < usize::MAX => {}
            Outcome::Null => {
                let waited_us = request.ended_us - request.asked_us;
                match block {
                    Some(0) => refuse(Rule::EarlyTimeout, arrived, "it was to wait for ever"),
                    Some(ms) if waited_us < ms * 1_000 => {
                        refuse(Rule::EarlyTimeout, arrived, "it waited too short");
                    }
                    _ => {}
                }
            }
            Outcome::Error(error) if error.starts_with("UNBLOCKED ") => {
                timeline.gone = unblocked;
                if unblocked == usize::MAX {
                    refuse(Rule::Unanswered, arrived, "nobody had it unblocked");
                }
            }
            Outcome::Error(error) if error.starts_with("DEADLOCK ") => {}
            Outcome::Error(error)
                if error.starts_with("PARTIAL ") && request.parts.are_several() => {}
            Outcome::Cut { .. } => timeline.gone = index.cut_is_seen(request.ended_us).min(killed),
            Outcome::Closed => timeline.gone = killed,
            Outcome::Silence => {}
            _ => refuse(Rule::WrongAnswer, arrived, "no such answer"),
        }
        if timeline.granted.is_none() {
            let untold = fitting.next().map_or(usize::MAX, |hold| hold.at);
            timeline.struck = timeline.struck.min(untold);
        }
        timelines.insert(number, timeline);
    }
    timelines
}
