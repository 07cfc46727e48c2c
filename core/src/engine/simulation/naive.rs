//! The rules of limits said naively, for the oracle.

use crate::lock::Mode;

/// The absent places ahead whose turn has come.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    /// Each of these counts as a holder.
    holders: Vec<Mode>,
    /// The tokens of these are holders already, and keep out those whom they will not tolerate.
    upgrades: Vec<Mode>,
}

impl Reserved {
    pub(crate) fn add(&mut self, mode: Mode, is_upgrade: bool) {
        match is_upgrade {
            true => self.upgrades.push(mode),
            false => self.holders.push(mode),
        }
    }
}

/// Whether a token with this hold can have one of another mode beside the others.
pub(crate) fn admits(own: Option<Mode>, others: &[Mode], reserved: &Reserved, mode: Mode) -> bool {
    let tolerates = |mode: &Mode, n: usize| n <= mode.tolerates() as usize;
    if let Some(own) = own {
        return mode.tolerates() >= own.tolerates() || tolerates(&mode, others.len() + 1);
    }
    let n = others.len() + reserved.holders.len() + 1;
    let held = others.iter().chain(&reserved.holders);
    let mut all = held.chain(&reserved.upgrades).chain([&mode]);
    all.all(|mode| tolerates(mode, n))
}

/// Whether some of the modes tolerate fewer holders than the hold that a token has.
pub(crate) fn any_narrower(own: Mode, mut modes: impl Iterator<Item = Mode>) -> bool {
    modes.any(|mode| mode.tolerates() < own.tolerates())
}
