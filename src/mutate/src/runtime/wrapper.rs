//! The rustc wrapper that Cargo starts for workspace crates. It adds the guard runtime to the compiler's
//! arguments, so no manifest has to name it.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::tree_copy::link_to;
use heeler_sys::spawn::{ChildStdio, SpawnOptions, exec};

/// Started under this name, this program acts as the rustc wrapper.
const WRAPPER: &str = "heeler-rustc";
/// File name of the compiled runtime, in the wrapper's directory.
const RLIB: &str = "libheeler_guard.rlib";
const SOURCE: &str = "heeler_guard.rs";
const SOURCE_TEXT: &str = include_str!("heeler_guard.rs");

/// Directory of the runtime for one compiler version. A new compiler or runtime gets a new directory, and so
/// a new wrapper path, which makes Cargo recompile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardRuntime {
    dir: PathBuf,
}

impl GuardRuntime {
    /// Returns the runtime below a directory for a compiler with this version text.
    #[must_use]
    pub fn below(dir: &Path, compiler_version: &str) -> Self {
        let hash = crate::fingerprint::Fingerprint::of([SOURCE_TEXT.as_bytes(), compiler_version.as_bytes()]);
        Self { dir: dir.join(format!("runtime-{hash}")) }
    }

    /// Creates the directory if missing; returns the compiler arguments that build the runtime, unless it is
    /// built already.
    ///
    /// # Errors
    /// A file can't be written.
    pub fn prepare(&self, own_program: &Path) -> io::Result<Option<Vec<OsString>>> {
        fs::create_dir_all(&self.dir)?;
        link_to(&self.wrapper(), own_program)?;
        let rlib = self.dir.join(RLIB);
        if rlib.is_file() {
            return Ok(None);
        }
        let source = self.dir.join(SOURCE);
        fs::write(&source, SOURCE_TEXT)?;
        let words =
            ["--edition=2021", "--crate-type=rlib", "--crate-name=heeler_guard", "-Copt-level=3", "-o"];
        let words = words.into_iter().map(OsString::from);
        Ok(Some(words.chain([rlib.into_os_string(), source.into_os_string()]).collect()))
    }

    /// Returns the directory of the compiled runtime.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.dir
    }

    /// Returns the path of the rustc wrapper.
    #[must_use]
    pub fn wrapper(&self) -> PathBuf {
        self.dir.join(WRAPPER)
    }
}

/// Returns whether the process was started under the wrapper's name.
#[must_use]
pub fn is_rustc_wrapper(own_name: &OsStr) -> bool {
    Path::new(own_name).file_name() == Some(OsStr::new(WRAPPER))
}

/// Replaces this process with the compiler named in the arguments; returns only on failure.
#[must_use]
pub fn run_rustc_wrapper() -> ExitCode {
    let mut words = std::env::args_os();
    let own = PathBuf::from(words.next().unwrap_or_default());
    let Some(compiler) = words.next() else {
        eprintln!("error: expected the arguments of RUSTC_WORKSPACE_WRAPPER: RUSTC ARGUMENT...");
        return ExitCode::FAILURE;
    };
    let args = with_runtime(words.collect(), own.parent().unwrap_or(Path::new(".")));
    let options = SpawnOptions { args, stdin: ChildStdio::Inherit, ..SpawnOptions::new(compiler) };
    let error = exec(options);
    eprintln!("error: failed to {}", heeler_core::error_chain(&error));
    ExitCode::FAILURE
}

/// Adds the runtime to the compiler's arguments, for build scripts too: they may include modules of the
/// product.
fn with_runtime(mut args: Vec<OsString>, dir: &Path) -> Vec<OsString> {
    let crate_name = args.iter().position(|word| word == "--crate-name").and_then(|at| args.get(at + 1));
    let is_compiled = crate_name.is_some_and(|name| name != "___");
    if !is_compiled {
        return args;
    }
    let mut external = OsString::from("heeler_guard=");
    external.push(dir.join(RLIB));
    let mut search = OsString::from("dependency=");
    search.push(dir);
    // Crates without guards also need the path, to load crates with guards.
    args.extend(["--extern".into(), external, "-L".into(), search]);
    // Mutants may violate lints that the project denies.
    args.extend(["--cap-lints".into(), "allow".into()]);
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn what_is_compiled_is_linked_to_the_runtime() {
        for line in
            ["--crate-name strsim --edition=2015 src/lib.rs", "--crate-name build_script_build build.rs"]
        {
            let linked = with_runtime(words(line), Path::new("/r"));
            let runtime = "--extern heeler_guard=/r/libheeler_guard.rlib -L dependency=/r --cap-lints allow";
            assert_eq!(linked, words(&format!("{line} {runtime}")));
        }
        for line in ["-vV", "- --crate-name ___ --print=file-names --crate-type bin"] {
            assert_eq!(with_runtime(words(line), Path::new("/r")), words(line));
        }
    }

    #[test]
    fn runtime_is_made_once_for_each_compiler() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = GuardRuntime::below(dir.path(), "rustc 1.95.0");
        let command = runtime.prepare(Path::new("/bin/true")).unwrap().unwrap();
        assert_eq!(command.last().unwrap(), runtime.dir.join("heeler_guard.rs").as_os_str());
        assert!(
            is_rustc_wrapper(runtime.wrapper().as_os_str()) && !is_rustc_wrapper(OsStr::new("/bin/heeler"))
        );
        fs::write(runtime.dir.join(RLIB), "compiled").unwrap();
        assert_eq!(runtime.prepare(Path::new("/bin/false")).unwrap(), None);
        assert_eq!(fs::read_link(runtime.wrapper()).unwrap(), Path::new("/bin/false"), "a newer heeler");
        assert_ne!(GuardRuntime::below(dir.path(), "rustc 1.96.0"), runtime);
    }
}
