//! Processes and users.

/// Returns the effective user of this process.
#[must_use]
pub fn effective_uid() -> u32 {
    // SAFETY: the call has no precondition and never fails.
    unsafe { libc::geteuid() }
}
