//! The cases of Connect's conformance suite for clients under test, without its own judge: suite files and a
//! configuration file become the same cases with the same requests, and answers get the same verdicts, as far
//! as these depend on the answer alone. Nothing here waits, or knows of sessions, workers or processes.
//!
//! - [`Configuration`]: what a client under test supports.
//! - [`expand`]: suite files become cases; [`Case::request`] is what a client gets.
//! - [`problems_of_answer`]: the verdict about what a client answers.
//! - [`message`]: the messages.

mod axes;
mod configuration;
mod expansion;
mod expected;
pub mod message;
mod suite;
mod text;
mod tree;
mod verdict;

pub use axes::{CaseAxes, Codec, Compression, HttpVersion, Protocol, StreamType, UnknownValue};
pub use configuration::{Configuration, ConfigurationError};
pub use expansion::{
    CLIENT_CERT_NAME, Case, Endpoint, ExpansionError, ServerImplementation, ServerKind, expand,
};
pub use suite::{SERVER_RECEIVE_LIMIT_BYTES, SuiteProblem};
pub use text::TextError;
pub use verdict::problems_of_answer;
