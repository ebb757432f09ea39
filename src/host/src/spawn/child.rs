//! A child's life between its birth and its program: system calls only; no allocation, no lock, no formatting, no panic.

use std::{
    ffi::{c_char, c_int, c_void},
    io,
    mem::MaybeUninit,
    os::fd::RawFd,
    sync::atomic::{AtomicI32, Ordering::Relaxed},
};

/// The steps of a child, as its last words name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Start,
    Group,
    Orphan,
    Streams,
    Signals,
    Gate,
    Directory,
    Execute,
}

impl Step {
    pub(super) const ALL: [Self; 8] = [
        Self::Start,
        Self::Group,
        Self::Orphan,
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
            Self::Orphan => "tie the life to its parent's",
            Self::Streams => "set the standard streams",
            Self::Signals => "reset the signals",
            Self::Gate => "wait for the permission to begin",
            Self::Directory => "enter the directory",
        }
    }
}

/// What is written into a gate: the child goes on.
pub(crate) const GO_ON: u8 = 1;
/// The child goes on, and stops itself as its last step before its program.
pub(crate) const STAND_FIRST: u8 = 2;

/// What the child reads, and where it leaves its last words. Lives on the parent's stack, which stands still.
pub(crate) struct Plan {
    pub(super) program: *const c_char,
    pub(super) argv: *const *const c_char,
    pub(super) envp: *const *const c_char,
    /// Null: stay.
    pub(super) cwd: *const c_char,
    /// -1: inherit.
    pub(super) streams: [RawFd; 3],
    pub(super) parent: libc::pid_t,
    /// A pipe, reading and writing end: the child goes on when it has read a byte. -1: it goes on at once.
    pub(crate) gate: [RawFd; 2],
    pub(crate) step: AtomicI32,
    /// 0: the program runs.
    pub(crate) errno: AtomicI32,
}

/// The child's whole life before its program. It runs in the parent's memory: system calls only; no allocation, no
/// lock, no formatting, no panic, and no return.
pub(super) extern "C" fn child(plan: *mut c_void) -> c_int {
    // SAFETY: the parent gave a pointer to its plan and stands still as long as we live.
    let plan = unsafe { &*plan.cast::<Plan>() };
    become_program(plan);
    // SAFETY: _exit runs nothing of the parent's.
    unsafe { libc::_exit(127) }
}

/// Executes the program, or leaves the reason why not in the plan. Same rules as [`child`].
pub(crate) fn become_program(plan: &Plan) {
    execute(plan, prepare(plan));
}

/// The same in a process that somebody else has made: its group, its parent and what it holds open stay as they are.
pub(super) fn replace_program(plan: &Plan) {
    execute(plan, dress(plan));
}

/// Same rules as [`child`].
fn execute(plan: &Plan, is_ready: Option<()>) {
    if is_ready.is_some() {
        plan.step.store(Step::Execute as i32, Relaxed);
        // SAFETY: program, argv and envp are zero-terminated and live in the parent's memory.
        unsafe { libc::execve(plan.program, plan.argv, plan.envp) };
    }
    // SAFETY: the function has no preconditions.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: the location is valid for the thread whose memory we borrow.
    let errno = unsafe { *location };
    plan.errno.store(if errno == 0 { libc::EINVAL } else { errno }, Relaxed);
}

/// `None`: the call of the step that is noted in the plan failed, and errno says why. Same rules as [`child`].
fn prepare(plan: &Plan) -> Option<()> {
    let begin = |step: Step| plan.step.store(step as i32, Relaxed);
    begin(Step::Group);
    // SAFETY: setpgid touches no memory.
    ok(unsafe { libc::setpgid(0, 0) })?;
    begin(Step::Orphan);
    // SAFETY: this option takes one integer.
    ok(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0) })?;
    // A parent that died before the line above was noticed by nobody.
    // SAFETY: getppid has no preconditions.
    if unsafe { libc::getppid() } != plan.parent {
        // SAFETY: _exit runs nothing of the parent's.
        unsafe { libc::_exit(127) }
    }
    begin(Step::Streams);
    set_streams(plan.streams)?;
    close_others();
    begin(Step::Signals);
    reset_signals();
    begin(Step::Gate);
    let word = pass_gate(plan.gate)?;
    enter_directory(plan)?;
    if word == STAND_FIRST {
        stand();
    }
    Some(())
}

/// As [`prepare`], for [`replace_program`].
fn dress(plan: &Plan) -> Option<()> {
    plan.step.store(Step::Streams as i32, Relaxed);
    set_streams(plan.streams)?;
    plan.step.store(Step::Signals as i32, Relaxed);
    reset_signals();
    enter_directory(plan)
}

/// Same rules as [`child`].
fn enter_directory(plan: &Plan) -> Option<()> {
    if plan.cwd.is_null() {
        return Some(());
    }
    plan.step.store(Step::Directory as i32, Relaxed);
    // SAFETY: a zero-terminated string in the parent's memory.
    ok(unsafe { libc::chdir(plan.cwd) }).map(|_| ())
}

/// Stops this process until somebody continues it. Same rules as [`child`].
fn stand() {
    let mut cont = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set that it is given.
    unsafe { libc::sigemptyset(cont.as_mut_ptr()) };
    // SAFETY: the set was initialised by the call above.
    unsafe { libc::sigaddset(cont.as_mut_ptr(), libc::SIGCONT) };
    // SAFETY: the set is initialised; the old mask is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_BLOCK, cont.as_ptr(), std::ptr::null_mut()) };
    // SAFETY: getpid has no preconditions.
    let own = unsafe { libc::getpid() };
    // SAFETY: kill touches no memory.
    unsafe { libc::kill(own, libc::SIGSTOP) };
}

/// Waits for the one byte that lets the program begin, and returns it. Same rules as [`child`].
fn pass_gate(gate: [RawFd; 2]) -> Option<u8> {
    let [reader, writer] = gate;
    if reader == -1 {
        return Some(GO_ON);
    }
    // The end must come if the parent lets go of its own copy.
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

/// Same rules as [`child`].
fn set_streams(mut streams: [RawFd; 3]) -> Option<()> {
    // A source below 3 could be overwritten before its turn.
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

/// Same rules as [`child`].
fn close_others() {
    // Kernels before 5.11 refuse; there all that we open ourselves is close-on-exec anyway.
    // SAFETY: close_range takes three integers.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Same rules as [`child`].
fn reset_signals() {
    // The kernel's `struct sigaction` is 32 bytes; all zero means the default action, no flags, an empty mask.
    let default = [0_u64; 8];
    let set_bytes = size_of::<u64>();
    for signal in 1..=64 {
        // Asked of the kernel itself, because the C library refuses to touch its own two signals, which the starter
        // may have been given as ignored. KILL and STOP are refused by the kernel, which is right.
        // SAFETY: the kernel reads `default`; the table of actions is the child's own.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), 0_usize, set_bytes) };
    }
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set that it is given.
    unsafe { libc::sigemptyset(none.as_mut_ptr()) };
    // SAFETY: the set is initialised; the old mask is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut()) };
}
