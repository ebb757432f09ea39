//! Clients in Node that use third-party libraries (`tests/clients`). Each runs in its own process.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::world::{FinishedCommand, TestWorld, run};

/// Returns the path of a file in the package of Node clients.
pub(crate) fn client(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// Runs a script of the package of Node clients with `node`, in a world.
pub(crate) fn node(world: &TestWorld, script: &str, words: &[&str]) -> FinishedCommand {
    assert!(client("node_modules").is_dir(), "the clients' library is missing; scripts/test installs it");
    let script = client(script);
    world.env("HEELER", env!("CARGO_BIN_EXE_heeler"));
    let words = [&[script.to_str().unwrap()], words].concat();
    let ran = run(world.command(Command::new("node"), &words));
    world.check_tidy();
    ran
}

/// Returns the names of a file's scenarios.
pub(crate) fn scenarios(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(client(file)).unwrap();
    let names = text.lines().filter_map(|line| line.strip_prefix("export async function "));
    names.filter_map(|rest| Some(rest.split('(').next()?.to_owned())).collect()
}
