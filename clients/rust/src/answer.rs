//! What the server says to the owner of a hold.

use redis::{RedisError, RedisResult, Value};

use crate::error::{Error, is_foreign, may_pass};

/// Whether a command of an owner did what it says. `None`: the same command may be sent again.
pub(crate) enum OwnerAnswer {
    Done,
    NotHeld,
    MayPass(RedisError),
    Failed(Error),
}

/// Reads the answer to a release, a renewal or a check.
pub(crate) fn owner_answer(answer: RedisResult<Value>) -> OwnerAnswer {
    match answer.and_then(Value::extract_error) {
        Ok(Value::Int(0) | Value::Nil) => OwnerAnswer::NotHeld,
        Ok(_) => OwnerAnswer::Done,
        // Another type was written over the key, which ended the hold.
        Err(error) if is_foreign(&error) => OwnerAnswer::NotHeld,
        Err(error) if may_pass(&error) => OwnerAnswer::MayPass(error),
        Err(error) => OwnerAnswer::Failed(error.into()),
    }
}
