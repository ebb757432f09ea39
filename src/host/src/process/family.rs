//! Families of processes, read from procfs: children, descendants, and signals to all of them.

use std::{
    collections::HashSet,
    fs, io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    time::Duration,
};

use super::{Pid, Signal, reserve};
use crate::check;

/// Longest command line that is told of a process, in characters.
const COMMAND_LIMIT: usize = 200;

/// What procfs says of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The letter: `R` running, `S` sleeping, `T` stopped, `Z` ended and not reaped, and others.
    pub state: char,
    /// Its parent.
    pub parent: Pid,
    /// Its process group.
    pub group: Pid,
}

/// Returns state and relations of a process; `None` when it is gone.
#[must_use]
pub fn stat(pid: Pid) -> Option<Stat> {
    let text = reserve::look(|| fs::read(format!("/proc/{pid}/stat"))).ok()?;
    // The name stands in parentheses and may hold any byte; what follows the last one is numbers.
    let name_end = text.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(text.get(name_end + 2..)?).ok()?;
    let mut fields = rest.split(' ');
    Some(Stat {
        state: fields.next()?.chars().next()?,
        parent: Pid(fields.next()?.parse().ok()?),
        group: Pid(fields.next()?.parse().ok()?),
    })
}

/// Returns when a process was started, as time since the boot, cut to [`start_tick`]; `None` when it is gone.
#[must_use]
pub fn started_after_boot(pid: Pid) -> Option<Duration> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let name_end = text.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(text.get(name_end + 2..)?).ok()?;
    // The state is the third field of the file, the start the 22nd.
    let ticks: u32 = rest.split(' ').nth(22 - 3)?.parse().ok()?;
    start_tick().checked_mul(ticks)
}

/// Returns how exactly the system tells when a process was started: mostly 10 ms.
#[must_use]
pub fn start_tick() -> Duration {
    // SAFETY: sysconf takes any name and touches no memory of ours.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Duration::from_secs(1) / u32::try_from(ticks).ok().filter(|ticks| *ticks > 0).unwrap_or(100)
}

/// Returns the time since the boot, on the clock of [`started_after_boot`].
#[must_use]
pub fn since_boot() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a live local of the right type. It cannot fail: every kernel with pidfds has this clock.
    let _ = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// Returns the children of a process, ended ones that are not reaped included. Empty when it is gone.
#[must_use]
pub fn children(parent: Pid) -> Vec<Pid> {
    // Of one that is gone nothing can be read.
    reserve::look(|| read_children(parent)).unwrap_or_default()
}

fn read_children(parent: Pid) -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{parent}/task"))?.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(text) => {
                found.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid))
            }
            // A kernel without these files; otherwise the thread is gone, and others have its children.
            Err(error) if error.kind() == io::ErrorKind::NotFound && task.path().exists() => {
                return children_by_scan(parent);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn children_by_scan(parent: Pid) -> io::Result<Vec<Pid>> {
    let pids = fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid))
        .filter(|pid| stat(*pid).is_some_and(|stat| stat.parent == parent));
    Ok(pids.collect())
}

/// Returns everything below a process, parents before their children.
///
/// Processes that are born or reparented meanwhile may be missing: whoever wants all of them asks until nothing is new.
#[must_use]
pub fn descendants(root: Pid) -> Vec<Pid> {
    let mut found = children(root);
    // A process that was reparented during the walk can show up twice.
    let mut known: HashSet<Pid> = found.iter().copied().collect();
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        found.extend(children(pid).into_iter().filter(|child| known.insert(*child)));
        next += 1;
    }
    found
}

/// Returns the command line of a process for people, cut; the bare name in brackets when there is none.
#[must_use]
pub fn command_line(pid: Pid) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let words: Vec<&str> = text.split('\0').filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        return format!("[{}]", name.trim_end());
    }
    let line = words.join(" ");
    match line.char_indices().nth(COMMAND_LIMIT) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line,
    }
}

