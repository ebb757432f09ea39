//! `heeler_fuzz::mutation_message`, driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| heeler_fuzz::mutation_message(bytes));
