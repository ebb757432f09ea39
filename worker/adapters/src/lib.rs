//! Adapters of the test frameworks: the commands that list and run tests, and the parsers of their output.
//! This crate is pure: it starts no process, sends nothing and reads no clock.
//!
//! - `contract`: the trait that each framework implements, and its commands.
//! - `listing_output`, `transcript`: inputs and outputs of the adapters' parsers.
//! - `listing_dialogue`: listings whose requests depend on earlier replies.
//! - `warm_start`: processes that load a program once and are then forked for its tests.
//! - `run_report`: the report file that a framework writes at the end of its run.
//! - `runtime_stack`: stacks that a language's runtime writes to standard error.
//! - `registry`: the list of all frameworks.
//! - `stream_parser`: the parser shared by all frameworks that report on standard output, based on
//!   `expected_tests` (the sequence of a batch) and `scan` (bytes).
//! - `json_reports`: reports as lines of JSON, shared by `json_lines` and `pytest`.
//! - `assertion_failures`, `xml_elements`: shared by frameworks with an XML reporter.
//! - `gtest`, `libtest` and the others: one folder per framework, each with listing, command and transcript.
//! - `shell`: the command lines that users copy.
#![warn(missing_docs)]

mod assertion_failures;
mod boost;
mod catch2;
mod command;
#[cfg(feature = "connect")]
mod connect;
mod contract;
mod doctest;
mod expected_tests;
mod go;
mod gtest;
mod json_lines;
mod json_reports;
mod libtest;
mod listing_dialogue;
mod listing_output;
mod mcp;
mod mtp;
mod pytest;
mod registry;
mod run_report;
mod runtime_stack;
mod rustdoc;
mod scan;
mod shell;
mod stream_parser;
mod tap;
#[cfg(test)]
mod tests;
mod transcript;
mod warm_start;
mod xml_elements;

pub use contract::{
    Adapter, AdapterInvocation, AdapterTraits, AddDetails, BatchSelection, ClaimConfidence, CommandLineError,
    DeathFiles, DiscoveryTarget, InvocationChannel, OwnCommand, PORT_ARGUMENT, SelectionScope, StackPosition,
    StackReports,
};
pub use json_lines::check;
pub use listing_dialogue::ListingDialogue;
pub use listing_output::{AdapterListing, ListingError, ListingOutput};
pub use registry::{all_adapters, by_name, framework_names, recognized_frameworks};
pub use run_report::{RunReport, RunReportFiles};
pub use runtime_stack::RuntimeStack;
pub use shell::{HIDDEN_VALUE, exact_filter};
pub use transcript::{
    ConnectionInput, DeathCause, DeathCulprit, DeathEvidence, FixtureFailure, FrameworkResult,
    FrameworkVerdict, MAX_FAILURES, OutputStream, ReportWriter, SuitePhase, TestPart, TranscriptEvent,
    TranscriptParser,
};
pub use warm_start::{WarmDialogue, WarmReport, WarmStart};
