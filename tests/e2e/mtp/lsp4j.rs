//! A Java client built on Eclipse lsp4j (`tests/clients/lsp4j`), in a separate process.

use std::{path::PathBuf, process::Command};

use crate::support::{
    node::client,
    requirement,
    world::{TestWorld, run},
};

/// Returns the library's directory. If it is missing, reports a skip and returns `None`.
fn library() -> Option<PathBuf> {
    requirement::directory_of("HEELER_LSP4J", "Eclipse lsp4j")
}

#[test]
fn lsp4j_client_handles_everything_once_on_callback_connections() {
    let Some(library) = library() else { return };
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "1000");
    world.env("HEELER", env!("CARGO_BIN_EXE_heeler"));
    world.write("heeler.toml", "[profile.default]\njobs = 2\n");
    let class_path = library.join("*");
    let words = ["-cp", class_path.to_str().unwrap(), client("lsp4j/Client.java").to_str().unwrap(), "big"]
        .map(str::to_owned);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ran = run(world.command(Command::new("java"), &words)).assert_code(0);
    for number in 1..=2 {
        ran.line_with(&[&format!(
            "run {number}: 1000 ended, 1 completion, 0 late, 0 twice, 0 starts behind ends, on main: false"
        )]);
    }
    world.check_tidy();
}
