//! Finds all mutants of a directory: in sources that Heeler guards and builds, and through mutation servers.

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use heeler_config::{Config, JobCount};
use heeler_mutant::FoundMutant;
use heeler_mutant_model::{Mutant, MutantResult, MutantStatus};
use heeler_mutate::SourceSelection;
use heeler_report::{
    ReportError,
    mutation::{MutationReport, ScoreBounds, write_elements},
};
use heeler_sys::memory::return_freed_memory;
use tokio::task::spawn_blocking;

use crate::{
    error::MutateError,
    languages::{
        BuildOptions, FoundProject, LanguageProject, SearchedPackages, ServedMutants, ServedProject,
        explain_absence, project_of, served_project_of,
    },
};

/// The mutants of a directory.
pub struct FoundMutants {
    /// The directory that mutant paths are relative to.
    pub(crate) root: PathBuf,
    built: Option<FoundProject>,
    served: Option<Box<dyn ServedMutants>>,
}

/// Which mutants to search for.
#[derive(Debug, Clone)]
pub struct MutantSearch {
    selection: SourceSelection,
    packages: SearchedPackages,
    /// Files and directories (with a trailing `/`) that the search is limited to, relative to the project's
    /// directory; `None` if the search is not limited to any.
    named: Option<Vec<String>>,
    /// Number of parallel test processes that the user configured.
    jobs: JobCount,
}

/// The projects of a directory: built by Heeler, served by a mutation server, or both.
#[derive(Debug, Clone)]
pub struct SearchedProject {
    root: PathBuf,
    built: Option<Arc<dyn LanguageProject>>,
    served: Option<Arc<dyn ServedProject>>,
    /// Languages that are skipped although the user may expect them, and why.
    left_out: Option<String>,
}

impl SearchedProject {
    /// Looks for projects in a directory, without searching for mutants. Blocks.
    ///
    /// # Errors
    /// The directory has nothing to mutate.
    pub fn open(options: &BuildOptions, directory: &Path, config: &Config) -> Result<Self, MutateError> {
        let built = project_of(options, directory);
        let built_root = built.as_ref().map(|project| project.root()).transpose()?;
        let (served, missing) = match served_project_of(directory, built_root.as_deref(), config).transpose()
        {
            Ok(project) => (project, None),
            Err(missing) => (None, Some(missing)),
        };
        let (root, missing) = match (built_root, &served, missing) {
            (Some(root), _, missing) => (root, missing.filter(|missing| missing.is_wanted)),
            (None, Some(project), _) => (project.dir().to_owned(), None),
            (None, None, Some(missing)) => {
                return Err(MutateError::MissingServer { reason: missing.reason });
            }
            (None, None, None) => {
                explain_absence(directory)?;
                (directory.to_owned(), None)
            }
        };
        let left_out = missing.map(|missing| format!("skipping {}: {}", missing.languages, missing.reason));
        Ok(Self { root, built, served, left_out })
    }

    /// Returns the directory that mutant paths are relative to.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns which languages are skipped although the user may expect them, and why.
    pub fn left_out(&self) -> Option<&str> {
        self.left_out.as_deref()
    }
}

impl MutantSearch {
    /// Returns a search for mutants selected by the user.
    pub fn of_user(selection: SourceSelection, project: &SearchedProject, jobs: JobCount) -> Self {
        let named = selection.named_paths().map(|paths| {
            let relative = paths.iter().filter_map(|path| relative_path(path, &project.root));
            relative.collect::<Vec<_>>()
        });
        Self { selection, packages: SearchedPackages::Directory, named, jobs }
    }

    /// Returns a search of a whole workspace, limited to the named paths if there are any.
    pub(crate) fn of_workspace(named: Option<Vec<String>>, jobs: JobCount) -> Self {
        let selection = SourceSelection::default();
        Self { selection, packages: SearchedPackages::Workspace, named, jobs }
    }

    /// Finds the mutants of a project.
    ///
    /// # Errors
    /// Sources can't be read, a selection word matches none, or a mutation server fails.
    ///
    /// Cancel safe: yes, because a server ends when the connection of its guard closes.
    pub async fn run(self, project: &SearchedProject) -> Result<FoundMutants, MutateError> {
        let Self { selection, packages, named, jobs } = self;
        // Find mutants in the sources that Heeler builds.
        let built = match &project.built {
            Some(built) => {
                let (built, selection) = (Arc::clone(built), selection.clone());
                match spawn_blocking(move || built.find(&selection, packages)).await {
                    Ok(found) => Some(found?),
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                }
            }
            None => None,
        };
        // Syntax trees are far larger than the mutants found in them.
        return_freed_memory();
        let mut served = match &project.served {
            Some(server) => {
                let concurrency = match jobs {
                    JobCount::Count(count) => Some(count),
                    // Without a number, the server's own configuration decides.
                    JobCount::Cpus => None,
                };
                server.find(&project.root, named.as_deref(), concurrency).await?
            }
            None => None,
        };
        // Reject selections that match no source of either kind.
        let sources = served.iter().flat_map(|found| found.sources());
        let mut paths: Vec<PathBuf> = sources.map(|(path, _)| project.root.join(&*path)).collect();
        paths.extend(project.served.iter().flat_map(|project| project.named_sources(&selection)));
        let mut unmatched = selection.unmatched(paths.iter().map(PathBuf::as_path));
        if let Some(built) = &built {
            unmatched.retain(|word| built.mutated.unmatched.contains(word));
        }
        if let Some(word) = unmatched.into_iter().next() {
            return Err(MutateError::Unmatched { word });
        }
        if let Some(found) = &mut served {
            found.retain(&|mutant| selection.selects(&project.root.join(&**mutant.path()), mutant));
        }
        Ok(FoundMutants { root: project.root.clone(), built, served })
    }
}

