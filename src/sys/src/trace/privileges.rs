//! Detects programs that lose privileges when traced. The kernel ignores set-user-id bits and file
//! capabilities of a traced program, unless its tracer may trace all processes (`CAP_SYS_PTRACE`).

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use super::threads::{read_status, status_field};
use crate::process::{Pid, effective_uid};

/// `CAP_SYS_PTRACE` as a bit of a capability set.
const CAP_SYS_PTRACE_BIT: u64 = 1 << 19;

/// Returns whether a program would have fewer privileges if this process traced it.
#[must_use]
pub fn loses_privileges_when_traced(program: &Path) -> bool {
    if !has_other_user(program) && !has_capabilities(program) {
        return false;
    }
    let status = read_status(Pid::own()).unwrap_or_default();
    let effective =
        status_field(&status, "CapEff:").and_then(|set| u64::from_str_radix(set, 16).ok()).unwrap_or(0);
    // With `no_new_privs`, the program gains no privileges, so it cannot lose any.
    effective & CAP_SYS_PTRACE_BIT == 0 && status_field(&status, "NoNewPrivs:") != Some("1")
}

fn has_other_user(program: &Path) -> bool {
    fs::metadata(program).is_ok_and(|file| {
        let is_set = |bit: libc::mode_t| file.mode() & bit != 0;
        (is_set(libc::S_ISUID) && file.uid() != effective_uid())
            || (is_set(libc::S_ISGID) && is_set(libc::S_IXGRP))
    })
}

fn has_capabilities(program: &Path) -> bool {
    rustix::fs::getxattr_query(program, c"security.capability").is_ok_and(|size| size > 0)
}
