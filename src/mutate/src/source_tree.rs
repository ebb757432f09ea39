//! Searches the sources below a directory, for languages without a build tool that lists them.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use heeler_mutant::{Configuration, MutatedSource, SourceFile};
use heeler_mutant_model::{Language, OperatorLevel};

use crate::{
    module_tree::{ProjectSource, ReadSourceError},
    selection::SourceSelection,
};

/// Collects the matching files below a directory. Skips hidden directories and build output.
pub(crate) fn find_files(
    directory: &Path,
    is_made: &dyn Fn(&Path) -> bool,
    is_found: &dyn Fn(&Path) -> bool,
    paths: &mut Vec<PathBuf>,
) -> Result<(), ReadSourceError> {
    let failed = |source: io::Error| ReadSourceError { path: directory.to_owned(), source };
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(failed)?);
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if kind.is_dir() && !is_hidden && !is_made(&path) {
            find_files(&path, is_made, is_found, paths)?;
        } else if kind.is_file() && is_found(&path) {
            paths.push(path);
        }
    }
    Ok(())
}

/// Searches sources for mutants and applies the selection. Skips files that are not UTF-8, or fails on them
/// if the selection names sources. Blocks, on several cores.
pub(crate) fn search_sources(
    root: &Path,
    selection: &SourceSelection,
    paths: Vec<PathBuf>,
    language_of: impl Fn(&Path) -> Language + Send + Sync,
) -> Result<Vec<ProjectSource>, ReadSourceError> {
    let search = |path: PathBuf| {
        search(root, &path, language_of(&path), selection.operators()).map(|found| (path, found))
    };
    let mut sources = Vec::with_capacity(paths.len());
    for one in heeler_sys::cpu_pool::map(paths, search) {
        let (path, source) = match one {
            Err(error) if selection.is_everything() && error.source.kind() == io::ErrorKind::InvalidData => {
                continue;
            }
            one => one?,
        };
        let mutants = source.mutants().iter().enumerate();
        let selected =
            mutants.filter(|(_, found)| selection.selects(&path, &found.mutant)).map(|(index, _)| index);
        let selected = selected.collect();
        sources.push(ProjectSource { source, selected });
    }
    Ok(sources)
}

fn search(
    root: &Path,
    path: &Path,
    language: Language,
    operators: OperatorLevel,
) -> Result<MutatedSource, ReadSourceError> {
    let failed = |source| ReadSourceError { path: path.to_owned(), source };
    let text = String::from_utf8(std::fs::read(path).map_err(failed)?);
    let text =
        text.map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error.utf8_error())))?;
    let below = path.strip_prefix(root).unwrap_or(path);
    let file = SourceFile {
        path: below.to_string_lossy().into(),
        language,
        text: Arc::from(text.as_str()),
        ignored: None,
    };
    Ok(MutatedSource::search(file, Configuration::default().with_operators(operators)))
}
