//! Memory: no invalid access, no leak, no growth.

mod growth;
mod memcheck;
