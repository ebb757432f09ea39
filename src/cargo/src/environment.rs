//! Environment variables that `cargo test` sets for a test program, so that tests run in the same
//! environment here.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use cargo_metadata::{BuildScript, camino::Utf8Path, semver::Version};
use serde_json::Value;

use super::{
    messages::{CargoMessages, TestArtifact, parse_package_id},
    program::LIBRARY_PATH,
};

/// Inputs of the environment that cargo's build messages lack.
#[derive(Debug, Default)]
pub(super) struct CargoEnvironmentInputs {
    /// Output of `cargo metadata`; null without output. Kept as JSON, because `cargo_metadata::Package`
    /// would turn a `rust-version` of `1.90` into `1.90.0`, and tests expect the manifest's text.
    pub(super) metadata: Value,
    /// Directory of the toolchain's shared libraries for test programs.
    pub(super) libdir: Option<PathBuf>,
    /// `LD_LIBRARY_PATH` of this process.
    pub(super) library_path: Option<OsString>,
    pub(super) cargo: Option<PathBuf>,
}

pub(super) fn test_environment(
    program: &TestArtifact,
    messages: &CargoMessages,
    surroundings: &CargoEnvironmentInputs,
) -> Vec<(OsString, OsString)> {
    let package = &program.artifact.package_id;
    let mut env: Vec<(OsString, OsString)> = Vec::new();
    let mut set = |name: &str, value: &OsStr| env.push((name.into(), value.to_owned()));
    if let Some(cargo) = &surroundings.cargo {
        set("CARGO", cargo.as_os_str());
    }
    set("CARGO_MANIFEST_DIR", program.package_dir().as_os_str());
    set("CARGO_MANIFEST_PATH", program.artifact.manifest_path.as_ref());
    for (name, value) in package_variables(program, &surroundings.metadata) {
        set(name, value.as_ref());
    }
    let build_script = messages.build_script_of(package);
    if let Some(script) = build_script.filter(|script| !script.out_dir.as_str().is_empty()) {
        set("OUT_DIR", script.out_dir.as_ref());
    }
    for (name, value) in build_script.into_iter().flat_map(|script| &script.env) {
        set(name, value.as_ref());
    }
    if program.has_executables() {
        for (name, path) in messages.executables_of(package) {
            set(&format!("CARGO_BIN_EXE_{name}"), path.as_ref());
        }
    }
    set(LIBRARY_PATH, &library_path(program, build_script, surroundings));
    env
}

/// Returns the `CARGO_PKG_…` variables: name and version from the package id, the rest from the manifest.
fn package_variables(program: &TestArtifact, metadata: &Value) -> Vec<(&'static str, String)> {
    let id = &program.artifact.package_id;
    let (name, version) = parse_package_id(id);
    let packages = metadata["packages"].as_array();
    let manifest = packages
        .and_then(|packages| packages.iter().find(|package| package["id"] == id.repr.as_str()))
        .unwrap_or(&Value::Null);
    let text = |key: &str| manifest[key].as_str().unwrap_or_default().to_owned();
    let authors = manifest["authors"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let parsed = Version::parse(&version).ok();
    let part = |read: fn(&Version) -> String| parsed.as_ref().map(read).unwrap_or_default();
    vec![
        ("CARGO_PKG_VERSION_MAJOR", part(|version| version.major.to_string())),
        ("CARGO_PKG_VERSION_MINOR", part(|version| version.minor.to_string())),
        ("CARGO_PKG_VERSION_PATCH", part(|version| version.patch.to_string())),
        ("CARGO_PKG_VERSION_PRE", part(|version| version.pre.to_string())),
        ("CARGO_PKG_NAME", name),
        ("CARGO_PKG_AUTHORS", authors.collect::<Vec<_>>().join(":")),
        ("CARGO_PKG_DESCRIPTION", text("description")),
        ("CARGO_PKG_HOMEPAGE", text("homepage")),
        ("CARGO_PKG_REPOSITORY", text("repository")),
        ("CARGO_PKG_LICENSE", text("license")),
        ("CARGO_PKG_LICENSE_FILE", text("license_file")),
        ("CARGO_PKG_RUST_VERSION", text("rust_version")),
        ("CARGO_PKG_README", text("readme")),
        ("CARGO_PKG_VERSION", version),
    ]
}

/// Returns the library search path: directories of build scripts, of the build, of the toolchain, then this
/// process's own path.
fn library_path(
    program: &TestArtifact,
    build_script: Option<&BuildScript>,
    surroundings: &CargoEnvironmentInputs,
) -> OsString {
    let deps = program.executable.parent().unwrap_or(Utf8Path::new("")).as_std_path();
    let root = deps.parent().unwrap_or(Path::new(""));
    let linked = build_script.into_iter().flat_map(|script| &script.linked_paths).map(|path| path.as_str());
    let built = linked
        .map(|path| path.split_once('=').map_or(path, |(_, path)| path))
        // The linker searches system directories of a build script anyway, in the system's order.
        .filter(|path| Path::new(path).starts_with(root));
    let mut paths: Vec<PathBuf> = built.map(PathBuf::from).collect();
    paths.extend([root.to_owned(), deps.to_owned()]);
    paths.extend(surroundings.libdir.clone());
    paths.extend(surroundings.library_path.iter().flat_map(|ours| std::env::split_paths(ours)));
    let mut seen = std::collections::HashSet::new();
    paths.retain(|path| !path.as_os_str().is_empty() && seen.insert(path.clone()));
    // Joining fails only for a path with a colon, and cargo cannot build in such a path.
    std::env::join_paths(paths).unwrap_or_default()
}
