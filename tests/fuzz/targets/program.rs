//! `heeler_fuzz::program`, driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(init: {
    // Heeler catches panics of the unwinder and symbolizer, so they are not findings. Hangs, excessive memory
    // use and stack overflows are.
    std::panic::set_hook(Box::new(|_| {}));
}, |bytes: &[u8]| heeler_fuzz::program(bytes));
