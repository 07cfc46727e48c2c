//! A decision on several keys. They are looked at one after the other, and opening one that has
//! expired runs the callbacks of other modules, which may run commands of this one: what was seen
//! before may be true no more. So a decision counts only if nothing has run while it was made.

use super::host::Host;
use crate::command::Error;

/// How often a decision is made anew.
const MOST_LOOKS: u32 = 3;

/// Makes a decision by `decide`, which changes nothing. It comes last before what it decides on:
/// whoever carries it out makes no call before that may come back.
///
/// # Errors
/// That of the decision, or TRYAGAIN if something has run each time.
pub(super) fn undisturbed<H: Host, R>(
    host: &mut H,
    mut decide: impl FnMut(&mut H) -> Result<R, Error>,
) -> Result<R, Error> {
    for _ in 0..MOST_LOOKS {
        let before = host.shared().inbox.changes();
        let decided = decide(host);
        if host.shared().inbox.changes() == before {
            return decided;
        }
    }
    Err(Error::TryAgain)
}
