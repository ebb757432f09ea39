//! Copies a source tree, replacing the contents of some files. Unchanged files keep their modification times,
//! so build tools rebuild only what changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use crate::fingerprint::Fingerprint;

/// Directories that no build reads, at any depth.
const LEFT_OUT: [&str; 5] = [".git", ".hg", ".jj", ".svn", "node_modules"];
/// File that marks a directory as a cache, such as build output.
const CACHE_TAG: &str = "CACHEDIR.TAG";

/// Magic numbers of ELF files and archives. Their copies keep the original modification time: with a newer
/// one, make would think that they were already built from the guarded sources.
const COMPILED: [&[u8]; 2] = [b"\x7fELF", b"!<arch>\n"];

/// Error while copying a tree.
#[derive(Debug, thiserror::Error)]
#[error("cannot copy {}", path.display())]
pub struct TreeCopyError {
    path: PathBuf,
    source: io::Error,
}

#[derive(Debug)]
pub struct TreeCopy<'a> {
    pub original: &'a Path,
    pub copy: &'a Path,
    /// Directories not to copy.
    pub left_out: &'a [PathBuf],
    pub left_out_files: &'a [PathBuf],
    /// Names at the top of the copy that are kept although the original lacks them: build tools create
    /// them.
    pub kept: &'a [&'a str],
    /// Paths copied before, for builds that write into the copy: only these paths are removed when their
    /// originals are gone, and build output stays. `None` removes everything without an original.
    pub copied_before: Option<&'a BTreeSet<PathBuf>>,
    /// Replacement contents, by path relative to the tree.
    pub replaced: &'a BTreeMap<PathBuf, &'a str>,
}

/// The result of updating a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopiedTree {
    /// Number of files and links written.
    pub written: usize,
    /// Number of files, links and directories removed.
    pub removed: usize,
    /// A hash of paths and contents of all files that were not replaced.
    pub unchanged: Fingerprint,
    /// All copied files, links and directories, relative to the tree.
    pub paths: BTreeSet<PathBuf>,
}

impl<'a> TreeCopy<'a> {
    /// Returns a copy without exclusions and without kept files.
    #[must_use]
    pub fn new(original: &'a Path, copy: &'a Path, replaced: &'a BTreeMap<PathBuf, &'a str>) -> Self {
        Self { original, copy, left_out: &[], left_out_files: &[], kept: &[], copied_before: None, replaced }
    }

    /// Makes the copy match the original, apart from the replaced files. Never writes to the original.
    ///
    /// # Errors
    /// A file can't be read or written.
    pub fn update(&self) -> Result<CopiedTree, TreeCopyError> {
        let mut copied = CopiedTree::default();
        self.update_directory(Path::new(""), &mut copied)?;
        Ok(copied)
    }

    /// Writes only the replaced files; returns how many changed.
    ///
    /// # Errors
    /// A file can't be written.
    pub fn update_replaced(&self) -> Result<usize, TreeCopyError> {
        let mut written = 0;
        for (path, text) in self.replaced {
            let copy = self.copy.join(path);
            written += usize::from(write_changed(&copy, text.as_bytes()).map_err(failed(&copy))?);
        }
        Ok(written)
    }

    fn update_directory(&self, below: &Path, copied: &mut CopiedTree) -> Result<(), TreeCopyError> {
        // Create the directory, and list what to copy into it.
        let (original, copy) = (below_root(self.original, below), below_root(self.copy, below));
        if !is_directory(&copy) {
            remove(&copy).map_err(failed(&copy))?;
            fs::create_dir_all(&copy).map_err(failed(&copy))?;
        }
        let mut names = BTreeSet::new();
        let entries = fs::read_dir(&original).map_err(failed(&original))?;
        for entry in entries {
            let entry = entry.map_err(failed(&original))?;
            names.insert(entry.file_name());
        }
        names.retain(|name| {
            let path = original.join(name);
            !self.is_left_out(&path) && !self.left_out_files.contains(&path)
        });
        // Copy the entries.
        for name in &names {
            let below = below.join(name);
            copied.paths.insert(below.clone());
            let kind = fs::symlink_metadata(original.join(name)).map_err(failed(&original.join(name)))?;
            if kind.is_dir() {
                self.update_directory(&below, copied)?;
            } else if kind.is_symlink() {
                self.update_link(&below, copied)?;
            } else if kind.is_file() {
                self.update_file(&below, &kind, copied)?;
            }
        }
        // Remove everything else from the copy, except kept names and build output.
        for entry in fs::read_dir(&copy).map_err(failed(&copy))? {
            let entry = entry.map_err(failed(&copy))?;
            let is_kept =
                || below == Path::new("") && self.kept.iter().any(|name| entry.file_name() == *name);
            let is_made =
                || self.copied_before.is_some_and(|before| !before.contains(&below.join(entry.file_name())));
            if !names.contains(&entry.file_name()) && !is_kept() && !is_made() {
                remove(&entry.path()).map_err(failed(&entry.path()))?;
                copied.removed += 1;
            }
        }
        Ok(())
    }