/// Returns a path relative to a directory, with a trailing `/` for directories. Returns `None` if the path is
/// neither below the directory nor a parent of it.
fn relative_path(path: &Path, directory: &Path) -> Option<String> {
    let end = if path.is_dir() { "/" } else { "" };
    // A selected parent directory includes the whole directory.
    let below = if directory.starts_with(path) { Ok(Path::new("")) } else { path.strip_prefix(directory) };
    Some(format!("{}{end}", below.ok()?.to_string_lossy()))
}

impl FoundMutants {
    /// Returns the directory that mutant paths are relative to.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Removes mutants from the selection.
    pub fn retain(&mut self, is_selected: impl Fn(&Mutant) -> bool) {
        if let Some(built) = &mut self.built {
            built.retain(&is_selected);
        }
        if let Some(served) = &mut self.served {
            served.retain(&is_selected);
        }
    }

    /// Returns the selected mutants with their results before any test.
    pub fn untested(&self) -> Vec<MutantResult> {
        let sources = self.built.iter().flat_map(|built| &built.mutated.sources);
        let built = sources.flat_map(|source| source.mutants().map(untested));
        let found = self.served.iter().flat_map(|found| found.selected());
        let served = found.map(|mutant| MutantResult::new(mutant, MutantStatus::Pending, None));
        built.chain(served).collect()
    }

    /// Returns whether any mutant is selected.
    pub fn has_selected(&self) -> bool {
        self.built.as_ref().is_some_and(FoundProject::has_selected)
            || self.served.as_ref().is_some_and(|found| found.has_selected())
    }

    /// Returns the sources with syntax errors, with the line of the first error.
    pub fn syntax_errors(&self) -> Vec<(Arc<str>, usize)> {
        let sources = self.built.iter().flat_map(|built| &built.mutated.sources);
        let first = sources.filter_map(|source| {
            let line = source.source.first_syntax_error()?;
            Some((Arc::clone(&source.source.file().path), line))
        });
        first.collect()
    }

    /// Returns the texts of all sources, by mutant path.
    pub(crate) fn texts(&self) -> BTreeMap<Arc<str>, Arc<str>> {
        let sources = self.built.iter().flat_map(|built| &built.mutated.sources);
        let built = sources.map(|source| {
            let file = source.source.file();
            (Arc::clone(&file.path), Arc::clone(&file.text))
        });
        built.chain(self.served.iter().flat_map(|found| found.sources())).collect()
    }

    /// Writes the mutants as a mutation testing report without verdicts.
    ///
    /// # Errors
    /// The writer fails.
    pub fn write_json(&self, writer: &mut dyn Write) -> Result<(), ReportError> {
        let report = MutationReport {
            results: &self.untested(),
            sources: &self.texts(),
            directory: &self.root,
            bounds: ScoreBounds::default(),
            tests: &BTreeMap::new(),
            phases: None,
        };
        write_elements(&report, writer)
    }

    /// Returns the projects with selected mutants. Ends a mutation server without any.
    ///
    /// Cancel safe: yes, because a server ends when the connection of its guard closes.
    pub(crate) async fn into_selected(self) -> (Option<FoundProject>, Option<Box<dyn ServedMutants>>) {
        let built = self.built.filter(FoundProject::has_selected);
        match self.served {
            Some(served) if !served.has_selected() => {
                served.end().await;
                (built, None)
            }
            served => (built, served),
        }
    }

    /// Ends the mutation server, if one runs.
    ///
    /// Cancel safe: yes, because a server ends when the connection of its guard closes.
    pub async fn end(self) {
        if let Some(served) = self.served {
            served.end().await;
        }
    }
}

/// Returns the result of a mutant before any test.
pub(crate) fn untested(found: &FoundMutant) -> MutantResult {
    let status = if found.ignored.is_some() { MutantStatus::Ignored } else { MutantStatus::Pending };
    MutantResult::new(found.mutant.clone(), status, found.ignored.clone())
}
