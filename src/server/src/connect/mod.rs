//! The front end of Connect's conformance suite: between the suite, which writes cases and judges their
//! answers, and many processes of the client under test. To the suite it is one client that answers every
//! case exactly once, in any order.
//!
//! - `front_end`: the protocol's entry among the front ends.
//! - `case_event`: events for an observer of the cases.
//! - `session`: the connection to the suite, and the runs.
//! - `cases`: which cases wait, run and are answered. Pure.
//! - `durations`: how long cases are expected to take. Pure.
//! - `listing`: the cases as tests, and listing them without a run.
//! - `answer`: the answer of a case that its client has not answered.

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
