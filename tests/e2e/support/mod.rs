//! Shared test support: fixtures, a world for each test, the real program, and a client written from the
//! specification without Heeler's code.

use std::path::{Path, PathBuf};

pub(crate) mod callback_listener;
pub(crate) mod checked_run;
pub(crate) mod debugging;
pub(crate) mod fixtures;
pub(crate) mod framing;
pub(crate) mod handling_order;
pub(crate) mod http_peer;
pub(crate) mod message_handlers;
pub(crate) mod node;
pub(crate) mod other_user;
pub(crate) mod process;
pub(crate) mod recorder;
pub(crate) mod rendezvous;
pub(crate) mod requirement;
pub(crate) mod rsp_client;
pub(crate) mod schema;
pub(crate) mod second_client;
pub(crate) mod server;
pub(crate) mod terminal;
pub(crate) mod world;

/// Returns the program under test.
pub(crate) fn heeler() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_heeler"))
}

/// Returns the fake, which plays test programs and clients.
fn fake() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_heeler-fake"))
}

/// Returns whether tests run in their long form (`HEELER_LONG_FORMS`), as they do weekly, but not in the
/// gate.
pub(crate) fn has_long_forms() -> bool {
    std::env::var_os("HEELER_LONG_FORMS").is_some()
}

/// Returns the repository's `tests` directory.
fn tests() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"))
}

/// Returns the directory of built fixtures.
pub(crate) fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("fixtures")
}

/// Returns the uids of these tests of a suite.
pub(crate) fn uids<'a>(suite: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    names.into_iter().map(|name| format!("{suite}::{name}")).collect()
}
