//! Code that runs in a child between clone and exec: system calls only; no allocation, no lock, no
//! formatting, no panic.

use std::{
    ffi::{c_char, c_int, c_void},
    io,
    mem::MaybeUninit,
    os::fd::RawFd,
    sync::atomic::{AtomicI32, Ordering::Relaxed},
};

use crate::process::exit_immediately;

/// The steps of a child, as its failure report names them.
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
            Self::ParentDeath => "tie the life to its parent's",
            Self::Streams => "set the standard streams",
            Self::Signals => "reset the signals",
            Self::Gate => "wait for the permission to begin",
            Self::Directory => "enter the directory",
        }
    }
}

/// Gate byte: the child continues.
pub(crate) const GATE_CONTINUE: u8 = 1;
/// Gate byte: the child continues, and stops itself as its last step before its program.
pub(crate) const GATE_CONTINUE_STOPPED: u8 = 2;

/// Input of the child, and where it writes its failure report. Lives on the stack of the parent, which is
/// suspended.
pub(crate) struct SpawnPlan {
    pub(super) program: *const c_char,
    pub(super) argv: *const *const c_char,
    pub(super) envp: *const *const c_char,
    /// Null: keep the current directory.
    pub(super) cwd: *const c_char,
    /// -1: inherit.
    pub(super) streams: [RawFd; 3],
    pub(super) parent: libc::pid_t,
    /// A pipe, reading and writing end: the child continues when it has read a byte. -1: it continues
    /// immediately.
    pub(crate) gate: [RawFd; 2],
    pub(crate) step: AtomicI32,
    /// 0: the program runs.
    pub(crate) errno: AtomicI32,
}

/// Runs the child until its program is executed. It runs in the parent's memory: system calls only; no
/// allocation, no lock, no formatting, no panic, and no return.
pub(super) extern "C" fn run_child(plan: *mut c_void) -> c_int {
    // SAFETY: the parent passed a pointer to its plan and is suspended while the child shares its memory.
    let plan = unsafe { &*plan.cast::<SpawnPlan>() };
    prepare_and_exec(plan);
    exit_immediately(127)
}

/// Executes the program, or stores the reason of the failure in the plan. Same rules as [`run_child`].
pub(crate) fn prepare_and_exec(plan: &SpawnPlan) {
    execute(plan, prepare(plan));
}

/// Executes the program in a process that other code has created: its group, its parent and its open
/// descriptors stay as they are.
pub(super) fn exec_in_place(plan: &SpawnPlan) {
    execute(plan, prepare_in_place(plan));
}

/// Executes the program after its preparation. Same rules as [`run_child`].
fn execute(plan: &SpawnPlan, is_ready: Option<()>) {
    if is_ready.is_some() {
        plan.step.store(SpawnStep::Execute as i32, Relaxed);
        // SAFETY: program, argv and envp are zero-terminated and live in the parent's memory.
        unsafe { libc::execve(plan.program, plan.argv, plan.envp) };
    }
    let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    plan.errno.store(if errno == 0 { libc::EINVAL } else { errno }, Relaxed);
}

/// Prepares the child. `None`: the system call of the step that is stored in the plan failed, and errno has
/// the reason. Same rules as [`run_child`].
fn prepare(plan: &SpawnPlan) -> Option<()> {
    let begin = |step: SpawnStep| plan.step.store(step as i32, Relaxed);
    begin(SpawnStep::Group);
    // SAFETY: setpgid touches no memory.
    ok(unsafe { libc::setpgid(0, 0) })?;
    begin(SpawnStep::ParentDeath);
    // SAFETY: this option takes one integer.
    ok(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0) })?;
    // A parent that exited before the line above raised no signal.
    // SAFETY: getppid has no preconditions.
    if unsafe { libc::getppid() } != plan.parent {
        exit_immediately(127)
    }
    begin(SpawnStep::Streams);
    set_streams(plan.streams)?;
    set_cloexec_on_others();
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

/// Prepares the process as [`prepare`] does, for [`super::exec`].
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
    // SAFETY: a zero-terminated string in the parent's memory.
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

/// Waits for the one byte that lets the program start, and returns it. Same rules as [`run_child`].
fn wait_at_gate(gate: [RawFd; 2]) -> Option<u8> {
    let [reader, writer] = gate;
    if reader == -1 {
        return Some(GATE_CONTINUE);
    }
    // The read must see the end of file when the parent closes its own copy.
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
fn set_streams(mut streams: [RawFd; 3]) -> Option<()> {
    // A source below 3 could be overwritten before it is duplicated.
    for source in &mut streams {
        if (0..3).contains(source) {
            // SAFETY: fcntl with an integer argument.
            *source = ok(unsafe { libc::fcntl(*source, libc::F_DUPFD, 3) })?;
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
fn set_cloexec_on_others() {
    // Kernels before 5.11 refuse; there all descriptors that we open ourselves are close-on-exec anyway.
    // SAFETY: close_range takes three integers.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Resets all signals to their default action, and unblocks them. Same rules as [`run_child`].
fn reset_signals() {
    // The kernel's `struct sigaction` is 32 bytes; all zero means the default action, no flags, an empty
    // mask.
    let default = [0_u64; 8];
    let set_bytes = size_of::<u64>();
    for signal in 1..=64 {
        // The system call is used directly, because the C library refuses to change its own two signals,
        // which may have been inherited as ignored. KILL and STOP are refused by the kernel, which is right.
        // SAFETY: the kernel reads `default`; the table of actions is the child's own.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), 0_usize, set_bytes) };
    }
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set that it is given.
    unsafe { libc::sigemptyset(none.as_mut_ptr()) };
    // SAFETY: the set is initialised; the old mask is not requested.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut()) };
}
