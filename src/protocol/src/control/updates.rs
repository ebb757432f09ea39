//! Updates of a run on their way to a client. The encoding is either the test protocol, which workers and the
//! watchdog can send to the client directly, or Heeler's own types for a session of another protocol.

use bytes::Bytes;
use heeler_core::{ProgramFailure, TestResult, WorkerId};
use serde::{Deserialize, Serialize};

use crate::mtp::{
    GroupDescription, NodeDescription, append_elements, completion_frame, render_group, render_output,
    render_program_failure, render_result, render_started, updates_frame,
};

/// Encoding of updates for a client's runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum UpdateEncoding {
    /// Notifications of the test protocol.
    #[default]
    TestProtocol,
    /// [`RunUpdates`], read by a session in the coordinator.
    Typed,
}

/// Maximum number of updates in a frame. Clients show progress per frame, and some limit message sizes.
pub const FRAME_LIMIT_UPDATES: usize = 500;
/// Approximate maximum size of a frame, so that clients show results as they arrive. A larger update gets its
/// own frame.
pub const FRAME_LIMIT_BYTES: usize = 256 << 10;

/// Updates of one run, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunUpdates {
    /// Run id chosen by the client.
    pub run: String,
    pub updates: Vec<TestUpdate>,
}

/// One update of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TestUpdate {
    /// The test has started.
    Started {
        /// Uid of the test.
        uid: String,
        /// Start time in milliseconds since 1970.
        started_ms: u64,
        worker: WorkerId,
    },
    /// The test has its terminal result.
    Finished {
        /// Uid of the test.
        uid: String,
        result: Box<TestResult>,
    },
    /// A program failed outside its tests.
    ProgramFailed(ProgramFailure),
    /// No update of the run follows.
    Completed,
}

/// Borrowed form of [`TestUpdate`] for writing, because a result may contain megabytes of output.
#[derive(Serialize)]
enum WrittenUpdate<'a> {
    Started { uid: &'a str, started_ms: u64, worker: WorkerId },
    Finished { uid: &'a str, result: &'a TestResult },
    ProgramFailed(&'a ProgramFailure),
    Completed,
}

impl UpdateEncoding {
    /// Returns whether groups have their own updates.
    #[must_use]
    pub fn has_groups(self) -> bool {
        self == Self::TestProtocol
    }

    /// Appends the update of a group; the typed encoding has none.
    pub fn append_group(self, out: &mut Vec<u8>, group: &GroupDescription<'_>) {
        match self {
            Self::TestProtocol => render_group(out, group),
            Self::Typed => {}
        }
    }

    /// Appends the update of a test that has started.
    pub fn append_started(
        self,
        out: &mut Vec<u8>,
        test: &NodeDescription<'_>,
        started_ms: u64,
        worker: WorkerId,
    ) {
        match self {
            Self::TestProtocol => render_started(out, test, started_ms, worker.0),
            Self::Typed => append(out, &WrittenUpdate::Started { uid: test.uid, started_ms, worker }),
        }
    }

    /// Appends a running test's latest output, if the encoding has such updates.
    pub fn append_output(self, out: &mut Vec<u8>, test: &NodeDescription<'_>, started_ms: u64, output: &str) {
        match self {
            Self::TestProtocol => render_output(out, test, started_ms, output),
            Self::Typed => {}
        }
    }

    /// Appends the update of a test with its result.
    pub fn append_finished(self, out: &mut Vec<u8>, test: &NodeDescription<'_>, result: &TestResult) {
        match self {
            Self::TestProtocol => render_result(out, test, result),
            Self::Typed => append(out, &WrittenUpdate::Finished { uid: test.uid, result }),
        }
    }

    /// Appends the update of a program that failed outside its tests.
    pub fn append_program_failure(self, out: &mut Vec<u8>, failure: &ProgramFailure) {
        match self {
            Self::TestProtocol => render_program_failure(out, failure),
            Self::Typed => append(out, &WrittenUpdate::ProgramFailed(failure)),
        }
    }

    /// Returns a frame of encoded updates, each in its own slice.
    #[must_use]
    pub fn frame<'a>(self, run: &str, updates: impl IntoIterator<Item = &'a [u8], IntoIter: Clone>) -> Bytes {
        match self {
            Self::TestProtocol => updates_frame(run, updates),
            Self::Typed => typed_frame(run, updates).into(),
        }
    }

    /// Returns the last frame of a run.
    #[must_use]
    pub fn completion(self, run: &str) -> Bytes {
        match self {
            Self::TestProtocol => completion_frame(run),
            Self::Typed => {
                let mut update = Vec::new();
                append(&mut update, &WrittenUpdate::Completed);
                self.frame(run, [update.as_slice()])
            }
        }
    }
}

fn append(out: &mut Vec<u8>, update: &WrittenUpdate<'_>) {
    serde_json::to_writer(out, update).expect("an update is a plain struct");
}

/// Returns [`RunUpdates`] made of encoded updates.
fn typed_frame<'a>(run: &str, updates: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut frame = br#"{"run":"#.to_vec();
    serde_json::to_writer(&mut frame, run).expect("a text is encoded");
    frame.extend_from_slice(br#","updates":["#);
    append_elements(&mut frame, updates.into_iter());
    frame.extend_from_slice(b"]}");
    frame
}

impl RunUpdates {
    /// Reads a frame of the typed encoding.
    ///
    /// # Errors
    /// The bytes are not such a frame.
    pub fn read(frame: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(frame)
    }
}

#[cfg(test)]
mod tests {
    use heeler_core::Outcome;

    use super::*;

    #[test]
    fn typed_updates_round_trip_in_one_frame() {
        let test = NodeDescription { uid: "s::t", ..NodeDescription::default() };
        let result = TestResult::with_reason(Outcome::Failed, "m\n\u{1}");
        let failure = ProgramFailure {
            suite: "s".into(),
            program: "/bin/s".into(),
            fixture: None,
            message: "m".into(),
        };
        let typed = UpdateEncoding::Typed;
        let mut updates = [Vec::new(), Vec::new(), Vec::new()];
        typed.append_started(&mut updates[0], &test, 7, WorkerId(3));
        typed.append_finished(&mut updates[1], &test, &result);
        typed.append_program_failure(&mut updates[2], &failure);
        let frame = typed.frame("r", updates.iter().map(Vec::as_slice));
        let uid = || "s::t".to_owned();
        let expected = [
            TestUpdate::Started { uid: uid(), started_ms: 7, worker: WorkerId(3) },
            TestUpdate::Finished { uid: uid(), result: Box::new(result) },
            TestUpdate::ProgramFailed(failure),
        ];
        assert_eq!(
            RunUpdates::read(&frame).unwrap(),
            RunUpdates { run: "r".into(), updates: expected.into() }
        );
        let end = RunUpdates::read(&typed.completion("r")).unwrap();
        assert_eq!(end.updates, [TestUpdate::Completed]);
        let mut group = Vec::new();
        typed.append_group(&mut group, &GroupDescription::default());
        assert!(group.is_empty() && !typed.has_groups());
    }
}
