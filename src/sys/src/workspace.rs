//! Finds the workspace of a directory. Runs are recorded in its root, unless `heeler.toml` says otherwise.

use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// Returns the root of the workspace that contains a directory: the nearest ancestor with a `[workspace]` in
/// `Cargo.toml`, or with a `.git`. A cargo package without a workspace takes precedence over its repository.
/// A build directory (with a `CMakeCache.txt`) counts as a root only outside of all these, so that runs
/// started there share their state with runs from the source directory. Returns `None` outside of any
/// workspace.
///
/// The root must belong to this user or to the owner of `start`. The home directory is never a root, even if
/// it is in git.
#[must_use]
pub fn workspace_root(start: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let owner = std::fs::metadata(start).ok()?.uid();
    let is_trusted = |dir: &Path| {
        let dir_owner = std::fs::metadata(dir).map(|found| found.uid()).ok();
        dir_owner == Some(owner) || dir_owner == Some(crate::process::effective_uid())
    };
    let (mut package, mut build) = (None, None);
    for dir in start.ancestors() {
        if Some(dir) == home || dir.parent().is_none() || !is_trusted(dir) {
            break;
        }
        let manifest = dir.join("Cargo.toml");
        if has_workspace_table(&manifest) {
            return Some(dir.to_owned());
        }
        if build.is_none() && dir.join("CMakeCache.txt").is_file() {
            build = Some(dir.to_owned());
        }
        if package.is_none() && manifest.is_file() {
            package = Some(dir.to_owned());
        }
        if dir.join(".git").exists() {
            return Some(package.unwrap_or_else(|| dir.to_owned()));
        }
    }
    package.or(build)
}

fn has_workspace_table(manifest: &Path) -> bool {
    let text = std::fs::read_to_string(manifest).unwrap_or_default();
    text.lines().any(|line| {
        let line = line.trim_start();
        line.starts_with("[workspace]") || line.starts_with("[workspace.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let text = if file.starts_with("ws/Cargo") { "[workspace]\n" } else { "[package]\n" };
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn root_is_the_same_from_every_directory_of_a_workspace() {
        let cases: [(&[&str], &str, Option<&str>); 9] = [
            (&["ws/Cargo.toml", "ws/a/Cargo.toml", "ws/a/src/lib.rs"], "ws/a/src", Some("ws")),
            (&["ws/Cargo.toml", "ws/a/Cargo.toml", "ws/a/src/lib.rs"], "ws", Some("ws")),
            (&["repo/.git/HEAD", "repo/p/Cargo.toml", "repo/p/src/lib.rs"], "repo/p/src", Some("repo/p")),
            (&["repo/.git/HEAD", "repo/p/Cargo.toml", "repo/q/x"], "repo/q", Some("repo")),
            (&["repo/.git/HEAD", "repo/b/CMakeCache.txt", "repo/b/t/x"], "repo/b/t", Some("repo")),
            (&["b/CMakeCache.txt", "b/t/x"], "b/t", Some("b")),
            (&["p/Cargo.toml", "p/tests/x"], "p/tests", Some("p")),
            // The `.git` of a linked worktree is a file.
            (&["tree/.git", "tree/d/x"], "tree/d", Some("tree")),
            (&["plain/x"], "plain", None),
        ];
        for (files, start, expected) in cases {
            let dir = tree(files);
            let found = workspace_root(&dir.path().join(start), None);
            assert_eq!(found, expected.map(|root| dir.path().join(root)), "{files:?} {start}");
        }
    }

    #[test]
    fn home_directory_is_no_workspace() {
        let dir = tree(&["home/.git/HEAD", "home/project/x"]);
        let home = dir.path().join("home");
        assert_eq!(workspace_root(&home.join("project"), Some(&home)), None);
        assert_eq!(workspace_root(&home.join("project"), None), Some(home));
    }
}
