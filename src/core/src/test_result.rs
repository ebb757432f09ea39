//! Result of one test, used by every process and report: outcome, failures, attempts, output, and the exit of
//! the process.

use serde::{Deserialize, Serialize};

use crate::{Iteration, OsText, Outcome, ProcessFacts, SourcePlace};

/// How a test ended, and everything known about it. With the test's description, this is all that a protocol
/// or a report needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestResult {
    pub outcome: Outcome,
    /// Start, in milliseconds since 1970 (UTC); `None` for a test that never started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    /// End, in milliseconds since 1970 (UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Duration in microseconds; `None` if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    /// Number of the worker that ran the test, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u32>,
    /// Reason of an outcome that is not a failure reported by the framework: why the test was skipped or not
    /// run, how its process died, or which limit expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Failures that the framework reported, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// Parts of the test that the framework reported (subcases, sections, data rows), in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartResult>,
    /// Number of parts dropped beyond the maximum kept for one test.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub parts_left_out: u32,
    /// Attempts before the final one, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// Standard output, truncated.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stdout: String,
    /// Standard error, truncated.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
    /// Exit reason of the process, if it died during the test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_reason: Option<ExitReason>,
    /// Result of the isolated rerun that checked a crash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated_rerun: Option<IsolatedRerun>,
    /// Diagnostics of the process, collected while it died or hung.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostics: Option<Box<TestDiagnostics>>,
    /// Copies of the files that the test attached, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<DiagnosticsFile>,
    /// Resource usage of the process, if it ran only this test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<ProcessUsage>,
    /// Processes that outlived the process of the test, if it ran only this test.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaked: Vec<LeakedProcess>,
    /// Place of the failure: the innermost known place in the user's own sources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<SourcePlace>,
    /// Number of finished iterations, including the last one, if the test was to run more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u32>,
    /// Answer of the test in base64, if its framework forwards answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Shell command line that runs the test in isolation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reproduce: Option<String>,
}

impl TestResult {
    /// Returns a result with only an outcome.
    #[must_use]
    pub fn new(outcome: Outcome) -> Self {
        Self {
            outcome,
            started_ms: None,
            ended_ms: None,
            duration_us: None,
            worker: None,
            reason: None,
            failures: Vec::new(),
            parts: Vec::new(),
            parts_left_out: 0,
            attempts: Vec::new(),
            stdout: String::new(),
            stderr: String::new(),
            exit_reason: None,
            isolated_rerun: None,
            diagnostics: None,
            attached: Vec::new(),
            usage: None,
            leaked: Vec::new(),
            failed_at: None,
            iterations: None,
            answer: None,
            reproduce: None,
        }
    }

    /// Returns a result with an outcome and its reason.
    #[must_use]
    pub fn with_reason(outcome: Outcome, reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), ..Self::new(outcome) }
    }

    /// Turns the last attempt into the final result; `note` says why no attempt follows.
    #[must_use]
    pub fn from_last_attempt(attempt: &Attempt, note: &str) -> Self {
        Self {
            duration_us: Some(attempt.duration_us),
            stdout: attempt.stdout.clone(),
            stderr: attempt.stderr.clone(),
            exit_reason: attempt.exit_reason.clone(),
            diagnostics: attempt.diagnostics.clone(),
            attached: attempt.attached.clone(),
            failed_at: attempt.failed_at.clone(),
            ..Self::with_reason(attempt.outcome, format!("{}\n({note})", attempt.message))
        }
    }

    /// Returns the message of the result: its reason, otherwise the messages of its failures. Each message
    /// after the first has its location.
    #[must_use]
    pub fn message(&self) -> Option<std::borrow::Cow<'_, str>> {
        if let Some(reason) = &self.reason {
            return Some(reason.into());
        }
        let mut failures = self.failures.iter().filter(|failure| failure.message.is_some());
        let mut message: std::borrow::Cow<'_, str> = failures.next()?.message.as_deref()?.into();
        for failure in failures {
            let text = message.to_mut();
            text.push('\n');
            if let Some(place) = failure.place() {
                text.push_str(&place.to_string());
                text.push_str(": ");
            }
            text.push_str(failure.message.as_deref().unwrap_or_default());
        }
        Some(message)
    }

    /// Returns the first failure if it has an expected or an actual value. Values of later failures would not
    /// match the message and location that are shown first.
    #[must_use]
    pub fn failed_comparison(&self) -> Option<&Failure> {
        self.failures.first().filter(|failure| failure.expected.is_some() || failure.actual.is_some())
    }

    /// Returns every file of the result once: first the diagnostics, then files that the test attached, then
    /// files of earlier attempts, whose descriptions name the attempt.
    #[must_use]
    pub fn files(&self) -> Vec<DiagnosticsFile> {
        let mut files: Vec<DiagnosticsFile> =
            own_files(self.diagnostics.as_deref(), &self.attached).collect();
        for (number, attempt) in (1..).zip(&self.attempts) {
            for file in attempt.files() {
                if files.iter().all(|known| known.path != file.path) {
                    let description = format!("{} (attempt {number})", file.description);
                    files.push(DiagnosticsFile { description, ..file });
                }
            }
        }
        files
    }
}

