//! Waiting without an end.

/// Waits until somebody ends the process.
pub(crate) fn wait_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}
