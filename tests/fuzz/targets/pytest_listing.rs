//! `heeler_fuzz::pytest_listing`, driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| heeler_fuzz::pytest_listing(bytes));
