//! Requests leave, and places end.

use std::rc::Rc;

use super::key_ref::KeyRef;
use super::keys::Keys;
use super::place::{Extra, Kept, Linger, Listener, Place, PlaceId, Request, Seq, Stands};
use super::BookMut;
use crate::lock::{CompactToken, Mode, Token};

/// A request, or a place of nobody's, that waits no more. Whoever took it out ends its wait.
#[derive(Debug)]
pub struct Removed<L> {
    /// What it waited for.
    pub keys: Keys,
    /// Whatever is to be told; `None` of a place at which nobody has listened.
    pub listener: Option<Listener<L>>,
    /// Whose it is.
    pub token: CompactToken,
    /// Exclusive, shared or counted.
    pub mode: Mode,
    /// Since when it has had its place, on the monotonic clock.
    pub since_us: u64,
    /// Since when somebody has listened there whose wait is not counted yet.
    pub uncounted_us: u64,
    /// Whether the server has generated the token.
    pub is_server_generated: bool,
    /// What its hold is bound to.
    pub linger: Option<Linger>,
    /// The result that it takes in place of a hold.
    pub result: Option<Rc<[u8]>>,
    /// Whether its place has ended with it.
    pub is_last: bool,
}

/// Why a request leaves its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaveReason {
    /// It has ended without a grant: with KEEP the place stays.
    Ungranted(Leaving),
    /// It was granted: the place ends with the last request.
    Granted,
    /// It was refused, or its place ends: likewise.
    Refused,
}

/// How requests leave without a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// When, on the monotonic clock.
    pub now_us: u64,
    /// Where a key has as many absent places, a place ends in spite of KEEP.
    pub absent_per_key: usize,
}

#[cfg(test)]
impl Leaving {
    /// At this instant, with room for any number of absent places.
    pub(crate) const fn at(now_us: u64) -> Self {
        Self {
            now_us,
            absent_per_key: usize::MAX,
        }
    }
}

/// The first place that a token has for any of these keys.
pub(crate) fn place_of<B: BookMut>(book: &B, keys: &Keys, token: Token<'_>) -> Option<PlaceId> {
    let of = |key: &KeyRef| book.of_token(book.key_id(key)?, token);
    keys.iter().find_map(of)
}

/// Takes a request out of its place, which stays or ends by the rules.
pub(crate) fn leave<B: BookMut>(
    book: &mut B,
    id: PlaceId,
    seq: Seq,
    why: LeaveReason,
) -> Option<Removed<B::Client>> {
    let change = book.last_change();
    let place = book.place(id)?;
    let (request, uncounted_us) = (place.request(seq)?, place.uncounted_us);
    let may_stay = match why {
        LeaveReason::Ungranted(leaving) => {
            let has_room = |key| book.counts_at(key).1 < leaving.absent_per_key;
            place.ids.iter().all(|key| has_room(*key))
        }
        LeaveReason::Granted | LeaveReason::Refused => false,
    };
    let keeps = matches!(why, LeaveReason::Ungranted(_)) && request.keep_ms > 0;
    let (request, extra, is_last) = book.take(id, seq, keeps, |place, request| {
        match why {
            LeaveReason::Ungranted(leaving) => {
                if request.keep_ms > 0 {
                    let (mode, ms) = (request.mode, request.keep_ms);
                    place.kept = Some(Kept { mode, ms });
                }
                place.uncounted_us = leaving.now_us;
                let grace_ms = place.kept.map_or(0, |kept| kept.ms);
                place.until_us = grace_end(leaving.now_us, grace_ms);
                (place.user, place.since_change) = (request.user, change);
            }
            // Its token has a hold now: what else it waits for is looked at anew.
            LeaveReason::Granted if !place.is_for_several_keys() => place.stands = Stands::Owns,
            LeaveReason::Granted | LeaveReason::Refused => {}
        }
        if place.is_absent() && !may_stay {
            place.kept = None;
        }
        place.is_over()
    })?;
    let place = book.place(id)?;
    let removed = removed(place, Some((request, uncounted_us)), extra, is_last);
    if is_last {
        book.close(id);
    }
    Some(removed)
}

/// Ends a place. There is one entry for each of its requests, or one without a listener.
pub(crate) fn end<B: BookMut>(book: &mut B, id: PlaceId) -> Vec<Removed<B::Client>> {
    let mut all = Vec::new();
    while let Some(place) = book.place(id) {
        match place.first().map(|request| request.seq) {
            Some(seq) => all.extend(leave(book, id, seq, LeaveReason::Refused)),
            None => {
                all.push(removed(place, None, Extra::default(), true));
                book.change(id, |place| place.kept = None);
                book.close(id);
            }
        }
    }
    all
}

/// Ends the place at which nobody listens that a token has for these keys, as it was just granted
/// them, or asked again without KEEP. Whether there was one, and since when on the monotonic clock.
pub(crate) fn resume<B: BookMut>(book: &mut B, keys: &Keys, token: Token<'_>) -> Option<u64> {
    let id = place_of(book, keys, token)?;
    let place = book.place(id)?;
    if !place.is_absent() || !place.keys.are(keys, false) {
        return None;
    }
    let since_us = place.since_us;
    end(book, id);
    Some(since_us)
}

/// The first place at which a time is over.
pub(crate) fn first_over<B: BookMut>(book: &B, now_us: u64) -> Option<PlaceId> {
    let first = book.first_due();
    first
        .filter(|(at_us, _)| *at_us <= now_us)
        .map(|(_, id)| id)
}

/// Takes out what is over first: the next request that times out, or place whose grace has ended,
/// which has no listener.
pub(crate) fn take_timed_out<B: BookMut>(
    book: &mut B,
    leaving: Leaving,
) -> Option<Removed<B::Client>> {
    let id = first_over(book, leaving.now_us)?;
    match book.place(id)?.timed_out(leaving.now_us) {
        Some(seq) => leave(book, id, seq, LeaveReason::Ungranted(leaving)),
        None => end(book, id).pop(),
    }
}

/// Has the place that is over first, if it is absent, stay for its grace from this instant of the
/// monotonic clock on. False if that is over, too.
pub(crate) fn stay_from<B: BookMut>(book: &mut B, from_us: u64, now_us: u64) -> bool {
    let Some(id) = first_over(book, now_us) else {
        return false;
    };
    let kept = book.place(id).and_then(|place| place.kept);
    let until_us = grace_end(from_us, kept.map_or(0, |kept| kept.ms));
    if until_us <= now_us {
        return false;
    }
    book.change(id, |place| place.until_us = until_us).is_some()
}

pub(super) const fn grace_end(now_us: u64, keep_ms: u32) -> u64 {
    now_us.saturating_add((keep_ms as u64).saturating_mul(1_000))
}

/// `request` comes with the instant from which its wait is counted.
fn removed<L>(
    place: &Place<L>,
    request: Option<(Request<L>, u64)>,
    extra: Extra,
    is_last: bool,
) -> Removed<L> {
    let (request, uncounted_us) = request.unzip();
    let mode = request.as_ref().map(|request| request.mode);
    Removed {
        keys: place.keys.clone(),
        token: place.token.clone(),
        mode: mode.unwrap_or_else(|| place.mode()),
        since_us: place.since_us,
        uncounted_us: uncounted_us.unwrap_or(place.since_us),
        is_server_generated: request.as_ref().is_some_and(|one| one.is_server_generated),
        linger: extra.linger,
        result: extra.result,
        listener: request.map(|request| request.listener),
        is_last,
    }
}