    fn is_left_out(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default();
        // The copy may be inside the original.
        let is_copy = || same_directory(path, self.copy);
        let is_known = LEFT_OUT.iter().any(|one| name == *one) || self.left_out.iter().any(|one| one == path);
        path.is_dir() && (is_known || path.join(CACHE_TAG).is_file() || is_copy())
    }

    fn update_link(&self, below: &Path, copied: &mut CopiedTree) -> Result<(), TreeCopyError> {
        let (original, copy) = (self.original.join(below), self.copy.join(below));
        let target = fs::read_link(&original).map_err(failed(&original))?;
        copied.unchanged = copied.unchanged.with(path_bytes(below)).with(path_bytes(&target));
        copied.written += usize::from(link_to(&copy, &target).map_err(failed(&copy))?);
        Ok(())
    }

    fn update_file(
        &self,
        below: &Path,
        kind: &fs::Metadata,
        copied: &mut CopiedTree,
    ) -> Result<(), TreeCopyError> {
        let (original, copy) = (self.original.join(below), self.copy.join(below));
        if !fs::symlink_metadata(&copy).is_ok_and(|kind| kind.is_file()) {
            remove(&copy).map_err(failed(&copy))?;
        }
        let is_written = match self.replaced.get(below) {
            Some(text) => write_changed(&copy, text.as_bytes()),
            None => fs::read(&original).and_then(|bytes| {
                copied.unchanged = copied.unchanged.with(path_bytes(below)).with(&bytes);
                let is_written = write_changed(&copy, &bytes)?;
                if is_written && COMPILED.iter().any(|magic| bytes.starts_with(magic)) {
                    fs::File::options().write(true).open(&copy)?.set_modified(kind.modified()?)?;
                }
                Ok(is_written)
            }),
        };
        copied.written += usize::from(is_written.map_err(failed(&copy))?);
        // Keep the copy writable, or the next update would fail.
        let mode = (kind.permissions().mode() & 0o777) | 0o600;
        fs::set_permissions(&copy, fs::Permissions::from_mode(mode)).map_err(failed(&copy))
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> TreeCopyError {
    let path = path.to_owned();
    |source| TreeCopyError { path, source }
}

fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|kind| kind.is_dir())
}

fn same_directory(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    matches!((id(one), id(other)), (Ok(one), Ok(other)) if one == other)
}

/// Joins a path to a root; returns the root without a trailing slash for an empty path.
fn below_root(root: &Path, below: &Path) -> PathBuf {
    if below == Path::new("") { root.to_owned() } else { root.join(below) }
}

/// Replaces whatever is at `path` with a symbolic link. Returns whether the link was missing.
pub(crate) fn link_to(path: &Path, target: &Path) -> io::Result<bool> {
    if fs::read_link(path).ok().as_deref() == Some(target) {
        return Ok(false);
    }
    remove(path)?;
    symlink(target, path)?;
    Ok(true)
}

