//! `heeler_fuzz::mcp_filter`, driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| heeler_fuzz::mcp_filter(bytes));
