//! Manifest of a run: its plan, stored next to its journals. From both, any surviving process can reconstruct
//! how every test ended.
//!
//! The file has two lines of JSON: the head, which is enough to list runs, and the tests with their groups.
//! The manifest is written before the first test runs. Readers report a missing or truncated second line.

use std::{borrow::Cow, collections::BTreeMap};

use heeler_core::{FIXTURE_SUITE, OsText, SourceRequest, TestId};
use serde::{Deserialize, Serialize};

use crate::{
    control::{ReportName, TestGroup, TraitPair},
    mtp::{GroupDescription, NodeDescription, RunShard},
};

pub use crate::manifest_schedule::{
    ManifestNeeds, ManifestPrerequisites, ManifestResource, ManifestSchedule,
};

/// File name of the manifest in the run's directory.
pub const MANIFEST_FILE_NAME: &str = "manifest.jsonl";
/// Lock file next to the manifest, held by the coordinator while the run is in progress.
pub const COORDINATOR_LOCK: &str = "coordinator.lock";
/// Lock file of the watchdog. After the coordinator's death, the watchdog holds it until the whole process
/// tree is gone and every result is reported.
pub const WATCHDOG_LOCK: &str = "watchdog.lock";
/// Version of the format; readers reject others.
pub const VERSION: u32 = 5;
/// Format name in the head of each manifest.
const FORMAT: &str = "heeler-manifest";

/// Manifest of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Head, shown in lists of runs.
    pub head: ManifestHead,
    /// Plan of the run.
    pub plan: ManifestPlan,
}

/// Facts about a run that can be read without all tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ManifestHead {
    pub format: String,
    /// Format version, [`VERSION`].
    pub version: u32,
    /// Run id chosen by the client.
    pub run: String,
    /// Start time in ISO 8601.
    pub began_utc: String,
    /// Process id of the coordinator.
    pub pid: u32,
    /// Number of selected tests.
    pub tests: usize,
    /// Number of set-ups and tear-downs of configured fixtures, which follow the selected tests in the plan.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fixture_commands: usize,
    pub profile: String,
    /// State directory of the run, even if the run's own directory could not be created there.
    pub state_dir: OsText,
    /// Origin of the run.
    pub origin: RunOrigin,
    /// Shard of the tests that this run covers, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<RunShard>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Origin of a run: command line, directory, programs, earlier run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct RunOrigin {
    /// Command-line arguments.
    pub command: Vec<OsText>,
    /// Working directory of the command.
    pub cwd: OsText,
    /// Sources of test programs from the command line, with absolute paths. Empty if the configured sources
    /// ran, or if a client starts the server itself.
    pub sources: Vec<SourceRequest>,
    /// Names of the configured suites that the command line chose; empty if it chose none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suites: Vec<String>,
    /// Framework of the programs, if given.
    pub framework: Option<String>,
    /// Program arguments from the command line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub program_args: Vec<String>,
    /// Id of the earlier run whose tests this run repeats.
    pub continues: Option<String>,
}

/// Rerun set: uids of tests that a later run should repeat.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct RerunSet {
    /// Failed tests, with any kind of failure.
    pub failed: Vec<String>,
    /// Tests without their own result.
    pub not_run: Vec<String>,
}

/// Selected tests of a run, with their programs and groups.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ManifestPlan {
    /// Programs of the tests.
    pub programs: Vec<ManifestProgram>,
    /// Selected tests, then set-ups and tear-downs of fixtures; journals refer to them by their index here.
    pub tests: Vec<ManifestTest>,
    /// Groups above the tests, each after its parent.
    pub groups: Vec<TestGroup>,
    /// Rerun set of the continued run, even for tests that are not selected this time.
    #[serde(default)]
    pub earlier_rerun_set: RerunSet,
    /// Limits of the order and the concurrency of the tests; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Box<ManifestSchedule>>,
}

impl ManifestPlan {
    /// Returns the selected tests with their numbers, without set-ups and tear-downs of configured fixtures.
    pub fn selected_tests(&self) -> impl Iterator<Item = (TestId, &ManifestTest)> {
        let all = (0..).map(TestId).zip(&self.tests);
        all.filter(|(_, test)| self.suite(test) != FIXTURE_SUITE)
    }

    /// Returns the suite of a test.
    #[must_use]
    pub fn suite(&self, test: &ManifestTest) -> &str {
        self.programs.get(test.program as usize).map_or("", |program| &program.suite)
    }

    /// Returns the descriptions of all tests.
    #[must_use]
    pub fn into_descriptions(self) -> TestDescriptions {
        TestDescriptions {
            programs: self.programs,
            groups: self.groups,
            tests: (0..).map(TestId).zip(self.tests).collect(),
        }
    }
}

