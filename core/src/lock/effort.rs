//! How much the simulations play. `TEST_SHORT` is for the short form of the tests, which
//! `make test` runs; `make test-all` plays everything.

fn is_short() -> bool {
    std::env::var_os("TEST_SHORT").is_some()
}

/// The steps of each history, where all histories of an alphabet are played. Some four are needed
/// for anything to happen.
pub(crate) fn depth(depth: u32) -> u32 {
    match is_short() && depth > 4 {
        true => depth - 1,
        false => depth,
    }
}

/// How many random histories are played.
pub(crate) fn runs(runs: u64) -> u64 {
    match is_short() {
        true => runs.div_ceil(8),
        false => runs,
    }
}