fn own_files<'a>(
    diagnostics: Option<&'a TestDiagnostics>,
    attached: &'a [DiagnosticsFile],
) -> impl Iterator<Item = DiagnosticsFile> + 'a {
    diagnostics.into_iter().flat_map(|diagnostics| &diagnostics.files).chain(attached).cloned()
}

/// How one part of a test ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartResult {
    /// Name within the test, including the enclosing parts.
    pub name: String,
    /// Outcome of the part; `None` if the test ended within the part.
    pub outcome: Option<Outcome>,
    /// Failure message, if the framework reports one for the part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// One failure that a framework reported.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Failure {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Source file of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line in the source file, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Expected value of a failed comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// Actual value of a failed comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual: Option<String>,
    /// Stack at the failure, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<String>,
}

impl Failure {
    /// Returns the location of the failure.
    #[must_use]
    pub fn place(&self) -> Option<SourcePlace> {
        Some(SourcePlace { file: self.file.clone()?, line: self.line })
    }

    /// Returns whether the failure has no information.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// An attempt that was followed by a retry or an isolated rerun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub outcome: Outcome,
    /// Error message, truncated.
    pub message: String,
    /// Exit reason of the process, if it died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_reason: Option<ExitReason>,
    /// Standard output, truncated.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stdout: String,
    /// Standard error, truncated.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
    /// Diagnostics of the process, collected while it died or hung.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostics: Option<Box<TestDiagnostics>>,
    /// Copies of the files that the test attached, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<DiagnosticsFile>,
    /// Place of the failure, as in [`TestResult::failed_at`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<SourcePlace>,
    /// Duration in microseconds.
    pub duration_us: u64,
}

impl Attempt {
    /// Returns an attempt with an outcome and its message, and nothing else.
    #[must_use]
    pub fn new(outcome: Outcome, message: impl Into<String>) -> Self {
        Self {
            outcome,
            message: message.into(),
            exit_reason: None,
            stdout: String::new(),
            stderr: String::new(),
            diagnostics: None,
            attached: Vec::new(),
            failed_at: None,
            duration_us: 0,
        }
    }

    /// Returns the files of the attempt: first the diagnostics, then files that the test attached.
    pub fn files(&self) -> impl Iterator<Item = DiagnosticsFile> + '_ {
        own_files(self.diagnostics.as_deref(), &self.attached)
    }
}

/// How the isolated rerun of a crashed test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IsolatedRerun {
    /// The process died again.
    Crashes,
    /// The test passed, or was skipped.
    Passes,
    /// The framework reported a failure.
    Fails,
    /// A time limit expired.
    Hangs,
}

impl IsolatedRerun {
    pub const ALL: [Self; 4] = [Self::Crashes, Self::Passes, Self::Fails, Self::Hangs];

    /// Returns the name used in protocols and reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Crashes => "crashes",
            Self::Passes => "passes",
            Self::Fails => "fails",
            Self::Hangs => "hangs",
        }
    }
}

/// Diagnostics of a process, collected while it died or hung.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TestDiagnostics {
    /// Stack trace of the thread that caused the failure, as text; empty if there is none.
    pub stack: String,
    /// Files: dumps, stack traces, outputs.
    pub files: Vec<DiagnosticsFile>,
    /// Explanations for diagnostics that could not be collected.
    pub notes: Vec<String>,
}

