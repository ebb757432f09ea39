//! `heeler_fuzz::judge_report`, driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| heeler_fuzz::judge_report(bytes));