/// Program of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ManifestProgram {
    /// Suite name; empty for tests without a program.
    pub suite: String,
    /// Path of the program.
    pub path: OsText,
}

/// Selected test of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ManifestTest {
    /// Uid of the test for clients.
    pub uid: String,
    pub display_name: String,
    /// Class and name in JUnit reports, if they differ from suite and name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_name: Option<ReportName>,
    /// Program of the test: index in the plan's list.
    pub program: u32,
    /// Group of the test: index in the plan's list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// Source file, if the framework reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line in the source file, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Traits that the framework assigns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traits: Vec<TraitPair>,
}

/// Descriptions of some tests of a run: everything needed to report their results.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TestDescriptions {
    /// Programs of the tests.
    pub programs: Vec<ManifestProgram>,
    /// Groups above the tests, each after its parent.
    pub groups: Vec<TestGroup>,
    /// Tests that may be reported.
    pub tests: BTreeMap<TestId, ManifestTest>,
}

impl TestDescriptions {
    /// Calls `render` with the description of a test; returns `None` for an unknown test.
    pub fn with_test<T>(&self, test: TestId, render: impl FnOnce(&NodeDescription<'_>) -> T) -> Option<T> {
        let test = self.tests.get(&test)?;
        let program = self.programs.get(test.program as usize);
        let path = program.filter(|program| !program.suite.is_empty()).map(|program| program.path.to_text());
        Some(render(&NodeDescription {
            uid: &test.uid,
            display_name: &test.display_name,
            report_name: test.report_name.as_ref(),
            parent: self.group_uid(test.group),
            suite: program.map_or("", |program| &program.suite),
            program: path.as_ref().map_or("", Cow::as_ref),
            framework: "",
            file: test.file.as_deref(),
            line: test.line,
            traits: &test.traits,
            client_members: None,
        }))
    }

    fn group_uid(&self, place: Option<u32>) -> Option<&str> {
        Some(self.groups.get(place? as usize)?.uid.as_str())
    }

    /// Returns the descriptions of all groups, each after its parent.
    pub fn described_groups(&self) -> impl Iterator<Item = GroupDescription<'_>> {
        self.groups.iter().map(|group| GroupDescription {
            uid: &group.uid,
            name: &group.name,
            parent: self.group_uid(group.parent),
            file: group.file.as_deref(),
            line: group.line,
            client_members: None,
        })
    }
}

/// Error that prevents reading a manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file is not a manifest.
    #[error("not a manifest: expected {{\"format\":\"{FORMAT}\" at byte 0")]
    Format,
    /// The file has another format version.
    #[error("it has format version {found}, but this version of Heeler reads version {VERSION}")]
    Version {
        /// Version of the file.
        found: u32,
    },
    /// The file is incomplete or damaged.
    #[error("damaged at byte {offset}: expected {expected}")]
    Damaged {
        /// Offset of the first unreadable byte.
        offset: usize,
        /// Expected content.
        expected: &'static str,
        /// Error of the JSON parser, if there is one.
        source: Option<serde_json::Error>,
    },
}

/// Format and version of a head; other versions may differ in everything else.
#[derive(Deserialize)]
struct ManifestFormat {
    format: String,
    version: u32,
}

impl ManifestHead {
    /// Returns the head of a run that begins now, without the fields that depend on its tests.
    #[must_use]
    pub fn new(run: &str, origin: RunOrigin) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            run: run.to_owned(),
            began_utc: String::new(),
            pid: 0,
            tests: 0,
            fixture_commands: 0,
            profile: String::new(),
            state_dir: OsText::default(),
            origin,
            shard: None,
        }
    }

    /// Reads the head of a manifest; `bytes` must contain the first line.
    ///
    /// # Errors
    /// The file is not a manifest, has another version, or is damaged.
    pub fn read(bytes: &[u8]) -> Result<Self, ManifestError> {
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let is_whole = line.len() < bytes.len();
        let read = serde_json::from_slice::<Self>(line);
        match (serde_json::from_slice::<ManifestFormat>(line), read) {
            (Ok(named), _) if named.format != FORMAT => Err(ManifestError::Format),
            (Ok(named), _) if named.version != VERSION => {
                Err(ManifestError::Version { found: named.version })
            }
            (Ok(_), Ok(head)) if is_whole => Ok(head),
            (Err(source), _) | (Ok(_), Err(source)) if is_damaged_head(line) => Err(ManifestError::Damaged {
                offset: 0,
                expected: "a line of JSON with the run's head",
                source: Some(source),
            }),
            (Err(_), _) => Err(ManifestError::Format),
            (Ok(_), read) => Err(ManifestError::Damaged {
                offset: 0,
                expected: "a whole line of JSON with the run's head",
                source: read.err(),
            }),
        }
    }
}

