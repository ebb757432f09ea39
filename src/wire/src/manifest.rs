//! What a run was to do, beside its journals: with both, whoever survives can tell how every test ended.
//!
//! The file has two lines of JSON: the head, which lists of runs read, and the tests with their groups. It is written
//! before the first test runs. A second line that is missing or cut off is told as such.

use serde::{Deserialize, Serialize};

use crate::control::{Group, OsBytes};

/// The manifest's name in the run's directory.
pub const FILE_NAME: &str = "manifest.jsonl";
/// A file beside it that the coordinator holds locked while the run goes on.
pub const COORDINATOR_LOCK: &str = "coordinator.lock";
/// The same of the watchdog: also where the coordinator has died, until all below is gone and told.
pub const WATCHDOG_LOCK: &str = "watchdog.lock";
/// The form's version; readers refuse others.
pub const VERSION: u32 = 3;
/// What each manifest says that it is.
const FORMAT: &str = "heeler-manifest";

/// One run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// What lists of runs show.
    pub head: Head,
    /// What was to run.
    pub plan: Plan,
}

/// What is to be known of a run without reading all its tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Head {
    /// What the file says that it is.
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// The client's id of the run.
    pub run: String,
    /// When it began, in ISO 8601.
    pub began_utc: String,
    /// The coordinator's process.
    pub pid: u32,
    /// How many tests were selected.
    pub tests: usize,
    /// The profile's name.
    pub profile: String,
    /// The directory that the run's own belongs to, even if that could not be made there.
    pub state_dir: OsBytes,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a run comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Origin {
    /// The words of the command line.
    pub command: Vec<OsBytes>,
    /// Where it was given.
    pub cwd: OsBytes,
    /// Programs that it named; none where those of the configuration ran, or where a client serves itself.
    pub programs: NamedPrograms,
    /// The client's id of the run that this one goes on with.
    pub continues: Option<String>,
}

/// Programs as a command line names them; paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct NamedPrograms {
    /// By path.
    pub paths: Vec<OsBytes>,
    /// Those of a cargo package or workspace.
    pub cargo: Option<OsBytes>,
    /// Words for cargo.
    pub cargo_args: Vec<String>,
    /// Their framework, where it was given.
    pub framework: Option<String>,
}

/// Tests by uid that a run is still to be gone on with.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Left {
    /// They failed, in whichever way.
    pub failed: Vec<String>,
    /// They got no result of their own.
    pub not_run: Vec<String>,
}

/// The tests of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Plan {
    /// The selected tests; journals name them by their place here.
    pub tests: Vec<PlannedTest>,
    /// The groups above them, each behind its own group.
    pub groups: Vec<Group>,
    /// What was left of the run that this one goes on with, whether it is selected this time or not.
    #[serde(default)]
    pub left_before: Left,
}

/// One selected test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PlannedTest {
    /// Its name for the client.
    pub uid: String,
    /// Its name for people.
    pub display_name: String,
    /// Its suite.
    pub suite: String,
    /// Its group: the place in the manifest's list.
    pub group: Option<u32>,
    /// Members that the client gave it, as JSON: `"name":value,…`.
    pub foreign: Option<String>,
}

/// Why a manifest can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file is none.
    #[error("expected a line of JSON that begins with {{\"format\":\"{FORMAT}\" at byte 0")]
    Format,
    /// Another heeler wrote it.
    #[error("it is written in version {found} of the format, and this heeler reads version {VERSION}")]
    Version {
        /// Its version.
        found: u32,
    },
    /// It was never written to its end, or is damaged.
    #[error("damaged at byte {offset}: expected {expected}")]
    Damaged {
        /// Where what can't be read begins.
        offset: usize,
        /// What should stand there.
        expected: &'static str,
        /// What is wrong with it.
        source: Option<serde_json::Error>,
    },
}

/// What a head says of itself; all else may be different in another version.
#[derive(Deserialize)]
struct Named {
    format: String,
    version: u32,
}

