//! `heeler_fuzz::program`, driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(init: {
    // The product catches panics of the unwinder and the symbolizer, so they are not findings. Findings are
    // hangs, memory use and stack overflows.
    std::panic::set_hook(Box::new(|_| {}));
}, |bytes: &[u8]| heeler_fuzz::program(bytes));
