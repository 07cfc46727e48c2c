//! Who is next in the queue of a key.

use super::place::{Place, PlaceId, Seq, Stands, Ticket};
use super::Book;
use crate::lock::{Deadline, Lock, Mode, Now, Occupancy, Token};
use crate::rules::key_ref::KeyId;

/// What is to be done next with a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This request is granted.
    Grant(PlaceId, Seq),
    /// Its token has a hold, and another token already waits to make its own exclusive.
    Deadlock(PlaceId, Seq),
    /// Nobody listens there, and nobody can use it any more: its token has what it keeps, or never
    /// can have it.
    End(PlaceId),
    /// Its token has a hold or has lost it, so the place stands elsewhere now.
    Stands(PlaceId, Stands),
    /// A place for several keys is next here.
    Claim(PlaceId),
}

/// Whether a token without a hold, which the lock alone admits, also fits beside those who count as
/// holders.
fn fits_beside(reserved: Occupancy, mode: Mode, lock: Option<&Lock>, now: Now) -> bool {
    let by_lock = lock.map_or(Mode::ANY, |lock| lock.mode().tolerates());
    let tolerated = reserved.tolerated.min(by_lock).min(mode.tolerates());
    if reserved == Occupancy::NONE || tolerated == Mode::ANY {
        return true; // The number of holders does not matter, and to count them is slow.
    }
    let held = lock.map_or(Occupancy::NONE, |lock| lock.occupancy(now));
    let all = Occupancy {
        holders: held.holders.saturating_add(reserved.holders),
        tolerated: held.tolerated.min(reserved.tolerated),
    };
    all.admits(mode)
}

/// What a token that has a hold can have in its place.
#[derive(Clone, Copy, Debug)]
struct Own {
    /// How many holders its hold tolerates.
    tolerates: u32,
    /// How many a hold has to tolerate at least, so that it can have it at once.
    least: u32,
}

impl Own {
    /// That of the token of a place; `None` if it has no hold.
    fn of<L>(place: &Place<L>, lock: Option<&Lock>, now: Now) -> Option<Self> {
        let (token, lock) = (place.token.text(), lock?);
        let (own, _) = lock.hold_of(token.as_token(), now)?;
        let tolerates = own.tolerates();
        let least = if !lock.is_held_by_others(token.as_token(), now) {
            1
        } else if place.has_counted() {
            // To count is slow where many holds are over, and matters only for limits.
            let holders = u32::try_from(lock.occupancy(now).holders);
            tolerates.min(holders.unwrap_or(Mode::ANY))
        } else {
            tolerates
        };
        Some(Self { tolerates, least })
    }

    /// Whether a place asks for less than its token has.
    fn is_narrowed_by<L>(self, place: &Place<L>) -> bool {
        place.has_below(self.tolerates)
    }

    /// Whether it can have one of the holds that the place asks for.
    fn fits<L>(self, place: &Place<L>) -> bool {
        self.least <= place.widest()
    }
}

/// What is to be done next at a key. The caller does it, and asks again until there is nothing.
pub(crate) fn next(book: &impl Book, key: KeyId, lock: Option<&Lock>, now: Now) -> Option<Next> {
    if let Some((id, place)) = place_of(book, book.first_owner(key)) {
        return Some(next_of_owner(book, key, (id, place), lock, now));
    }
    let tolerated = match next_of_converts(book, key, None, lock, now) {
        Converting::Next(next) => return Some(next),
        Converting::Nobody => return None,
        Converting::Absent(tolerated) => tolerated,
    };
    let (id, place) = place_of(book, book.first_stop(key, Ticket::END))?;
    let first = place.first()?; // Nobody passes an absent writer, or an absent claim.
    let mode = place.mode_among(key).unwrap_or(first.mode);
    if !admits(
        book,
        key,
        (place.ticket, tolerated),
        (place, mode),
        lock,
        now,
    ) {
        return None;
    }
    Some(match place.is_for_several_keys() {
        true => Next::Claim(id),
        false => Next::Grant(id, first.seq),
    })
}

/// What becomes of a place whose token has got a hold.
fn next_of_owner<B: Book>(
    book: &B,
    key: KeyId,
    (id, place): (PlaceId, &Place<B::Client>),
    lock: Option<&Lock>,
    now: Now,
) -> Next {
    let Some(own) = Own::of(place, lock, now) else {
        return Next::Stands(id, Stands::InLine);
    };
    if let Some(seq) = place.first_tolerating(own.least) {
        return Next::Grant(id, seq);
    }
    if !own.is_narrowed_by(place) {
        return Next::End(id);
    }
    if place.wants_exclusive() && exclusive_convert(book, key).is_some() {
        let seq = place.first_exclusive();
        return seq.map_or(Next::End(id), |seq| Next::Deadlock(id, seq));
    }
    match may_convert(book, key) {
        true => Next::Stands(id, Stands::Converts),
        false => Next::Stands(id, Stands::InLine),
    }
}

/// How many places of a lock convert at a time. All of them are looked at whenever it is served.
const MOST_CONVERTING: usize = 1_000;

/// Whether one more place of a lock may convert.
pub(crate) fn may_convert(book: &impl Book, key: KeyId) -> bool {
    book.converts(key).nth(MOST_CONVERTING - 1).is_none()
}

/// The place of the token that waits to make its hold exclusive.
pub(crate) fn exclusive_convert(book: &impl Book, key: KeyId) -> Option<PlaceId> {
    let is_it = |id: &PlaceId| book.place(*id).is_some_and(Place::wants_exclusive);
    book.converts(key).find(is_it)
}

/// Who is next among those who convert.
enum Converting {
    Next(Next),
    /// One of them has to wait, and so have all behind.
    Nobody,
    /// All of them are absent, and their turn has come: they tolerate so many holders.
    Absent(u32),
}

