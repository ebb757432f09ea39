//! Processes as seen from outside: children, roles, states, memory and signals.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use heeler_sys::process::{Pid, command_line, descendants};

use super::recorder::DEADLINE;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessRole {
    Watchdog,
    Worker,
    ForkServer,
    Guard,
}

/// Returns the processes below a coordinator that have this role.
pub(crate) fn processes_of_role(coordinator: u32, role: ProcessRole) -> Vec<u32> {
    let below = descendants(Pid(i32::try_from(coordinator).unwrap()));
    let is_role = |pid: &Pid| match role {
        ProcessRole::Watchdog => has_word(*pid, "__watchdog"),
        ProcessRole::Worker => has_word(*pid, "__worker"),
        // A guard is a fork of its fork server, with the same command line but a different process name. The
        // test process has the guard's name until it executes its program.
        ProcessRole::ForkServer => is_named(*pid, "heeler-forksrv"),
        ProcessRole::Guard => {
            let parent = heeler_sys::process::stat(*pid).map(|stat| stat.parent);
            is_named(*pid, "heeler-guard") && parent.is_some_and(|parent| !is_named(parent, "heeler-guard"))
        }
    };
    below.into_iter().filter(is_role).map(|pid| u32::try_from(pid.0).unwrap()).collect()
}

fn has_word(pid: Pid, word: &str) -> bool {
    command_line(pid).split_whitespace().any(|one| one == word)
}

fn is_named(pid: Pid, name: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name)
}

/// Returns the children of a process, including zombies.
pub(crate) fn children(parent: u32) -> Vec<Pid> {
    heeler_sys::process::children(Pid(i32::try_from(parent).unwrap()))
}

/// Sends a signal; `name` has no `SIG` prefix.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status().unwrap();
    assert!(status.success(), "signal {name} to {pid}");
}

/// Sends a signal to a process that may have exited; returns whether the process existed.
pub(crate) fn signal_if_there(pid: u32, name: &str) -> bool {
    Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).output().unwrap().status.success()
}

/// Returns the state letter of a process (`T`: stopped), or `None` if it is gone.
pub(crate) fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Returns a process's peak memory in KiB without the mapped pages of its program file, whose number depends
/// on the page cache. Pages that were mapped after the peak make the value too small.
pub(crate) fn peak_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let read = |name: &str| -> Option<u64> {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().strip_suffix(" kB")?.parse().ok()
    };
    Some(read("VmHWM:")?.saturating_sub(read("RssFile:")?))
}

/// Returns a process's peak memory in MiB; see [`peak_kib`].
pub(crate) fn peak_mib(pid: u32) -> u64 {
    peak_kib(pid).expect("a process has memory") / 1024
}

/// Polls until a condition holds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < until, "waited in vain until {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}
