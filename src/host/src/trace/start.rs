//! A start in two steps: the child stands ready, and becomes its program when it is told to. So whoever seizes it in
//! between misses nothing.
//!
//! Unlike [`crate::spawn::spawn`] the child has memory of its own, because its parent goes on meanwhile. For a process
//! of little memory and one thread.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::atomic::Ordering::Relaxed,
};

use crate::{
    check,
    io::pipe,
    process::{self, Pid},
    spawn::{
        Child, GO_ON, Plan, Prepared, STAND_FIRST, Spawn, SpawnError, become_program, full_mask, swap_mask,
    },
};

/// Step and errno.
const LAST_WORDS: usize = 2 * size_of::<i32>();

/// A process that stands ready to become its program. Dropped, it leaves without having become it.
#[derive(Debug)]
pub struct Held {
    child: Child,
    prepared: Prepared,
    gate: OwnedFd,
    last_words: OwnedFd,
}

/// A process that becomes its program. Its descriptor is readable when that is decided.
#[derive(Debug)]
pub struct Released {
    child: Child,
    prepared: Prepared,
    last_words: OwnedFd,
}

/// Starts a process as [`crate::spawn::spawn`] does, but for the last step.
///
/// # Errors
/// Says which step failed, as far as it is known by now.
pub fn hold(spawn: Spawn) -> Result<Held, SpawnError> {
    let prepared = Prepared::new(spawn)?;
    match crate::fail::at("guard.fork").and_then(|()| give_birth(&prepared)) {
        Ok((child, gate, last_words)) => Ok(Held { child, prepared, gate, last_words }),
        Err(source) => Err(prepared.not_created(source)),
    }
}

impl Held {
    /// Returns its id, which is, or will be, also its process group.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.child.pid
    }

    /// Lets it become its program.
    #[must_use]
    pub fn release(self) -> Released {
        self.open(GO_ON)
    }

    /// Lets it stop itself as its last step before its program, with the signal that continues it blocked, so that no
    /// debugger takes that for news.
    #[must_use]
    pub fn release_stopped(self) -> Released {
        self.open(STAND_FIRST)
    }

    fn open(self, word: u8) -> Released {
        // It fails only if the child is dead, which its last words tell.
        drop(File::from(self.gate).write_all(&[word]));
        Released { child: self.child, prepared: self.prepared, last_words: self.last_words }
    }
}

impl Released {
    /// Waits until the process is its program.
    ///
    /// # Errors
    /// Says which step failed. Its end is left to whoever reaps.
    pub fn finish(self) -> Result<Child, SpawnError> {
        let mut words = [0; LAST_WORDS];
        match File::from(self.last_words).read_exact(&mut words) {
            // Closed by exec, or by a death that the wait status tells.
            Err(_) => Ok(self.child),
            Ok(()) => {
                let (step, errno) = words.split_at(LAST_WORDS / 2);
                let number = |bytes: &[u8]| i32::from_ne_bytes(bytes.try_into().expect("half of the words"));
                Err(self.prepared.failed(number(step), number(errno)))
            }
        }
    }
}

impl AsFd for Released {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.last_words.as_fd()
    }
}

fn give_birth(prepared: &Prepared) -> io::Result<(Child, OwnedFd, OwnedFd)> {
    let (gate_reader, gate) = pipe()?;
    let (last_words, words_writer) = pipe()?;
    let mut plan = prepared.plan();
    plan.gate = [gate_reader.as_raw_fd(), gate.as_raw_fd()];
    // No handler of ours may run in the child.
    let old_mask = swap_mask(&full_mask());
    // SAFETY: the child keeps the rules stated at `born`, so it needs nothing that another thread may hold.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        born(&plan, words_writer.as_raw_fd());
    }
    swap_mask(&old_mask);
    let pid = Pid(check(pid)?);
    // Nobody has reaped it, so the number is still its own.
    let pidfd = process::pidfd_open(pid)?;
    Ok((Child { pid, pidfd, exit: None }, gate, last_words))
}

/// The child's whole life before its program: system calls only; no allocation, no lock, no formatting, no panic.
fn born(plan: &Plan, words: RawFd) -> ! {
    become_program(plan);
    let text = [plan.step.load(Relaxed), plan.errno.load(Relaxed)];
    // SAFETY: the array is valid for reading of its own size.
    unsafe { libc::write(words, text.as_ptr().cast(), LAST_WORDS) };
    // SAFETY: _exit runs nothing of the parent's.
    unsafe { libc::_exit(127) }
}
