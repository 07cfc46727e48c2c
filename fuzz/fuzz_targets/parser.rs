#![no_main]

#[path = "../properties/parser.rs"]
mod parser;

libfuzzer_sys::fuzz_target!(|data: &[u8]| parser::run(data));
