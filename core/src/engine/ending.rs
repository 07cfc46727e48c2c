//! Waits end without a grant, and whatever has listened is told.

use super::count::Count;
use super::host::Server;
use super::machine::{Machine, Removed};
use super::message::{Message, Outcome};
use crate::command::Error;
use crate::wait::{ChannelRequest, Ending, KeyRef, Listener};

/// Ends all requests of a channel that nobody listens to.
pub(super) fn unheard<S: Server>(server: S, machine: &mut Machine<S::Types>, channel: &[u8]) {
    for removed in machine.registry.unheard(channel, server.leaving()) {
        note_unheard(server, &removed);
    }
    machine.is_due_changed = true;
}

/// Ends a request, because nobody listens to its channel.
pub(super) fn end_unheard<S: Server>(
    server: S,
    machine: &mut Machine<S::Types>,
    request: &ChannelRequest,
) {
    let removed = machine.registry.end_unheard(request, server.leaving());
    removed.iter().for_each(|one| note_unheard(server, one));
}

/// Counts a request that has ended, because nobody listens to its channel.
fn note_unheard<S: Server>(server: S, removed: &Removed<S::Types>) {
    server.count(Count::Unheard);
    if removed.is_last {
        server.count(Count::PassedOver);
    }
}

/// Ends the next of many places that end for one reason. False if there is none.
pub(super) fn end_next<S: Server>(server: S, machine: &mut Machine<S::Types>) -> bool {
    match machine.registry.next_ending(server.leaving()) {
        None => return false,
        Some(Ending::Cancelled(all)) => all
            .into_iter()
            .for_each(|removed| tell(server, machine, removed, Some(Error::Cancelled))),
        Some(Ending::Unheard(removed)) => {
            removed.iter().for_each(|one| note_unheard(server, one));
        }
        Some(Ending::Lost(removed)) => {
            let now_us = server.monotonic_us();
            removed.iter().for_each(|one| machine.left(one, now_us));
        }
    }
    true
}

/// Ends a place of a server that is or was a replica: another primary decides, or may have. Valkey
/// 9.1 has left clients blocked that can be redirected. False if there is none.
pub(super) fn dismiss_somebody<S: Server>(server: S, machine: &mut Machine<S::Types>) -> bool {
    let dismissed = machine.registry.dismiss_any();
    let is_any = dismissed.is_some();
    for removed in dismissed.into_iter().flatten() {
        tell(server, machine, removed, Some(Error::TryAgain));
    }
    is_any
}

/// Ends the places that are left from before a demotion, all at once: a primary grants them.
pub(super) fn dismiss_left<S: Server>(server: S, machine: &mut Machine<S::Types>) {
    if std::mem::take(&mut machine.was_demoted) {
        while dismiss_somebody(server, machine) {}
    }
}

/// How many places of a key are dismissed in one go.
const MOST_DISMISSED: usize = 100;

/// Answers those who wait for a key with an error, and ends its places. If there are too many, the
/// key is marked, so that the others follow.
pub(super) fn dismiss_all<S: Server>(
    server: S,
    machine: &mut Machine<S::Types>,
    key_ref: &KeyRef,
    error: Error,
) {
    for removed in machine.registry.dismiss(key_ref, MOST_DISMISSED) {
        tell(server, machine, removed, Some(error));
    }
}

/// Answers the client that waits at a place which its token has given up. Nothing is published.
pub(super) fn give_up<S: Server>(server: S, removed: Removed<S::Types>) {
    if let Some(Listener::Client(client)) = removed.listener {
        server.unblock(client, Outcome::Null);
    }
}

/// Tells whatever has listened for a request how its wait has ended. Without an error its timeout
/// has passed. A place at which nobody listens ends without a word.
pub(super) fn tell<S: Server>(
    server: S,
    machine: &mut Machine<S::Types>,
    removed: Removed<S::Types>,
    error: Option<Error>,
) {
    let outcome = error.map_or(Outcome::Null, Outcome::Error);
    let message = error.map_or(Message::TimedOut, Message::Error);
    tell_as(server, machine, removed, outcome, message);
}

/// The same by an outcome for a client, and a message for a channel.
pub(super) fn tell_as<S: Server>(
    server: S,
    machine: &mut Machine<S::Types>,
    removed: Removed<S::Types>,
    outcome: Outcome,
    message: Message,
) {
    match removed.listener {
        Some(Listener::Client(client)) => server.unblock(client, outcome),
        Some(Listener::Channel(name)) => {
            let (token, key) = (removed.token.text(), removed.keys.first());
            if !server.publish(&name, message, &key.name, token.as_token()) {
                unheard(server, machine, &name);
            }
        }
        None => {}
    }
}
