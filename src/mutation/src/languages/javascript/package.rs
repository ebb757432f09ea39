//! Finds the package of a directory and its StrykerJS, following Node's module lookup.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;

use heeler_config::Config;
use heeler_sys::program_search::search_path;

use crate::languages::served_language::{MissingServer, ServedLanguage, ServedProject};

/// Path of StrykerJS's program, relative to a directory with `node_modules`.
const SCRIPT: &str = "node_modules/@stryker-mutator/core/bin/stryker.js";
/// Path of the program within StrykerJS's own directory.
const OWN_SCRIPT: &str = "bin/stryker.js";
/// Name of StrykerJS's package.
const PACKAGE: &str = "@stryker-mutator/core";
/// Prefixes of StrykerJS's configuration file names.
const CONFIG_NAMES: [&str; 4] = ["stryker.conf.", "stryker.config.", ".stryker.conf.", ".stryker.config."];

/// JavaScript and TypeScript: directories in a package with StrykerJS.
pub(in crate::languages) struct JavaScript;

impl ServedLanguage for JavaScript {
    fn project(
        &self,
        directory: &Path,
        top: Option<&Path>,
        config: &Config,
    ) -> Option<Result<Arc<dyn ServedProject>, MissingServer>> {
        let missing = |missing: MissingStryker| MissingServer {
            languages: "JavaScript and TypeScript",
            reason: missing.to_string(),
            is_wanted: missing.is_wanted(),
        };
        let package = StrykerPackage::find(directory, top, config.stryker.as_deref())?;
        Some(package.map(|package| Arc::new(package) as Arc<dyn ServedProject>).map_err(missing))
    }
}

/// A package that StrykerJS mutates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StrykerPackage {
    /// Absolute directory of `package.json`.
    pub(super) dir: PathBuf,
    pub(super) script: PathBuf,
    pub(super) node: PathBuf,
}

/// Why StrykerJS can't be started for a package.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum MissingStryker {
    /// The package does not use StrykerJS.
    #[error(
        "StrykerJS is not installed for the package in {}; install it with npm install --save-dev {PACKAGE}, and \
         the plugin for your test runner, such as @stryker-mutator/jest-runner",
        dir.display()
    )]
    Unused { dir: PathBuf },
    #[error("the package in {} uses StrykerJS, but it is not installed; install it with npm install", dir.display())]
    NotInstalled { dir: PathBuf },
    #[error(
        "no node in PATH, which StrykerJS needs for the package in {}; install Node.js, as the package nodejs of \
         your system or from https://nodejs.org",
        dir.display()
    )]
    NoNode { dir: PathBuf },
    /// The `stryker` key in heeler.toml is wrong.
    #[error("\"stryker\" in heeler.toml names {}, which has no {OWN_SCRIPT}", dir.display())]
    NotNamed { dir: PathBuf },
    #[error("cannot read {}: {problem}", path.display())]
    Manifest { path: PathBuf, problem: String },
}

impl StrykerPackage {
    /// Finds the nearest package in a directory or its parents, up to `top`; `None` if there is none.
    /// StrykerJS is taken from the directory `named`, or else from where Node finds it.
    fn find(
        directory: &Path,
        top: Option<&Path>,
        named: Option<&Path>,
    ) -> Option<Result<Self, MissingStryker>> {
        let is_below_top = |dir: &&Path| top.is_none_or(|top| dir.starts_with(top));
        let mut dirs = directory.ancestors().take_while(is_below_top);
        let dir = dirs.find(|dir| dir.join("package.json").is_file())?;
        Some(Self::of_package(dir, named))
    }

    fn of_package(dir: &Path, named: Option<&Path>) -> Result<Self, MissingStryker> {
        let script = match named {
            Some(named) => named_script(named)?,
            None => {
                let found = dir.ancestors().map(|one| one.join(SCRIPT)).find(|script| script.is_file());
                found.map_or_else(|| Err(missing(dir)), Ok)?
            }
        };
        let dir = dir.to_owned();
        match search_path(OsStr::new("node")) {
            Some(node) => Ok(Self { dir, script, node }),
            None => Err(MissingStryker::NoNode { dir }),
        }
    }
}

