//! What procfs says of threads: to whom they belong, what they do with a signal.

use std::fs;

use crate::process::{Pid, Signal, stat};

/// What a process does with a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// What the system does by default.
    Default,
    /// A handler of its own.
    Caught,
    /// Nothing.
    Ignored,
}

/// Returns the threads of a process, by its own or any of its threads' ids. Empty when it is gone.
#[must_use]
pub fn threads(process: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid)).collect()
}

/// Returns the process that a thread belongs to.
#[must_use]
pub fn group_of(tid: Pid) -> Option<Pid> {
    field(&status(tid)?, "Tgid:")?.parse().ok().map(Pid)
}

/// Returns who traces a thread.
#[must_use]
pub fn tracer_of(tid: Pid) -> Option<Pid> {
    let tracer = field(&status(tid)?, "TracerPid:")?.parse().ok()?;
    (tracer != 0).then_some(Pid(tracer))
}

/// Returns what the process of a thread does with a signal; [`Disposition::Default`] when it is gone.
#[must_use]
pub fn disposition(tid: Pid, signal: Signal) -> Disposition {
    let status = status(tid).unwrap_or_default();
    let has = |key| {
        let mask = field(&status, key).and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
        (1..=64).contains(&signal.0) && mask & (1 << (signal.0 - 1)) != 0
    };
    if has("SigCgt:") {
        Disposition::Caught
    } else if has("SigIgn:") {
        Disposition::Ignored
    } else {
        Disposition::Default
    }
}

/// Returns the name of a thread; empty when it is gone.
#[must_use]
pub fn thread_name(tid: Pid) -> String {
    let name = fs::read(format!("/proc/{tid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(name.trim_ascii_end()).into_owned()
}

/// Returns whether nothing of a thread is left but, at most, its status.
#[must_use]
pub fn has_ended(tid: Pid) -> bool {
    stat(tid).is_none_or(|stat| matches!(stat.state, 'Z' | 'X'))
}

pub(super) fn status(tid: Pid) -> Option<String> {
    // The name of a thread may be any bytes.
    Some(String::from_utf8_lossy(&fs::read(format!("/proc/{tid}/status")).ok()?).into_owned())
}

pub(super) fn field<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}
