//! Real system failures: a state directory on a full or read-only disk, and limits on files, memory and
//! processes. Mounting and process limits require root; without root, these faults are skipped. The named
//! fault points can inject the same errors without root.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The disk of the state directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateDisk {
    /// The ordinary file system.
    Unlimited,
    /// A disk of this size in KiB.
    Small(usize),
    /// A read-only disk.
    ReadOnly,
}

/// A disk mounted below a round's directory; unmounted on drop.
pub(crate) struct MountedDisk<'a>(Option<&'a Path>);

impl<'a> MountedDisk<'a> {
    /// Mounts the disk, if permitted.
    pub(crate) fn new(disk: StateDisk, dir: &'a Path) -> Self {
        let options = match disk {
            StateDisk::Unlimited => return Self(None),
            StateDisk::Small(kib) => format!("size={kib}k"),
            StateDisk::ReadOnly => "ro".to_owned(),
        };
        fs::create_dir(dir).expect("the directory is new");
        let path = dir.to_string_lossy();
        Self(is_done("mount", &["-t", "tmpfs", "-o", &options, "heeler-faults", &path]).then_some(dir))
    }

    /// Returns whether the disk is mounted.
    pub(crate) fn is_there(&self) -> bool {
        self.0.is_some()
    }
}

impl Drop for MountedDisk<'_> {
    fn drop(&mut self) {
        if let Some(dir) = self.0 {
            let path = dir.to_string_lossy();
            assert!(is_done("umount", &[&path]), "somebody holds the state directory {path}");
        }
    }
}

/// Limits a process to `more` file descriptors above those already open; returns false on failure.
pub(crate) fn limit_files(pid: u32, more: usize) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    let limit = format!("--nofile={0}:{0}", open + more);
    open > 0 && is_done("prlimit", &["--pid", &pid.to_string(), &limit])
}

/// Limits a process and its later descendants to `more` KiB above the mapped memory; returns false on
/// failure.
pub(crate) fn limit_memory(pid: u32, more: usize) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let Some(kib) = size.and_then(|size| size.trim().trim_end_matches(" kB").parse::<usize>().ok()) else {
        return false;
    };
    let limit = format!("--as={0}:{0}", (kib + more) * 1024);
    is_done("prlimit", &["--pid", &pid.to_string(), &limit])
}

/// A control group that counts a round's processes and threads; removed on drop.
pub(crate) struct RoundCgroup(PathBuf);

impl RoundCgroup {
    /// Creates the group, if permitted.
    pub(crate) fn new(mark: &str) -> Option<Self> {
        let roots = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"];
        roots.iter().find_map(|root| {
            let dir = Path::new(root).join(format!("heeler-faults-{mark}"));
            fs::create_dir(&dir).ok()?;
            let group = Self(dir);
            // Not every hierarchy has the pids controller.
            group.0.join("pids.max").exists().then_some(group)
        })
    }

    /// Adds a process to the group, before it starts other processes.
    pub(crate) fn add_process(&self, pid: u32) {
        // The process may have exited already.
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).ok();
    }

    /// Limits the group to `more` processes above the existing ones; returns false on failure.
    pub(crate) fn limit(&self, more: usize) -> bool {
        let current = fs::read_to_string(self.0.join("pids.current")).unwrap_or_default();
        let current = current.trim().parse::<usize>().unwrap_or(0);
        current > 0 && fs::write(self.0.join("pids.max"), (current + more).to_string()).is_ok()
    }

    /// Removes the limit.
    pub(crate) fn unlimit(&self) {
        fs::write(self.0.join("pids.max"), "max").expect("what was limited can be freed");
    }
}

impl Drop for RoundCgroup {
    fn drop(&mut self) {
        // Processes left in the group are reported separately.
        fs::remove_dir(&self.0).ok();
    }
}

fn is_done(program: &str, words: &[&str]) -> bool {
    let status = Command::new(program).args(words).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
