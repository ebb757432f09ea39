//! Parses the JSON messages that cargo writes during a build, and names the test programs in them.

use std::collections::HashMap;

use serde_json::Value;

use super::{
    CargoProgram,
    environment::{CargoEnvironmentInputs, test_environment},
};

/// The messages of a build received so far.
#[derive(Debug, Default)]
pub(super) struct CargoMessages {
    programs: Vec<TestArtifact>,
    /// Executables that integration tests may start, as package, name and path.
    executables: Vec<(String, String, String)>,
    /// Messages about executed build scripts, by package.
    build_scripts: HashMap<String, Value>,
}

#[derive(Debug)]
pub(super) struct TestArtifact {
    pub(super) package_id: String,
    pub(super) manifest: String,
    pub(super) executable: String,
    pub(super) kind: CargoTargetKind,
    target: String,
}

/// Kind of the target that a test program tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CargoTargetKind {
    /// The tests in a library.
    Library,
    Test,
    /// The tests in a program.
    Binary,
    /// The tests in an example.
    Example,
    Benchmark,
}

impl CargoTargetKind {
    fn from_target(target: &Value) -> Self {
        let kinds = target["kind"].as_array();
        match kinds.and_then(|kinds| kinds.first()).and_then(Value::as_str) {
            Some("test") => Self::Test,
            Some("bin") => Self::Binary,
            Some("example") => Self::Example,
            Some("bench") => Self::Benchmark,
            // `lib`, `rlib`, `dylib`, `cdylib`, `staticlib`, `proc-macro` and kinds of future cargo versions.
            _ => Self::Library,
        }
    }
}

impl CargoMessages {
    /// Records one line. Irrelevant messages, and lines that are no messages, are ignored.
    pub(super) fn record_line(&mut self, line: &[u8]) {
        let Ok(message) = serde_json::from_slice::<Value>(line) else { return };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let Some(package_id) = text(&message["package_id"]) else { return };
        match message["reason"].as_str() {
            Some("build-script-executed") => drop(self.build_scripts.insert(package_id, message)),
            Some("compiler-artifact") => {
                let kind = CargoTargetKind::from_target(&message["target"]);
                let (Some(executable), Some(target), Some(manifest)) = (
                    text(&message["executable"]),
                    text(&message["target"]["name"]),
                    text(&message["manifest_path"]),
                ) else {
                    return;
                };
                if message["profile"]["test"] == true {
                    self.programs.push(TestArtifact { package_id, manifest, executable, kind, target });
                } else if kind == CargoTargetKind::Binary {
                    self.executables.push((package_id, target, executable));
                }
            }
            _ => {}
        }
    }

    /// Returns the manifest of a package that has tests.
    pub(super) fn first_manifest(&self) -> Option<&str> {
        self.programs.first().map(|artifact| artifact.manifest.as_str())
    }

    /// Returns the executables of a package, by name.
    pub(super) fn executables_of(&self, package_id: &str) -> impl Iterator<Item = (&str, &str)> {
        let own = self.executables.iter().filter(move |(package, ..)| package == package_id);
        own.map(|(_, name, path)| (name.as_str(), path.as_str()))
    }

    /// Returns the message about a package's build script; null when there is none.
    pub(super) fn build_script_of(&self, package_id: &str) -> &Value {
        self.build_scripts.get(package_id).unwrap_or(&Value::Null)
    }

    /// Returns the test programs, named and ready to start, sorted by name: cargo's order is the order in
    /// which builds end.
    pub(super) fn into_programs(self, surroundings: &CargoEnvironmentInputs) -> Vec<CargoProgram> {
        let names: Vec<String> = self.programs.iter().map(suite_name).collect();
        let programs = self.programs.iter().zip(&names).map(|(artifact, name)| {
            let is_taken_twice = names.iter().filter(|other| *other == name).count() > 1;
            let version = parse_package_id(&artifact.package_id).1;
            CargoProgram {
                // Two versions of one package in a workspace are rare, but their names must not collide.
                suite: if is_taken_twice { format!("{name}@{version}") } else { name.clone() },
                path: artifact.executable.clone().into(),
                cwd: artifact.package_dir().into(),
                env: test_environment(artifact, &self, surroundings),
            }
        });
        let mut programs: Vec<CargoProgram> = programs.collect();
        programs.sort_by(|a, b| a.suite.cmp(&b.suite));
        programs
    }
}

impl TestArtifact {
    /// Returns the directory of the package.
    pub(super) fn package_dir(&self) -> &str {
        self.manifest.rsplit_once('/').map_or(".", |(dir, _)| dir)
    }
}

fn suite_name(artifact: &TestArtifact) -> String {
    let (package, _) = parse_package_id(&artifact.package_id);
    let target = &artifact.target;
    match artifact.kind {
        CargoTargetKind::Library => package,
        CargoTargetKind::Test => format!("{package}::{target}"),
        CargoTargetKind::Binary => format!("{package}::bin/{target}"),
        CargoTargetKind::Example => format!("{package}::example/{target}"),
        CargoTargetKind::Benchmark => format!("{package}::bench/{target}"),
    }
}

/// Returns name and version of a package id: `path+file:///a/name#1.0.0` or `path+file:///a/b#name@1.0.0`.
pub(super) fn parse_package_id(package_id: &str) -> (String, String) {
    let (url, fragment) = package_id.rsplit_once('#').unwrap_or((package_id, ""));
    match fragment.rsplit_once('@') {
        Some((name, version)) => (name.to_owned(), version.to_owned()),
        None => {
            let path = url.split_once('?').map_or(url, |(path, _)| path).trim_end_matches('/');
            (path.rsplit('/').next().unwrap_or(path).to_owned(), fragment.to_owned())
        }
    }
}
