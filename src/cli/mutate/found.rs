//! All mutants of a directory: those of sources that are built here, and those that StrykerJS finds.

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use heeler_config::{Config, JobCount, ResolvedSettings};
use heeler_mutant_model::{Language, Mutant, MutantResult, MutantStatus};
use heeler_mutate::SourceSelection;
use heeler_report::{
    ReportError,
    mutation::{MutationReport, ScoreBounds, write_elements},
};
use heeler_sys::memory::return_freed_memory;
use tokio::task::spawn_blocking;

use super::{
    cargo_options::CargoOptions,
    command_build::BuiltTests,
    error::MutateError,
    find::{
        FoundProject, NamedBuild, SearchedPackages, built_root, changed_lines, find_built_sources,
        has_build_tool, untested,
    },
    stryker::{FoundByStryker, MissingStryker, StrykerPackage},
};
use crate::cli::arguments::MutateArguments;

/// The mutants of a directory.
pub(super) struct FoundMutants {
    /// The directory to which the paths of all mutants are relative.
    pub(super) root: PathBuf,
    pub(super) built: Option<FoundProject>,
    pub(super) stryker: Option<FoundByStryker>,
}

/// Where mutants are searched.
#[derive(Debug, Clone)]
pub(super) struct MutantSearch {
    pub(super) directory: PathBuf,
    /// How the user builds the sources.
    pub(super) command: Option<NamedBuild>,
    /// For builds by Cargo.
    pub(super) cargo: CargoOptions,
    pub(super) selection: SourceSelection,
    pub(super) packages: SearchedPackages,
    /// Files and directories (`/` at the end) outside of which nothing is needed, relative to the project's
    /// directory, where they are known.
    pub(super) named: Option<Vec<String>>,
    /// Number of test processes that the user wants at the same time.
    pub(super) jobs: JobCount,
}

/// What is in a directory: at least one of both.
#[derive(Debug, Clone)]
pub(super) struct SearchedProject {
    pub(super) root: PathBuf,
    has_build_tool: bool,
    stryker: Option<StrykerPackage>,
    /// Why JavaScript and TypeScript are left out.
    pub(super) missing: Option<MissingStryker>,
}

impl SearchedProject {
    /// Looks at a directory, without a search for mutants. Blocks.
    ///
    /// # Errors
    /// There is nothing to mutate.
    pub(super) fn open(
        command: Option<&NamedBuild>,
        directory: &Path,
        config: &Config,
    ) -> Result<Self, MutateError> {
        let has_build_tool = has_build_tool(command, directory);
        let built = has_build_tool.then(|| built_root(command, directory)).transpose()?;
        let (stryker, missing) =
            match StrykerPackage::find(directory, built.as_deref(), config.stryker.as_deref()) {
                None => (None, None),
                Some(Ok(package)) => (Some(package), None),
                Some(Err(missing)) => (None, Some(missing)),
            };
        let root = match (built, &stryker, missing) {
            (Some(root), _, missing) => {
                let missing = missing.filter(MissingStryker::is_wanted);
                return Ok(Self { root, has_build_tool, stryker, missing });
            }
            (None, Some(package), _) => package.dir().to_owned(),
            (None, None, Some(missing)) => return Err(MutateError::MissingStryker(missing)),
            (None, None, None) => {
                if let Some((file, example)) = example_of_build(directory) {
                    return Err(MutateError::NoBuild { file, example });
                }
                // Cargo says what it misses.
                built_root(None, directory)?
            }
        };
        Ok(Self { root, has_build_tool, stryker, missing: None })
    }

    /// Returns the named sources of the package of StrykerJS, which says nothing about those without mutants.
    fn sources_without_mutants(&self, selection: &SourceSelection) -> Vec<PathBuf> {
        let Some(package) = &self.stryker else { return Vec::new() };
        let is_source = |path: &PathBuf| {
            let language = Language::of_path(&path.to_string_lossy());
            let is_mutated = matches!(language, Some(Language::JavaScript | Language::TypeScript));
            is_mutated && path.starts_with(package.dir()) && path.is_file()
        };
        selection.named_paths().unwrap_or_default().into_iter().filter(is_source).collect()
    }
}

/// Returns the build file of another build tool in this directory, and the options that test its mutants.
fn example_of_build(directory: &Path) -> Option<(&'static str, &'static str)> {
    const CMAKE: &str = "--build 'cmake -B build && cmake --build build' --ctest build";
    const MESON: &str = "--build 'test -d build || meson setup build; ninja -C build' --test 'build/*_test'";
    const MAKE: &str = "--build 'make TESTS' --test 'PATH/OF/*_test'";
    const CONFIGURE: &str = "--build './configure && make TESTS' --test 'PATH/OF/*_test'";
    let files = [
        ("CMakeLists.txt", CMAKE),
        ("meson.build", MESON),
        ("GNUmakefile", MAKE),
        ("Makefile", MAKE),
        ("makefile", MAKE),
        ("configure", CONFIGURE),
    ];
    files.into_iter().find(|(file, _)| directory.join(file).is_file())
}

