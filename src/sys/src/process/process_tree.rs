//! Process trees from procfs: children, descendants, and signals to all of them.

use std::{
    collections::{BTreeMap, HashSet},
    fs, io,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    sync::OnceLock,
    time::Duration,
};

use rustix::{
    io::Errno,
    process::{PidfdFlags, kill_process, kill_process_group, pidfd_send_signal},
    time::{ClockId, clock_gettime},
};

use super::{Pid, Signal, reserved_fds};

/// Maximum length of a reported command line, in characters.
const COMMAND_LIMIT: usize = 200;

/// State, parent, process group and terminal of a process, from procfs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessStat {
    /// State letter: `R` running, `S` sleeping, `T` stopped, `Z` exited but not reaped, and others.
    pub state: char,
    /// Parent process.
    pub parent: Pid,
    /// Process group.
    pub group: Pid,
    /// Whether the process has a controlling terminal.
    pub has_terminal: bool,
}

impl ProcessStat {
    /// Returns whether a signal has stopped the process; `false` if a debugger has.
    #[must_use]
    pub fn is_stopped(self) -> bool {
        self.state == 'T'
    }

    /// Returns whether the process runs or waits, so it is neither stopped nor exiting.
    #[must_use]
    pub fn is_running(&self) -> bool {
        "RSD".contains(self.state)
    }
}

/// Returns state, parent, process group and terminal of a process; `None` if it no longer exists.
#[must_use]
pub fn stat(pid: Pid) -> Option<ProcessStat> {
    let text = reserved_fds::with_reserved(|| fs::read(format!("/proc/{pid}/stat"))).ok()?;
    // The name is in parentheses and may contain any byte; only numbers follow the last parenthesis.
    let name_end = text.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(text.get(name_end + 2..)?).ok()?;
    let mut fields = rest.split(' ');
    Some(ProcessStat {
        state: fields.next()?.chars().next()?,
        parent: Pid(fields.next()?.parse().ok()?),
        group: Pid(fields.next()?.parse().ok()?),
        // Skip the session.
        has_terminal: fields.nth(1)? != "0",
    })
}

/// Returns whether a process has a child, or has waited for one. Children from before an exec of the process
/// also count.
#[must_use]
pub fn has_had_children(pid: Pid) -> bool {
    child_faults(pid).is_some_and(|faults| faults > 0) || !children(pid).is_empty()
}

/// Returns the page faults of the children that a process has waited for. Every process has some.
fn child_faults(pid: Pid) -> Option<u64> {
    // Field 11 of the file.
    stat_field(pid, 11)?.parse().ok()
}

/// Returns a field of `/proc/PID/stat` by its number in the manual. The state is field 3; earlier fields
/// cannot be read.
fn stat_field(pid: Pid, number: usize) -> Option<String> {
    let text = reserved_fds::with_reserved(|| fs::read(format!("/proc/{pid}/stat"))).ok()?;
    // The name is in parentheses and may contain any byte; only numbers follow the last parenthesis.
    let name_end = text.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(text.get(name_end + 2..)?).ok()?;
    rest.split(' ').nth(number - 3).map(str::to_owned)
}

/// Returns the start time of a process as time since boot, truncated to [`start_time_resolution`]; `None` if
/// the process no longer exists.
#[must_use]
pub fn start_time_since_boot(pid: Pid) -> Option<Duration> {
    let ticks: u32 = stat_field(pid, 22)?.parse().ok()?;
    start_time_resolution().checked_mul(ticks)
}

/// Returns the resolution of process start times, usually 10 ms.
#[must_use]
pub fn start_time_resolution() -> Duration {
    let ticks = rustix::param::clock_ticks_per_second();
    Duration::from_secs(1) / u32::try_from(ticks).ok().filter(|ticks| *ticks > 0).unwrap_or(100)
}

/// Returns the time since boot, on the same clock as [`start_time_since_boot`].
#[must_use]
pub fn time_since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// Returns the children of a process, including exited ones that are not reaped. Empty if the process no
/// longer exists.
#[must_use]
pub fn children(parent: Pid) -> Vec<Pid> {
    // An error means that the process no longer exists.
    reserved_fds::with_reserved(|| read_children(parent)).unwrap_or_default()
}

