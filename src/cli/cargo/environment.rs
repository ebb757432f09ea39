//! The environment variables that `cargo test` sets for a test program, so that tests run in the same
//! environment.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::messages::{CargoMessages, CargoTargetKind, TestArtifact, parse_package_id};

/// The inputs of the environment that are not in cargo's build messages.
#[derive(Debug, Default)]
pub(super) struct CargoEnvironmentInputs {
    /// Output of `cargo metadata`; null when there is none.
    pub(super) metadata: Value,
    /// Directory of the toolchain's shared libraries for test programs.
    pub(super) libdir: Option<PathBuf>,
    /// The `LD_LIBRARY_PATH` of this process.
    pub(super) library_path: Option<OsString>,
    /// Path of the cargo program.
    pub(super) cargo: Option<PathBuf>,
}

/// Returns the variables of one test program.
pub(super) fn test_environment(
    artifact: &TestArtifact,
    messages: &CargoMessages,
    surroundings: &CargoEnvironmentInputs,
) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> = Vec::new();
    let mut set = |name: &str, value: &OsStr| env.push((name.into(), value.to_owned()));
    if let Some(cargo) = &surroundings.cargo {
        set("CARGO", cargo.as_os_str());
    }
    set("CARGO_MANIFEST_DIR", artifact.package_dir().as_ref());
    set("CARGO_MANIFEST_PATH", artifact.manifest.as_ref());
    for (name, value) in package_variables(artifact, &surroundings.metadata) {
        set(name, value.as_ref());
    }
    let build_script = messages.build_script_of(&artifact.package_id);
    if let Some(out_dir) = build_script["out_dir"].as_str() {
        set("OUT_DIR", out_dir.as_ref());
    }
    for pair in build_script["env"].as_array().into_iter().flatten() {
        if let (Some(name), Some(value)) = (pair[0].as_str(), pair[1].as_str()) {
            set(name, value.as_ref());
        }
    }
    if matches!(artifact.kind, CargoTargetKind::Test | CargoTargetKind::Benchmark) {
        for (name, path) in messages.executables_of(&artifact.package_id) {
            set(&format!("CARGO_BIN_EXE_{name}"), path.as_ref());
        }
    }
    set("LD_LIBRARY_PATH", &library_path(artifact, build_script, surroundings));
    env
}

/// Returns the `CARGO_PKG_…` variables: names and versions from the package id, the rest from the manifest.
fn package_variables(artifact: &TestArtifact, metadata: &Value) -> Vec<(&'static str, String)> {
    let (name, version) = parse_package_id(&artifact.package_id);
    let packages = metadata["packages"].as_array();
    let manifest = packages
        .and_then(|packages| packages.iter().find(|package| package["id"] == artifact.package_id.as_str()))
        .unwrap_or(&Value::Null);
    let text = |key: &str| manifest[key].as_str().unwrap_or_default().to_owned();
    let authors = manifest["authors"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let without_build = version.split('+').next().unwrap_or_default();
    let (numbers, pre) = without_build.split_once('-').unwrap_or((without_build, ""));
    let mut numbers = numbers.split('.').chain(std::iter::repeat(""));
    let mut number = || numbers.next().unwrap_or_default().to_owned();
    vec![
        ("CARGO_PKG_VERSION_MAJOR", number()),
        ("CARGO_PKG_VERSION_MINOR", number()),
        ("CARGO_PKG_VERSION_PATCH", number()),
        ("CARGO_PKG_VERSION_PRE", pre.to_owned()),
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

/// Returns the library search path: libraries of build scripts, of the build, of the toolchain, then our own
/// path.
fn library_path(
    artifact: &TestArtifact,
    build_script: &Value,
    surroundings: &CargoEnvironmentInputs,
) -> OsString {
    let deps = Path::new(&artifact.executable).parent().unwrap_or(Path::new(""));
    let root = deps.parent().unwrap_or(Path::new(""));
    let linked = build_script["linked_paths"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let built = linked
        .map(|path| path.split_once('=').map_or(path, |(_, path)| path))
        // System directories named by a build script are searched anyway, in the system's order.
        .filter(|path| Path::new(path).starts_with(root));
    let mut paths: Vec<PathBuf> = built.map(PathBuf::from).collect();
    paths.extend([root.to_owned(), deps.to_owned()]);
    paths.extend(surroundings.libdir.clone());
    paths.extend(surroundings.library_path.iter().flat_map(|ours| std::env::split_paths(ours)));
    let mut seen = std::collections::HashSet::new();
    paths.retain(|path| !path.as_os_str().is_empty() && seen.insert(path.clone()));
    // Joining fails only for a path with a colon, and cargo could not have built there.
    std::env::join_paths(paths).unwrap_or_default()
}
