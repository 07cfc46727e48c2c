#![no_main]

#[path = "../properties/queue.rs"]
mod queue;

libfuzzer_sys::fuzz_target!(|data: &[u8]| queue::run(data));