/// Who is next among those who convert, ahead of one of them if it is given. Each can be granted as
/// soon as no more hold the lock than it tolerates.
fn next_of_converts(
    book: &impl Book,
    key: KeyId,
    until: Option<PlaceId>,
    lock: Option<&Lock>,
    now: Now,
) -> Converting {
    let mut tolerated = Mode::ANY;
    for id in book.converts(key).take_while(|id| Some(*id) != until) {
        let Some(place) = book.place(id) else {
            continue;
        };
        let Some(own) = Own::of(place, lock, now) else {
            return Converting::Next(Next::Stands(id, Stands::InLine));
        };
        if !own.fits(place) {
            return Converting::Nobody;
        }
        if let Some(seq) = place.first_tolerating(own.least) {
            return Converting::Next(Next::Grant(id, seq));
        }
        tolerated = place.widest();
    }
    Converting::Absent(tolerated)
}

/// The places that convert no more, because their holds have ended, or are narrow enough by now,
/// and where they stand. Asked before a key is served.
pub(crate) fn settle(
    book: &impl Book,
    key: KeyId,
    lock: Option<&Lock>,
    now: Now,
) -> Vec<(PlaceId, Stands)> {
    let converts = book.converts(key).filter_map(|id| {
        let place = book.place(id)?;
        let token = place.token.text();
        let own = lock.and_then(|lock| lock.hold_of(token.as_token(), now));
        match own.map(|(mode, _)| mode.tolerates()) {
            None => Some((id, Stands::InLine)),
            Some(tolerates) if !place.has_below(tolerates) => Some((id, Stands::Owns)),
            Some(_) => None,
        }
    });
    converts.collect()
}

/// Whether it is the turn of a place in the line, which asks for this mode: where those ahead of
/// its ticket are absent, each counts as a holder. Whoever fits beside all of them proves that the
/// turn of each has come: fewer stand ahead of that, and they are no stricter.
fn admits<B: Book>(
    book: &B,
    key: KeyId,
    (ticket, tolerated): (Ticket, u32),
    (place, mode): (&Place<B::Client>, Mode),
    lock: Option<&Lock>,
    now: Now,
) -> bool {
    let passed = book.passed(key, ticket);
    let reserved = passed.tolerating(tolerated);
    // After a release the key is absent most of the time. Then the token's text is not needed,
    // which takes a while to build.
    let Some(held) = lock else {
        return reserved.admits(mode);
    };
    let token = place.token.text();
    match Lock::admits(Some(held), mode, token.as_token(), now) {
        // A token that got one of its keys by a lock from elsewhere waits until that hold ends.
        Ok(own) if own.is_some() && place.is_for_several_keys() => false,
        Ok(None) => fits_beside(reserved, mode, lock, now),
        Ok(Some(_)) => true,
        Err(_) => false,
    }
}

/// Whether a request that comes now must wait behind others. An absent place lets its own token in
/// when its turn has come.
pub(crate) fn must_wait(
    book: &impl Book,
    key: KeyId,
    (token, mode): (Token<'_>, Mode),
    lock: Option<&Lock>,
    now: Now,
) -> bool {
    let own = place_of(book, book.of_token(key, token));
    if own.is_some_and(|(_, place)| !place.is_absent()) || book.first_owner(key).is_some() {
        return true;
    }
    let converts = own.filter(|(_, place)| place.stands == Stands::Converts);
    let until = converts.map(|(id, _)| id);
    let tolerated = match next_of_converts(book, key, until, lock, now) {
        Converting::Next(_) | Converting::Nobody => return true,
        Converting::Absent(tolerated) => tolerated,
    };
    let end = own.map_or(Ticket::END, |(_, place)| place.ticket);
    let passed = match converts {
        Some(_) => Occupancy::NONE,
        None if book.first_stop(key, end).is_some() => return true,
        None => book.passed(key, end),
    };
    !fits_beside(passed.tolerating(tolerated), mode, lock, now)
}

/// When the passing of time alone may let a request in. It is never too late, but may be too early.
pub(crate) fn wakes_at(
    book: &impl Book,
    key: KeyId,
    lock: Option<&Lock>,
    now: Now,
) -> Option<Deadline> {
    let (lock, place) = (lock?, first_but_shares(book, key)?);
    // The end of the only hold matters, whoever has it.
    if lock.len() == 1 || lock.mode().limit().is_some() || place.has_counted() {
        return lock.earliest_deadline(now);
    }
    let token = place.token.text();
    let others = lock.latest_deadline_of_others(token.as_token());
    // Holds that are over let in nobody any more: the place is absent, or it would be granted.
    let others = others.filter(|deadline| !deadline.is_over(now.ms()));
    let own = lock.hold_of(token.as_token(), now);
    match (own.map(|(_, hold)| hold.deadline), others) {
        (Some(own), Some(others)) => Some(own.min(others)),
        (own, others) => own.or(others),
    }
}

/// The first place that is not an absent share: all ahead of it are no matter to a reader.
pub(crate) fn first_but_shares<B: Book>(book: &B, key: KeyId) -> Option<&Place<B::Client>> {
    let ahead = book.converts(key).next().or_else(|| book.first_owner(key));
    if let Some((_, place)) = place_of(book, ahead) {
        return Some(place);
    }
    let line = [book.first_stop(key, Ticket::END), book.first_permit(key)];
    let line = line.into_iter().filter_map(|id| place_of(book, id));
    let first = line.min_by_key(|(_, place)| place.ticket);
    first.map(|(_, place)| place)
}

fn place_of<B: Book>(book: &B, id: Option<PlaceId>) -> Option<(PlaceId, &Place<B::Client>)> {
    let id = id?;
    Some((id, book.place(id)?))
}