/// Returns the resident memory of a process and all below it, in bytes; what has ended counts as nothing.
///
/// Pages that several of them share are counted for each.
#[must_use]
pub fn resident_bytes(root: Pid) -> u64 {
    let page = page_bytes();
    let of = |pid: Pid| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let pages: u64 = descendants(root).into_iter().chain([root]).filter_map(of).sum();
    pages.saturating_mul(page)
}

fn page_bytes() -> u64 {
    // SAFETY: sysconf takes any name and touches no memory of ours.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

/// Returns how many processes the kernel has killed for want of memory since it booted; `None` where it does not tell.
#[must_use]
pub fn memory_kills() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Sends a signal to a process group. A group that is gone is no error: that is what was wanted.
///
/// # Errors
/// The system refused, for instance because of another user's process.
pub fn kill_group(group: Pid, signal: Signal) -> io::Result<()> {
    // 0 and 1 would be our own group and everybody.
    assert!(group.0 > 1, "a process group of a child is above 1");
    // SAFETY: kill touches no memory.
    match check(unsafe { libc::kill(-group.0, signal.0) }) {
        Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(error),
        _ => Ok(()),
    }
}

/// Kills a child of this process that only the caller reaps, so that its number cannot be another's by now.
pub fn kill_child(pid: Pid) {
    assert!(pid.0 > 1, "a child's number is above 1");
    // It can fail only for a process that has taken another user's rights, and there nothing can be done.
    // SAFETY: kill touches no memory.
    unsafe { libc::kill(pid.0, libc::SIGKILL) };
}

/// Opens a descriptor that stands for a process and never for a later one of the same number.
///
/// # Errors
/// The process is gone, or the system does not allow it.
pub fn pidfd_open(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.0, 0) };
    let fd = check(i32::try_from(fd).expect("a descriptor fits"))?;
    // SAFETY: the descriptor is new and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(crate) fn pidfd_signal(pidfd: &impl AsRawFd, signal: Signal) -> io::Result<()> {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open; without siginfo the kernel reads no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal.0, none, 0) };
    check(i32::try_from(result).expect("0 or -1")).map(|_| ())
}

/// Sends a signal to everything below `root`, and returns whom it was sent to; processes that have ended get none.
///
/// `wants` chooses among them. KILL goes to whole process groups first: that is atomic, so a family that forks faster
/// than procfs can be read is caught too. Who was born or reparented meanwhile may be missing: repeat until it suffices.
#[must_use]
pub fn signal_descendants(root: Pid, signal: Signal, wants: impl Fn(Pid, Stat) -> bool) -> Vec<Pid> {
    let own_group = stat(Pid::own()).map(|stat| stat.group);
    let mut families = vec![root];
    let mut seen = HashSet::new();
    let mut groups = HashSet::new();
    let mut reached = Vec::new();
    while let Some(parent) = families.pop() {
        for pid in children(parent) {
            let Some(stat) = stat(pid).filter(|stat| stat.state != 'Z') else { continue };
            if !seen.insert(pid) {
                continue;
            }
            families.push(pid);
            if !wants(pid, stat) {
                continue;
            }
            if signal == Signal::KILL && Some(stat.group) != own_group && groups.insert(stat.group) {
                // Best effort: each member is signalled alone too.
                let _refused = kill_group(stat.group, signal);
            }
            if signal_child_of(parent, pid, signal) {
                reached.push(pid);
            }
        }
    }
    reached
}

/// Signals `pid` if it is still a child of `parent`, so that a number that was given anew reaches no stranger.
fn signal_child_of(parent: Pid, pid: Pid, signal: Signal) -> bool {
    let still_related = || stat(pid).is_some_and(|stat| stat.parent == parent || stat.parent == Pid::own());
    match pidfd_open(pid) {
        Ok(pidfd) => still_related() && pidfd_signal(&pidfd, signal).is_ok(),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => false,
        // Where pidfds are denied, the check just before the signal must do.
        // SAFETY: kill touches no memory.
        Err(_) => still_related() && check(unsafe { libc::kill(pid.0, signal.0) }).is_ok(),
    }
}
