//! Starts a process in two steps: before it executes its program, the child waits until it is released. A
//! tracer that seizes the child in between misses no event.
//!
//! Unlike with [`crate::spawn::spawn`], the child has its own memory, because its parent continues meanwhile.
//! For a single-threaded process with little memory.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::atomic::Ordering::Relaxed,
};

use crate::{
    check,
    io::pipe,
    process::{self, Pid, exit_immediately},
    spawn::{
        GATE_CONTINUE, GATE_CONTINUE_STOPPED, PreparedSpawn, SpawnError, SpawnOptions, SpawnPlan,
        SpawnedChild, block_all_signals, prepare_and_exec,
    },
};

/// Size of a child's failure report: step and errno.
const FAILURE_REPORT_BYTES: usize = 2 * size_of::<i32>();

/// A process that waits before it executes its program. Dropping this value makes the process exit without
/// executing it.
#[derive(Debug)]
pub struct HeldProcess {
    child: SpawnedChild,
    prepared: PreparedSpawn,
    gate: OwnedFd,
    failure_report: OwnedFd,
}

/// A process that executes its program. The descriptor becomes readable when the execution has succeeded or
/// failed.
#[derive(Debug)]
pub struct ReleasedProcess {
    child: SpawnedChild,
    prepared: PreparedSpawn,
    failure_report: OwnedFd,
}

/// Starts a process like [`crate::spawn::spawn`], except that it waits before it executes its program.
///
/// # Errors
/// Names the failed step, if the failure is already known.
pub fn spawn_held(spawn: SpawnOptions) -> Result<HeldProcess, SpawnError> {
    let prepared = PreparedSpawn::new(spawn)?;
    match crate::fail::at("guard.fork").and_then(|()| fork_child(&prepared)) {
        Ok((child, gate, last_words)) => {
            Ok(HeldProcess { child, prepared, gate, failure_report: last_words })
        }
        Err(source) => Err(prepared.create_error(source)),
    }
}

impl HeldProcess {
    /// Returns the process id, which also is or will be the process group.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.child.pid
    }

    /// Lets the process execute its program.
    #[must_use]
    pub fn release(self) -> ReleasedProcess {
        self.open_gate(GATE_CONTINUE)
    }

    /// Lets the process stop itself just before it executes its program. SIGCONT is blocked, so no debugger
    /// reports it as a signal.
    #[must_use]
    pub fn release_stopped(self) -> ReleasedProcess {
        self.open_gate(GATE_CONTINUE_STOPPED)
    }

    fn open_gate(self, word: u8) -> ReleasedProcess {
        // The write fails only if the child is dead, which its failure report shows.
        drop(File::from(self.gate).write_all(&[word]));
        ReleasedProcess { child: self.child, prepared: self.prepared, failure_report: self.failure_report }
    }
}

impl ReleasedProcess {
    /// Waits until the process executes its program.
    ///
    /// # Errors
    /// Names the failed step. The caller's general reaper collects the exit status.
    pub fn finish(self) -> Result<SpawnedChild, SpawnError> {
        let mut words = [0; FAILURE_REPORT_BYTES];
        match File::from(self.failure_report).read_exact(&mut words) {
            // Closed by exec, or by a death that the wait status reports.
            Err(_) => Ok(self.child),
            Ok(()) => {
                let (step, errno) = words.split_at(FAILURE_REPORT_BYTES / 2);
                let number = |bytes: &[u8]| i32::from_ne_bytes(bytes.try_into().expect("half of the words"));
                Err(self.prepared.step_error(number(step), number(errno)))
            }
        }
    }
}

impl AsFd for ReleasedProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.failure_report.as_fd()
    }
}

fn fork_child(prepared: &PreparedSpawn) -> io::Result<(SpawnedChild, OwnedFd, OwnedFd)> {
    // The child moves the report channel to descriptor 3, so no end of these pipes may have that number.
    let _placeholder = if prepared.has_channel() { Some(File::open("/dev/null")?) } else { None };
    let (gate_reader, gate) = pipe()?;
    let (last_words, words_writer) = pipe()?;
    let mut plan = prepared.plan();
    plan.gate = [gate_reader.as_raw_fd(), gate.as_raw_fd()];
    // No signal handler of this process may run in the child.
    let old_mask = block_all_signals()?;
    // SAFETY: the child keeps the rules of `run_forked_child`, so it needs no resource that another thread
    // may hold.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        run_forked_child(&plan, words_writer.as_raw_fd());
    }
    let outcome = check(pid);
    old_mask.thread_set_mask()?;
    let pid = Pid(outcome?);
    // The child is not reaped yet, so its process id has not been reused.
    let pidfd = process::pidfd_open(pid)?;
    Ok((SpawnedChild { pid, pidfd, exit: None }, gate, last_words))
}

/// Runs in the child until it executes its program. Only system calls are allowed: no allocation, lock,
/// formatting or panic.
fn run_forked_child(plan: &SpawnPlan, words: RawFd) -> ! {
    prepare_and_exec(plan);
    let text = [plan.step.load(Relaxed), plan.errno.load(Relaxed)];
    // SAFETY: the array is readable in its full size.
    unsafe { libc::write(words, text.as_ptr().cast(), FAILURE_REPORT_BYTES) };
    exit_immediately(127)
}
