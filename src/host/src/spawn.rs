//! The one way to start a process: own group, dies with its starter, inherits nothing but its three streams.
//!
//! The child is made as `posix_spawn` makes it: it borrows this process's memory on a stack of its own while the
//! calling thread stands still, until it executes the program or gives up. So the cost does not grow with this
//! process's memory, and a failure is told by plain stores.

use std::{
    ffi::{CString, OsString, c_char, c_int, c_void},
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicI32, Ordering::Relaxed},
};

use crate::{
    check,
    process::{self, Pid, RawExit, Signal},
};

/// Enough for the handful of system calls between clone and exec.
const CHILD_STACK_BYTES: usize = 64 << 10;

/// Where one of the three standard streams of a child leads.
#[derive(Debug)]
pub enum Stream {
    /// `/dev/null`.
    Null,
    /// Where this process's own leads.
    Inherit,
    /// A descriptor, which the child gets and this process gives away.
    Fd(OwnedFd),
}

/// A process to be started.
#[derive(Debug)]
pub struct Spawn {
    /// Path of the program; no search in `PATH`. A relative one is taken from the child's working directory.
    pub program: PathBuf,
    /// Arguments without the program's own name.
    pub args: Vec<OsString>,
    /// The whole environment; `None` hands on this process's own.
    pub env: Option<Vec<(OsString, OsString)>>,
    /// Working directory; `None` is this process's own.
    pub cwd: Option<PathBuf>,
    /// Descriptor 0.
    pub stdin: Stream,
    /// Descriptor 1.
    pub stdout: Stream,
    /// Descriptor 2.
    pub stderr: Stream,
}

impl Spawn {
    /// Returns a start of `program` without arguments and input, in the environment and with the outputs of this process.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: None,
            cwd: None,
            stdin: Stream::Null,
            stdout: Stream::Inherit,
            stderr: Stream::Inherit,
        }
    }
}

