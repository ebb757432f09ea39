//! `heeler_fuzz::mtp_listing`, driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| heeler_fuzz::mtp_listing(bytes));
