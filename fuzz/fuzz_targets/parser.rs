#![no_main]

#[path = "../targets/parser.rs"]
mod parser;

libfuzzer_sys::fuzz_target!(|data: &[u8]| parser::run(data));
