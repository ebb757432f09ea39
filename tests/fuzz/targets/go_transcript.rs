//! `heeler_fuzz::go_transcript`, driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| heeler_fuzz::go_transcript(bytes));
