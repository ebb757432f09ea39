//! `heeler_fuzz::go_listing`, driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| heeler_fuzz::go_listing(bytes));