/// Why a process could not be started. Nothing is left of it.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// A string with a zero byte, which no program can be given.
    #[error("hand a string with a zero byte to {}: {text:?}", program.display())]
    ZeroByte {
        /// Which program.
        program: PathBuf,
        /// The string, made printable.
        text: String,
    },
    /// The null device is missing or closed to us.
    #[error("open /dev/null")]
    NullDevice {
        /// The system's answer.
        source: io::Error,
    },
    /// The system gave no process.
    #[error("create a process for {}", program.display())]
    Create {
        /// Which program.
        program: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A step between the birth of the process and its program.
    #[error("{step} of a process for {}", program.display())]
    Prepare {
        /// Such as `set the process group`.
        step: &'static str,
        /// Which program.
        program: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The working directory cannot be entered.
    #[error("enter the directory {} to start {}", cwd.display(), program.display())]
    Directory {
        /// Which directory.
        cwd: PathBuf,
        /// Which program.
        program: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The program cannot be executed.
    #[error("execute {}", program.display())]
    Execute {
        /// Which program.
        program: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

/// A process that was started here. Dropping it neither ends nor reaps the process.
#[derive(Debug)]
pub struct Child {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
    pub(crate) exit: Option<RawExit>,
}

impl Child {
    /// Returns its id, which is also its process group.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns a descriptor that becomes readable when the process has ended.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Sends a signal to the process alone. It never reaches a later process of the same number.
    ///
    /// # Errors
    /// The process is reaped (`ESRCH`).
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        process::pidfd_signal(&self.pidfd, signal)
    }

    /// Reaps the process if it has ended; again and again tells the same.
    ///
    /// # Errors
    /// Someone else has reaped it ([`process::reap_any`]).
    pub fn try_wait(&mut self) -> io::Result<Option<RawExit>> {
        if self.exit.is_none() {
            self.exit = process::wait_for(self.pid, libc::WNOHANG)?;
        }
        Ok(self.exit)
    }

    /// Waits for the end of the process and reaps it.
    ///
    /// # Errors
    /// Someone else has reaped it ([`process::reap_any`]).
    pub fn wait(&mut self) -> io::Result<RawExit> {
        loop {
            if let Some(exit) = self.exit {
                return Ok(exit);
            }
            self.exit = process::wait_for(self.pid, 0)?;
        }
    }
}

/// Starts a process: in its own process group, killed when the calling thread ends, with nothing but its three streams
/// open, no signal blocked and none ignored.
///
/// # Errors
/// Says which step failed; the failure of executing the program itself included.
pub fn spawn(spawn: Spawn) -> Result<Child, SpawnError> {
    let prepared = Prepared::new(spawn)?;
    let plan = prepared.plan();
    let (pid, pidfd) = match clone_child(&plan) {
        Ok(born) => born,
        Err(source) => return Err(prepared.not_created(source)),
    };
    let errno = plan.errno.load(Relaxed);
    if errno == 0 {
        return Ok(Child { pid, pidfd, exit: None });
    }
    // It gave up and is a zombie. If a general reaper was faster, that is as good.
    let _exit = process::wait_for(pid, 0);
    Err(prepared.failed(plan.step.load(Relaxed), errno))
}

/// A start with all that the child needs laid out before it is born.
#[derive(Debug)]
pub(crate) struct Prepared {
    program: PathBuf,
    cwd: Option<PathBuf>,
    strings: Strings,
    streams: [Stream; 3],
    null: Option<OwnedFd>,
}

impl Prepared {
    pub(crate) fn new(spawn: Spawn) -> Result<Self, SpawnError> {
        let Spawn { program, args, env, cwd, stdin, stdout, stderr } = spawn;
        let strings = Strings::new(&program, args, env, cwd.as_deref())?;
        let streams = [stdin, stdout, stderr];
        let null = null_for(streams.each_ref())?;
        Ok(Self { program, cwd, strings, streams, null })
    }

    /// What the child reads: valid as long as `self` stays where it is.
    pub(crate) fn plan(&self) -> Plan {
        let streams = self.streams.each_ref().map(|stream| match stream {
            Stream::Null => self.null.as_ref().map_or(-1, AsRawFd::as_raw_fd),
            Stream::Inherit => -1,
            Stream::Fd(fd) => fd.as_raw_fd(),
        });
        Plan {
            program: self.strings.program.as_ptr(),
            argv: self.strings.argv.as_ptr(),
            envp: self.strings.envp.as_ptr(),
            cwd: self.strings.cwd.as_ref().map_or(std::ptr::null(), |cwd| cwd.as_ptr()),
            streams,
            parent: Pid::own().0,
            gate: [-1; 2],
            step: AtomicI32::new(Step::Start as i32),
            errno: AtomicI32::new(0),
        }
    }

    pub(crate) fn not_created(self, source: io::Error) -> SpawnError {
        SpawnError::Create { program: self.program, source }
    }

    /// Says what a child's last words mean.
    pub(crate) fn failed(self, step: i32, errno: i32) -> SpawnError {
        let Self { program, cwd, .. } = self;
        let source = io::Error::from_raw_os_error(errno);
        match Step::ALL.into_iter().find(|one| *one as i32 == step) {
            Some(Step::Execute) => SpawnError::Execute { program, source },
            Some(Step::Directory) => SpawnError::Directory {
                cwd: cwd.expect("only a given directory is entered"),
                program,
                source,
            },
            other => {
                SpawnError::Prepare { step: other.map_or("preparation", Step::description), program, source }
            }
        }
    }
}

fn null_for(streams: [&Stream; 3]) -> Result<Option<OwnedFd>, SpawnError> {
    if !streams.iter().any(|stream| matches!(stream, Stream::Null)) {
        return Ok(None);
    }
    let file = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    file.map(|file| Some(file.into())).map_err(|source| SpawnError::NullDevice { source })
}

/// What exec takes, laid out before the child is born, because the child may not allocate.
#[derive(Debug)]
struct Strings {
    program: CString,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    cwd: Option<CString>,
    /// What the pointers above point to; the heap blocks of the strings never move.
    _owned: Vec<CString>,
}

impl Strings {
    fn new(
        program: &Path,
        args: Vec<OsString>,
        env: Option<Vec<(OsString, OsString)>>,
        cwd: Option<&Path>,
    ) -> Result<Self, SpawnError> {
        let string = |bytes: Vec<u8>| {
            CString::new(bytes).map_err(|error| SpawnError::ZeroByte {
                program: program.to_owned(),
                text: String::from_utf8_lossy(&error.into_vec()).into_owned(),
            })
        };
        let env = env.unwrap_or_else(|| std::env::vars_os().collect());
        let (mut argv, mut envp) = (Vec::with_capacity(args.len() + 2), Vec::with_capacity(env.len() + 1));
        let mut owned = Vec::with_capacity(args.len() + env.len());
        let program_string = string(program.as_os_str().to_owned().into_vec())?;
        argv.push(program_string.as_ptr());
        for arg in args {
            let arg = string(arg.into_vec())?;
            argv.push(arg.as_ptr());
            owned.push(arg);
        }
        for (name, value) in env {
            let mut pair = name.into_vec();
            pair.push(b'=');
            pair.extend_from_slice(&value.into_vec());
            let pair = string(pair)?;
            envp.push(pair.as_ptr());
            owned.push(pair);
        }
        argv.push(std::ptr::null());
        envp.push(std::ptr::null());
        let cwd = cwd.map(|cwd| string(cwd.as_os_str().to_owned().into_vec())).transpose()?;
        Ok(Self { program: program_string, argv, envp, cwd, _owned: owned })
    }
}

/// The steps of a child, as its last words name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
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
    const ALL: [Self; 8] = [
        Self::Start,
        Self::Group,
        Self::Orphan,
        Self::Streams,
        Self::Signals,
        Self::Gate,
        Self::Directory,
        Self::Execute,
    ];

    fn description(self) -> &'static str {
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

/// What the child reads, and where it leaves its last words. Lives on the parent's stack, which stands still.
pub(crate) struct Plan {
    program: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    /// Null: stay.
    cwd: *const c_char,
    /// -1: inherit.
    streams: [RawFd; 3],
    parent: libc::pid_t,
    /// A pipe, reading and writing end: the child goes on when it has read a byte. -1: it goes on at once.
    pub(crate) gate: [RawFd; 2],
    pub(crate) step: AtomicI32,
    /// 0: the program runs.
    pub(crate) errno: AtomicI32,
}

fn clone_child(plan: &Plan) -> io::Result<(Pid, OwnedFd)> {
    let mut stack = vec![MaybeUninit::<u128>::uninit(); CHILD_STACK_BYTES / size_of::<u128>()];
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let mut pidfd: c_int = -1;
    // The child shares our handlers' memory: none of them may run in it, so all signals wait until it is over.
    let old_mask = swap_mask(&full_mask());
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    let argument = std::ptr::from_ref(plan).cast_mut().cast::<c_void>();
    // SAFETY: the stack is large enough, aligned and lives until the call returns, which is (CLONE_VFORK) after the
    // child has left our memory; so do the plan and what it points to. `child` keeps the rules stated there.
    let pid = unsafe { libc::clone(child, top, flags, argument, &raw mut pidfd) };
    let outcome = check(pid);
    swap_mask(&old_mask);
    let pid = outcome?;
    // SAFETY: the kernel has put a new descriptor there, since the clone went well.
    Ok((Pid(pid), unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

pub(crate) fn full_mask() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigfillset initialises the set that it is given.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    // SAFETY: initialised by the call above.
    unsafe { set.assume_init() }
}

pub(crate) fn swap_mask(new: &libc::sigset_t) -> libc::sigset_t {
    let mut old = MaybeUninit::uninit();
    // SAFETY: both pointers are valid, and SIG_SETMASK is a known way, so the call cannot fail and fills `old`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, new, old.as_mut_ptr()) };
    // SAFETY: initialised by the call above.
    unsafe { old.assume_init() }
}

/// The child's whole life before its program. It runs in the parent's memory: system calls only; no allocation, no
/// lock, no formatting, no panic, and no return.
extern "C" fn child(plan: *mut c_void) -> c_int {
    // SAFETY: the parent gave a pointer to its plan and stands still as long as we live.
    let plan = unsafe { &*plan.cast::<Plan>() };
    become_program(plan);
    // SAFETY: _exit runs nothing of the parent's.
    unsafe { libc::_exit(127) }
}

/// Executes the program, or leaves the reason why not in the plan. Same rules as [`child`].
pub(crate) fn become_program(plan: &Plan) {
    if prepare(plan).is_some() {
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
    begin(Step::Signals);
    reset_signals();
    begin(Step::Gate);
    pass_gate(plan.gate)?;
    if !plan.cwd.is_null() {
        begin(Step::Directory);
        // SAFETY: a zero-terminated string in the parent's memory.
        ok(unsafe { libc::chdir(plan.cwd) })?;
    }
    Some(())
}

/// Waits for the one byte that lets the program begin. Same rules as [`child`].
fn pass_gate(gate: [RawFd; 2]) -> Option<()> {
    let [reader, writer] = gate;
    if reader == -1 {
        return Some(());
    }
    // The end must come if the parent lets go of its own copy.
    // SAFETY: close takes an integer; the table of descriptors is the child's own.
    unsafe { libc::close(writer) };
    let mut byte = 0_u8;
    loop {
        // SAFETY: one byte may be written to the local.
        match unsafe { libc::read(reader, (&raw mut byte).cast(), 1) } {
            1 => return Some(()),
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
    // Kernels before 5.11 refuse; there all that we open ourselves is close-on-exec anyway.
    // SAFETY: close_range takes three integers.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    Some(())
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
