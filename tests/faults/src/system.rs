//! Failures of the real system: a state directory on a disk that is full or may not be written, and processes that may
//! have no more files, memory or processes. Mounting and counting want root; without it these faults are missed, and
//! `points` has their like.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// What the state directory lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disk {
    /// As it comes.
    Ample,
    /// So many KiB.
    Small(usize),
    /// Nothing can be written.
    ReadOnly,
}

/// A disk of its own below a round's directory; it goes when this is dropped.
pub(crate) struct Mounted<'a>(Option<&'a Path>);

impl<'a> Mounted<'a> {
    /// Mounts the disk, if it may.
    pub(crate) fn new(disk: Disk, dir: &'a Path) -> Self {
        let options = match disk {
            Disk::Ample => return Self(None),
            Disk::Small(kib) => format!("size={kib}k"),
            Disk::ReadOnly => "ro".to_owned(),
        };
        fs::create_dir(dir).expect("the directory is new");
        let path = dir.to_string_lossy();
        Self(is_done("mount", &["-t", "tmpfs", "-o", &options, "heeler-faults", &path]).then_some(dir))
    }

    /// Returns whether the disk is there.
    pub(crate) fn is_there(&self) -> bool {
        self.0.is_some()
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if let Some(dir) = self.0 {
            let path = dir.to_string_lossy();
            assert!(is_done("umount", &[&path]), "somebody holds the state directory {path}");
        }
    }
}

/// Lets a process have so many more files than it has open; returns whether that was done.
pub(crate) fn limit_files(pid: u32, more: usize) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    let limit = format!("--nofile={0}:{0}", open + more);
    open > 0 && is_done("prlimit", &["--pid", &pid.to_string(), &limit])
}

/// Lets a process, and whatever it starts from now on, have so many more KiB than it has mapped; returns whether that was
/// done.
pub(crate) fn limit_memory(pid: u32, more: usize) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let Some(kib) = size.and_then(|size| size.trim().trim_end_matches(" kB").parse::<usize>().ok()) else {
        return false;
    };
    let limit = format!("--as={0}:{0}", (kib + more) * 1024);
    is_done("prlimit", &["--pid", &pid.to_string(), &limit])
}

/// A control group in which the processes and threads of a round are counted; it goes when this is dropped.
pub(crate) struct Counted(PathBuf);

impl Counted {
    /// Makes the group, if it may.
    pub(crate) fn new(mark: &str) -> Option<Self> {
        let roots = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"];
        roots.iter().find_map(|root| {
            let dir = Path::new(root).join(format!("heeler-faults-{mark}"));
            fs::create_dir(&dir).ok()?;
            let group = Self(dir);
            // Not every hierarchy counts.
            group.0.join("pids.max").exists().then_some(group)
        })
    }

    /// Takes in a process, before it has started any other.
    pub(crate) fn take_in(&self, pid: u32) {
        // One that is gone already needs no place.
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).ok();
    }

    /// Lets there be so many more than there are; returns whether that was done.
    pub(crate) fn limit(&self, more: usize) -> bool {
        let current = fs::read_to_string(self.0.join("pids.current")).unwrap_or_default();
        let current = current.trim().parse::<usize>().unwrap_or(0);
        current > 0 && fs::write(self.0.join("pids.max"), (current + more).to_string()).is_ok()
    }

    /// Lets there be as many as may be.
    pub(crate) fn unlimit(&self) {
        fs::write(self.0.join("pids.max"), "max").expect("what was limited can be freed");
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Where somebody is left, that is a finding of its own.
        fs::remove_dir(&self.0).ok();
    }
}

fn is_done(program: &str, words: &[&str]) -> bool {
    let status = Command::new(program).args(words).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
