//! `heeler_fuzz::connect_client`, driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| heeler_fuzz::connect_client(bytes));
