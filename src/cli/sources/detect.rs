//! Finds the projects with tests in the working directory and its first two levels, for a command line and a
//! configuration that name none. Each source recognizes its own projects ([`TestSource::project_in`]).

use std::path::{Path, PathBuf};

use heeler_core::SourceRequest;

use super::test_source::TestSource;

/// A project found in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct FoundProject {
    /// The request that runs its tests.
    pub(in crate::cli) request: SourceRequest,
    /// Kind of project and its directory, such as `Go module in svc`.
    pub(in crate::cli) title: String,
    /// The file or directory that shows what it is, such as `svc/go.mod`.
    pub(in crate::cli) reason: String,
    /// Name of its suite in a new `heeler.toml`.
    pub(in crate::cli) suite: String,
    /// Lines of its suite in a new `heeler.toml`: key and value.
    pub(in crate::cli) keys: Vec<(&'static str, String)>,
}

/// Result of looking for a project of one source in one directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum Sighting {
    Project(Box<FoundProject>),
    /// Tests that are not run, with the reason and what to do.
    Unusable(String),
}

/// A directory that may contain a project.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct Site<'a> {
    /// The working directory.
    pub(in crate::cli) top: &'a Path,
    pub(in crate::cli) dir: &'a Path,
}

impl Site<'_> {
    /// Returns the directory relative to the working directory, `.` for the working directory itself.
    pub(in crate::cli) fn name(&self) -> String {
        self.relative(self.dir)
    }

    /// Returns a path relative to the working directory, for display and for a configuration.
    pub(in crate::cli) fn relative(&self, path: &Path) -> String {
        match path.strip_prefix(self.top) {
            Ok(rest) if rest.as_os_str().is_empty() => ".".to_owned(),
            Ok(rest) => rest.display().to_string(),
            Err(_) => path.display().to_string(),
        }
    }

    /// Returns ` in DIR`, or nothing for the working directory.
    pub(in crate::cli) fn place(&self) -> String {
        if self.dir == self.top { String::new() } else { format!(" in {}", self.name()) }
    }

    /// Returns whether the directory has a file of this name.
    pub(in crate::cli) fn has(&self, name: &str) -> bool {
        self.dir.join(name).is_file()
    }

    /// Returns whether this is the working directory and a directory above it has a file of this name.
    pub(in crate::cli) fn is_below(&self, name: &str) -> bool {
        self.dir == self.top && self.dir.ancestors().skip(1).any(|dir| dir.join(name).is_file())
    }

    /// Returns the names in the directory, sorted.
    pub(in crate::cli) fn names(&self) -> Vec<String> {
        names_in(self.dir)
    }
}

/// Returns the names in a directory that are UTF-8, sorted; none if it can't be read.
pub(in crate::cli) fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().take(MAX_NAMES);
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Projects found below a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::cli) struct FoundProjects {
    pub(in crate::cli) projects: Vec<FoundProject>,
    /// One line for each project whose tests are not run, with the reason.
    pub(in crate::cli) unusable: Vec<String>,
}

/// Levels of directories below the working directory that are searched.
const LEVELS: usize = 2;
/// Maximum number of directories searched, so that a search in a home directory ends soon.
const MAX_DIRECTORIES: usize = 2_000;
/// Maximum number of names of one directory that are read.
const MAX_NAMES: usize = 10_000;
/// Directories of build tools and package managers without test programs of the user.
pub(super) const SKIPPED_DIRECTORIES: [&str; 3] = ["CMakeFiles", "node_modules", "_deps"];
/// Directories with copies, results and test data of others, in addition to [`SKIPPED_DIRECTORIES`].
const FOREIGN_DIRECTORIES: [&str; 11] = [
    "target",
    "vendor",
    "third_party",
    "venv",
    "env",
    "site-packages",
    "testdata",
    "fixtures",
    "obj",
    "dist",
    "__pycache__",
];

/// Returns the projects in `top` and in its first two levels of directories. Of nested projects of one kind
/// the outer one counts, because its tool finds what is below.
pub(super) fn find_projects(registry: &[&dyn TestSource], top: &Path) -> FoundProjects {
    let mut found = FoundProjects::default();
    let mut owned: Vec<(&'static str, PathBuf)> = Vec::new();
    for dir in directories(top) {
        let site = Site { top, dir: &dir };
        for source in registry {
            let is_inside =
                owned.iter().any(|(name, outer)| *name == source.name() && dir.starts_with(outer));
            if is_inside {
                continue;
            }
            match source.project_in(site) {
                Some(Sighting::Project(project)) => {
                    owned.push((source.name(), dir.clone()));
                    found.projects.push(*project);
                }
                Some(Sighting::Unusable(line)) => {
                    owned.push((source.name(), dir.clone()));
                    found.unusable.push(line);
                }
                None => {}
            }
        }
        let mut outer = dir.ancestors().skip(1).take_while(|outer| outer.starts_with(top));
        if site.has("package.json") && !outer.any(|outer| outer.join("package.json").is_file()) {
            let file = site.relative(&dir.join("package.json"));
            found.unusable.push(format!("{file}: Heeler does not run JavaScript tests"));
        }
    }
    give_distinct_names(&mut found.projects);
    found
}

/// Returns the directory and those below it that may belong to the user's project, level by level.
fn directories(top: &Path) -> Vec<PathBuf> {
    let mut all = vec![top.to_owned()];
    visit_below(top, LEVELS, |path, is_dir| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_kept = is_dir
            && !name.starts_with('.')
            && !SKIPPED_DIRECTORIES.contains(&name.as_ref())
            && !FOREIGN_DIRECTORIES.contains(&name.as_ref())
            && all.len() < MAX_DIRECTORIES;
        if is_kept {
            all.push(path.to_owned());
        }
        is_kept
    });
    all
}

/// Calls `visit` with each path below a directory and whether it is a directory, level by level, each level
/// in the order of the names. Follows no links. `visit` returns whether to enter a directory.
pub(super) fn visit_below(dir: &Path, levels: usize, mut visit: impl FnMut(&Path, bool) -> bool) {
    let mut level = vec![dir.to_owned()];
    for _ in 0..levels {
        let mut next = Vec::new();
        for path in level.iter().flat_map(|dir| names_in(dir).into_iter().map(|name| dir.join(name))) {
            let is_dir = path.symlink_metadata().is_ok_and(|file| file.is_dir());
            if visit(&path, is_dir) && is_dir {
                next.push(path);
            }
        }
        level = next;
    }
}

/// Adds a number to names of suites that occur twice.
fn give_distinct_names(projects: &mut [FoundProject]) {
    for index in 1..projects.len() {
        let base = projects[index].suite.clone();
        let mut number = 1;
        while projects[..index].iter().any(|other| other.suite == projects[index].suite) {
            number += 1;
            projects[index].suite = format!("{base}-{number}");
        }
    }
}

/// Returns the text of a new `heeler.toml` with a suite for each project.
pub(in crate::cli) fn configuration_text(found: &FoundProjects) -> String {
    let mut text = String::from("# The test suites of this project; `heeler run` runs them all.\n");
    for project in &found.projects {
        let FoundProject { title, reason, suite, keys, .. } = project;
        text += &format!("\n# {title} ({reason})\n[[suite]]\nname = {}\n", quoted(suite));
        for (key, value) in keys {
            text += &format!("{key} = {}\n", quoted(value));
        }
    }
    text
}

fn quoted(text: &str) -> String {
    // A string of JSON is a string of TOML.
    serde_json::Value::from(text).to_string()
}
