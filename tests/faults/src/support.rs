//! Modules shared with the other tests: the client's side of the protocol, written from the specification,
//! and the checks of a run's record. They are in `tests/it/support`; this module provides what they require
//! of their parent.
#![expect(dead_code, reason = "the harness needs a part of it")]

use std::path::{Path, PathBuf};

#[path = "../../it/support/books.rs"]
pub(crate) mod books;
#[path = "../../it/support/fixtures.rs"]
pub(crate) mod fixtures;
#[path = "../../it/support/listener.rs"]
pub(crate) mod listener;
#[path = "../../it/support/process.rs"]
pub(crate) mod process;
#[path = "../../it/support/recorder.rs"]
pub(crate) mod recorder;
#[path = "../../it/support/schema.rs"]
pub(crate) mod schema;
#[path = "../../it/support/wire.rs"]
pub(crate) mod wire;

/// Returns the directory of this repository's tests.
fn tests() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the directory of built fixtures: beside the harness itself.
fn cache() -> PathBuf {
    let own = std::env::current_exe().expect("a process knows its program");
    own.parent().expect("a program is in a directory").join("fault-fixtures")
}
