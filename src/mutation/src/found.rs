//! Finds all mutants of a directory: in sources that Heeler guards and builds, and through StrykerJS.

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
        BuildOptions, FoundByStryker, FoundProject, LanguageProject, MissingStryker, SearchedPackages,
        StrykerPackage, explain_absence, project_of,
    },
};

/// The mutants of a directory.
pub struct FoundMutants {
    /// The directory to which the paths of all mutants are relative.
    pub(crate) root: PathBuf,
    pub(crate) built: Option<FoundProject>,
    pub(crate) stryker: Option<FoundByStryker>,
}

/// Which mutants are searched.
#[derive(Debug, Clone)]
pub struct MutantSearch {
    selection: SourceSelection,
    packages: SearchedPackages,
    /// Files and directories (`/` at the end) outside of which nothing is needed, relative to the project's
    /// directory, where they are known.
    named: Option<Vec<String>>,
    /// Number of test processes that the user wants at the same time.
    jobs: JobCount,
}

/// What is in a directory: at least one of both.
#[derive(Debug, Clone)]
pub struct SearchedProject {
    root: PathBuf,
    built: Option<Arc<dyn LanguageProject>>,
    stryker: Option<StrykerPackage>,
    /// Why JavaScript and TypeScript are left out.
    missing: Option<MissingStryker>,
}

impl SearchedProject {
    /// Looks at a directory, without a search for mutants. Blocks.
    ///
    /// # Errors
    /// There is nothing to mutate.
    pub fn open(options: &BuildOptions, directory: &Path, config: &Config) -> Result<Self, MutateError> {
        let built = project_of(options, directory);
        let built_root = built.as_ref().map(|project| project.root()).transpose()?;
        let found = StrykerPackage::find(directory, built_root.as_deref(), config.stryker.as_deref());
        let (stryker, missing) = match found.transpose() {
            Ok(package) => (package, None),
            Err(missing) => (None, Some(missing)),
        };
        let (root, missing) = match (built_root, &stryker, missing) {
            (Some(root), _, missing) => (root, missing.filter(MissingStryker::is_wanted)),
            (None, Some(package), _) => (package.dir().to_owned(), None),
            (None, None, Some(missing)) => return Err(MutateError::MissingStryker(missing)),
            (None, None, None) => {
                explain_absence(directory)?;
                (directory.to_owned(), None)
            }
        };
        Ok(Self { root, built, stryker, missing })
    }

    /// Returns the directory to which the paths of all mutants are relative.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns why JavaScript and TypeScript are left out, if the user may expect them.
    pub fn missing(&self) -> Option<&MissingStryker> {
        self.missing.as_ref()
    }
}

impl MutantSearch {
    /// Returns a search for mutants that a user names in a project.
    pub fn of_user(selection: SourceSelection, project: &SearchedProject, jobs: JobCount) -> Self {
        let named = selection.named_paths().map(|paths| {
            let relative = paths.iter().filter_map(|path| relative_path(path, &project.root));
            relative.collect::<Vec<_>>()
        });
        Self { selection, packages: SearchedPackages::Directory, named, jobs }
    }

    /// Returns a search of a whole workspace, in which nothing is needed outside of the named paths.
    pub(crate) fn of_workspace(named: Option<Vec<String>>, jobs: JobCount) -> Self {
        let selection = SourceSelection::default();
        Self { selection, packages: SearchedPackages::Workspace, named, jobs }
    }

