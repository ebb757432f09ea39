//! `heeler_fuzz::guarded_source`, driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| heeler_fuzz::guarded_source(bytes));
