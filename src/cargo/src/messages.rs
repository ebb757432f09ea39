//! Reads cargo's JSON build messages, and names the test programs in them.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use cargo_metadata::{
    Artifact, BuildScript, Message, PackageId, TargetKind,
    camino::{Utf8Path, Utf8PathBuf},
};

use crate::{
    environment::{CargoEnvironmentInputs, test_environment},
    program::{CargoProgram, LibrarySearch},
};

/// Messages of a build received so far.
#[derive(Debug, Default)]
pub(super) struct CargoMessages {
    programs: Vec<TestArtifact>,
    /// Programs that integration tests may start.
    executables: Vec<Artifact>,
    /// Sources of libraries whose manifests have `doctest = false`.
    without_doctests: Vec<PathBuf>,
    build_scripts: HashMap<PackageId, BuildScript>,
    /// The build contains a Rust library that programs load when they start.
    has_dynamic_library: bool,
    /// Error of the first unreadable message about a test program.
    error: Option<serde_json::Error>,
}

/// A test program built by cargo.
#[derive(Debug)]
pub(super) struct TestArtifact {
    pub(super) artifact: Artifact,
    pub(super) executable: Utf8PathBuf,
}

impl CargoMessages {
    /// Records one line. Ignores irrelevant messages and lines that are not messages.
    pub(super) fn record_line(&mut self, line: &[u8]) {
        match serde_json::from_slice(line) {
            Ok(Message::BuildScriptExecuted(script)) => {
                self.build_scripts.insert(script.package_id.clone(), script);
            }
            Ok(Message::CompilerArtifact(artifact)) => self.record_artifact(artifact),
            Ok(_) => {}
            Err(error) if is_test_program(line) => {
                self.error.get_or_insert(error);
            }
            Err(_) => {}
        }
    }

    fn record_artifact(&mut self, artifact: Artifact) {
        let target = &artifact.target;
        if (target.is_lib() || target.is_rlib() || target.is_proc_macro()) && !target.doctest {
            self.without_doctests.push(target.src_path.clone().into());
        }
        self.has_dynamic_library |= target.is_dylib();
        let Some(executable) = artifact.executable.clone() else { return };
        if artifact.profile.test {
            self.programs.push(TestArtifact { artifact, executable });
        } else if artifact.target.is_bin() {
            self.executables.push(artifact);
        }
    }

    /// Returns the error of an unreadable message about a test program. Without this error, the program
    /// would silently be missing.
    pub(super) fn take_error(&mut self) -> Option<serde_json::Error> {
        self.error.take()
    }

    /// Returns whether a library with tests may have documentation tests.
    pub(super) fn has_doctests(&self) -> bool {
        self.programs.iter().any(|program| program.artifact.target.doctest)
    }

    /// Removes and returns the sources of the libraries without documentation tests.
    pub(super) fn take_without_doctests(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.without_doctests)
    }

    /// Returns the manifest of a package that has tests.
    pub(super) fn first_manifest(&self) -> Option<&Utf8Path> {
        self.programs.first().map(|program| program.artifact.manifest_path.as_path())
    }

    pub(super) fn executables_of(&self, package: &PackageId) -> impl Iterator<Item = (&str, &Utf8Path)> {
        let own = self.executables.iter().filter(move |artifact| artifact.package_id == *package);
        own.filter_map(|artifact| Some((artifact.target.name.as_str(), artifact.executable.as_deref()?)))
    }

    pub(super) fn build_script_of(&self, package: &PackageId) -> Option<&BuildScript> {
        self.build_scripts.get(package)
    }

    /// Returns the test programs, named and ready to start, sorted by name, because cargo's order depends on
    /// timing.
    pub(super) fn into_programs(self, surroundings: &CargoEnvironmentInputs) -> Vec<CargoProgram> {
        let names: Vec<String> = self.programs.iter().map(TestArtifact::suite_name).collect();
        let programs = self.programs.iter().zip(&names).map(|(program, name)| {
            let is_taken_twice = names.iter().filter(|other| *other == name).count() > 1;
            let version = parse_package_id(&program.artifact.package_id).1;
            CargoProgram {
                // Two versions of a package in one workspace are rare, but their names must not collide.
                suite: if is_taken_twice { format!("{name}@{version}") } else { name.clone() },
                path: program.executable.clone().into(),
                args: Vec::new(),
                cwd: program.package_dir().to_owned(),
                env: test_environment(program, &self, surroundings),
                framework: None,
                // The tests of a procedural macro load the compiler's libraries.
                libraries: match self.has_dynamic_library || program.artifact.target.is_proc_macro() {
                    true => LibrarySearch::Variable,
                    false => LibrarySearch::System,
                },
            }
        });
        let mut programs: Vec<CargoProgram> = programs.collect();
        programs.sort_by(|a, b| a.suite.cmp(&b.suite));
        programs
    }
}

impl TestArtifact {
    pub(super) fn package_dir(&self) -> &Path {
        self.artifact.manifest_path.parent().unwrap_or(Utf8Path::new(".")).as_std_path()
    }

    /// Returns whether cargo passes the paths of the package's executables to the tests. Tests in libraries
    /// and executables do not get them.
    pub(super) fn has_executables(&self) -> bool {
        matches!(self.artifact.target.kind.first(), Some(TargetKind::Test | TargetKind::Bench))
    }

    fn suite_name(&self) -> String {
        let (package, _) = parse_package_id(&self.artifact.package_id);
        let target = &self.artifact.target.name;
        match self.artifact.target.kind.first() {
            Some(TargetKind::Test) => format!("{package}::{target}"),
            Some(TargetKind::Bin) => format!("{package}::bin/{target}"),
            Some(TargetKind::Example) => format!("{package}::example/{target}"),
            Some(TargetKind::Bench) => format!("{package}::bench/{target}"),
            // Libraries, and target kinds of future cargo versions.
            _ => package,
        }
    }
}

/// Returns whether a line is a message about a test program, even in an unknown format.
fn is_test_program(line: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(line)
        .is_ok_and(|message| message["reason"] == "compiler-artifact" && message["profile"]["test"] == true)
}

/// Returns name and version from a package id: `path+file:///a/name#1.0.0` or `path+file:///a/b#name@1.0.0`.
pub(super) fn parse_package_id(package_id: &PackageId) -> (String, String) {
    let id = package_id.repr.as_str();
    let (url, fragment) = id.rsplit_once('#').unwrap_or((id, ""));
    match fragment.rsplit_once('@') {
        Some((name, version)) => (name.to_owned(), version.to_owned()),
        None => {
            let path = url.split_once('?').map_or(url, |(path, _)| path).trim_end_matches('/');
            (path.rsplit('/').next().unwrap_or(path).to_owned(), fragment.to_owned())
        }
    }
}
