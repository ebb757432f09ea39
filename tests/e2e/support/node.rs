//! Node clients that use third-party libraries (`tests/clients`). Each client runs in a separate process.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::world::{FinishedCommand, TestWorld, run};

/// Returns the path of a file in the Node clients' package.
pub(crate) fn client(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// Runs a script of the Node clients' package in a world.
pub(crate) fn node(world: &TestWorld, script: &str, words: &[&str]) -> FinishedCommand {
    assert!(client("node_modules").is_dir(), "the clients' library is missing; scripts/test installs it");
    let script = client(script);
    world.env("HEELER", env!("CARGO_BIN_EXE_heeler"));
    let words = [&[script.to_str().unwrap()], words].concat();
    let ran = run(world.command(Command::new("node"), &words));
    world.check_tidy();
    ran
}

/// Returns the names of the scenarios in a file.
pub(crate) fn scenarios(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(client(file)).unwrap();
    let names = text.lines().filter_map(|line| line.strip_prefix("export async function "));
    names.filter_map(|rest| Some(rest.split('(').next()?.to_owned())).collect()
}
