//! Control groups (cgroup v2), if this process may create subgroups: one leaf group per process tree. In a
//! leaf, the kernel enforces a memory limit, and one write kills all members. Without the permission, Heeler
//! runs without control groups.
//!
//! The mount table locates the hierarchy, even if version 1 is mounted too. Leaves are children of our own
//! group, or else its siblings: a group cannot contain both processes and delegated controllers.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use crate::process::Pid;

const LEAF_PREFIX: &str = "heeler-leaf-";

/// A group that can contain leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupParent {
    dir: PathBuf,
    has_memory_controller: bool,
}

/// Why leaves cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// The kernel or this container has no hierarchy of version 2, or hides our part of it.
    #[error("find the cgroup (v2) of this process")]
    NotFound,
    /// The hierarchy exists, but this process may not create groups in it.
    #[error("create a cgroup in {}", dir.display())]
    NotDelegated {
        /// Directory where creation was tried.
        dir: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
}

impl CgroupParent {
    /// Finds a group by creating and removing a leaf there. Groups that can limit memory are preferred.
    ///
    /// # Errors
    /// No hierarchy was found, or this process may not create groups.
    pub fn find() -> Result<Self, CgroupError> {
        let mut found: Result<Self, CgroupError> = Err(CgroupError::NotFound);
        for dir in candidate_dirs() {
            let place = Self { has_memory_controller: enable_memory_controller(&dir), dir };
            match LeafCgroup::create(&place, None) {
                Ok(_removed) if place.has_memory_controller => return Ok(place),
                Ok(_removed) if found.is_err() => found = Ok(place),
                Err(source) if found.is_err() => {
                    found = Err(CgroupError::NotDelegated { dir: place.dir, source });
                }
                Ok(_) | Err(_) => {}
            }
        }
        found
    }

    /// Returns the directory of the group.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns whether leaves in this group can limit memory.
    #[must_use]
    pub fn has_memory(&self) -> bool {
        self.has_memory_controller
    }
}

/// Removes empty leaves of dead Heeler processes. All processes that were in them must be dead.
pub fn remove_stale_leaves() {
    for dir in candidate_dirs() {
        let Ok(entries) = fs::read_dir(dir) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let owner = name.to_str().and_then(|name| name.strip_prefix(LEAF_PREFIX)?.split('-').next());
            if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
                // A leaf that is not empty belongs to a process that is not visible here.
                let _kept = fs::remove_dir(entry.path());
            }
        }
    }
}

/// A group for one process tree. Dropping it removes the group; its processes must be dead and reaped.
#[derive(Debug)]
pub struct LeafCgroup {
    dir: PathBuf,
    has_limit: bool,
}

impl LeafCgroup {
    /// Creates an empty leaf, with a memory limit if the parent group supports one. Above the limit, the
    /// kernel kills all members.
    ///
    /// # Errors
    /// The system call failed.
    pub fn create(place: &CgroupParent, limit_bytes: Option<u64>) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = place.dir.join(format!("{LEAF_PREFIX}{}-{number}", Pid::own()));
        fs::create_dir(&dir)?;
        let mut leaf = Self { dir, has_limit: false };
        // A leaf is useless without the permission to move processes into it.
        drop(fs::OpenOptions::new().write(true).open(leaf.dir.join("cgroup.procs"))?);
        if let Some(limit) = limit_bytes.filter(|_| place.has_memory_controller) {
            leaf.write("memory.max", &limit.to_string())?;
            // Without this, members could exceed the limit by swapping. Kernels without swap accounting lack
            // the file.
            let _unaccounted = leaf.write("memory.swap.max", "0");
            leaf.write("memory.oom.group", "1")?;
            leaf.has_limit = true;
        }
        Ok(leaf)
    }

    /// Moves a process into the leaf. Processes that it starts later are members too.
    ///
    /// # Errors
    /// The system call failed.
    pub fn add_process(&self, pid: Pid) -> io::Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// Returns whether the kernel enforces a memory limit.
    #[must_use]
    pub fn has_limit(&self) -> bool {
        self.has_limit
    }

    /// Kills all members in one step, so no member can escape by forking.
    ///
    /// # Errors
    /// The kernel is older than 5.14, which introduced this file, or rejected the write.
    pub fn kill(&self) -> io::Result<()> {
        self.write("cgroup.kill", "1")
    }

    /// Returns the leaf's peak memory in bytes, if the kernel has killed a member at the limit.
    #[must_use]
    pub fn peak_at_limit(&self) -> Option<u64> {
        let events = fs::read_to_string(self.dir.join("memory.events")).ok().filter(|_| self.has_limit)?;
        let kills: u64 =
            events.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())?;
        if kills == 0 {
            return None;
        }
        // Kernels before 5.19 do not report the peak, so use the limit.
        let number = |name| fs::read_to_string(self.dir.join(name)).ok()?.trim().parse().ok();
        number("memory.peak").or_else(|| number("memory.max"))
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        // Never create the file: if it is missing, the kernel does not support this control.
        fs::OpenOptions::new().write(true).open(self.dir.join(name))?.write_all(text.as_bytes())
    }
}

