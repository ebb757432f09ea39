//! Test programs, built on first use into the target directory and kept there under a hash of their source:
//! two test processes that need the same one wait for each other on a lock beside it.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
};

use super::{cache, tests};

/// Returns a program of `tests/fixtures/gtest`, by the name of its source.
pub(crate) fn gtest(name: &str) -> PathBuf {
    let source = fixtures().join("gtest").join(format!("{name}.cc"));
    let header = fixtures().join("gtest/fixture.h");
    built(name, &[&source, &header], |target| {
        let mut compiler = Command::new("g++");
        compiler.args(["-std=c++17", "-O0", "-o"]).arg(target).arg(&source);
        // The program's own `main` comes before the one of the library.
        compiler.args(["-lgtest_main", "-lgtest", "-lpthread"]);
        succeed(&mut compiler, "is g++ there, and libgtest-dev? scripts/test installs them");
    })
}

/// Returns a program of `tests/fixtures/doctest`, by the name of its source.
pub(crate) fn doctest(name: &str) -> PathBuf {
    let source = fixtures().join("doctest").join(format!("{name}.cc"));
    built(&format!("doctest-{name}"), &[&source], |target| {
        let mut compiler = Command::new("g++");
        compiler.args(["-std=c++17", "-O0", "-o"]).arg(target).arg(&source);
        succeed(&mut compiler, "is g++ there, and doctest-dev? scripts/test installs them");
    })
}

/// Returns the test program of the crate `tests/fixtures/libtest`.
pub(crate) fn libtest() -> PathBuf {
    let dir = libtest_crate();
    let (manifest, source) = (dir.join("Cargo.toml"), dir.join("src/lib.rs"));
    built("libtest", &[&manifest, &source], |target| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["test", "--quiet", "--no-run", "--message-format=json"]).current_dir(&dir);
        cargo.env("CARGO_TARGET_DIR", cache().join("libtest-target"));
        let output = succeed(&mut cargo, "the libtest fixture must compile");
        let text = String::from_utf8(output).unwrap();
        let found = text.lines().find_map(|line| {
            let message: serde_json::Value = serde_json::from_str(line).ok()?;
            Some(message["executable"].as_str()?.to_owned())
        });
        fs::copy(found.expect("cargo names the test program"), target).unwrap();
    })
}

/// Returns the directory of the libtest fixture, a cargo package.
pub(crate) fn libtest_crate() -> PathBuf {
    fixtures().join("libtest")
}

/// Returns the hand-written server of `tests/fixtures/mcp`, a script.
pub(crate) fn mcp_server() -> PathBuf {
    mcp("server.py")
}

/// Returns a file of `tests/fixtures/mcp`.
pub(crate) fn mcp(name: &str) -> PathBuf {
    fixtures().join("mcp").join(name)
}

/// Returns the directory of the fixtures' sources.
pub(crate) fn fixtures() -> PathBuf {
    tests().join("fixtures")
}

/// Returns a program that is built from these sources, unless it was built from them before.
pub(crate) fn built(name: &str, sources: &[&Path], build: impl FnOnce(&Path)) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    for source in sources {
        fs::read(source).unwrap_or_else(|error| panic!("{}: {error}", source.display())).hash(&mut hasher);
    }
    let target = cache().join(format!("{name}-{:016x}", hasher.finish()));
    if target.exists() {
        return target;
    }
    fs::create_dir_all(cache()).unwrap();
    let lock = File::create(cache().join(format!("{name}.lock"))).unwrap();
    lock.lock().unwrap();
    if !target.exists() {
        let part = target.with_extension("part");
        build(&part);
        fs::rename(&part, &target).unwrap();
    }
    target
}

/// Runs a command, which must succeed; returns its standard output.
pub(crate) fn succeed(command: &mut Command, hint: &str) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; {hint}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed; {hint}\n{errors}");
    output.stdout
}
