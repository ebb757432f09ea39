//! `heeler_fuzz::program`, driven by libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(init: {
    // Panics of the unwinder and the symbolizer are caught, and no findings: those are hangs, memory and the
    // stack.
    std::panic::set_hook(Box::new(|_| {}));
}, |bytes: &[u8]| heeler_fuzz::program(bytes));
