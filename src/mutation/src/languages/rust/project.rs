//! A Cargo package or workspace and its mutants.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use heeler_cargo::{read_cargo_metadata, read_rustc_configuration};
use heeler_mutate::{CargoProject, SourceSelection, find_mutated_sources};

use super::{cargo_options::CargoOptions, guarded_cargo::CargoBuilder};
use crate::{
    error::MutateError,
    languages::{
        build_options::BuildOptions,
        language::{FoundProject, GuardedLanguage, LanguageProject, SearchedPackages},
    },
};

/// Rust: directories in a Cargo package.
pub(in crate::languages) struct Rust;

impl GuardedLanguage for Rust {
    fn project(&self, options: &BuildOptions, directory: &Path) -> Option<Arc<dyn LanguageProject>> {
        let is_package = directory.ancestors().any(|dir| dir.join("Cargo.toml").is_file());
        let package = || PackageDirectory { options: options.cargo.clone(), directory: directory.to_owned() };
        is_package.then(|| Arc::new(package()) as Arc<dyn LanguageProject>)
    }

    fn explain_absence(&self, directory: &Path) -> Result<(), MutateError> {
        // Cargo's own error explains what is missing.
        workspace_root(directory).map(|_root| ())
    }
}

fn workspace_root(directory: &Path) -> Result<PathBuf, MutateError> {
    let metadata = read_cargo_metadata(directory).map_err(MutateError::Cargo)?;
    let cargo = CargoProject::read_workspace(&metadata, "").map_err(MutateError::Project)?;
    Ok(cargo.root().to_owned())
}

#[derive(Debug, Clone)]
struct PackageDirectory {
    options: CargoOptions,
    directory: PathBuf,
}

impl LanguageProject for PackageDirectory {
    fn root(&self) -> Result<PathBuf, MutateError> {
        workspace_root(&self.directory)
    }

    fn find(
        &self,
        selection: &SourceSelection,
        packages: SearchedPackages,
    ) -> Result<FoundProject, MutateError> {
        let Self { options, directory } = self.clone();
        let has_named_sources = !selection.is_everything() || packages == SearchedPackages::Workspace;
        let metadata = read_cargo_metadata(&directory).map_err(MutateError::Cargo)?;
        let cfg = read_rustc_configuration(&directory).map_err(MutateError::Cargo)?;
        let around = (!has_named_sources).then_some(&*directory);
        let CargoOptions { packages, features, .. } = &options;
        let cargo = CargoProject::read_selected(&metadata, &cfg, around, packages, features);
        let cargo = cargo.map_err(MutateError::Project)?;
        let mutated = find_mutated_sources(&cargo, selection).map_err(MutateError::Source)?;
        let builder = CargoBuilder { cargo, options, directory, has_named_sources };
        Ok(FoundProject { builder: Box::new(builder), mutated })
    }
}