/// Removes a file or directory tree, if it exists.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let removed = if is_directory(path) { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes a file unless it has this content already. Returns whether it was written.
pub(crate) fn write_changed(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let has_length = fs::metadata(path).is_ok_and(|kind| kind.len() == bytes.len() as u64);
    if has_length && fs::read(path)? == bytes {
        return Ok(false);
    }
    fs::write(path, bytes)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    /// Returns all paths of a tree with their contents.
    fn tree(root: &Path) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut open = vec![root.to_owned()];
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let below = path.strip_prefix(root).unwrap().display().to_string();
                if let Ok(target) = fs::read_link(&path) {
                    found.push((below, format!("→ {}", target.display())));
                } else if path.is_dir() {
                    open.push(path);
                } else {
                    found.push((below, fs::read_to_string(&path).unwrap()));
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn copy_follows_the_original_and_only_changes_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let (original, copy) = (dir.path().join("original"), dir.path().join("original/.state/copy"));
        write(
            &original,
            &[
                ("Cargo.toml", "[package]"),
                ("src/lib.rs", "mod a;"),
                ("src/a.rs", "a"),
                (".git/HEAD", "ref"),
                ("target/debug/x", "x"),
                ("build/CACHEDIR.TAG", "tag"),
                (".state/other", "other"),
            ],
        );
        symlink("src/a.rs", original.join("link")).unwrap();
        fs::set_permissions(original.join("Cargo.toml"), fs::Permissions::from_mode(0o444)).unwrap();
        let left_out = [original.join(".state"), original.join("target")];
        let update = |replaced: &[(&str, &str)]| {
            let replaced = replaced.iter().map(|(path, text)| (PathBuf::from(path), *text)).collect();
            let tree = TreeCopy::new(&original, &copy, &replaced);
            TreeCopy { left_out: &left_out, kept: &["Cargo.lock"], ..tree }.update().unwrap()
        };
        let first = update(&[("src/a.rs", "guarded a")]);
        let owned = |files: &[(&str, &str)]| {
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect::<Vec<_>>()
        };
        let expected = [
            ("Cargo.toml", "[package]"),
            ("link", "→ src/a.rs"),
            ("src/a.rs", "guarded a"),
            ("src/lib.rs", "mod a;"),
        ];
        assert_eq!(tree(&copy), owned(&expected));
        assert_eq!((first.written, first.removed), (4, 0));
        write(&copy, &[("Cargo.lock", "made by a build"), ("Cargo.bak", "made by no build")]);
        let again = update(&[("src/a.rs", "guarded a")]);
        assert_eq!(again, CopiedTree { written: 0, removed: 1, ..first.clone() });
        fs::remove_file(copy.join("Cargo.lock")).unwrap();
        assert_eq!(
            update(&[("src/a.rs", "guarded b")]).unchanged,
            first.unchanged,
            "it is not the original's"
        );

        fs::remove_file(original.join("link")).unwrap();
        fs::remove_file(original.join("src/lib.rs")).unwrap();
        write(&original, &[("src/lib.rs/mod.rs", "a directory now"), ("link", "a file now")]);
        let third = update(&[]);
        let expected = [
            ("Cargo.toml", "[package]"),
            ("link", "a file now"),
            ("src/a.rs", "a"),
            ("src/lib.rs/mod.rs", "a directory now"),
        ];
        assert_eq!(tree(&copy), owned(&expected));
        assert_eq!((third.written, third.removed), (3, 0));
        assert_ne!(third.unchanged, first.unchanged);
        fs::remove_dir_all(original.join("src")).unwrap();
        assert_eq!(update(&[]).removed, 1);
        let mut left = tree(&original);
        left.retain(|(path, _)| !path.starts_with(".state/copy"));
        assert_eq!(left.len(), 6, "nothing was written to the original: {left:?}");
    }

    #[test]
    fn what_a_build_has_made_stays_and_copies_go_with_their_originals() {
        let dir = tempfile::tempdir().unwrap();
        let (original, copy) = (dir.path().join("original"), dir.path().join("copy"));
        write(&original, &[("a.c", "a"), ("lib/b.c", "b"), ("lib/c.c", "c"), ("old/d.c", "d")]);
        let replaced = BTreeMap::new();
        let update = |copied_before: &BTreeSet<PathBuf>| {
            let tree = TreeCopy::new(&original, &copy, &replaced);
            TreeCopy { copied_before: Some(copied_before), ..tree }.update().unwrap()
        };
        let first = update(&BTreeSet::new());
        write(&copy, &[("a.o", "made"), ("lib/b.o", "made"), ("build/x", "made")]);
        fs::remove_file(original.join("lib/c.c")).unwrap();
        fs::remove_dir_all(original.join("old")).unwrap();
        let second = update(&first.paths);
        let names: Vec<String> = tree(&copy).into_iter().map(|(path, _)| path).collect();
        assert_eq!(names, ["a.c", "a.o", "build/x", "lib/b.c", "lib/b.o"]);
        assert_eq!((second.written, second.removed), (0, 2));
    }

    #[test]
    fn file_that_cannot_be_read_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (original, copy) = (dir.path().join("missing"), dir.path().join("copy"));
        let replaced = BTreeMap::new();
        let error = TreeCopy::new(&original, &copy, &replaced).update().unwrap_err();
        assert!(error.to_string().ends_with("/missing"));
    }
}
