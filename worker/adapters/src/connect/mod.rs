//! Clients under test of Connect's conformance suite: a program that reads requests on standard input, makes
//! the calls that they describe, and writes one answer for each to standard output. The cases come from the
//! suite, not from the program.

mod adapter;
mod transcript;

pub(crate) use adapter::ConnectClient;
