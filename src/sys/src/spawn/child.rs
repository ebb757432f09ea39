//! Code that runs in a child between clone and exec. Only system calls are allowed: no allocation, lock,
//! formatting or panic.

use std::{
    ffi::{c_char, c_int, c_void},
    io,
    mem::MaybeUninit,
    os::fd::RawFd,
    sync::atomic::{AtomicI32, Ordering::Relaxed},
};

use crate::process::exit_immediately;

/// Steps of a child, as named in its failure report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpawnStep {
    Start,
    Group,
    ParentDeath,
    Streams,
    Signals,
    Gate,
    Directory,
    Execute,
}

impl SpawnStep {
    pub(super) const ALL: [Self; 8] = [
        Self::Start,
        Self::Group,
        Self::ParentDeath,
        Self::Streams,
        Self::Signals,
        Self::Gate,
        Self::Directory,
        Self::Execute,
    ];

    pub(super) fn description(self) -> &'static str {
        match self {
            Self::Start | Self::Execute => "start",
            Self::Group => "set the process group",
            Self::ParentDeath => "set the parent-death signal",
            Self::Streams => "set up the standard streams",
            Self::Signals => "reset the signals",
            Self::Gate => "receive the start signal",
            Self::Directory => "enter the directory",
        }
    }
}

/// Number of descriptors that a child can receive: the standard streams and the report channel.
pub(super) const STREAM_COUNT: usize = 4;

/// Gate byte: continue.
pub(crate) const GATE_CONTINUE: u8 = 1;
/// Gate byte: continue, then stop as the last step before executing the program.
pub(crate) const GATE_CONTINUE_STOPPED: u8 = 2;

/// Input of the child, and space for its failure report. On the stack of the parent, which is suspended.
pub(crate) struct SpawnPlan {
    pub(super) program: *const c_char,
    pub(super) argv: *const *const c_char,
    pub(super) envp: *const *const c_char,
    /// Null keeps the current directory.
    pub(super) cwd: *const c_char,
    /// Sources of descriptors 0, 1, 2 and 3; -1 inherits. Descriptor 3 is the report channel; without a
    /// source, it closes on exec.
    pub(super) streams: [RawFd; STREAM_COUNT],
    pub(super) parent: libc::pid_t,
    /// Read and write end of a pipe: the child continues after it has read a byte. -1: it continues
    /// immediately.
    pub(crate) gate: [RawFd; 2],
    pub(crate) step: AtomicI32,
    /// 0 if the program runs.
    pub(crate) errno: AtomicI32,
}

/// Runs the child until it executes its program. The child shares the parent's memory, so only system calls
/// are allowed: no allocation, lock, formatting, panic or return.
pub(super) extern "C" fn run_child(plan: *mut c_void) -> c_int {
    // SAFETY: the parent passed a pointer to its plan, and is suspended while the child shares its memory.
    let plan = unsafe { &*plan.cast::<SpawnPlan>() };
    prepare_and_exec(plan);
    exit_immediately(127)
}

/// Executes the program, or stores the failure in the plan. Same rules as [`run_child`].
pub(crate) fn prepare_and_exec(plan: &SpawnPlan) {
    execute(plan, prepare(plan));
}

/// Executes the program in a process created by other code. Its group, parent and open descriptors stay
/// unchanged.
pub(super) fn exec_in_place(plan: &SpawnPlan) {
    execute(plan, prepare_in_place(plan));
}

/// Executes the program after its preparation. Same rules as [`run_child`].
fn execute(plan: &SpawnPlan, is_ready: Option<()>) {
    if is_ready.is_some() {
        plan.step.store(SpawnStep::Execute as i32, Relaxed);
        // SAFETY: program, argv and envp are null-terminated and live in the parent's memory.
        unsafe { libc::execve(plan.program, plan.argv, plan.envp) };
    }
    let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    plan.errno.store(if errno == 0 { libc::EINVAL } else { errno }, Relaxed);
}

/// Prepares the child. `None` if the system call of the step stored in the plan failed, with the reason in
/// errno. Same rules as [`run_child`].
fn prepare(plan: &SpawnPlan) -> Option<()> {
    let begin = |step: SpawnStep| plan.step.store(step as i32, Relaxed);
    begin(SpawnStep::Group);
    // SAFETY: setpgid touches no memory.
    ok(unsafe { libc::setpgid(0, 0) })?;
    begin(SpawnStep::ParentDeath);
    // SAFETY: this option takes one integer.
    ok(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0) })?;
    // The kernel sent no signal if the parent exited before the line above.
    // SAFETY: getppid has no preconditions.
    if unsafe { libc::getppid() } != plan.parent {
        exit_immediately(127)
    }
    begin(SpawnStep::Streams);
    set_streams(plan.streams)?;
    set_cloexec_on_others(plan.streams);
    begin(SpawnStep::Signals);
    reset_signals();
    begin(SpawnStep::Gate);
    let word = wait_at_gate(plan.gate)?;
    enter_directory(plan)?;
    if word == GATE_CONTINUE_STOPPED {
        stop_self();
    }
    Some(())
}

