//! Modules shared with the end-to-end tests: the client side of the protocol, written from the specification,
//! and the checks of a run. Their files are in `tests/e2e/support`; this module provides the items that they
//! import from their parent.
#![expect(dead_code, reason = "the harness needs a part of it")]

use std::path::{Path, PathBuf};

#[path = "../../e2e/support/callback_listener.rs"]
pub(crate) mod callback_listener;
#[path = "../../e2e/support/checked_run.rs"]
pub(crate) mod checked_run;
#[path = "../../e2e/support/fixtures.rs"]
pub(crate) mod fixtures;
#[path = "../../e2e/support/framing.rs"]
pub(crate) mod framing;
#[path = "../../e2e/support/handling_order.rs"]
pub(crate) mod handling_order;
#[path = "../../e2e/support/message_handlers.rs"]
pub(crate) mod message_handlers;
#[path = "../../e2e/support/process.rs"]
pub(crate) mod process;
#[path = "../../e2e/support/recorder.rs"]
pub(crate) mod recorder;
#[path = "../../e2e/support/requirement.rs"]
pub(crate) mod requirement;
#[path = "../../e2e/support/schema.rs"]
pub(crate) mod schema;

/// Returns the directory of this repository's tests.
fn tests() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the directory of built fixtures, next to the harness.
fn cache() -> PathBuf {
    let own = std::env::current_exe().expect("a process knows its program");
    own.parent().expect("a program is in a directory").join("fault-fixtures")
}
