//! The rules, over the replies to the clients and the state of the server after its restart.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use super::journal::{may_be_seen, Holds, Life, Part};
use super::load_clients::several_of;

/// A span of time, in microseconds.
type Span = RangeInclusive<u64>;

/// Finds an instant at which the clients held what the server has after its restart: everything
/// answered by then is there, nothing requested later is. The end of the life comes after
/// everything, and means that nothing answered was lost.
///
/// # Errors
///
/// If there is no such instant in `allowed`.
pub fn instant_that_came_back(
    life: &Life,
    seen: &[Holds],
    look_ms: &Span,
    allowed: &Span,
) -> Result<u64, String> {
    let mut fitting = Vec::new();
    for (client, part) in life.parts.iter().enumerate() {
        let spans = spans_of(part, &seen[client], look_ms);
        let spans = spans.map_err(|why| format!("client {client}: {why}"))?;
        if !spans.iter().any(|span| common(span, allowed).is_some()) {
            let text = account(part, &seen[client], allowed);
            return Err(format!("client {client} fits at {spans:?} only: {text}"));
        }
        fitting.push(spans);
    }
    let fits = |instant: &u64| {
        let mut all = fitting.iter();
        all.all(|spans| spans.iter().any(|span| span.contains(instant)))
    };
    let starts = fitting.iter().flatten().map(|span| *span.start());
    let mut instants: Vec<_> = starts.chain([*allowed.start()]).collect();
    instants.retain(|instant| allowed.contains(instant));
    instants.sort_unstable();
    let found = instants.into_iter().rfind(fits);
    found.ok_or_else(|| format!("each client fits at some instant in {allowed:?}, no two at one"))
}

fn common(one: &Span, other: &Span) -> Option<Span> {
    let span = *one.start().max(other.start())..=*one.end().min(other.end());
    (!span.is_empty()).then_some(span)
}

/// The spans in which the observed holds of a client may have been current.
///
/// # Errors
///
/// If a reply was wrong while the server still ran.
fn spans_of(part: &Part, seen: &Holds, look_ms: &Span) -> Result<Vec<Span>, String> {
    let mut spans = Vec::new();
    let mut holds = part.base.clone();
    let mut since = 0;
    for request in &part.requests {
        // It may take effect as late as at the end of the life.
        if may_be_seen(&holds, seen, look_ms) {
            let until = request
                .answers
                .as_ref()
                .map_or(u64::MAX, |_| request.ended_us);
            spans.push(since..=until);
        }
        since = request.asked_us;
        if request.answers.is_some() {
            request.apply(&mut holds)?;
            continue;
        }
        let possible = request.possible(&holds);
        if possible
            .iter()
            .any(|holds| may_be_seen(holds, seen, look_ms))
        {
            spans.push(since..=u64::MAX);
        }
        return Ok(spans);
    }
    if may_be_seen(&holds, seen, look_ms) {
        spans.push(since..=u64::MAX);
    }
    Ok(spans)
}

/// The last requests of a client, for a message.
fn account(part: &Part, seen: &Holds, allowed: &Span) -> String {
    let mut text = format!("allowed {allowed:?}\n  base {:?}\n", part.base);
    for request in part.requests.iter().rev().take(12).rev() {
        text += &format!("  {request:?}\n");
    }
    text + &format!("  seen {seen:?}")
}

/// All fences that were ever delivered or seen, with their holds.
#[derive(Default)]
pub struct Fences {
    owners: HashMap<u64, (String, String)>,
    pub largest: u64,
}

impl Fences {
    /// Adds the fences of a life: a new one is larger than all of earlier lives, and belongs to one
    /// hold.
    ///
    /// # Errors
    ///
    /// If a fence was given twice or is too small.
    pub fn take(&mut self, life: &Life) -> Result<(), String> {
        // Grants of the last moment of the previous life are seen only now.
        for part in &life.parts {
            for (whose, held) in &part.base {
                self.own(held.fence.expect("a fence that is shown"), whose)?;
            }
        }
        let before = self.largest;
        for part in &life.parts {
            let mut holds = part.base.clone();
            for request in &part.requests {
                request.apply(&mut holds)?;
                for (whose, held) in &holds {
                    let Some(fence) = held.fence else { continue };
                    let is_new = self.own(fence, whose)?;
                    if is_new && fence <= before {
                        return Err(format!("{fence} for {whose:?} after {before}"));
                    }
                }
            }
        }
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.owners.len()
    }

    fn own(&mut self, fence: u64, whose: &(String, String)) -> Result<bool, String> {
        self.largest = self.largest.max(fence);
        match self.owners.insert(fence, whose.clone()) {
            None => Ok(true),
            Some(owner) if owner == *whose => Ok(false),
            // One fence for all keys of a grant.
            Some(owner) if owner.1 == whose.1 && several_of(&whose.1).is_some() => Ok(false),
            Some(owner) => Err(format!("{fence} for {owner:?} and for {whose:?}")),
        }
    }
}
