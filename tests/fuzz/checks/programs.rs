//! Executables: reading the unwind tables and symbols of any file terminates.

/// Checks unwinding and symbolizing.
pub fn program(bytes: &[u8]) {
    let stacks = heeler_crash::stacks::read_program(bytes).expect("a file in memory can be written");
    assert!(stacks.threads.iter().all(|thread| !thread.frames.is_empty()), "{stacks:?}");
    let _words = stacks.texts(64);
}
