//! The ptrace requests, one function each. All except `seize` and `interrupt` require a stopped thread. They
//! return `ESRCH` for a thread that has been killed meanwhile, which no caller can rule out.

use std::{io, os::fd::OwnedFd};

use nix::sys::ptrace;

use super::arch::{FloatingRegisters, GeneralRegisters};
use crate::{
    check,
    process::{self, Pid, Signal},
};

/// `NT_PRSTATUS`.
const GENERAL_REGISTER_SET: usize = 1;
/// `NT_PRFPREG`.
const FLOATING_REGISTER_SET: usize = 2;

/// Number of the system call that ends a process with all its threads.
pub const EXIT_OF_PROCESS: u64 = libc::SYS_exit_group.cast_unsigned();

/// Ptrace options: events that a traced thread reports in addition to its signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceOptions(ptrace::Options);

impl TraceOptions {
    /// No additional events; the thread survives its tracer.
    pub const VISIT: Self = Self(ptrace::Options::empty());
    /// New threads and executed programs; the thread is killed when its tracer exits.
    pub const PROCESS: Self = Self(
        ptrace::Options::PTRACE_O_TRACECLONE
            .union(ptrace::Options::PTRACE_O_TRACEEXEC)
            .union(ptrace::Options::PTRACE_O_EXITKILL),
    );
    /// Options of [`Self::PROCESS`], and new child processes are traced.
    pub const TREE: Self = Self(
        Self::PROCESS
            .0
            .union(ptrace::Options::PTRACE_O_TRACEFORK)
            .union(ptrace::Options::PTRACE_O_TRACEVFORK),
    );

    /// Returns whether new processes are traced.
    #[must_use]
    pub fn has_new_processes(self) -> bool {
        self.0.contains(ptrace::Options::PTRACE_O_TRACEFORK)
    }

    /// Adds exits of threads, reported while their memory still exists.
    #[must_use]
    pub const fn with_exits(self) -> Self {
        Self(self.0.union(ptrace::Options::PTRACE_O_TRACEEXIT))
    }

    /// Removes exits of threads.
    #[must_use]
    pub const fn without_exits(self) -> Self {
        Self(self.0.difference(ptrace::Options::PTRACE_O_TRACEEXIT))
    }
}

/// Information about the signal that stopped a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalInfo {
    pub signal: Signal,
    /// Positive if the kernel raised the signal because of the thread's own action. Otherwise, a program sent
    /// the signal.
    pub code: i32,
    /// Fault address, if the kernel raised the signal.
    pub address: Option<u64>,
}

/// Starts to trace a thread without stopping it.
///
/// # Errors
/// The kernel refused (`EPERM`: already traced, another user's thread, forbidden by the system), or the
/// thread does not exist (`ESRCH`).
pub fn seize(tid: Pid, options: TraceOptions) -> io::Result<()> {
    Ok(ptrace::seize(nix_pid(tid), options.0)?)
}

/// Changes the events that a stopped thread reports.
///
/// # Errors
/// The thread is not stopped, or no longer exists.
pub fn set_options(tid: Pid, options: TraceOptions) -> io::Result<()> {
    Ok(ptrace::setoptions(nix_pid(tid), options.0)?)
}

/// Continues a stopped thread with the signal that stopped it, another signal, or none.
///
/// # Errors
/// The thread is not stopped, or no longer exists.
pub fn cont(tid: Pid, signal: Option<Signal>) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, number(signal))
}

/// Leaves a thread in its group stop; [`super::wait_for`] reports when that stop ends.
///
/// # Errors
/// The thread is not in a group stop, or no longer exists.
pub fn listen(tid: Pid) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, tid, 0, 0)
}

/// Asks a running thread to stop; [`super::wait_for`] reports the stop.
///
/// # Errors
/// The thread is not traced by this thread, or no longer exists.
pub fn interrupt(tid: Pid) -> io::Result<()> {
    Ok(ptrace::interrupt(nix_pid(tid))?)
}

/// Stops tracing a stopped thread, which continues like with [`cont`].
///
/// # Errors
/// The thread is not stopped, or no longer exists.
pub fn detach(tid: Pid, signal: Option<Signal>) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, number(signal))
}

/// Returns the value of the event that stopped the thread: a new thread's id, or an exit status.
///
/// # Errors
/// The thread is not stopped, or no longer exists.
pub fn event_message(tid: Pid) -> io::Result<u64> {
    Ok(ptrace::getevent(nix_pid(tid))?.cast_unsigned())
}

/// Returns information about the signal that stopped the thread.
///
/// # Errors
/// The thread is not stopped at a signal, or no longer exists.
pub fn signal_info(tid: Pid) -> io::Result<SignalInfo> {
    let info = ptrace::getsiginfo(nix_pid(tid))?;
    // SAFETY: every layout of siginfo_t has integers here. The integers are only an address if the signal is
    // a fault.
    let address = unsafe { info.si_addr() }.addr() as u64;
    Ok(SignalInfo {
        signal: Signal(info.si_signo),
        code: info.si_code,
        // A kernel signal without a specific reason has no address: the CPU does not report the address of a
        // non-canonical access.
        address: (info.si_code > 0 && info.si_code != libc::SI_KERNEL).then_some(address),
    })
}

