//! Reads the crates of a workspace from the output of `cargo metadata`.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use cargo_metadata::{Metadata, MetadataCommand, Package, TargetKind};
use heeler_mutant::Configuration;

/// Error while finding the crates of a workspace.
#[derive(Debug, thiserror::Error)]
pub enum CargoProjectError {
    /// The output of `cargo metadata` can't be parsed.
    #[error("cannot read the output of cargo metadata")]
    Metadata(#[source] cargo_metadata::Error),
    #[error("no package \"{name}\" in the workspace (expected NAME or NAME@VERSION)")]
    UnknownPackage { name: String },
}

/// The root source of a crate, and the configuration it is compiled with.
#[derive(Clone, Debug)]
pub(crate) struct CrateRoot {
    pub(crate) path: PathBuf,
    pub(crate) configuration: Configuration,
}

/// The libraries and programs of a workspace that are mutated. Procedural macros are excluded: they run in
/// the compiler, where no test process could turn a mutant on.
#[derive(Clone, Debug)]
pub struct CargoProject {
    root: PathBuf,
    target_directory: PathBuf,
    pub(crate) crates: Vec<CrateRoot>,
    /// Whether a selected package has a library with documentation tests enabled; its sources may still
    /// contain none.
    has_doctests: bool,
    members: Vec<WorkspaceMember>,
}

#[derive(Clone, Debug)]
struct WorkspaceMember {
    name: String,
    /// `NAME@VERSION`.
    specification: String,
    home: PathBuf,
    has_doctests: bool,
    /// Path dependencies, with their directories.
    path_dependencies: Vec<(String, PathBuf)>,
}

/// A path dependency outside the workspace, and therefore missing from a copy of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideDependency {
    pub package: String,
    pub dependency: String,
    pub path: PathBuf,
}

/// The features selected by the user for the tested packages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureSelection {
    /// In Cargo's syntax: `FEATURE`, `PACKAGE/FEATURE`, several separated by commas or spaces.
    pub named: Vec<String>,
    pub has_all: bool,
    pub has_no_default: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PackageChoice<'a> {
    All,
    /// The packages with these names.
    Named(&'a [String]),
    /// The packages that `cargo test` tests in this directory.
    AsTestedIn(&'a Path),
}

impl CargoProject {
    /// Reads the output of `cargo metadata --no-deps --format-version 1` and of `rustc --print cfg`. Mutates
    /// the package around `directory`, or else the workspace members that `cargo test` tests by default.
    ///
    /// # Errors
    /// The output does not match a supported version of Cargo.
    pub fn read(metadata: &str, cfg: &str, directory: &Path) -> Result<Self, CargoProjectError> {
        let features = FeatureSelection::default();
        Self::choose(metadata, cfg, PackageChoice::AsTestedIn(directory), &features)
    }

    /// Like [`Self::read`], but mutates all packages of the workspace.
    ///
    /// # Errors
    /// The output does not match a supported version of Cargo.
    pub fn read_workspace(metadata: &str, cfg: &str) -> Result<Self, CargoProjectError> {
        Self::choose(metadata, cfg, PackageChoice::All, &FeatureSelection::default())
    }

    /// Like [`Self::read`], with selected features and only the named packages. Without names, mutates what
    /// Cargo tests in `directory`; without a directory, all packages.
    ///
    /// # Errors
    /// A package name is unknown, or as for [`Self::read`].
    pub fn read_selected(
        metadata: &str,
        cfg: &str,
        directory: Option<&Path>,
        packages: &[String],
        features: &FeatureSelection,
    ) -> Result<Self, CargoProjectError> {
        let choice = match directory {
            _ if !packages.is_empty() => PackageChoice::Named(packages),
            Some(directory) => PackageChoice::AsTestedIn(directory),
            None => PackageChoice::All,
        };
        Self::choose(metadata, cfg, choice, features)
    }

    /// Returns the workspace root, which mutant paths are relative to.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns Cargo's target directory.
    pub fn target_directory(&self) -> &Path {
        &self.target_directory
    }

    /// Returns whether Cargo runs documentation tests of these packages, or of the mutated packages if none
    /// are named.
    pub fn has_doctests(&self, packages: &[String]) -> bool {
        if packages.is_empty() {
            return self.has_doctests;
        }
        let name = |package: &String| package.split('@').next().unwrap_or_default().to_owned();
        let names: BTreeSet<String> = packages.iter().map(name).collect();
        self.members.iter().any(|member| member.has_doctests && names.contains(&member.name))
    }

    /// Returns a path dependency outside the workspace, if any.
    pub fn outside_dependency(&self) -> Option<OutsideDependency> {
        self.members.iter().find_map(|member| {
            let outside = member.path_dependencies.iter().find(|(_, path)| !path.starts_with(&self.root));
            outside.map(|(dependency, path)| OutsideDependency {
                package: member.name.clone(),
                dependency: dependency.clone(),
                path: path.clone(),
            })
        })
    }

    /// Returns the packages that contain the given sources, as `NAME@VERSION`. Source paths are relative to
    /// the root.
    pub fn packages_of<'a>(&self, sources: impl IntoIterator<Item = &'a str>) -> BTreeSet<&str> {
        let package_of = |source: &str| {
            let path = self.root.join(source);
            let around = self.members.iter().filter(|member| path.starts_with(&member.home));
            around.max_by_key(|member| member.home.components().count())
        };
        sources.into_iter().filter_map(package_of).map(|member| member.specification.as_str()).collect()
    }

    /// Converts package names to `NAME@VERSION`, because a dependency can have the same name as a workspace
    /// package.
    pub fn specifications(&self, packages: &[String]) -> Vec<String> {
        let specification = |name: &String| {
            let members = self.members.iter().filter(|member| member.name == *name);
            members.map(|member| member.specification.clone()).next().unwrap_or_else(|| name.clone())
        };
        packages.iter().map(specification).collect()
    }

    fn choose(
        metadata: &str,
        cfg: &str,
        choice: PackageChoice<'_>,
        selection: &FeatureSelection,
    ) -> Result<Self, CargoProjectError> {
        let metadata = MetadataCommand::parse(metadata).map_err(CargoProjectError::Metadata)?;
        let packages = chosen(&metadata, choice)?;
        let mut crates = Vec::new();
        let mut has_doctests = false;
        for package in packages {
            let mut configuration = Configuration::of_rustc(cfg);
            for feature in features(package, selection) {
                configuration.add_feature(feature);
            }
            has_doctests |= self::has_doctests(package);
            for target in &package.targets {
                let is_mutated = target.kind.iter().any(|kind| {
                    use TargetKind::{Bin, CDyLib, DyLib, Lib, RLib, StaticLib};
                    matches!(kind, Bin | CDyLib | DyLib | Lib | RLib | StaticLib)
                });
                if is_mutated {
                    let path = target.src_path.clone().into_std_path_buf();
                    crates.push(CrateRoot { path, configuration: configuration.clone() });
                }
            }
        }
        let members = metadata.workspace_packages().into_iter().map(member).collect();
        Ok(Self {
            root: metadata.workspace_root.into_std_path_buf(),
            target_directory: metadata.target_directory.into_std_path_buf(),
            crates,
            has_doctests,
            members,
        })
    }
}

