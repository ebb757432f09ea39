//! The cases of Connect's conformance suite for clients under test, without its own judge: suite files and a
//! configuration file become the same cases with the same requests, and answers get the same verdicts.
//! Nothing here knows of sessions, workers or processes; only `server` and `judgement` wait.
//!
//! - [`Configuration`]: what a client under test supports.
//! - [`expand`]: suite files become cases; [`Case::request`] is what a client gets.
//! - [`problems_of_answer`]: the verdict about what a client answers.
//! - [`JudgedRun`]: reference servers, and verdicts with what they have seen, of the cases that they serve.
//! - [`message`]: the messages.

mod axes;
mod configuration;
mod expansion;
mod expected;
mod judgement;
pub mod message;
mod server;
mod suite;
mod text;
mod tree;
mod verdict;

pub use axes::{CaseAxes, Codec, Compression, HttpVersion, Protocol, StreamType, UnknownValue};
pub use configuration::{Configuration, ConfigurationError};
pub use expansion::{
    CLIENT_CERT_NAME, Case, Endpoint, ExpansionError, ServerImplementation, ServerKind, expand,
};
pub use judgement::{JudgedRun, NotJudged, not_judged};
pub use server::ReferenceServer;
pub use suite::{SERVER_RECEIVE_LIMIT_BYTES, SuiteProblem};
pub use text::TextError;
pub use verdict::problems_of_answer;
