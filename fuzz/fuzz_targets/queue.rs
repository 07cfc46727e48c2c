#![no_main]

#[path = "../targets/queue.rs"]
mod queue;

libfuzzer_sys::fuzz_target!(|data: &[u8]| queue::run(data));