fn has_doctests(package: &Package) -> bool {
    package.targets.iter().any(|target| target.doctest)
}

fn member(package: &Package) -> WorkspaceMember {
    let by_path = package.dependencies.iter().filter_map(|dependency| {
        Some((dependency.name.clone(), dependency.path.clone()?.into_std_path_buf()))
    });
    WorkspaceMember {
        name: package.name.to_string(),
        specification: format!("{}@{}", package.name, package.version),
        home: package.manifest_path.parent().map(|home| home.as_std_path().to_owned()).unwrap_or_default(),
        has_doctests: has_doctests(package),
        path_dependencies: by_path.collect(),
    }
}

fn chosen<'a>(
    metadata: &'a Metadata,
    choice: PackageChoice<'_>,
) -> Result<Vec<&'a Package>, CargoProjectError> {
    let members = metadata.workspace_packages();
    Ok(match choice {
        PackageChoice::All => members,
        PackageChoice::Named(names) => {
            let is_named = |package: &&Package, name: &String| {
                let version = package.version.to_string();
                let versions = name.strip_prefix(package.name.as_str()).map(|rest| rest.strip_prefix('@'));
                versions.is_some_and(|named| named.map_or(package.name == *name, |named| named == version))
            };
            for name in names {
                if !members.iter().any(|package| is_named(package, name)) {
                    return Err(CargoProjectError::UnknownPackage { name: name.clone() });
                }
            }
            members.into_iter().filter(|package| names.iter().any(|name| is_named(package, name))).collect()
        }
        PackageChoice::AsTestedIn(directory) => tested_in(metadata, members, directory),
    })
}

/// Returns the packages that `cargo test` tests in a directory.
fn tested_in<'a>(metadata: &'a Metadata, members: Vec<&'a Package>, directory: &Path) -> Vec<&'a Package> {
    let home = |package: &Package| {
        let home = package.manifest_path.parent().filter(|home| directory.starts_with(home))?;
        Some(home.components().count())
    };
    let around = members.iter().filter(|package| home(package).is_some()).max_by_key(|package| home(package));
    match around {
        // In a workspace root, Cargo tests the default members, which may include the root's own package.
        Some(package) if package.manifest_path.parent() != Some(metadata.workspace_root.as_path()) => {
            vec![package]
        }
        _ if metadata.workspace_default_members.is_available() => metadata.workspace_default_packages(),
        _ => members,
    }
}

/// Returns the features that Cargo enables for a tested package: the default or selected ones, and what they
/// imply. Dependencies are not resolved, because resolving could write a lock file or need a network.
fn features<'a>(package: &'a Package, selection: &'a FeatureSelection) -> BTreeSet<&'a str> {
    let mut enabled = BTreeSet::new();
    let mut open = Vec::new();
    if !selection.has_no_default {
        open.push("default");
    }
    if selection.has_all {
        open.extend(package.features.keys().map(String::as_str));
    }
    let named = selection.named.iter().flat_map(|words| words.split([',', ' ', '\t']));
    open.extend(named.map(|word| match word.split_once('/') {
        Some((owner, feature)) if owner == package.name.as_str() => feature,
        Some((dependency, _)) => dependency,
        None => word,
    }));
    while let Some(name) = open.pop() {
        let Some(implied) = package.features.get(name) else { continue };
        if enabled.insert(name) {
            open.extend(implied.iter().filter_map(|word| implied_feature(word)));
        }
    }
    enabled
}

/// Returns the feature of the same package that `word` enables: `serde/std` also enables the optional
/// dependency `serde`, while `dep:serde` and `serde?/std` do not.
fn implied_feature(word: &str) -> Option<&str> {
    match word.split_once('/') {
        _ if word.starts_with("dep:") => None,
        Some((dependency, _)) if dependency.ends_with('?') => None,
        Some((dependency, _)) => Some(dependency),
        None => Some(word),
    }
}
