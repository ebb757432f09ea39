//! The suite files of Connect's conformance suite in Go's module cache, where `go install` puts them.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read as _},
    os::{fd::AsFd as _, unix::ffi::OsStringExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use heeler_sys::{
    io::{pipe, wait_readable},
    process::{Signal, kill_group},
    spawn::{ChildStdio, SpawnError, SpawnOptions, spawn},
};

use crate::cli::program_search::search_path;

/// The suite files of the version whose cases the native judge is tested with, below the module cache.
const SUITES: &str = "connectrpc.com/conformance@v1.0.5/internal/app/connectconformance/testsuites/data";
/// Time for Go to name its module cache, which normally takes some milliseconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Maximum length of what Go prints: a path.
const ANSWER_LIMIT_BYTES: usize = 64 << 10;

/// Error of a search for the suite files. Each names the option that makes the search unnecessary.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindSuitesError {
    #[error("there is no go in PATH that could name its module cache; name their directory with --suites")]
    NoGo,
    #[error("start go to name its module cache; or name their directory with --suites")]
    Start(#[source] SpawnError),
    #[error("read the module cache from go; or name their directory with --suites")]
    Read(#[source] io::Error),
    #[error(
        "go has not named its module cache within {} s; name their directory with --suites",
        ANSWER_LIMIT.as_secs()
    )]
    Silent,
    #[error("go has not named its module cache, but printed {found:?}; name their directory with --suites")]
    Answer { found: String },
    #[error(
        "there is no directory {}; install them with go install \
         connectrpc.com/conformance/cmd/connectconformance@v1.0.5, or name their directory with --suites",
        path.display()
    )]
    NotInstalled { path: PathBuf },
}

/// Returns the directory of the suite files in Go's module cache.
///
/// # Errors
/// Go is not installed, or does not name its module cache; the suite is not there.
pub(super) fn find_suites() -> Result<PathBuf, FindSuitesError> {
    let go = search_path(OsStr::new("go")).ok_or(FindSuitesError::NoGo)?;
    let path = module_cache(&ask_go(&go)?)?.join(SUITES);
    if path.is_dir() { Ok(path) } else { Err(FindSuitesError::NotInstalled { path }) }
}

/// Returns what `go env GOMODCACHE` prints.
fn ask_go(go: &Path) -> Result<Vec<u8>, FindSuitesError> {
    let (stdout, their_stdout) = pipe().map_err(FindSuitesError::Read)?;
    // The directory may have a module that asks for another version of Go, which must not be downloaded.
    let toolchain = (OsString::from("GOTOOLCHAIN"), OsString::from("local"));
    let inherited = std::env::vars_os().filter(|(name, _)| *name != toolchain.0);
    let options = SpawnOptions {
        args: vec!["env".into(), "GOMODCACHE".into()],
        env: Some(inherited.chain([toolchain.clone()]).collect()),
        cwd: Some("/".into()),
        stdout: ChildStdio::Fd(their_stdout),
        stderr: ChildStdio::Null,
        ..SpawnOptions::new(go)
    };
    let mut child = spawn(options).map_err(FindSuitesError::Start)?;
    let answer = read_answer(File::from(stdout));
    // Fails only if the whole group is gone.
    let _gone = kill_group(child.pid(), Signal::KILL);
    let _exit = child.wait();
    answer
}

/// Reads to the end within the limits.
fn read_answer(mut stdout: File) -> Result<Vec<u8>, FindSuitesError> {
    let deadline = Instant::now() + ANSWER_LIMIT;
    let (mut answer, mut part) = (Vec::new(), [0; 4 << 10]);
    while answer.len() <= ANSWER_LIMIT_BYTES {
        let [is_readable] =
            wait_readable([Some(stdout.as_fd())], Some(deadline)).map_err(FindSuitesError::Read)?;
        if !is_readable {
            return Err(FindSuitesError::Silent);
        }
        match stdout.read(&mut part).map_err(FindSuitesError::Read)? {
            0 => break,
            count => answer.extend_from_slice(&part[..count]),
        }
    }
    Ok(answer)
}

/// Returns the path that Go has printed.
fn module_cache(answer: &[u8]) -> Result<PathBuf, FindSuitesError> {
    let path = PathBuf::from(OsString::from_vec(answer.trim_ascii_end().to_vec()));
    if path.is_absolute() && answer.len() <= ANSWER_LIMIT_BYTES {
        return Ok(path);
    }
    let shown: Vec<u8> = answer.iter().copied().take(200).collect();
    Err(FindSuitesError::Answer { found: String::from_utf8_lossy(&shown).into_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_absolute_path_is_a_module_cache() {
        assert_eq!(module_cache(b"/home/a b/go/pkg/mod\n").unwrap(), Path::new("/home/a b/go/pkg/mod"));
        for wrong in [&b""[..], b"\n", b"go/pkg/mod\n", &[b'/'; ANSWER_LIMIT_BYTES + 1]] {
            assert!(matches!(module_cache(wrong), Err(FindSuitesError::Answer { .. })));
        }
    }
}
