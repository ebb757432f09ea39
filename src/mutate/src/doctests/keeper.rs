//! The role in which rustdoc starts this program in the place of a documentation test: it keeps the program
//! that rustdoc has compiled, and fails, so that rustdoc prints which test that was.
//!
//! Since edition 2024, most tests are one program. It knows them by numbers, and prints them when it is asked
//! to run them all; in the place of each it then starts this program again.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use heeler_sys::spawn::{ChildStdio, SpawnOptions, spawn};

/// The name under which this program stands for a test.
pub(super) const KEEPER: &str = "heeler-doctest";
/// What it prints for rustdoc, before the name under which a program is kept.
pub(super) const KEPT_MARK: &str = "heeler-doctest kept ";
/// What it prints in the place of a test in a program of several, before the test's number.
pub(super) const NUMBER_MARK: &str = "heeler-doctest number ";
/// The names of the kept programs in the order in which rustdoc has started them, a line each.
pub(super) const ORDER: &str = "order";
/// A kept program, in a directory of its own.
pub(super) const PROGRAM: &str = "rust_out";
/// The tests of a program of several, beside it.
pub(super) const LISTING: &str = "listing";

/// The number of the test that a program of several runs.
pub(super) const TEST_NUMBER: &str = "RUSTDOC_DOCTEST_RUN_NB_TEST";
/// What a program of several starts for each of its tests.
const TEST_PROGRAM: &str = "RUSTDOC_DOCTEST_BIN_PATH";
/// The number of threads of a test harness.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// Returns whether a process is to stand for a documentation test, by the name under which it was started.
#[must_use]
pub fn is_doctest_keeper(own_name: &OsStr) -> bool {
    Path::new(own_name).file_name() == Some(OsStr::new(KEEPER))
}

/// Keeps the program that the arguments name, or prints the number of a test.
#[must_use]
pub fn run_doctest_keeper() -> ExitCode {
    let mut words = std::env::args_os();
    let own = PathBuf::from(words.next().unwrap_or_default());
    let line = match (words.next(), words.next(), std::env::var(TEST_NUMBER)) {
        (Some(dir), Some(program), _) => match keep(&own, Path::new(&dir), Path::new(&program)) {
            Ok(Kept::OneTest { name }) => format!("{KEPT_MARK}{name}"),
            Ok(Kept::SeveralTests) => return ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: failed to keep a documentation test in {}: {error}", dir.display());
                return ExitCode::FAILURE;
            }
        },
        (None, _, Ok(number)) => format!("{NUMBER_MARK}{number}"),
        _ => {
            eprintln!("error: expected the arguments of a documentation test: DIRECTORY PROGRAM");
            return ExitCode::FAILURE;
        }
    };
    // Without its line, the test counts as one that was not kept.
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

/// Makes the directory of a program. Process ids may come again.
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

/// Returns whether a program has several tests: rustdoc writes their source beside it, and they can be
/// selected. Any other program must not be started here: it is the test itself.
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

/// Has a program of several tests write its tests in their order, and start this program for each.
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
    // It fails, because each of its tests does.
    child.wait().map(|_status| ())
}
