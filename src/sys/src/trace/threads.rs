//! Facts about threads from procfs: their process, tracer and signal dispositions.

use std::fs;

use crate::process::{Pid, Signal, stat};

/// Disposition of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalDisposition {
    /// The default action of the system.
    Default,
    /// A signal handler.
    Caught,
    /// The signal is ignored.
    Ignored,
}

/// Returns the threads of a process, given the id of the process or of one of its threads. Empty if the
/// process no longer exists.
#[must_use]
pub fn threads(process: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid)).collect()
}

/// Returns the process that a thread belongs to.
#[must_use]
pub fn process_of_thread(tid: Pid) -> Option<Pid> {
    status_field(&read_status(tid)?, "Tgid:")?.parse().ok().map(Pid)
}

/// Returns whether a thread belongs to a process.
#[must_use]
pub fn is_thread_of(process: Pid, tid: Pid) -> bool {
    fs::symlink_metadata(format!("/proc/{process}/task/{tid}")).is_ok()
}

/// Returns the tracer of a thread.
#[must_use]
pub fn tracer_of(tid: Pid) -> Option<Pid> {
    let tracer = status_field(&read_status(tid)?, "TracerPid:")?.parse().ok()?;
    (tracer != 0).then_some(Pid(tracer))
}

/// Returns the disposition of a signal in a thread's process; [`SignalDisposition::Default`] if the thread no
/// longer exists.
#[must_use]
pub fn signal_disposition(tid: Pid, signal: Signal) -> SignalDisposition {
    let status = read_status(tid).unwrap_or_default();
    let has = |key| {
        let mask =
            status_field(&status, key).and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
        (1..=64).contains(&signal.0) && mask & (1 << (signal.0 - 1)) != 0
    };
    if has("SigCgt:") {
        SignalDisposition::Caught
    } else if has("SigIgn:") {
        SignalDisposition::Ignored
    } else {
        SignalDisposition::Default
    }
}

/// Returns the name of a thread; empty if the thread no longer exists.
#[must_use]
pub fn thread_name(tid: Pid) -> String {
    let name = fs::read(format!("/proc/{tid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(name.trim_ascii_end()).into_owned()
}

/// Returns whether a thread has exited: at most its exit status is left.
#[must_use]
pub fn has_ended(tid: Pid) -> bool {
    stat(tid).is_none_or(|stat| matches!(stat.state, 'Z' | 'X'))
}

pub(super) fn read_status(tid: Pid) -> Option<String> {
    // The name of a thread may contain any bytes.
    Some(String::from_utf8_lossy(&fs::read(format!("/proc/{tid}/status")).ok()?).into_owned())
}

pub(super) fn status_field<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}
