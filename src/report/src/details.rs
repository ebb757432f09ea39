//! Texts of results, in memory and on disk. A summary keeps the texts of the first failures, up to a limit.
//! For other tests it keeps only what lists and counts need, and a report reads the recorded texts again.

use std::borrow::Cow;

use heeler_core::Attempt;
use heeler_protocol::mtp::FailureInfo;

use super::{FailureDetail, ReportRunInfo, RunSummary, TestReport};

/// Maximum size of an abridged message, enough for a headline.
const ABRIDGED_MESSAGE_BYTES: usize = 1 << 10;

/// Source of the complete results of a run.
pub trait DetailSource {
    /// Returns the detail of a test, or of a program that failed outside its tests, by uid.
    ///
    /// # Errors
    /// The detail is not recorded, or can't be read.
    fn load_detail(&self, uid: &str) -> Result<FailureDetail, DetailLoadError>;
}

/// Error of loading the detail of a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct DetailLoadError {
    /// Description for users.
    pub reason: String,
}

/// Source of details when nothing is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnavailableDetails {
    /// Reason why nothing is recorded, for users.
    pub reason: String,
}

impl DetailSource for UnavailableDetails {
    fn load_detail(&self, _uid: &str) -> Result<FailureDetail, DetailLoadError> {
        Err(DetailLoadError { reason: self.reason.clone() })
    }
}

/// Everything that a report is written from.
#[derive(Clone, Copy)]
pub struct ReportContent<'a> {
    pub summary: &'a RunSummary,
    pub info: ReportRunInfo<'a>,
    /// Source of the details that the summary has abridged.
    pub details: &'a dyn DetailSource,
}

impl ReportContent<'_> {
    /// Returns a record of the summary with all its texts. Keep only one such record in memory at a time.
    #[must_use]
    pub fn with_whole_detail<'r>(&self, record: &'r TestReport) -> Cow<'r, TestReport> {
        let Some(abridged) = record.detail.as_deref().filter(|detail| detail.is_abridged) else {
            return Cow::Borrowed(record);
        };
        let detail = match self.details.load_detail(&record.uid) {
            // Only the summary knows processes that the run attributed to the test later.
            Ok(whole) => FailureDetail { leaked: abridged.leaked.clone(), ..whole },
            Err(error) => {
                let message = abridged.message.as_deref().unwrap_or_default();
                let note = format!("[heeler: the output of this test can't be read: {error}]");
                let border = if message.is_empty() { "" } else { "\n" };
                FailureDetail { message: Some(format!("{message}{border}{note}")), ..abridged.clone() }
            }
        };
        let mut whole = TestReport { detail: Some(Box::new(detail)), ..record.clone() };
        self.summary.reduce(&mut whole);
        Cow::Owned(whole)
    }
}

impl FailureDetail {
    /// Returns the total size of all texts, in bytes.
    pub(super) fn text_bytes(&self) -> usize {
        let length = |text: &Option<String>| text.as_deref().map_or(0, str::len);
        let own = [
            &self.message,
            &self.stacktrace,
            &self.actual,
            &self.expected,
            &self.stdout,
            &self.stderr,
            &self.reproduce,
        ];
        let of_failure = |failure: &FailureInfo| {
            [&failure.message, &failure.stacktrace, &failure.file, &failure.expected, &failure.actual]
                .into_iter()
                .map(length)
                .sum::<usize>()
        };
        let of_attempt = |attempt: &Attempt| {
            let stack = attempt.diagnostics.as_ref().map_or(0, |diagnostics| diagnostics.stack.len());
            attempt.message.len() + attempt.stdout.len() + attempt.stderr.len() + stack
        };
        own.into_iter().map(length).sum::<usize>()
            + self.failures.iter().map(of_failure).sum::<usize>()
            + self.attempts.iter().map(of_attempt).sum::<usize>()
            + self.parts.iter().map(|part| part.name.len() + length(&part.message)).sum::<usize>()
            + self.files.iter().map(|(path, description)| path.len() + description.len()).sum::<usize>()
    }

    /// Returns the parts of the detail that reports print for a test that passed at its first attempt without
    /// leaking processes.
    pub(super) fn of_pass(self) -> Option<Self> {
        let is_printed = !self.files.is_empty() || !self.parts.is_empty();
        is_printed.then(|| Self { files: self.files, parts: self.parts, ..Self::default() })
    }

    /// Drops all data that lists and counts do not need.
    pub(super) fn abridge(&mut self) {
        let attempts = self.attempts.len() as u64;
        let message = self.message.take().map(|mut message| {
            message.truncate(message.floor_char_boundary(ABRIDGED_MESSAGE_BYTES));
            message.shrink_to_fit();
            message
        });
        *self = Self {
            signal: self.signal.take(),
            runtime: self.runtime,
            exit_code: self.exit_code,
            message,
            failed_at: self.failed_at.take(),
            reproduce: self.reproduce.take(),
            isolated_rerun: self.isolated_rerun.take(),
            attempt: self.attempt.or((attempts > 0).then_some(attempts + 1)),
            worker: self.worker,
            leaked: std::mem::take(&mut self.leaked),
            files: std::mem::take(&mut self.files),
            is_abridged: true,
            ..Self::default()
        };
    }
}
