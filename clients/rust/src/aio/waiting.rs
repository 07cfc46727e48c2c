//! The best way to wait that the server and the connections have.

use std::slice::from_ref;
use std::time::{Duration, Instant};

use redis::RedisError;
use tokio::time::{sleep, timeout};

use super::driver::Tasks;
use super::link::{Origin, Own, Source};
use super::listener::Event;
use crate::Error;
use crate::attempt::{Attempt, PACE, Verdict, Wait, bound};
use crate::driver::{Engine, Peer, locked};
use crate::replies::{has_code, is_demoted, is_refused, is_unanswered, is_unknown_command};

/// The time after which a task without a connection that waits asks again.
const POLL: Duration = Duration::from_millis(200);

impl Engine<Tasks> {
    /// Asks in the best way that the server and the connections have.
    pub(super) async fn ask_in_the_best_way(&self, attempt: &mut Attempt<'_>) -> Verdict {
        if self.support.is_fallback() || attempt.patience.is_over() {
            return self.ask_once(attempt, Wait::No).await;
        }
        let connections = &self.connections;
        let hears = self.support.notify() && connections.hears();
        match &connections.source {
            // A cancelled upgrade gives up its place and keeps its share. A release would end the
            // share, and a request as a reader ends the place only while nobody listens there.
            _ if attempt.lease.is_some() => self.ask_once(attempt, Wait::Keep).await,
            // A free lock needs neither a subscription nor a connection that blocks.
            _ if attempt.is_first && !(hears && connections.hub.is_up()) => {
                self.ask_once(attempt, Wait::No).await
            }
            _ if hears => self.ask_notified(attempt).await,
            Some(source) => self.ask_blocking(attempt, source).await,
            None => self.ask_once(attempt, Wait::Keep).await,
        }
    }

    /// Asks with NOTIFY, and listens until something is heard, the subscription is lost or a slice
    /// is over.
    async fn ask_notified(&self, attempt: &mut Attempt<'_>) -> Verdict {
        let slice = attempt.patience.bounded(self.options.slice);
        let time = self.options.short_reach().max(PACE).min(slice);
        let (start, time) = (Instant::now(), attempt.bounded(time));
        let key = attempt.place.key();
        let connections = &self.connections;
        let subscribed = match connections.listen(key, time).await {
            Ok(subscribed) => subscribed,
            Err(error) if cannot_listen(&error) => return self.without_notify(&error),
            Err(error) => return attempt.has_failed(error, start),
        };
        // It listens before it asks.
        let mut listener = connections.hub.listen(attempt.place);
        let question = attempt.question(Wait::Notify(&subscribed.channel));
        let asking = connections.send(from_ref(&question.command), question.time);
        let (answer, node) = match asking.await {
            Ok((answer, node)) => (Ok(answer), node),
            Err(error) => (Err(error), None),
        };
        if let Err(error) = &answer
            && is_notify_refused(error)
        {
            return self.without_notify(error);
        }
        match attempt.verdict(&question, answer) {
            Verdict::Queued if node == subscribed.node => {}
            // Another node has the slot by now, or another one answers while the slot moves.
            Verdict::Queued => return Verdict::AskAgain(PACE),
            verdict => return verdict,
        }
        let slice = attempt.patience.bounded(self.options.slice);
        // With LINGER the wait ends with the connection that asked, and no message says so.
        let slice = match self.options.linger {
            Some(_) => slice.min(PACE.max(self.options.grace.div_f64(2.0))),
            None => slice,
        };
        tokio::select! {
            Some(event) = listener.events.recv() => match event {
                // It is a hint: a node that was the primary hears what the primary publishes.
                Event::Granted(_) if node.is_some() => Verdict::AskAgain(Duration::ZERO),
                Event::Granted(fence) => Verdict::Granted(bound(fence, question.sent)),
                Event::AskAgain(pause) => Verdict::AskAgain(pause),
                Event::Cancelled => Verdict::Failed(Error::Cancelled),
                Event::Deadlock => Verdict::Failed(Error::Deadlock(
                    "the server refused the wait while it was going on".to_owned(),
                )),
            },
            () = connections.hub.ended(subscribed.number) => Verdict::AskAgain(Duration::ZERO),
            // The answer to the next request tells what was missed.
            () = sleep(slice) => Verdict::AskAgain(Duration::ZERO),
        }
    }

    fn without_notify(&self, error: &RedisError) -> Verdict {
        self.support
            .is_without_notify(&self.options, &error.to_string());
        Verdict::AskAgain(Duration::ZERO)
    }

    /// Waits for a slice on a connection that blocks. Asks at intervals while there are too many of
    /// them.
    async fn ask_blocking(&self, attempt: &mut Attempt<'_>, source: &Source) -> Verdict {
        let waiting = timeout(
            attempt.patience.bounded(POLL),
            self.connections.waiting.acquire(),
        );
        let Ok(Ok(_permit)) = waiting.await else {
            return self.ask_once(attempt, Wait::Keep).await;
        };
        let idle = locked(&self.connections.idle).pop();
        let own = idle.unwrap_or_else(|| Own::new(Origin::Server(source.clone()), None));
        let question = attempt.question(Wait::Block);
        // If this future is dropped here, the connection is closed, and the server ends the wait.
        let answer = own.send(from_ref(&question.command), question.time).await;
        let mut idle = locked(&self.connections.idle);
        match &answer {
            // The others are of the same server, and older.
            Err(error) if is_unanswered(error) || is_demoted(error) => idle.clear(),
            _ => idle.push(own),
        }
        attempt.verdict(&question, answer)
    }
}

/// Whether the user has no right to listen, or what is between has no such connections.
fn cannot_listen(error: &RedisError) -> bool {
    let is_old = error.kind() == redis::ErrorKind::RESP3NotSupported;
    is_old || is_refused(error) || is_unknown_command(error)
}

/// Whether the server or the user's rights have something against NOTIFY, which blocking does not
/// need.
fn is_notify_refused(error: &RedisError) -> bool {
    let is_of_notify = error
        .detail()
        .is_some_and(|detail| detail.to_ascii_uppercase().contains("NOTIFY"));
    is_refused(error) || has_code(error, &["CROSSSLOT"]) || is_of_notify
}
