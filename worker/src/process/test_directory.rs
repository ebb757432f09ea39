//! Temporary directory of one test process. Without it, tests that run at the same time in several processes
//! of a program would use the same file names.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use heeler_sys::dirs::{DirError, private_dir, private_dir_in_existing};
use tokio::sync::oneshot;

/// Environment variables that contain the path of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestDirectoryVariables {
    /// `TEST_TMPDIR`, used by Bazel, GoogleTest, Abseil and others.
    TestTmpdir,
    /// `TEST_TMPDIR`, and the system's variable `TMPDIR`.
    TestTmpdirAndTmpdir,
}

impl TestDirectoryVariables {
    /// Returns the variables for the processes of a run.
    pub(crate) fn of_run(has_private_tmpdir: bool) -> Self {
        if has_private_tmpdir { Self::TestTmpdirAndTmpdir } else { Self::TestTmpdir }
    }

    pub(crate) fn names(self) -> &'static [&'static str] {
        match self {
            Self::TestTmpdir => &["TEST_TMPDIR"],
            Self::TestTmpdirAndTmpdir => &["TEST_TMPDIR", "TMPDIR"],
        }
    }
}

/// Maximum total size of the files kept from one process. More is rarely read, and fills the disk.
const KEPT_BYTES: u64 = 64 << 20;
/// Maximum number of files kept from one process.
const KEPT_FILES: usize = 1000;

/// Directory of a process that is starting or running.
#[derive(Debug)]
pub(crate) struct TestDirectory {
    path: PathBuf,
    variables: TestDirectoryVariables,
}

impl TestDirectory {
    /// Creates an empty directory. The path must be short, because tests create sockets in the directory.
    pub(crate) fn create(path: PathBuf, variables: TestDirectoryVariables) -> Result<Self, DirError> {
        private_dir_in_existing(&path)?;
        Ok(Self { path, variables })
    }

    pub(crate) fn variables(&self) -> TestDirectoryVariables {
        self.variables
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_empty(&self) -> bool {
        fs::read_dir(&self.path).is_ok_and(|mut entries| entries.next().is_none())
    }

    /// Moves the files that the process left to `target`, which must not exist. Returns whether there were
    /// any.
    pub(crate) fn keep(&self, target: &Path) -> io::Result<bool> {
        if self.is_empty() {
            return Ok(false);
        }
        if let Some(parent) = target.parent() {
            private_dir(parent).map_err(io::Error::other)?;
        }
        let mut room = CopyRoom { bytes: KEPT_BYTES, files: KEPT_FILES };
        let is_small = CopyRoom { ..room }.has_room_for(&self.path)?;
        // A rename fails between file systems.
        if !is_small || fs::rename(&self.path, target).is_err() {
            room.copy_directory(&self.path, target)?;
        }
        Ok(true)
    }

    /// Keeps the files that tests left in `target`, if given, and removes the directory. Runs in its own
    /// thread, so that the worker can handle messages meanwhile. Returns a log line about kept files.
    ///
    /// Cancel safe: yes, because the work continues without the call.
    pub(crate) async fn remove(self, target: Option<PathBuf>) -> Option<String> {
        let kept_in = target.clone();
        let (report, removed) = oneshot::channel();
        heeler_sys::own_thread::run("heeler-remove", move || {
            let kept = target.map(|target| self.keep(&target));
            // Remove the directory before reporting: the next process of the lease uses the same path.
            drop(self);
            drop(report.send(kept));
        });
        match (removed.await, kept_in) {
            (Ok(Some(Ok(true))), Some(target)) => {
                Some(format!("kept the tests' temporary files in {}", target.display()))
            }
            (Ok(Some(Err(error))), _) => Some(format!("could not keep the tests' temporary files: {error}")),
            // No files were kept.
            (Ok(_) | Err(_), _) => None,
        }
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        // If this fails, the directory is removed with the session's directory, or is left behind.
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::debug!(%error, path = %self.path.display(), "could not remove a test's directory");
            }
            _ => {}
        }
    }
}

/// Remaining limits for copying.
struct CopyRoom {
    bytes: u64,
    files: usize,
}

impl CopyRoom {
    /// Returns whether everything in a directory is within the limits.
    fn has_room_for(&mut self, directory: &Path) -> io::Result<bool> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if self.files == 0 || metadata.len() > self.bytes && metadata.is_file() {
                return Ok(false);
            }
            self.files -= 1;
            if metadata.is_dir() && !self.has_room_for(&entry.path())? {
                return Ok(false);
            }
            if metadata.is_file() {
                self.bytes -= metadata.len();
            }
        }
        Ok(true)
    }

    /// Copies directories and regular files up to the limits. Skips links, sockets and devices, which are not
    /// evidence.
    fn copy_directory(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o700).create(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
            if self.files == 0 {
                return Ok(());
            }
            self.files -= 1;
            if kind.is_dir() {
                self.copy_directory(&entry.path(), &target)?;
            } else if kind.is_file() && entry.metadata()?.len() <= self.bytes {
                self.bytes -= fs::copy(entry.path(), &target)?.min(self.bytes);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_kept_or_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        let kept = dir.path().join("evidence/kept");
        let test_directory = TestDirectory::create(path.clone(), TestDirectoryVariables::TestTmpdir).unwrap();
        assert!(!test_directory.keep(&kept).unwrap(), "there is nothing");
        fs::write(path.join("file"), "x").unwrap();
        assert!(test_directory.keep(&kept).unwrap());
        drop(test_directory);
        assert_eq!((fs::read(kept.join("file")).unwrap(), path.exists()), (b"x".to_vec(), false));
        let test_directory = TestDirectory::create(path.clone(), TestDirectoryVariables::TestTmpdir).unwrap();
        fs::write(path.join("file"), "x").unwrap();
        drop(test_directory);
        assert!(!path.exists());
    }

    #[test]
    fn copies_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("below")).unwrap();
        fs::write(from.join("below/large"), "123456").unwrap();
        fs::write(from.join("below/small"), "12").unwrap();
        std::os::unix::fs::symlink("/", from.join("link")).unwrap();
        CopyRoom { bytes: 5, files: 9 }.copy_directory(&from, &to).unwrap();
        assert_eq!(fs::read(to.join("below/small")).unwrap(), b"12");
        assert!(!to.join("below/large").exists() && !to.join("link").exists());
        CopyRoom { bytes: 5, files: 0 }.copy_directory(&from, &dir.path().join("none")).unwrap();
        assert_eq!(fs::read_dir(dir.path().join("none")).unwrap().count(), 0);
    }
}
