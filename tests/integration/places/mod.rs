//! KEEP and NOTIFY: a request that waits is a place of its token, and the place may outlive whatever
//! listens for it. One test for each rule of the contract.

mod channels;
mod cluster;
mod endings;
mod figures;
pub mod fixture;
mod info;
mod keep;
mod rights;
mod transactions;
mod unheard;
