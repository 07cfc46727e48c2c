//! A worker of an asynchronous program.
fn main() {}
