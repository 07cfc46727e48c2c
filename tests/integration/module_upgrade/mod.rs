//! What becomes of locks when the module is upgraded, downgraded or missing: docs/UPGRADING.md says
//! so to operators.

mod builds;
mod files;
mod golden;
mod holds;
mod later;
mod missing;
