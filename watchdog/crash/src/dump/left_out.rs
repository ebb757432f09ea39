//! Replaces the writer in a build without the feature `minidump`.

use super::request::{DumpError, DumpFile, DumpPlan, DumpTarget};

/// Returns the error that this build writes no dumps. Does not touch the process.
///
/// # Errors
///
/// Always.
pub fn write(subject: &DumpTarget, _plan: &DumpPlan) -> Result<DumpFile, DumpError> {
    Err(DumpError::LeftOut { pid: subject.pid })
}
