//! `heeler_fuzz::foreign_mutants`, driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| heeler_fuzz::foreign_mutants(bytes));
