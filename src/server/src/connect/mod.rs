//! The front end of Connect's conformance suite. It sits between the suite, which writes cases and judges
//! answers, and many processes of the client under test. To the suite it looks like a single client that
//! answers every case once, in any order.
//!
//! - `front_end`: implements the common front end interface.
//! - `case_event`: events for an observer of the cases.
//! - `session`: the connection to the suite, and the runs.
//! - `cases`: which cases are waiting, running and answered. Pure.
//! - `durations`: estimates how long cases take. Pure.
//! - `listing`: the cases as tests, and listing them without a run.
//! - `answer`: the answer to a case.

mod answer;
mod case_event;
mod cases;
mod durations;
mod front_end;
mod listing;
mod session;

pub use case_event::CaseEvent;
pub use front_end::ConnectFrontEnd;
pub use listing::{FRAMEWORK, ListCasesError, case_catalogue, list_cases};
