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

/// Whether a hold goes on that was renewed, and whose token has asked for it once more.
///
/// Null is no loss: while a guard is on, the holder waits as others do. An answer that did not come
/// says nothing against it either.
pub(crate) fn goes_on(fence: u64, answer: RedisResult<Value>) -> bool {
    match answer.and_then(Value::extract_error) {
        Ok(Value::Int(answered)) => u64::try_from(answered) == Ok(fence),
        Ok(_) => true,
        Err(error) => !is_foreign(&error) && error.code() != Some("PARTIAL"),
    }
}