/// Returns whether an invalid first line looks like a damaged head.
fn is_damaged_head(line: &[u8]) -> bool {
    let begin = format!("{{\"format\":\"{FORMAT}\"");
    line.starts_with(begin.as_bytes()) || begin.as_bytes().starts_with(line)
}

impl Manifest {
    /// Encodes the manifest as a file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = serde_json::to_vec(&self.head).expect("a head is a plain struct");
        out.push(b'\n');
        serde_json::to_writer(&mut out, &self.plan).expect("memory takes everything");
        out.push(b'\n');
        out
    }

    /// Reads a whole manifest.
    ///
    /// # Errors
    /// The file is not a manifest, has another version, or is damaged.
    pub fn read(bytes: &[u8]) -> Result<Self, ManifestError> {
        let head = ManifestHead::read(bytes)?;
        let offset = 1 + bytes.iter().position(|byte| *byte == b'\n').expect("the head is a whole line");
        let damaged = |source| ManifestError::Damaged {
            offset,
            expected: "a line of JSON with the run's tests",
            source,
        };
        let line = bytes[offset..].strip_suffix(b"\n").ok_or_else(|| damaged(None))?;
        let plan: ManifestPlan = serde_json::from_slice(line).map_err(|source| damaged(Some(source)))?;
        if plan.tests.len() != head.tests + head.fixture_commands {
            let expected = "the number of tests in the head";
            return Err(ManifestError::Damaged { offset, expected, source: None });
        }
        Ok(Self { head, plan })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let test = ManifestTest {
            uid: "s::a\nb".into(),
            display_name: "a".into(),
            group: Some(0),
            file: Some("a.cc".into()),
            ..ManifestTest::default()
        };
        let origin = RunOrigin {
            command: vec!["heeler".into(), "run".into()],
            sources: vec![SourceRequest::new("cargo", ["/w".into(), "--release".into()])],
            continues: Some("r0".into()),
            ..RunOrigin::default()
        };
        let groups = vec![TestGroup { uid: "s::".into(), name: "s".into(), ..TestGroup::default() }];
        let head = ManifestHead {
            tests: 1,
            pid: 7,
            began_utc: "2026-11-20T00:00:00Z".into(),
            ..ManifestHead::new("r", origin)
        };
        let left_before = RerunSet { failed: vec!["s::c".into()], not_run: vec![] };
        let programs = vec![ManifestProgram { suite: "s".into(), path: "/bin/s".into() }];
        let needs = ManifestNeeds { weight: 2, resources: vec![(0, 1)], tests: vec![0] };
        let schedule = ManifestSchedule {
            slots: 4,
            resources: vec![ManifestResource { name: "db".into(), capacity: 1 }],
            needs: vec![needs],
            ..ManifestSchedule::default()
        };
        Manifest {
            head,
            plan: ManifestPlan {
                programs,
                tests: vec![test],
                groups,
                earlier_rerun_set: left_before,
                schedule: Some(Box::new(schedule)),
            },
        }
    }

    #[test]
    fn manifest_round_trips_whole_and_head_only() {
        let bytes = manifest().to_bytes();
        assert_eq!(Manifest::read(&bytes).unwrap(), manifest());
        let line = bytes.iter().position(|byte| *byte == b'\n').unwrap();
        assert_eq!(ManifestHead::read(&bytes[..=line]).unwrap(), manifest().head);
    }

    #[test]
    fn truncated_manifest_is_refused_with_its_offset() {
        let bytes = manifest().to_bytes();
        let second = 1 + bytes.iter().position(|byte| *byte == b'\n').unwrap();
        for cut in 0..bytes.len() {
            match Manifest::read(&bytes[..cut]).unwrap_err() {
                ManifestError::Damaged { offset, .. } => {
                    assert_eq!(offset, if cut < second { 0 } else { second }, "cut at {cut}");
                }
                other => panic!("cut at {cut}: {other}"),
            }
        }
    }

    #[test]
    fn foreign_files_and_other_versions_are_refused() {
        for text in ["", "x\n", "{}\n", "{\"format\":\"x\",\"version\":5}\n", "[1]\n"] {
            let error = Manifest::read(text.as_bytes()).unwrap_err();
            let is_torn = text.is_empty() && matches!(error, ManifestError::Damaged { offset: 0, .. });
            assert!(is_torn || matches!(error, ManifestError::Format), "{text}: {error}");
        }
        let newer = "{\"format\":\"heeler-manifest\",\"version\":9,\"all\":\"else\"}\n";
        let error = Manifest::read(newer.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "it has format version 9, but this version of Heeler reads version 5");
    }
}
