//! Clients under test of Connect's conformance suite. A client reads requests from standard input, makes the
//! described calls, and writes one answer per request to standard output. The suite defines the test cases.

mod adapter;
mod transcript;

pub(crate) use adapter::ConnectClient;
