//! Memory: nothing is touched that is not ours, nothing is lost, nothing grows.

mod growth;
mod memcheck;
