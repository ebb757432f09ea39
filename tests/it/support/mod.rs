//! What all tests stand on: fixtures, one world for each test, the real program, and a client that was written from
//! the specification and shares no code with Heeler.

pub(crate) mod books;
pub(crate) mod fixtures;
pub(crate) mod listener;
pub(crate) mod meet;
pub(crate) mod process;
pub(crate) mod recorder;
pub(crate) mod schema;
pub(crate) mod server;
pub(crate) mod wire;
pub(crate) mod world;

/// Returns the uids of tests of one suite.
pub(crate) fn uids<'a>(suite: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    names.into_iter().map(|name| format!("{suite}::{name}")).collect()
}