impl MutantSearch {
    /// Finds the mutants of a project.
    ///
    /// # Errors
    /// Sources can't be read, a word of the selection names none, or StrykerJS fails.
    ///
    /// Cancel safe: yes, because StrykerJS ends with its guard's connection.
    pub(super) async fn run(self, project: &SearchedProject) -> Result<FoundMutants, MutateError> {
        let Self { directory, command, cargo, selection, packages, named, jobs } = self;
        let built = if project.has_build_tool {
            let selection = selection.clone();
            let find = move || find_built_sources(command, cargo, directory, &selection, packages);
            match spawn_blocking(find).await {
                Ok(found) => Some(found?),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        } else {
            None
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
        paths.extend(project.sources_without_mutants(&selection));
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

/// Finds the mutants that the arguments select.
///
/// # Errors
/// There is no package, or the arguments select none of its sources.
///
/// Cancel safe: yes, as [`MutantSearch::run`].
pub(super) async fn find_selected(
    arguments: &MutateArguments,
    config: &Config,
    settings: &ResolvedSettings,
) -> Result<FoundMutants, MutateError> {
    let directory = std::env::current_dir().map_err(MutateError::Directory)?;
    let selection = SourceSelection::read(&arguments.sources, &directory).map_err(MutateError::Selection)?;
    let selection = selection.with_operators(arguments.operators.level());
    let command = arguments.build.named_build();
    if !arguments.is_list {
        check_tests(command.as_ref())?;
    }
    let project = SearchedProject::open(command.as_ref(), &directory, config)?;
    if let Some(missing) = &project.missing {
        eprintln!("warning: JavaScript and TypeScript are left out: failed to {missing}");
    }
    let packages = SearchedPackages::Directory;
    let named = selection.named_paths().map(|paths| {
        let relative = paths.iter().filter_map(|path| relative_path(path, &project.root));
        relative.collect::<Vec<_>>()
    });
    let cargo = arguments.build.cargo.options();
    let jobs = settings.run.jobs;
    let search = MutantSearch { directory, command, cargo, selection, packages, named, jobs };
    let mut found = search.run(&project).await?;
    let changed = arguments.in_diff.as_deref().map(|reference| changed_lines(reference, &found.root));
    let changed = changed.transpose()?;
    found.retain(|mutant| {
        arguments.shard.is_none_or(|shard| shard.contains(mutant.id))
            && changed.as_ref().is_none_or(|changed| changed.touch(mutant))
    });
    Ok(found)
}

/// Returns a path relative to a directory, with `/` at the end if it is one; `None` if it leads elsewhere.
fn relative_path(path: &Path, directory: &Path) -> Option<String> {
    let end = if path.is_dir() { "/" } else { "" };
    // A directory around it has all of it.
    let below = if directory.starts_with(path) { Ok(Path::new("")) } else { path.strip_prefix(directory) };
    Some(format!("{}{end}", below.ok()?.to_string_lossy()))
}

/// Checks that a project with a build command has tests.
///
/// # Errors
/// It names none.
pub(in crate::cli) fn check_tests(command: Option<&NamedBuild>) -> Result<(), MutateError> {
    let has_none = |build: &NamedBuild| match build {
        NamedBuild::Command(project) => project.tests == BuiltTests::Programs(Vec::new()),
        NamedBuild::Pytest(_) => false,
    };
    if command.is_some_and(has_none) { Err(MutateError::NoTests) } else { Ok(()) }
}

impl FoundMutants {
    /// Takes mutants out of the selection.
    pub(super) fn retain(&mut self, is_selected: impl Fn(&Mutant) -> bool) {
        if let Some(built) = &mut self.built {
            built.retain(&is_selected);
        }
        if let Some(stryker) = &mut self.stryker {
            stryker.mutants.retain(&is_selected);
        }
    }

    /// Returns the selected mutants with what is known of them without a test.
    pub(super) fn untested(&self) -> Vec<MutantResult> {
        let sources = self.built.iter().flat_map(|built| &built.mutated.sources);
        let built = sources.flat_map(|source| source.mutants().map(untested));
        let found = self.stryker.iter().flat_map(|found| found.mutants.selected());
        let stryker = found.map(|mutant| MutantResult::new(Arc::clone(mutant), MutantStatus::Pending, None));
        built.chain(stryker).collect()
    }

    /// Returns whether any mutant is selected.
    pub(super) fn has_selected(&self) -> bool {
        self.built.as_ref().is_some_and(FoundProject::has_selected)
            || self.stryker.as_ref().is_some_and(|found| found.mutants.selected().next().is_some())
    }

    /// Returns the sources that can't be parsed as a whole, with the line of the first error.
    pub(super) fn syntax_errors(&self) -> Vec<(Arc<str>, usize)> {
        let sources = self.built.iter().flat_map(|built| &built.mutated.sources);
        let first = sources.filter_map(|source| {
            let line = source.source.first_syntax_error()?;
            Some((Arc::clone(&source.source.file().path), line))
        });
        first.collect()
    }

    /// Returns the texts of all sources, by the paths of their mutants.
    pub(super) fn texts(&self) -> BTreeMap<Arc<str>, Arc<str>> {
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
    pub(super) fn write_json(&self, writer: &mut dyn Write) -> Result<(), ReportError> {
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
    /// Cancel safe: yes, as [`FoundByStryker::end`].
    pub(super) async fn end(self) {
        if let Some(stryker) = self.stryker {
            stryker.end().await;
        }
    }
}