impl Drop for LeafCgroup {
    fn drop(&mut self) {
        // If the leaf is not empty yet, `remove_stale_leaves` removes it after its owner has died.
        let _kept = fs::remove_dir(&self.dir);
    }
}

/// Returns the group of this process, and its parent group.
fn candidate_dirs() -> Vec<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let Some((mount, dir)) = own_cgroup_dir(&own, &mounts) else { return Vec::new() };
    let above = dir.parent().filter(|above| above.starts_with(&mount)).map(Path::to_owned);
    [dir].into_iter().chain(above).collect()
}

/// Returns the mount point of the hierarchy and our directory in it.
fn own_cgroup_dir(own: &str, mounts: &str) -> Option<(PathBuf, PathBuf)> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    // The namespace does not contain this process.
    if path.split('/').any(|part| part == "..") {
        return None;
    }
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        if right.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = left.split(' ').skip(3);
        let (root, mount) = (fields.next()?, PathBuf::from(fields.next()?));
        let below = Path::new(path).strip_prefix(root).ok()?;
        let dir = if below.as_os_str().is_empty() { mount.clone() } else { mount.join(below) };
        Some((mount, dir))
    })
}

/// Requests the memory controller for the children of a group; returns whether they have it.
fn enable_memory_controller(dir: &Path) -> bool {
    let names = |file: &str| fs::read_to_string(dir.join(file)).unwrap_or_default();
    let has = |file: &str| names(file).split_ascii_whitespace().any(|name| name == "memory");
    if has("cgroup.subtree_control") {
        return true;
    }
    // The kernel rejects this if the group itself contains processes, including ours.
    has("cgroup.controllers") && fs::write(dir.join("cgroup.subtree_control"), "+memory").is_ok()
}

/// Moves this process into a leaf and back, which is the only proof that moving works.
///
/// # Errors
/// The error of the system call.
pub fn probe_move(place: &CgroupParent) -> io::Result<()> {
    let home = candidate_dirs().into_iter().next().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let leaf = LeafCgroup::create(place, None)?;
    leaf.add_process(Pid::own())?;
    let returned = fs::write(home.join("cgroup.procs"), Pid::own().to_string());
    drop(leaf);
    returned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(own: &str, mounts: &str) -> Option<(String, String)> {
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        own_cgroup_dir(own, mounts).map(|(mount, dir)| (text(mount), text(dir)))
    }

    fn some(mount: &str, dir: &str) -> Option<(String, String)> {
        Some((mount.to_owned(), dir.to_owned()))
    }

    #[test]
    fn own_cgroup_is_found_in_all_hierarchy_layouts() {
        let pure = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            dir("0::/user.slice/a.scope\n", pure),
            some("/sys/fs/cgroup", "/sys/fs/cgroup/user.slice/a.scope")
        );
        assert_eq!(dir("0::/\n", pure), some("/sys/fs/cgroup", "/sys/fs/cgroup"));
        let mixed = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                     41 31 0:38 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(
            dir("4:memory:/x\n0::/a\n", mixed),
            some("/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified/a")
        );
        let bound = "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        assert_eq!(dir("0::/docker/abc/in\n", bound), some("/sys/fs/cgroup", "/sys/fs/cgroup/in"));
        assert_eq!(dir("0::/elsewhere\n", bound), None);
        assert_eq!(dir("0::/../outside\n", pure), None);
        assert_eq!(dir("4:memory:/x\n", mixed), None);
        assert_eq!(dir("0::/\n", "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"), None);
    }
}