/// File of a result, in the run's directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiagnosticsFile {
    pub path: OsText,
    /// Kind of file, as text: `minidump`, `stacks of all threads`, `standard output`. For an attached file,
    /// the description given by the test.
    pub description: String,
}

/// Exit reason of a test process that died during a test, or outside any test.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExitReason {
    /// Signal name, such as `SIGSEGV`.
    pub signal: Option<String>,
    /// Exit code of a process that exited by itself.
    pub code: Option<i32>,
    /// Whether the system wrote a core file.
    pub has_core: bool,
    /// Location and origin, such as `address 0x0, thread main`. If the reason is unknown, why it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// How the language's runtime ended the process, by the runtime's own report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeDeath>,
    /// Deeper cause, if known: a memory limit, or the system running out of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Number of other tests that were running in the process when it died; any of them may be the cause.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub other_suspects: u32,
    /// Iteration during which the process died, if its tests were to run more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iteration: Option<Iteration>,
}

/// How a language's runtime ends a process whose program cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuntimeDeath {
    /// A panic that was not recovered.
    Panic,
    /// All threads of the program wait for each other.
    Deadlock,
    /// The runtime found an error that no program can handle.
    FatalError,
}

impl RuntimeDeath {
    /// Returns the label shown in results and reports, in lower case.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Panic => "panic",
            Self::Deadlock => "deadlock",
            Self::FatalError => "fatal",
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl std::fmt::Display for ExitReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.signal, self.code) {
            (Some(signal), _) => f.write_str(signal),
            (None, Some(code)) => write!(f, "exit code {code}"),
            (None, None) => f.write_str("an unknown exit status"),
        }
    }
}

/// Resource usage of a test process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessUsage {
    /// CPU time of the process and its reaped children, in microseconds.
    pub cpu_us: u64,
    /// Peak resident memory of the largest of these processes, in KiB.
    pub peak_kib: u64,
    /// Wall-clock time from start to end, in microseconds.
    pub wall_us: u64,
}

/// Process that outlived its test process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LeakedProcess {
    pub pid: u32,
    /// Command line, truncated.
    pub command: String,
    /// Start time of the process, or of its topmost surviving ancestor: milliseconds since boot, rounded down
    /// to the clock tick. `None` if unknown.
    #[serde(default)]
    pub started_ms: Option<u64>,
    /// Name, age and memory before the process was killed; `None` if it was gone before it could be
    /// described.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<ProcessFacts>,
    /// Whether the process is still running because it could not be killed, for example because it runs as
    /// another user.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_running: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_the_place_of_each_further_failure() {
        let failure = |message: &str, file: Option<&str>, line| Failure {
            message: Some(message.to_owned()),
            file: file.map(str::to_owned),
            line,
            ..Failure::default()
        };
        let mut result = TestResult::new(Outcome::Failed);
        assert_eq!(result.message(), None);
        result.failures = vec![Failure::default(), failure("a", Some("f"), Some(1))];
        assert_eq!(result.message().as_deref(), Some("a"));
        result.failures.extend([failure("b", Some("g"), Some(2)), failure("c", None, None)]);
        assert_eq!(result.message().as_deref(), Some("a\ng:2: b\nc"));
        result.reason = Some("killed".to_owned());
        assert_eq!(result.message().as_deref(), Some("killed"));
    }

    #[test]
    fn each_file_is_named_once_with_its_attempt() {
        let file = |path: &str| DiagnosticsFile { path: path.into(), description: "log".to_owned() };
        let diagnostics =
            |path| Some(Box::new(TestDiagnostics { files: vec![file(path)], ..TestDiagnostics::default() }));
        let attempt = Attempt {
            diagnostics: diagnostics("/first.dmp"),
            attached: vec![file("/first.log"), file("/shared.log")],
            ..Attempt::new(Outcome::Failed, "")
        };
        let result = TestResult {
            diagnostics: diagnostics("/last.dmp"),
            attached: vec![file("/shared.log")],
            attempts: vec![attempt],
            ..TestResult::new(Outcome::Flaky)
        };
        let files = result.files().into_iter();
        let files: Vec<_> =
            files.map(|file| format!("{} {}", file.path.to_text(), file.description)).collect();
        let expected =
            ["/last.dmp log", "/shared.log log", "/first.dmp log (attempt 1)", "/first.log log (attempt 1)"];
        assert_eq!(files, expected);
    }
}
