//! Ending a hold by force: DEL of the lock's key, if the holder is still the one that was shown.

use redis::{cmd, Value};

use super::connection::{Answer, Refusal};
use super::look::Looker;
use super::reply;
use crate::model::lock::Place;
use crate::text::escape;

/// A hold that was shown to the operator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hold {
    pub(crate) place: Place,
    pub(crate) token: Vec<u8>,
    pub(crate) fence: u64,
}

impl Looker {
    /// What came of it, in a sentence. The error is one of the connection, and then nobody knows.
    pub(super) fn release(&mut self, hold: &Hold) -> Result<String, String> {
        let key = escape(&hold.place.key);
        let said = match self.try_release(hold)? {
            Ok(End::Deleted) => format!("{key} was released by force"),
            Ok(End::OtherHolder) => {
                let token = escape(&hold.token);
                let fence = hold.fence;
                format!(
                    "{key} was not released: {token} with fence {fence} does not hold it any more"
                )
            }
            Err(refusal) => format!("{key} was not released: {}", refusal.text),
        };
        Ok(said)
    }

    fn try_release(&mut self, hold: &Hold) -> Result<Result<End, Refusal>, String> {
        if let Err(refusal) = self.line.select(hold.place.db)? {
            return Ok(Err(refusal));
        }
        match self.holds(hold)? {
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
    fn holds(&mut self, hold: &Hold) -> Result<Result<bool, Refusal>, String> {
        let mut check = cmd("LOCK.CHECK");
        check.arg(&hold.place.key).arg(&hold.token);
        match self.line.ask_one(check)? {
            Ok(fence) => Ok(Ok(reply::number(&fence) == Some(hold.fence))),
            // A module of 0.1 has no LOCK.CHECK.
            Err(refusal) if refusal.is_unknown_command() => {
                let detail = self.detail(&hold.place)?;
                let holders = detail.ok().flatten().map(|detail| detail.holders);
                let mut holders = holders.into_iter().flatten();
                Ok(Ok(holders.any(|other| {
                    other.token == hold.token && other.fence == hold.fence
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