/// Prepares the process like [`prepare`], for [`super::exec`].
fn prepare_in_place(plan: &SpawnPlan) -> Option<()> {
    plan.step.store(SpawnStep::Streams as i32, Relaxed);
    set_streams(plan.streams)?;
    plan.step.store(SpawnStep::Signals as i32, Relaxed);
    reset_signals();
    enter_directory(plan)
}

/// Enters the working directory. Same rules as [`run_child`].
fn enter_directory(plan: &SpawnPlan) -> Option<()> {
    if plan.cwd.is_null() {
        return Some(());
    }
    plan.step.store(SpawnStep::Directory as i32, Relaxed);
    // SAFETY: the string is null-terminated and lives in the parent's memory.
    ok(unsafe { libc::chdir(plan.cwd) }).map(|_| ())
}

/// Stops this process until another process continues it. Same rules as [`run_child`].
fn stop_self() {
    let mut cont = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set that it is given.
    unsafe { libc::sigemptyset(cont.as_mut_ptr()) };
    // SAFETY: the set was initialised by the call above.
    unsafe { libc::sigaddset(cont.as_mut_ptr(), libc::SIGCONT) };
    // SAFETY: the set is initialised; the old mask is not requested.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, cont.as_ptr(), std::ptr::null_mut()) };
    // SAFETY: getpid has no preconditions.
    let own = unsafe { libc::getpid() };
    // SAFETY: kill touches no memory.
    unsafe { libc::kill(own, libc::SIGSTOP) };
}

/// Waits for the byte that lets the program start, and returns it. Same rules as [`run_child`].
fn wait_at_gate(gate: [RawFd; 2]) -> Option<u8> {
    let [reader, writer] = gate;
    if reader == -1 {
        return Some(GATE_CONTINUE);
    }
    // The read can only see the end of file if no copy of the write end is open here.
    // SAFETY: close takes an integer; the table of descriptors is the child's own.
    unsafe { libc::close(writer) };
    let mut byte = 0_u8;
    loop {
        // SAFETY: one byte may be written to the local.
        match unsafe { libc::read(reader, (&raw mut byte).cast(), 1) } {
            1 => return Some(byte),
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return None,
        }
    }
}

fn ok(result: c_int) -> Option<c_int> {
    (result != -1).then_some(result)
}

/// Sets the standard streams. Same rules as [`run_child`].
fn set_streams(mut streams: [RawFd; STREAM_COUNT]) -> Option<()> {
    // A source that is also a target could be overwritten before it is duplicated.
    for source in &mut streams {
        if (0..STREAM_COUNT as RawFd).contains(source) {
            // SAFETY: fcntl with an integer argument.
            *source = ok(unsafe { libc::fcntl(*source, libc::F_DUPFD_CLOEXEC, STREAM_COUNT as c_int) })?;
        }
    }
    for (source, target) in streams.into_iter().zip(0..) {
        if source != -1 {
            // SAFETY: dup2 takes two integers; this table of descriptors is the child's own.
            ok(unsafe { libc::dup2(source, target) })?;
        }
    }
    Some(())
}

/// Marks all other descriptors as close-on-exec. Same rules as [`run_child`].
fn set_cloexec_on_others(streams: [RawFd; STREAM_COUNT]) {
    let [.., channel] = streams;
    let first: libc::c_uint = if channel == -1 { 3 } else { 4 };
    // Kernels before 5.11 reject this, but all descriptors that we open are close-on-exec anyway.
    // SAFETY: close_range takes three integers.
    unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Resets all signals to their default action and unblocks them. Same rules as [`run_child`].
fn reset_signals() {
    // The kernel's `struct sigaction` has 32 bytes. All zeros mean the default action, no flags and an empty
    // mask.
    let default = [0_u64; 8];
    let set_bytes = size_of::<u64>();
    for signal in 1..=64 {
        // Call the kernel directly: the C library refuses to change its own two signals, which may be
        // inherited as ignored. The kernel rejects changes of KILL and STOP, which is fine.
        // SAFETY: the kernel reads `default`; the table of actions is the child's own.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), 0_usize, set_bytes) };
    }
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set that it is given.
    unsafe { libc::sigemptyset(none.as_mut_ptr()) };
    // SAFETY: the set is initialised; the old mask is not requested.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut()) };
}
