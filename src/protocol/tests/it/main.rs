//! Tests of the protocol's messages as peers see them: a golden file for each message, the page that lists
//! them, and the schema.
#![expect(clippy::unwrap_used, reason = "a test that meets the unexpected is to stop there")]

mod fuzz_seeds;
mod golden;
mod mcp_messages;
mod messages;
mod mutation_messages;
mod render;
mod rsp_messages;
mod schema;

use std::path::PathBuf;

/// Returns a path below the repository's root.
fn repository_path(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns whether files are written instead of compared.
fn is_update() -> bool {
    std::env::var_os("UPDATE_GOLDEN").is_some()
}

/// Compares a file with its expected content, or writes it.
#[track_caller]
fn check_file(path: &str, expected: impl AsRef<[u8]>) {
    let expected = expected.as_ref();
    let file = repository_path(path);
    if is_update() {
        return std::fs::write(file, expected).unwrap();
    }
    let found = std::fs::read(&file).unwrap_or_default();
    assert!(
        found == expected,
        "{path} is not what the types write. If the change is meant: UPDATE_GOLDEN=1 cargo test -p heeler-protocol --test it, \
         read the difference, think of peers that are older, and put the new hashes into the page of the protocol's messages.\n\
         --- the file ---\n{}\n--- the types ---\n{}",
        String::from_utf8_lossy(&found),
        String::from_utf8_lossy(expected)
    );
}
