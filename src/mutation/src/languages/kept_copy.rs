//! The copy of a project whose builds make files beside the sources.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use heeler_mutate::{CopiedTree, GuardedProject, TreeCopy};

use crate::{error::MutateError, work_place::WorkPlace};

/// The list of the paths that were copied, beside the copy.
const COPIED: &str = "copied";

/// Copies what a build reads, but for what is left out; for a build in C that is all that one has made: a
/// newer object file would be taken for that of a guarded source. What else is in the copy already stays.
pub(super) fn copy_kept(
    root: &Path,
    place: &WorkPlace,
    left_out: &[PathBuf],
    guarded: &GuardedProject,
) -> Result<CopiedTree, MutateError> {
    let list = place.directory().join(COPIED);
    let before: BTreeSet<PathBuf> =
        fs::read_to_string(&list).unwrap_or_default().lines().map(PathBuf::from).collect();
    let (tree, replaced) = (place.tree(), guarded.texts());
    let copy = TreeCopy {
        left_out,
        left_out_files: place.left_out_files(),
        copied_before: Some(&before),
        ..TreeCopy::new(root, &tree, &replaced)
    };
    let copied = copy.update().map_err(MutateError::Copy)?;
    let lines: Vec<String> = copied.paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    fs::write(&list, lines.join("\n"))
        .map_err(|source| MutateError::WriteFile { path: list.clone(), source })?;
    Ok(copied)
}
