//! The async runtime of each process.

use std::{fs::File, io};

use tokio::runtime::{Builder, Runtime};

/// Number of descriptors that a runtime opens when it is built, and some more.
const RUNTIME_FDS: usize = 8;

/// Builds a runtime with time and I/O.
///
/// # Errors
/// The process or the machine has too few descriptors left. Where its own are refused, tokio would end the
/// process with a panic.
pub fn build(builder: &mut Builder) -> io::Result<Runtime> {
    let opened: io::Result<Vec<File>> = (0..RUNTIME_FDS).map(|_| File::open("/dev/null")).collect();
    drop(opened?);
    builder.enable_all().build()
}