    /// Finds the mutants of a project.
    ///
    /// # Errors
    /// Sources can't be read, a word of the selection names none, or StrykerJS fails.
    ///
    /// Cancel safe: yes, because StrykerJS ends with its guard's connection.
    pub async fn run(self, project: &SearchedProject) -> Result<FoundMutants, MutateError> {
        let Self { selection, packages, named, jobs } = self;
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
        // The trees of parsers are many times as large as what was found in them.
        return_freed_memory();
        let mut stryker = match &project.stryker {
            Some(package) => {
                let concurrency = match jobs {
                    JobCount::Count(count) => Some(count),
                    // Its configuration says how many.
                    JobCount::Cpus => None,
                };
                let found =
                    FoundByStryker::discover(package, &project.root, named.as_deref(), concurrency).await;
                found.map_err(|error| MutateError::stryker(&error))?
            }
            None => None,
        };
        let sources = stryker.iter().flat_map(|found| found.mutants.sources());
        let mut paths: Vec<PathBuf> = sources.map(|(path, _)| project.root.join(&**path)).collect();
        paths.extend(project.stryker.iter().flat_map(|package| package.named_sources(&selection)));
        let mut unmatched = selection.unmatched(paths.iter().map(PathBuf::as_path));
        if let Some(built) = &built {
            unmatched.retain(|word| built.mutated.unmatched.contains(word));
        }
        if let Some(word) = unmatched.into_iter().next() {
            return Err(MutateError::Unmatched { word });
        }
        if let Some(found) = &mut stryker {
            let is_selected =
                |mutant: &Mutant| selection.selects(&project.root.join(&**mutant.path()), mutant);
            found.mutants.retain(is_selected);
        }
        Ok(FoundMutants { root: project.root.clone(), built, stryker })
    }
}

/// Returns a path relative to a directory, with `/` at the end if it is one; `None` if it leads elsewhere.
fn relative_path(path: &Path, directory: &Path) -> Option<String> {
    let end = if path.is_dir() { "/" } else { "" };
    // A directory around it has all of it.
    let below = if directory.starts_with(path) { Ok(Path::new("")) } else { path.strip_prefix(directory) };
    Some(format!("{}{end}", below.ok()?.to_string_lossy()))
}

impl FoundMutants {
    /// Returns the directory to which the paths of all mutants are relative.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Takes mutants out of the selection.
    pub fn retain(&mut self, is_selected: impl Fn(&Mutant) -> bool) {
        if let Some(built) = &mut self.built {
            built.retain(&is_selected);
        }
        if let Some(stryker) = &mut self.stryker {
            stryker.mutants.retain(&is_selected);
        }
    }

    /// Returns the selected mutants with what is known of them without a test.
    pub fn untested(&self) -> Vec<MutantResult> {
        let sources = self.built.iter().flat_map(|built| &built.mutated.sources);
        let built = sources.flat_map(|source| source.mutants().map(untested));
        let found = self.stryker.iter().flat_map(|found| found.mutants.selected());
        let stryker = found.map(|mutant| MutantResult::new(Arc::clone(mutant), MutantStatus::Pending, None));
        built.chain(stryker).collect()
    }

    /// Returns whether any mutant is selected.
    pub fn has_selected(&self) -> bool {
        self.built.as_ref().is_some_and(FoundProject::has_selected)
            || self.stryker.as_ref().is_some_and(|found| found.mutants.selected().next().is_some())
    }

    /// Returns the sources that can't be parsed as a whole, with the line of the first error.
    pub fn syntax_errors(&self) -> Vec<(Arc<str>, usize)> {
        let sources = self.built.iter().flat_map(|built| &built.mutated.sources);
        let first = sources.filter_map(|source| {
            let line = source.source.first_syntax_error()?;
            Some((Arc::clone(&source.source.file().path), line))
        });
        first.collect()
    }

    /// Returns the texts of all sources, by the paths of their mutants.
    pub(crate) fn texts(&self) -> BTreeMap<Arc<str>, Arc<str>> {
        let sources = self.built.iter().flat_map(|built| &built.mutated.sources);
        let built = sources.map(|source| {
            let file = source.source.file();
            (Arc::clone(&file.path), Arc::clone(&file.text))
        });
        let found = self.stryker.iter().flat_map(|found| found.mutants.sources());
        let stryker = found.map(|(path, text)| (Arc::clone(path), Arc::clone(text)));
        built.chain(stryker).collect()
    }

    /// Writes the mutants as a report.
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

    /// Ends what was started to find them.
    ///
    /// Cancel safe: yes, because StrykerJS ends with its guard's connection.
    pub async fn end(self) {
        if let Some(stryker) = self.stryker {
            stryker.end().await;
        }
    }
}

/// Returns what is known of a mutant that has not been tested.
pub(crate) fn untested(found: &FoundMutant) -> MutantResult {
    let status = if found.ignored.is_some() { MutantStatus::Ignored } else { MutantStatus::Pending };
    MutantResult::new(found.mutant.clone(), status, found.ignored.clone())
}
