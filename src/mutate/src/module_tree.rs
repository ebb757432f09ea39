//! Finds Rust sources the way the compiler does: from crate roots along module declarations. Sources of
//! tests, examples and build scripts belong to no mutated crate, and have no mutants.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use heeler_mutant::{Configuration, FoundMutant, ModuleDeclaration, MutatedSource, SourceFile};
use heeler_mutant_model::Language;

use crate::{
    cargo_project::CargoProject,
    fingerprint::Fingerprint,
    selection::{SourceSelection, normalized},
};

/// A source can't be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the source {}", path.display())]
pub struct ReadSourceError {
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

/// The sources of a project, with their mutants.
#[derive(Debug)]
pub struct MutatedProject {
    pub root: PathBuf,
    /// Sorted by path, including sources without selected mutants.
    pub sources: Vec<ProjectSource>,
    /// User selections that match no source of the project.
    pub unmatched: Vec<String>,
}

impl MutatedProject {
    /// Returns a hash of everything outside of functions with mutants, such as tests, types and constants.
    pub(crate) fn rest_fingerprint(&self) -> Fingerprint {
        self.sources.iter().fold(Fingerprint::default(), |hash, one| {
            let hash = hash.with(one.source.file().path.as_bytes());
            one.rest().into_iter().fold(hash, |hash, piece| hash.with(piece.as_bytes()))
        })
    }
}

/// A source and its selected mutants.
#[derive(Debug)]
pub struct ProjectSource {
    pub source: MutatedSource,
    /// Indices of the selected mutants.
    pub selected: Vec<usize>,
}

impl ProjectSource {
    /// Returns the selected mutants.
    pub fn mutants(&self) -> impl Iterator<Item = &FoundMutant> {
        self.selected.iter().map(|&index| &self.source.mutants()[index])
    }

    /// Returns the text outside of functions with mutants, plus `const fn`s: the compiler evaluates them, so
    /// a change in one can affect other code.
    fn rest(&self) -> Vec<&str> {
        let text = &self.source.file().text;
        let mut pieces = Vec::new();
        let mut at = 0;
        for function in self.source.outermost_functions().into_iter().filter(|one| !one.is_constant) {
            pieces.push(&text[at..function.bytes.start]);
            at = function.bytes.end;
        }
        pieces.push(&text[at..]);
        pieces
    }
}

/// A source to read.
#[derive(Clone, Debug)]
struct OpenSource {
    path: PathBuf,
    configuration: Arc<Configuration>,
    /// Whether submodules are in the file's directory, rather than in a subdirectory with the file's name.
    owns_directory: bool,
    ignored: Option<Arc<str>>,
}

/// Reads the sources of a project and searches the selected ones for mutants. Blocks, on several cores.
///
/// # Errors
/// A source that the compiler reads can't be read.
pub fn find_mutated_sources(
    project: &CargoProject,
    selection: &SourceSelection,
) -> Result<MutatedProject, ReadSourceError> {
    let mut open: Vec<OpenSource> = project
        .crates
        .iter()
        .map(|root| OpenSource {
            path: normalized(&root.path),
            configuration: Arc::new(root.configuration.clone().with_operators(selection.operators())),
            owns_directory: true,
            ignored: None,
        })
        .collect();
    let mut known = BTreeSet::new();
    let mut sources = BTreeMap::new();
    while !open.is_empty() {
        // Crates can share a module; read it once.
        open.retain(|source| known.insert(source.path.clone()));
        // Read one level of modules in parallel, then queue the modules that these declare.
        let read = heeler_sys::cpu_pool::map(std::mem::take(&mut open), |source| {
            search(&source, project.root()).map(|found| (source, found))
        });
        for one in read {
            let (source, found) = one?;
            let Some(found) = found else { continue };
            let modules = found.modules().iter().filter_map(|module| open_module(&source, module));
            open.extend(modules);
            let is_selectable = selection.may_select(&source.path);
            let selected = found.mutants().iter().enumerate();
            let selected: Vec<usize> = selected
                .filter(|(_, found)| is_selectable && selection.selects(&source.path, &found.mutant))
                .map(|(index, _)| index)
                .collect();
            sources.insert(source.path, ProjectSource { source: found, selected });
        }
    }
    let unmatched = selection.unmatched(known.iter().map(PathBuf::as_path));
    Ok(MutatedProject {
        root: project.root().to_owned(),
        sources: sources.into_values().collect(),
        unmatched,
    })
}

/// Searches a source; `None` if it is outside of the workspace, where Heeler changes no files.
fn search(source: &OpenSource, root: &Path) -> Result<Option<MutatedSource>, ReadSourceError> {
    let Ok(below) = source.path.strip_prefix(root) else { return Ok(None) };
    let failed = |error| ReadSourceError { path: source.path.clone(), source: error };
    let text = std::fs::read_to_string(&source.path).map_err(failed)?;
    let file = SourceFile {
        path: below.to_string_lossy().into(),
        language: Language::Rust,
        text: text.into(),
        ignored: source.ignored.clone(),
    };
    Ok(Some(MutatedSource::search(file, Arc::clone(&source.configuration))))
}

/// Returns the source of a module; `None` if there is none, as for modules that a build script generates.
fn open_module(parent: &OpenSource, module: &ModuleDeclaration) -> Option<OpenSource> {
    let beside = parent.path.parent()?;
    let inside = module.inside.split("::").filter(|name| !name.is_empty());
    let own = if parent.owns_directory { beside.to_owned() } else { beside.join(parent.path.file_stem()?) };
    let own: PathBuf = own.join(inside.collect::<PathBuf>());
    let candidates = match &module.path {
        Some(path) if module.inside.is_empty() => vec![(beside.join(path), true)],
        Some(path) => vec![(own.join(path), true)],
        None => {
            let name = module.name.strip_prefix("r#").unwrap_or(&module.name);
            vec![(own.join(format!("{name}.rs")), false), (own.join(name).join("mod.rs"), true)]
        }
    };
    let (path, owns_directory) = candidates.into_iter().find(|(path, _)| path.is_file())?;
    Some(OpenSource {
        path: normalized(&path),
        configuration: parent.configuration.clone(),
        owns_directory,
        ignored: parent.ignored.clone().or_else(|| module.ignored.clone()),
    })
}