/// Returns the general-purpose registers of a stopped thread.
///
/// # Errors
/// The thread is not stopped, or no longer exists.
pub fn general_registers(tid: Pid) -> io::Result<GeneralRegisters> {
    // SAFETY: a plain C struct of integers that may be all zero.
    let mut registers: GeneralRegisters = unsafe { std::mem::zeroed() };
    let size = size_of_val(&registers);
    read_register_set(
        tid,
        GENERAL_REGISTER_SET,
        libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size },
    )?;
    Ok(registers)
}

/// Returns the floating-point registers of a stopped thread.
///
/// # Errors
/// The thread is not stopped, or no longer exists.
pub fn floating_registers(tid: Pid) -> io::Result<FloatingRegisters> {
    // SAFETY: a plain C struct of integers that may be all zero.
    let mut registers: FloatingRegisters = unsafe { std::mem::zeroed() };
    let size = size_of_val(&registers);
    read_register_set(
        tid,
        FLOATING_REGISTER_SET,
        libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size },
    )?;
    Ok(registers)
}

/// Reads one register set. `place` must be a live value of the set's type; the kernel writes at most its
/// length.
fn read_register_set(tid: Pid, set: usize, mut place: libc::iovec) -> io::Result<()> {
    request(libc::PTRACE_GETREGSET, tid, set, (&raw mut place).expose_provenance())
}

/// Sets the general-purpose registers of a stopped thread.
///
/// # Errors
/// The thread is not stopped, or no longer exists.
pub(super) fn set_general_registers(tid: Pid, mut registers: GeneralRegisters) -> io::Result<()> {
    let size = size_of_val(&registers);
    let mut place = libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size };
    request(libc::PTRACE_SETREGSET, tid, GENERAL_REGISTER_SET, (&raw mut place).expose_provenance())
}

/// Writes whole words to the memory of a stopped thread, including its instructions. A partial last word is
/// not written.
///
/// # Errors
/// The thread is not stopped, no longer exists, has no memory there, or its user may not read the program's
/// file.
pub(super) fn write_words(tid: Pid, address: u64, bytes: &[u8]) -> io::Result<()> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let mut place = usize::try_from(address).map_err(invalid)?;
    for word in bytes.chunks_exact(size_of::<usize>()) {
        let word = usize::from_ne_bytes(word.try_into().expect("a chunk of this size"));
        request(libc::PTRACE_POKEDATA, tid, place, word)?;
        place = place.wrapping_add(size_of::<usize>());
    }
    Ok(())
}

/// Adds a signal to a stopped thread's mask of blocked signals.
///
/// # Errors
/// The thread is not stopped, or no longer exists.
pub fn block_signal(tid: Pid, signal: Signal) -> io::Result<()> {
    change_mask(tid, |mask| mask | mask_bit(signal))
}

/// Removes a signal from a stopped thread's mask of blocked signals.
///
/// # Errors
/// The thread is not stopped, or no longer exists.
pub fn unblock_signal(tid: Pid, signal: Signal) -> io::Result<()> {
    change_mask(tid, |mask| mask & !mask_bit(signal))
}

fn change_mask(tid: Pid, change: impl Fn(u64) -> u64) -> io::Result<()> {
    let mut mask = 0_u64;
    // The kernel reads and writes exactly the number of bytes passed here.
    request(libc::PTRACE_GETSIGMASK, tid, size_of_val(&mask), (&raw mut mask).expose_provenance())?;
    mask = change(mask);
    request(libc::PTRACE_SETSIGMASK, tid, size_of_val(&mask), (&raw mut mask).expose_provenance())
}

fn mask_bit(signal: Signal) -> u64 {
    1 << (signal.0 - 1)
}

/// Sends a signal to one thread of a process.
///
/// # Errors
/// The thread no longer exists.
pub fn signal_thread(process: Pid, tid: Pid, signal: Signal) -> io::Result<()> {
    // SAFETY: tgkill takes three integers.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, process.0, tid.0, signal.0) };
    check(i32::try_from(result).expect("0 or -1")).map(|_| ())
}

/// Sends a signal to a process through its pidfd, so the signal never reaches a later process with the same
/// id.
///
/// # Errors
/// The process has been reaped, or the kernel refused.
pub fn signal_process(pidfd: &OwnedFd, signal: Signal) -> io::Result<()> {
    process::pidfd_signal(pidfd, signal)
}

fn nix_pid(tid: Pid) -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(tid.0)
}

fn number(signal: Option<Signal>) -> usize {
    signal.map_or(0, |signal| usize::try_from(signal.0).expect("a signal is not negative"))
}

/// Performs a ptrace request that nix does not offer. nix has no `PTRACE_LISTEN` and no signal masks, cannot
/// continue with real-time signals (which have no names), and returns uninitialised memory for the registers
/// of a 32-bit program. `data` is a number, or the address of a live value of the request's type.
fn request(request: libc::c_uint, tid: Pid, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: each caller above passes what its request takes; ptrace touches no other memory of ours.
    match unsafe { libc::ptrace(request, tid.0, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
