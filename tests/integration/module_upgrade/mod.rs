//! Upgrades, downgrades and removal of the module, as docs/UPGRADING.md describes them to
//! operators.

mod builds;
mod files;
mod golden;
mod holds;
mod later;
mod missing;