fn read_children(parent: Pid) -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{parent}/task"))?.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(text) => {
                found.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid))
            }
            // If the thread still exists, the kernel lacks these files. If not, its children now belong to
            // other threads.
            Err(error) if error.kind() == io::ErrorKind::NotFound && task.path().exists() => {
                return children_by_proc_scan(parent);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn children_by_proc_scan(parent: Pid) -> io::Result<Vec<Pid>> {
    let pids = fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid))
        .filter(|pid| stat(*pid).is_some_and(|stat| stat.parent == parent));
    Ok(pids.collect())
}

/// Returns all descendants of a process, parents before children.
///
/// Processes created or reparented during the call may be missing. To get all of them, repeat the call until
/// it finds no new ones.
#[must_use]
pub fn descendants(root: Pid) -> Vec<Pid> {
    let mut found = children(root);
    // A process reparented during the walk can be found twice.
    let mut known: HashSet<Pid> = found.iter().copied().collect();
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        found.extend(children(pid).into_iter().filter(|child| known.insert(*child)));
        next += 1;
    }
    found
}

/// Returns whether two processes execute the same program, for example after a fork without exec. `None` if
/// one has ended or belongs to another user.
#[must_use]
pub fn execute_same_program(one: Pid, other: Pid) -> Option<bool> {
    let program = |pid: Pid| fs::read_link(format!("/proc/{pid}/exe")).ok();
    Some(program(one)? == program(other)?)
}

/// Returns whether one descendant of a process was created before another, judging by their ids. The system
/// assigns ascending ids, and starts again with the smallest free id after the largest. Both processes may be
/// gone.
#[must_use]
pub fn is_older_descendant(one: Pid, other: Pid, root: Pid) -> bool {
    static LARGEST: OnceLock<i32> = OnceLock::new();
    let largest = *LARGEST.get_or_init(|| {
        let text = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
        text.trim().parse().unwrap_or(1 << 22)
    });
    let created_after_root = |pid: Pid| (pid.0 - root.0).rem_euclid(largest);
    created_after_root(one) < created_after_root(other)
}

/// Processes of a tree at one moment. If two snapshots are equal, no process of the tree started, ended or
/// executed another program in between, except a process that the kernel reaped because its parent ignores
/// SIGCHLD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeSnapshot {
    processes: BTreeMap<Pid, ProcessSnapshot>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ProcessSnapshot {
    /// `None` if the process has exited.
    program: Option<PathBuf>,
    /// Page faults of the children that the process has waited for. Every child has some.
    child_faults: u64,
}

impl TreeSnapshot {
    /// Returns the state of a process and its descendants. `None` if the process has exited or is stopped,
    /// like a process about to die of a signal.
    #[must_use]
    pub fn of_running(root: Pid) -> Option<Self> {
        let snapshot = |pid: Pid| ProcessSnapshot {
            program: fs::read_link(format!("/proc/{pid}/exe")).ok(),
            child_faults: child_faults(pid).unwrap_or_default(),
        };
        let below = descendants(root);
        let processes = std::iter::once(root).chain(below).map(|pid| (pid, snapshot(pid))).collect();
        // Check this last: a process that has ended meanwhile would have no children.
        stat(root).filter(ProcessStat::is_running).map(|_| Self { processes })
    }

    /// Returns whether the tree is one process that never had a child.
    #[must_use]
    pub fn is_single_process(&self) -> bool {
        self.processes.len() == 1 && self.processes.values().all(|process| process.child_faults == 0)
    }

    /// Returns whether two processes of the tree execute the same program, for example after a fork without
    /// exec.
    #[must_use]
    pub fn has_forked_copy(&self) -> bool {
        let mut known = HashSet::new();
        self.processes.values().filter_map(|process| process.program.as_ref()).any(|one| !known.insert(one))
    }
}

/// Returns the working directory of a process; `None` if it no longer exists or belongs to another user.
#[must_use]
pub fn working_directory(pid: Pid) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// Returns the command line of a process for display, truncated; the process name in brackets if there is
/// none.
#[must_use]
pub fn command_line(pid: Pid) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let words: Vec<&str> = text.split('\0').filter(|word| !word.is_empty()).collect();
    let name = || fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = if words.is_empty() { name() } else { String::new() };
    shown_command(words.into_iter(), name.trim_end())
}

/// Joins the arguments of a command line for display, truncated. Without arguments, returns the process name
/// in brackets.
pub(crate) fn shown_command<'a>(words: impl Iterator<Item = &'a str>, name: &str) -> String {
    let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    if line.is_empty() {
        return format!("[{name}]");
    }
    match line.char_indices().nth(COMMAND_LIMIT) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line,
    }
}

