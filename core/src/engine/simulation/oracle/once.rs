//! LOCK.ONCE: results in place of holds. The fourteen rules of the contract, as far as one server
//! shows them.

use super::*;

/// A result that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum NaiveResult {
    Value,
    Early,
    OtherType,
    Elsewhere,
}

impl NaivePlace {
    /// The newest request says which result answers the place.
    fn result(&self) -> Option<u8> {
        match self.requests.last() {
            Some(newest) => newest.result,
            None => self.kept_result,
        }
    }
}

impl Oracle {
    /// Whether the result of a request is its answer, or an error is.
    pub(super) fn is_answered(
        &mut self,
        client: Client,
        at: Place,
        what: Request,
        own: Option<NaiveHold>,
        scene: &Scene,
    ) -> bool {
        let (Request::Take { mode, token, .. }, Some(name)) = (what, self.asked) else {
            return false;
        };
        let now = scene.now_ms;
        let event = match self.results.get(&at.with(name)).copied() {
            None => return false,
            Some(NaiveResult::OtherType) => Event::WrongType,
            Some(NaiveResult::Elsewhere) => Event::TryAgain,
            Some(result) => {
                let may_have = self.can_have(at, token, mode, own, now);
                let is_partial = self
                    .place(at, token)
                    .is_some_and(|place| !place.several.is_empty());
                if !is_partial {
                    self.end_absent(at, token);
                }
                match result == NaiveResult::Early && may_have && !is_partial {
                    true => {
                        let id = self.take(at, token, mode, now + what.ttl().ms(), now);
                        self.bind(at, token, client, true);
                        self.learn(id);
                        Event::Early(id)
                    }
                    false => Event::Value(name),
                }
            }
        };
        self.events.push((client, event));
        true
    }

    /// LOCK.EXEC may write a result, and serves the lock then.
    pub(super) fn write_result(
        &mut self,
        at: Place,
        what: Request,
        own: Option<NaiveHold>,
        scene: &Scene,
    ) {
        if let (Request::Exec(_), Some(_), Some(name)) = (what, own, self.asked) {
            self.results.insert(at.with(name), NaiveResult::Value);
            self.serve(at, scene);
        }
    }

    /// All who wait for a result that is there get it, wherever they stand.
    pub(super) fn answer_all(&mut self, at: Place, scene: &Scene) {
        let is_answered = |place: &NaivePlace, results: &BTreeMap<Place, NaiveResult>| {
            let name = place.result().filter(|_| place.is_at(at))?;
            let result = *results.get(&at.with(name))?;
            (result != NaiveResult::OtherType).then_some((name, result))
        };
        while let Some((n, (name, result))) = {
            let mut places = self.places.iter().enumerate();
            places.find_map(|(n, place)| Some((n, is_answered(place, &self.results)?)))
        } {
            let place = self.places.remove(n);
            for request in &place.requests {
                let event = match result {
                    NaiveResult::Elsewhere => Event::TryAgain,
                    _ if request.result == Some(name) && request.is_channel => Event::Value(0),
                    _ if request.result == Some(name) => Event::Value(name),
                    _ => Event::Null,
                };
                self.tell(&place, *request, event, scene);
            }
        }
    }
}