impl MissingStryker {
    /// Returns whether the user expects the package to be mutated.
    fn is_wanted(&self) -> bool {
        match self {
            Self::Unused { .. } => false,
            Self::NotInstalled { .. }
            | Self::NotNamed { .. }
            | Self::NoNode { .. }
            | Self::Manifest { .. } => true,
        }
    }
}

fn named_script(named: &Path) -> Result<PathBuf, MissingStryker> {
    let dir = std::path::absolute(named).unwrap_or_else(|_| named.to_owned());
    let script = dir.join(OWN_SCRIPT);
    if script.is_file() { Ok(script) } else { Err(MissingStryker::NotNamed { dir }) }
}

fn missing(dir: &Path) -> MissingStryker {
    match names_stryker(dir) {
        Ok(true) => MissingStryker::NotInstalled { dir: dir.to_owned() },
        Ok(false) => MissingStryker::Unused { dir: dir.to_owned() },
        Err(error) => error,
    }
}

/// Returns whether a package depends on StrykerJS or has a configuration file for it.
fn names_stryker(dir: &Path) -> Result<bool, MissingStryker> {
    let path = dir.join("package.json");
    let wrong = |problem: String| MissingStryker::Manifest { path: path.clone(), problem };
    let text = fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
    let manifest: Value = serde_json::from_str(text.trim_start_matches('\u{feff}'))
        .map_err(|error| wrong(format!("invalid JSON: {error}")))?;
    let has = |kind: &str| manifest.get(kind).is_some_and(|packages| packages.get(PACKAGE).is_some());
    let is_config = |entry: io::Result<fs::DirEntry>| {
        let name = entry.map(|entry| entry.file_name().to_string_lossy().into_owned()).unwrap_or_default();
        CONFIG_NAMES.iter().any(|begin| name.starts_with(begin))
    };
    let has_config = || fs::read_dir(dir).is_ok_and(|mut entries| entries.any(is_config));
    Ok(has("dependencies") || has("devDependencies") || has_config())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(dir: &Path) -> MissingStryker {
        StrykerPackage::find(dir, None, None).unwrap().unwrap_err()
    }

    #[test]
    fn package_is_the_nearest_one_and_its_modules_may_be_above() {
        let world = tempfile::tempdir().unwrap();
        let dir = world.path();
        let package = dir.join("packages/a");
        fs::create_dir_all(package.join("src")).unwrap();
        fs::create_dir_all(dir.join("other")).unwrap();
        fs::write(package.join("package.json"), "{}").unwrap();
        assert_eq!(missing(&package.join("src")), MissingStryker::Unused { dir: package.clone() });
        assert_eq!(StrykerPackage::find(&dir.join("other"), Some(dir), None), None);
        assert_eq!(StrykerPackage::find(&package.join("src"), Some(&package.join("src")), None), None);
        fs::write(package.join("stryker.config.mjs"), "").unwrap();
        assert!(matches!(missing(&package), MissingStryker::NotInstalled { .. }));
        fs::remove_file(package.join("stryker.config.mjs")).unwrap();
        let manifest = format!("\u{feff}{{\"devDependencies\": {{\"{PACKAGE}\": \"10.1.1\"}}}}");
        fs::write(package.join("package.json"), manifest).unwrap();
        assert!(matches!(missing(&package), MissingStryker::NotInstalled { .. }));
        fs::write(package.join("package.json"), "{").unwrap();
        assert!(missing(&package).to_string().contains("invalid JSON"));
        let tools = dir.join("tools");
        let named = || StrykerPackage::find(&package, None, Some(&tools)).unwrap();
        assert_eq!(named().unwrap_err(), MissingStryker::NotNamed { dir: tools.clone() });
        fs::create_dir_all(tools.join("bin")).unwrap();
        fs::write(tools.join(OWN_SCRIPT), "").unwrap();
        assert!(
            named().is_ok_and(|found| found.script == tools.join(OWN_SCRIPT))
                || search_path(OsStr::new("node")).is_none()
        );
        let script = dir.join(SCRIPT);
        fs::create_dir_all(script.parent().unwrap()).unwrap();
        fs::write(&script, "").unwrap();
        match StrykerPackage::find(&package.join("src"), Some(dir), None).unwrap() {
            Ok(found) => assert_eq!((found.dir, found.script), (package, script)),
            // Node may not be installed on this machine.
            Err(error) => assert_eq!(error, MissingStryker::NoNode { dir: package }),
        }
    }
}
