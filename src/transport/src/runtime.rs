//! Async runtime of each process.

use std::{fs::File, io};

use tokio::runtime::{Builder, Runtime};

/// Number of descriptors that building a runtime opens, plus a margin.
const RUNTIME_FDS: usize = 8;

/// Builds a runtime with time and I/O.
///
/// # Errors
/// The process or the machine has too few descriptors left. Tokio itself would panic in that case.
pub fn build(builder: &mut Builder) -> io::Result<Runtime> {
    let opened: io::Result<Vec<File>> = (0..RUNTIME_FDS).map(|_| File::open("/dev/null")).collect();
    drop(opened?);
    builder.enable_all().build()
}