/// Returns how many processes the kernel has killed for lack of memory since boot; `None` if the kernel does
/// not report it.
#[must_use]
pub fn oom_kill_count() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Sends a signal to a process group. Succeeds if the group no longer exists.
///
/// # Errors
/// The system call failed, for example because of another user's process.
pub fn kill_group(group: Pid, signal: Signal) -> io::Result<()> {
    // 0 and 1 would mean our own group and all processes.
    assert!(group.0 > 1, "a process group of a child is above 1");
    match kill_process_group(group.for_rustix()?, signal.for_rustix()?) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Kills a child of this process. Returns `false` if that is not permitted, because the child runs with
/// another user's rights. Only the caller reaps the child, so its process id cannot have been reused.
pub fn kill_child(pid: Pid) -> bool {
    assert!(pid.0 > 1, "a child's number is above 1");
    !kill(pid, Signal::KILL).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Sends a signal to a child of this process; returns `false` if that is not permitted, like [`kill_child`].
pub fn signal_child(pid: Pid, signal: Signal) -> bool {
    assert!(pid.0 > 1, "a child's number is above 1");
    !kill(pid, signal).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Opens a descriptor that always refers to this process, even if its id is reused.
///
/// # Errors
/// The process no longer exists, or the system does not allow it.
pub fn pidfd_open(pid: Pid) -> io::Result<OwnedFd> {
    Ok(rustix::process::pidfd_open(pid.for_rustix()?, PidfdFlags::empty())?)
}

/// Returns whether an error means that the process does not exist.
#[must_use]
pub fn is_no_such_process(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// Sends a signal to the process of a descriptor.
///
/// # Errors
/// The process no longer exists, or belongs to another user.
pub fn pidfd_signal(pidfd: &impl AsFd, signal: Signal) -> io::Result<()> {
    Ok(pidfd_send_signal(pidfd, signal.for_rustix()?)?)
}

fn kill(pid: Pid, signal: Signal) -> io::Result<()> {
    Ok(kill_process(pid.for_rustix()?, signal.for_rustix()?)?)
}

/// Sends a signal to all descendants of `root`; returns the processes that received it. Exited processes are
/// skipped.
///
/// `wants` filters the descendants. SIGKILL is first sent to whole process groups: that is atomic, so it also
/// catches a process tree that forks faster than procfs can be read. Processes created or reparented
/// meanwhile may be missing, so repeat the call until none is left.
#[must_use]
pub fn signal_descendants(root: Pid, signal: Signal, wants: impl Fn(Pid, ProcessStat) -> bool) -> Vec<Pid> {
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
            if signal == Signal::KILL && is_other_group(stat.group, own_group) && groups.insert(stat.group) {
                // Best effort: each member is also signalled individually.
                let _refused = kill_group(stat.group, signal);
            }
            if signal_child_of(parent, pid, signal) {
                reached.push(pid);
            }
        }
    }
    reached
}

/// Returns whether `group` can be signalled as a whole without reaching this process. procfs shows -1 as the
/// group of a process that is exiting, and 0 for a group outside the pid namespace; as targets of a signal
/// these would mean all processes and our own group.
fn is_other_group(group: Pid, own_group: Option<Pid>) -> bool {
    group.0 > 1 && Some(group) != own_group
}

/// Signals `pid` if it is still a child of `parent` or of this process, because the process id may have been
/// reused. Returns whether the signal was sent.
#[must_use]
pub fn signal_child_of(parent: Pid, pid: Pid, signal: Signal) -> bool {
    let still_related = || stat(pid).is_some_and(|stat| stat.parent == parent || stat.parent == Pid::own());
    match pidfd_open(pid) {
        Ok(pidfd) => still_related() && pidfd_signal(&pidfd, signal).is_ok(),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => false,
        // If pidfds are not allowed, only the check just before the signal protects against reuse.
        Err(_) => still_related() && kill(pid, signal).is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_of_an_exiting_process_is_not_signalled() {
        let own = Some(Pid(700));
        assert!(is_other_group(Pid(701), own) && is_other_group(Pid(701), None));
        for group in [-1, 0, 1, 700] {
            assert!(!is_other_group(Pid(group), own), "{group}");
        }
    }
}
