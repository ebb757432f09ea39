//! `heeler_fuzz::mcp_http`, driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| heeler_fuzz::mcp_http(bytes));
