//! Events for the observer of a suite's cases.

use heeler_core::{TestResult, WorkerId};

/// Event for the observer of a session's cases.
#[derive(Debug)]
pub enum CaseEvent {
    /// A process of the client has been asked the case.
    Started { name: String, worker: WorkerId },
    /// The case is answered: by the client, which is its outcome `Passed` until the suite has judged the
    /// answer, or with an error, because the client gave none.
    Ended { name: String, result: Box<TestResult> },
    /// A text for the user.
    Warning(String),
}
