//! The keeper, which rustdoc starts instead of a documentation test. It stores the compiled program and
//! fails, which makes rustdoc print the test's name.
//!
//! Since edition 2024, rustdoc compiles most tests into one program, which numbers them. To run all of them,
//! that program starts this one once per test.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use heeler_sys::spawn::{ChildStdio, SpawnOptions, spawn};

/// Started under this name, this program replaces a test.
pub(super) const KEEPER: &str = "heeler-doctest";
/// Prefix of the output line with a kept program's name, which rustdoc prints with the failed test.
pub(super) const KEPT_MARK: &str = "heeler-doctest kept ";
/// Prefix of the output line with a test's number, which a multi-test program prints with the failed test.
pub(super) const NUMBER_MARK: &str = "heeler-doctest number ";
/// File with the names of the kept programs, one per line, in start order.
pub(super) const ORDER: &str = "order";
/// File name of a kept program, inside the program's own directory.
pub(super) const PROGRAM: &str = "rust_out";
/// File in the directory of a multi-test program with the listing of its tests.
pub(super) const LISTING: &str = "listing";

/// Variable with the number of the test that a multi-test program runs.
pub(super) const TEST_NUMBER: &str = "RUSTDOC_DOCTEST_RUN_NB_TEST";
/// Environment variable that names the program to start for each test, if several tests share a program.
const TEST_PROGRAM: &str = "RUSTDOC_DOCTEST_BIN_PATH";
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// Returns whether the process was started in place of a documentation test.
#[must_use]
pub fn is_doctest_keeper(own_name: &OsStr) -> bool {
    Path::new(own_name).file_name() == Some(OsStr::new(KEEPER))
}

/// Stores the program named in the arguments, or prints the test number.
#[must_use]
pub fn run_doctest_keeper() -> ExitCode {
    let mut words = std::env::args_os();
    let own = PathBuf::from(words.next().unwrap_or_default());
    let line = match (words.next(), words.next(), std::env::var(TEST_NUMBER)) {
        (Some(dir), Some(program), _) => match keep(&own, Path::new(&dir), Path::new(&program)) {
            Ok(Kept::OneTest { name }) => format!("{KEPT_MARK}{name}"),
            Ok(Kept::SeveralTests) => return ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: failed to save a documentation test in {}: {error}", dir.display());
                return ExitCode::FAILURE;
            }
        },
        (None, _, Ok(number)) => format!("{NUMBER_MARK}{number}"),
        _ => {
            eprintln!("error: expected arguments DIRECTORY PROGRAM, or {TEST_NUMBER} in the environment");
            return ExitCode::FAILURE;
        }
    };
    // If the line is lost, the test counts as not kept.
    let _closed = writeln!(io::stdout(), "{line}");
    ExitCode::FAILURE
}

enum Kept {
    OneTest { name: String },
    SeveralTests,
}

fn keep(own: &Path, dir: &Path, program: &Path) -> io::Result<Kept> {
    let (name, place) = create_place(dir)?;
    let has_several = has_several_tests(program)?;
    let kept = place.join(PROGRAM);
    if fs::rename(program, &kept).is_err() {
        fs::copy(program, &kept)?;
    }
    if has_several {
        list_tests(own, &kept, &place.join(LISTING))?;
    }
    let mut order = File::options().create(true).append(true).open(dir.join(ORDER))?;
    order.write_all(format!("{name}\n").as_bytes())?;
    Ok(if has_several { Kept::SeveralTests } else { Kept::OneTest { name } })
}

/// Creates a directory for a program. Process ids can repeat, so a counter makes the name unique.
fn create_place(dir: &Path) -> io::Result<(String, PathBuf)> {
    let id = std::process::id();
    let mut times = 0_u32;
    loop {
        let name = format!("{id}-{times}");
        let place = dir.join(&name);
        match fs::create_dir(&place) {
            Ok(()) => return Ok((name, place)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => times += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Returns whether a program contains several tests: rustdoc writes the source next to such a program, and
/// the binary contains the name of the selecting variable. Other programs must not be started here, because
/// they are the test itself.
fn has_several_tests(program: &Path) -> io::Result<bool> {
    let beside = fs::read_dir(program.parent().unwrap_or(Path::new(".")))?;
    let is_source = |path: &Path| path.extension() == Some(OsStr::new("rs"));
    if !beside.flatten().any(|entry| is_source(&entry.path())) {
        return Ok(false);
    }
    let (bytes, mark) = (fs::read(program)?, TEST_NUMBER.as_bytes());
    let begins = bytes.iter().enumerate().filter(|(_, byte)| **byte == mark[0]);
    Ok(begins.into_iter().any(|(at, _)| bytes[at..].starts_with(mark)))
}

/// Makes a multi-test program list its tests in order, starting this program for each.
fn list_tests(own: &Path, program: &Path, listing: &Path) -> io::Result<()> {
    let set: [(OsString, OsString); 2] =
        [(TEST_PROGRAM.into(), own.into()), (TEST_THREADS.into(), "1".into())];
    let is_set = |name: &OsString| set.iter().any(|(own, _)| own == name);
    let inherited = std::env::vars_os().filter(|(name, _)| !is_set(name));
    let options = SpawnOptions {
        env: Some(inherited.chain(set.iter().cloned()).collect()),
        stdout: ChildStdio::Fd(File::create(listing)?.into()),
        stderr: ChildStdio::Null,
        ..SpawnOptions::new(program)
    };
    let mut child = spawn(options).map_err(io::Error::other)?;
    // The program fails, because this program fails for each of its tests.
    child.wait().map(|_status| ())
}
