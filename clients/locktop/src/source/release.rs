//! Ending by force: DEL of the lock's key, if the holder is still the one that was shown, or
//! LOCK.CANCEL of the waiter that was shown.

use redis::{cmd, Value};

use super::connection::{Answer, Refusal};
use super::look::Looker;
use super::reply;
use crate::model::lock::Place;
use crate::text::escape;

/// A hold, or a wait for a free lock, that was shown to the operator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Claim {
    pub(crate) place: Place,
    pub(crate) token: Vec<u8>,
    /// None for one that waits.
    pub(crate) fence: Option<u64>,
}

impl Looker {
    /// What came of it, in a sentence. The error is one of the connection, and then nobody knows.
    pub(super) fn end(&mut self, claim: &Claim) -> Result<String, String> {
        let [key, token] = [&claim.place.key, &claim.token].map(|bytes| escape(bytes));
        if let Err(refusal) = self.line.select(claim.place.db)? {
            return Ok(refusal.text);
        }
        let Some(fence) = claim.fence else {
            return Ok(match self.cancel(claim)? {
                Ok(0) => format!("{token} does not wait for {key} any more"),
                Ok(_) => format!("the wait of {token} for {key} was cancelled"),
                Err(refusal) => format!("nothing was cancelled: {}", refusal.text),
            });
        };
        Ok(match self.try_release(claim, fence)? {
            Ok(End::Deleted) => format!("{key} was released by force"),
            Ok(End::OtherHolder) => format!(
                "{key} was not released: {token} with fence {fence} does not hold it any more"
            ),
            Err(refusal) => format!("{key} was not released: {}", refusal.text),
        })
    }

    /// How many requests and places have ended.
    fn cancel(&mut self, claim: &Claim) -> Result<Result<u64, Refusal>, String> {
        let mut cancel = cmd("LOCK.CANCEL");
        cancel.arg(&claim.place.key).arg("TOKEN").arg(&claim.token);
        let answer = self.line.ask_one(cancel)?;
        Ok(answer.map(|ended| reply::number(&ended).unwrap_or_default()))
    }

    fn try_release(&mut self, hold: &Claim, fence: u64) -> Result<Result<End, Refusal>, String> {
        match self.holds(hold, fence)? {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(End::OtherHolder)),
            Err(refusal) => return Ok(Err(refusal)),
        }
        let key = &hold.place.key;
        let mut guarded = cmd("LOCK.EXEC");
        guarded.arg(key).arg(&hold.token).arg("DEL").arg(key);
        Ok(end_of(self.line.ask_one(guarded)?))
    }

    /// Whether the token holds the lock with the fence.
    fn holds(&mut self, hold: &Claim, fence: u64) -> Result<Result<bool, Refusal>, String> {
        let mut check = cmd("LOCK.CHECK");
        check.arg(&hold.place.key).arg(&hold.token);
        match self.line.ask_one(check)? {
            Ok(answer) => Ok(Ok(reply::number(&answer) == Some(fence))),
            // A module of 0.1 has no LOCK.CHECK.
            Err(refusal) if refusal.is_unknown_command() => {
                let detail = self.detail(&hold.place)?;
                let holders = detail.ok().flatten().map(|detail| detail.holders);
                let mut holders = holders.into_iter().flatten();
                Ok(Ok(holders.any(|other| {
                    other.token == hold.token && other.fence == fence
                })))
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    }
}

enum End {
    Deleted,
    OtherHolder,
}

fn end_of(answer: Answer) -> Result<End, Refusal> {
    match answer {
        Ok(Value::Int(1)) => Ok(End::Deleted),
        Ok(_) => Ok(End::OtherHolder),
        Err(refusal) if refusal.code == "NOTHELD" => Ok(End::OtherHolder),
        Err(refusal) => Err(refusal),
    }
}
