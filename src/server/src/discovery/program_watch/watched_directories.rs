//! The watched directories: directories of programs and of globs. Instead of a missing directory, its nearest
//! existing ancestor is watched, because the directory may appear there.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
};

use heeler_sys::directory_watch::{DirectoryEvent, DirectoryWatch, WatchedDirectoryId};

use super::super::program_finder::CurrentPrograms;

/// Maximum number of directories that a session watches. Small systems allow a user a few thousand watches,
/// and editors need some of them.
const MAX_DIRECTORIES: usize = 1024;

/// Relevant entries of a watched directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct DirectoryInterest {
    /// Names of relevant entries.
    names: BTreeSet<std::ffi::OsString>,
    /// Whether every entry matters, because a glob may match it.
    is_any_entry: bool,
}

#[derive(Debug)]
pub(super) struct WatchedDirectories {
    watch: DirectoryWatch,
    interests: BTreeMap<WatchedDirectoryId, DirectoryInterest>,
    /// Whether some directory of programs is not watched.
    pub(super) is_incomplete: bool,
}

impl WatchedDirectories {
    /// Starts without any watched directory.
    ///
    /// # Errors
    /// The system has no watches left.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { watch: DirectoryWatch::new()?, interests: BTreeMap::new(), is_incomplete: false })
    }

    pub(super) fn watch(&self) -> &DirectoryWatch {
        &self.watch
    }

    /// Watches exactly the directories of these programs.
    pub(super) fn update(&mut self, current: &CurrentPrograms) {
        let wanted = directory_interests(current, Path::is_dir);
        self.is_incomplete = wanted.len() > MAX_DIRECTORIES;
        let mut interests = BTreeMap::<_, DirectoryInterest>::new();
        for (path, interest) in wanted.into_iter().take(MAX_DIRECTORIES) {
            // A directory that was removed and recreated needs a new watch.
            match self.watch.add(&path) {
                Ok(id) => {
                    // Two paths may lead to the same directory.
                    let all = interests.entry(id).or_default();
                    all.names.extend(interest.names);
                    all.is_any_entry |= interest.is_any_entry;
                }
                // If the directory was just removed, its parent's event triggers another check.
                Err(error) => {
                    tracing::debug!(path = %path.display(), %error, "cannot watch a directory");
                    self.is_incomplete |= error.kind() != io::ErrorKind::NotFound;
                }
            }
        }
        let unused = self.interests.keys().filter(|id| !interests.contains_key(*id));
        unused.for_each(|id| self.watch.remove(*id));
        self.interests = interests;
    }

    /// Returns whether an event may concern a program.
    pub(super) fn is_relevant(&self, event: &DirectoryEvent) -> bool {
        match event {
            DirectoryEvent::EntryChanged { directory, name } => self
                .interests
                .get(directory)
                .is_some_and(|interest| interest.is_any_entry || interest.names.contains(name)),
            DirectoryEvent::DirectoryChanged { directory } | DirectoryEvent::WatchEnded { directory } => {
                self.interests.contains_key(directory)
            }
            DirectoryEvent::Overflow => true,
        }
    }
}

/// Returns the directories to watch for these programs, with their relevant entries. For a symbolic link, the
/// link and its final target are watched, but not intermediate links.
fn directory_interests(
    current: &CurrentPrograms,
    is_directory: impl Fn(&Path) -> bool,
) -> BTreeMap<PathBuf, DirectoryInterest> {
    let mut interests: BTreeMap<PathBuf, DirectoryInterest> = BTreeMap::new();
    let mut add = |path: &Path| {
        // Find the nearest existing directory, and the entry in it that leads to the path.
        let mut below = path;
        while let (Some(parent), Some(name)) = (below.parent(), below.file_name()) {
            if is_directory(parent) {
                interests.entry(parent.to_owned()).or_default().names.insert(name.to_owned());
                return;
            }
            below = parent;
        }
    };
    for program in &current.programs {
        add(&program.path);
        if let Ok(target) = std::fs::canonicalize(&program.path)
            && target != program.path
        {
            add(&target);
        }
    }
    for directory in &current.directories {
        add(directory);
    }
    for directory in current.directories.iter().filter(|directory| is_directory(directory)) {
        interests.entry(directory.clone()).or_default().is_any_entry = true;
    }
    interests
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read as _};

    use heeler_sys::directory_watch::{EVENT_BUFFER_BYTES, parse_directory_events};

    use super::super::super::program_finder::CurrentProgram;
    use super::*;

    #[test]
    fn missing_directory_is_awaited_in_the_nearest_one_above() {
        let current = CurrentPrograms {
            programs: ["/w/build/unit", "/w/build/net", "/w/out/deep/disk"]
                .map(|path| CurrentProgram { path: path.into(), suite: None })
                .into(),
            directories: vec!["/w/bin".into(), "/w/none/bin".into()],
        };
        let exists = |path: &Path| ["/", "/w", "/w/build", "/w/bin"].iter().any(|one| Path::new(one) == path);
        let interests = directory_interests(&current, exists);
        let names = |interest: &DirectoryInterest| {
            interest.names.iter().map(|name| name.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let found: Vec<_> = interests
            .iter()
            .map(|(path, interest)| (path.to_str().unwrap(), names(interest), interest.is_any_entry))
            .collect();
        let strings = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            found,
            [
                ("/w", strings(&["bin", "none", "out"]), false),
                ("/w/bin", strings(&[]), true),
                ("/w/build", strings(&["net", "unit"]), false),
            ]
        );
    }

    #[test]
    fn only_entries_of_interest_are_relevant() {
        let dir = tempfile::tempdir().unwrap();
        let mut watched = WatchedDirectories::new().unwrap();
        let unit = CurrentProgram { path: dir.path().join("unit"), suite: None };
        watched.update(&CurrentPrograms { programs: vec![unit], directories: Vec::new() });
        let relevant = |watched: &WatchedDirectories| {
            let mut events = vec![0; EVENT_BUFFER_BYTES];
            let read = File::from(watched.watch().event_descriptor().unwrap()).read(&mut events);
            let events = parse_directory_events(&events[..read.unwrap_or(0)]);
            events.iter().filter(|event| watched.is_relevant(event)).count()
        };
        std::fs::write(dir.path().join("unit.o"), "").unwrap();
        assert_eq!(relevant(&watched), 0);
        std::fs::write(dir.path().join("unit"), "").unwrap();
        assert!(relevant(&watched) > 0);
        watched.update(&CurrentPrograms::default());
        std::fs::write(dir.path().join("unit"), "").unwrap();
        assert_eq!(relevant(&watched), 0);
    }
}
