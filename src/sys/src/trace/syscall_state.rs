//! The kernel's data about a thread: run time, waiting time, sleeps, current system call. The caller
//! interprets them.

use std::fs;

use super::arch::OLD_WAITING_SYSCALLS;
use crate::process::{Pid, stat};

/// Microseconds per clock tick. The kernel reports process times in hundredths of a second.
const TICK_US: u64 = 10_000;

/// One sample of a thread's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyscallState {
    /// Scheduler state, see [`crate::process::ProcessStat`].
    pub state: char,
    /// Run time in nanoseconds.
    pub run_ns: u64,
    /// Time spent runnable but not running, in nanoseconds.
    pub waiting_ns: u64,
    /// Voluntary context switches: how often the thread went to sleep by itself.
    pub voluntary_switches: u64,
    /// Current system call: its name if it is known to wait, otherwise its number.
    pub syscall: Option<String>,
}

/// Samples a thread's state; `None` if the thread no longer exists.
#[must_use]
pub fn read_syscall_state(tid: Pid) -> Option<SyscallState> {
    let state = stat(tid)?.state;
    // The path needs `task/`; otherwise the kernel reports the first thread of the process.
    let times = fs::read_to_string(format!("/proc/{tid}/task/{tid}/schedstat")).unwrap_or_default();
    let mut times = times.split_ascii_whitespace().map(|number| number.parse().unwrap_or(0));
    let status = fs::read(format!("/proc/{tid}/task/{tid}/status")).unwrap_or_default();
    let sleeps = String::from_utf8_lossy(&status)
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok())
        .unwrap_or(0);
    let call = fs::read_to_string(format!("/proc/{tid}/task/{tid}/syscall")).unwrap_or_default();
    Some(SyscallState {
        state,
        run_ns: times.next().unwrap_or(0),
        waiting_ns: times.next().unwrap_or(0),
        voluntary_switches: sleeps,
        syscall: call
            .split_ascii_whitespace()
            .next()
            .and_then(|number| number.parse().ok())
            .and_then(syscall_name),
    })
}

/// Returns the CPU time of a process, including its ended threads, in microseconds.
#[must_use]
pub fn cpu_us(process: Pid) -> u64 {
    let text = fs::read(format!("/proc/{process}/stat")).unwrap_or_default();
    let rest = text.rsplit(|byte| *byte == b')').next().unwrap_or_default();
    let fields = String::from_utf8_lossy(rest);
    // The state is field 3 of the line, and the first here. User and system time are fields 14 and 15.
    fields
        .split_ascii_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum::<u64>()
        * TICK_US
}

/// Returns the name of a system call. -1 means that the thread is in the kernel without a system call.
fn syscall_name(number: libc::c_long) -> Option<String> {
    if number < 0 {
        return None;
    }
    let known = WAITING_SYSCALLS.iter().chain(OLD_WAITING_SYSCALLS).find(|(known, _)| *known == number);
    Some(known.map_or_else(|| format!("system call {number}"), |(_, name)| (*name).to_owned()))
}

/// System calls that wait, on all architectures.
const WAITING_SYSCALLS: [(libc::c_long, &str); 30] = [
    (libc::SYS_futex, "futex"),
    (libc::SYS_read, "read"),
    (libc::SYS_readv, "read"),
    (libc::SYS_pread64, "read"),
    (libc::SYS_write, "write"),
    (libc::SYS_writev, "write"),
    (libc::SYS_pwrite64, "write"),
    (libc::SYS_ppoll, "poll"),
    (libc::SYS_pselect6, "select"),
    (libc::SYS_epoll_pwait, "epoll_wait"),
    (libc::SYS_accept, "accept"),
    (libc::SYS_accept4, "accept"),
    (libc::SYS_connect, "connect"),
    (libc::SYS_recvfrom, "recv"),
    (libc::SYS_recvmsg, "recv"),
    (libc::SYS_sendto, "send"),
    (libc::SYS_sendmsg, "send"),
    (libc::SYS_wait4, "wait for a child"),
    (libc::SYS_waitid, "wait for a child"),
    (libc::SYS_nanosleep, "sleep"),
    (libc::SYS_clock_nanosleep, "sleep"),
    (libc::SYS_rt_sigsuspend, "wait for a signal"),
    (libc::SYS_rt_sigtimedwait, "wait for a signal"),
    (libc::SYS_flock, "lock a file"),
    (libc::SYS_fcntl, "lock a file"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_openat, "open"),
    (libc::SYS_msgrcv, "message queue"),
    (libc::SYS_semop, "semaphore"),
    (libc::SYS_restart_syscall, "sleep"),
];
