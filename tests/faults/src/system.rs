//! Failures of the real system: a state directory on a disk that is full or may not be written, and processes that may
//! have no more files. Mounting wants root; without it these faults are missed, and `points` has their like.

use std::{
    path::Path,
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
        std::fs::create_dir(dir).expect("the directory is new");
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
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    let limit = format!("--nofile={0}:{0}", open + more);
    open > 0 && is_done("prlimit", &["--pid", &pid.to_string(), &limit])
}

fn is_done(program: &str, words: &[&str]) -> bool {
    let status = Command::new(program).args(words).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
