//! Events for the observer of a suite's cases.

use heeler_core::{TestResult, WorkerId};

/// An event for the observer of a session's cases.
#[derive(Debug)]
pub enum CaseEvent {
    /// The case was passed to a process of the client.
    Started { name: String, worker: WorkerId },
    /// The case has ended. If the client answered, the outcome is `Passed` until the suite has judged the
    /// answer. Otherwise, the suite gets an error as the answer.
    Ended { name: String, result: Box<TestResult> },
    /// A message for the user.
    Warning(String),
}
