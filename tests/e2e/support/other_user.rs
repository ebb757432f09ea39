//! Another user of the machine who attacks Heeler: the fake in its role `intruder`, started as that user.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use super::{requirement, world::copy_program};

/// The uid of `nobody`.
pub(crate) const OTHER_UID: u32 = 65_534;
/// The uid of a user without privileges.
pub(crate) const UNPRIVILEGED_UID: u32 = 12_345;

/// Returns the uids of the users to attack; empty if the tests cannot switch users.
pub(crate) fn attacked_users() -> Vec<u32> {
    if heeler_sys::process::effective_uid() == 0 {
        return vec![UNPRIVILEGED_UID, 0];
    }
    requirement::leave_out("root", "only root can try it as another user");
    Vec::new()
}

pub(crate) struct OtherUser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    /// The user's home directory.
    dir: tempfile::TempDir,
}

impl OtherUser {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("intruder-").tempdir().unwrap();
        let program = dir.path().join("intruder");
        copy_program(Path::new(env!("CARGO_BIN_EXE_heeler-fake")), &program);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::chown(dir.path(), Some(OTHER_UID), Some(OTHER_UID)).unwrap();
        let mut command = Command::new(&program);
        command.uid(OTHER_UID).gid(OTHER_UID).current_dir(dir.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, to, from, dir }
    }

    /// Returns a path in the user's home directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Attempts an action; returns its output or its error.
    pub(crate) fn attempt(&mut self, words: &[&str]) -> Result<String, String> {
        writeln!(self.to, "{}", words.join("\t")).unwrap();
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        let line = line.trim_end_matches('\n');
        match line.split_once(' ') {
            Some(("ok", found)) => Ok(found.to_owned()),
            Some(("no", why)) => Err(why.to_owned()),
            _ => panic!("the intruder said {line:?} to {words:?}"),
        }
    }

    /// Performs an action that must succeed.
    #[track_caller]
    pub(crate) fn perform(&mut self, words: &[&str]) -> String {
        self.attempt(words).unwrap_or_else(|why| panic!("{words:?}: {why}"))
    }

    /// Panics unless the kernel denies the action.
    #[track_caller]
    pub(crate) fn assert_denied(&mut self, words: &[&str]) {
        assert_eq!(self.attempt(words), Err("PermissionDenied".to_owned()), "{words:?}");
    }
}

impl Drop for OtherUser {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Returns all files and directories below a directory.
pub(crate) fn all_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                waiting.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found
}