impl Head {
    /// Returns the head of a run that begins now, as far as it is no matter of its tests.
    #[must_use]
    pub fn new(run: &str, origin: Origin) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            run: run.to_owned(),
            began_utc: String::new(),
            pid: 0,
            tests: 0,
            profile: String::new(),
            state_dir: OsBytes::default(),
            origin,
        }
    }

    /// Reads the head of a manifest; `bytes` must hold its first line.
    ///
    /// # Errors
    /// It is none, another version's, or damaged.
    pub fn read(bytes: &[u8]) -> Result<Self, ManifestError> {
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let is_whole = line.len() < bytes.len();
        let read = serde_json::from_slice::<Self>(line);
        match (serde_json::from_slice::<Named>(line), read) {
            (Ok(named), _) if named.format != FORMAT => Err(ManifestError::Format),
            (Ok(named), _) if named.version != VERSION => {
                Err(ManifestError::Version { found: named.version })
            }
            (Ok(_), Ok(head)) if is_whole => Ok(head),
            (Err(source), _) | (Ok(_), Err(source)) if is_ours(line) => Err(ManifestError::Damaged {
                offset: 0,
                expected: "a line with the run's head",
                source: Some(source),
            }),
            (Err(_), _) => Err(ManifestError::Format),
            (Ok(_), read) => Err(ManifestError::Damaged {
                offset: 0,
                expected: "a whole line with the run's head",
                source: read.err(),
            }),
        }
    }
}

/// Whether a line that is no head was meant to be one.
fn is_ours(line: &[u8]) -> bool {
    let begin = format!("{{\"format\":\"{FORMAT}\"");
    line.starts_with(begin.as_bytes()) || begin.as_bytes().starts_with(line)
}

impl Manifest {
    /// Returns the file's bytes.
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
    /// It is none, another version's, or damaged.
    pub fn read(bytes: &[u8]) -> Result<Self, ManifestError> {
        let head = Head::read(bytes)?;
        let offset = 1 + bytes.iter().position(|byte| *byte == b'\n').expect("the head is a whole line");
        let damaged =
            |source| ManifestError::Damaged { offset, expected: "a line with the run's tests", source };
        let line = bytes[offset..].strip_suffix(b"\n").ok_or_else(|| damaged(None))?;
        let plan: Plan = serde_json::from_slice(line).map_err(|source| damaged(Some(source)))?;
        if plan.tests.len() != head.tests {
            let expected = "as many tests as the head says";
            return Err(ManifestError::Damaged { offset, expected, source: None });
        }
        Ok(Self { head, plan })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let test = PlannedTest {
            uid: "s::a\nb".into(),
            display_name: "a".into(),
            suite: "s".into(),
            group: Some(0),
            foreign: Some("\"x.y\":1".into()),
        };
        let origin = Origin {
            command: vec!["heeler".into(), "run".into()],
            continues: Some("r0".into()),
            ..Origin::default()
        };
        let groups = vec![Group { uid: "s::".into(), name: "s".into(), parent: None, foreign: None }];
        let head =
            Head { tests: 1, pid: 7, began_utc: "2026-11-20T00:00:00Z".into(), ..Head::new("r", origin) };
        let left_before = Left { failed: vec!["s::c".into()], not_run: vec![] };
        Manifest { head, plan: Plan { tests: vec![test], groups, left_before } }
    }

    #[test]
    fn what_is_written_is_read_again_and_its_head_alone_too() {
        let bytes = manifest().to_bytes();
        assert_eq!(Manifest::read(&bytes).unwrap(), manifest());
        let line = bytes.iter().position(|byte| *byte == b'\n').unwrap();
        assert_eq!(Head::read(&bytes[..=line]).unwrap(), manifest().head);
    }

    #[test]
    fn a_manifest_cut_anywhere_is_refused_with_the_place() {
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
    fn other_files_and_other_versions_are_refused_by_name() {
        for text in ["", "x\n", "{}\n", "{\"format\":\"x\",\"version\":3}\n", "[1]\n"] {
            let error = Manifest::read(text.as_bytes()).unwrap_err();
            let is_torn = text.is_empty() && matches!(error, ManifestError::Damaged { offset: 0, .. });
            assert!(is_torn || matches!(error, ManifestError::Format), "{text}: {error}");
        }
        let newer = "{\"format\":\"heeler-manifest\",\"version\":9,\"all\":\"else\"}\n";
        let error = Manifest::read(newer.as_bytes()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it is written in version 9 of the format, and this heeler reads version 3"
        );
    }
}
