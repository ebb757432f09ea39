//! Builds the client under test. It is a separate program because this package has no `heeler-fake`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::fixtures::{built, fixtures, succeed};

/// Returns the fake client under test, built on first use.
pub(crate) fn client_program() -> PathBuf {
    let source = fixtures().join("connect/client.rs");
    let fakes = ["connect.rs", "wait.rs"].map(|name| fixtures().join("../fakes").join(name));
    let sources: Vec<&Path> = [&source].into_iter().chain(&fakes).map(PathBuf::as_path).collect();
    built("connect-client", &sources, |target| {
        let mut compiler = Command::new("rustc");
        compiler.args(["--edition", "2024", "-g", "-o"]).arg(target).arg(&source);
        succeed(&mut compiler, "the fake client must compile by itself");
    })
}
