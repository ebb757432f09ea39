//! Builds test programs with cargo, as `cargo test` does, and determines how cargo would start each of them.

#[cfg(test)]
mod tests;

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    environment::CargoEnvironmentInputs,
    error::CargoError,
    messages::CargoMessages,
    program::CargoProgram,
    tool_process::{BuildScope, BuildSupervision, StderrTarget, ToolProcess},
    tools::find_tool,
};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CargoBuildResult {
    /// The test programs, sorted by suite.
    pub programs: Vec<CargoProgram>,
    /// Whether a library of the tested packages may have documentation tests.
    pub has_doctests: bool,
    /// Sources of the libraries whose manifests have `doctest = false`.
    pub without_doctests: Vec<PathBuf>,
    /// Path of the toolchain's rustdoc, if found.
    pub rustdoc: Option<PathBuf>,
}

/// Destination of a build's diagnostics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiagnosticsTarget {
    /// Rendered on standard error, for people.
    Shown,
    /// In cargo's JSON messages. The supervision keeps the end of standard error.
    Messages,
}

/// A running build. Messages for the user go to this process's standard error.
#[derive(Debug)]
pub struct CargoBuild<'a> {
    cargo: ToolProcess<'a>,
    libdir: Option<ToolProcess<'a>>,
}

impl<'a> CargoBuild<'a> {
    /// Starts `cargo test --no-run` with additional arguments in `dir`.
    ///
    /// The build is killed when the calling thread ends.
    ///
    /// # Errors
    /// Cargo is not found or can't be started.
    pub fn start(
        dir: &Path,
        args: &[impl AsRef<OsStr>],
        supervision: BuildSupervision<'a>,
    ) -> Result<Self, CargoError> {
        Self::start_with(dir, args, &[], DiagnosticsTarget::Shown, supervision)
    }

    /// Starts the same build with additional environment variables.
    ///
    /// # Errors
    /// Same as [`Self::start`].
    pub fn start_with(
        dir: &Path,
        args: &[impl AsRef<OsStr>],
        variables: &[(OsString, OsString)],
        diagnostics: DiagnosticsTarget,
        supervision: BuildSupervision<'a>,
    ) -> Result<Self, CargoError> {
        let (format, errors) = match diagnostics {
            DiagnosticsTarget::Shown => ("json-render-diagnostics", StderrTarget::Shown),
            DiagnosticsTarget::Messages => ("json", StderrTarget::Kept),
        };
        let own = ["test", "--no-run", "--message-format", format];
        let words = own.into_iter().map(OsString::from).chain(args.iter().map(OsString::from));
        let program = find_tool("CARGO", "cargo")?;
        let cargo = ToolProcess::start_with(&program, words.collect(), variables, dir, errors, supervision)?;
        // Rustc finishes before cargo does. If it fails, only programs that load Rust's own shared libraries
        // are affected, so ignore the error.
        let rustc = find_tool("RUSTC", "rustc");
        let asked = ["--print", "target-libdir"].map(OsString::from).to_vec();
        let quiet = BuildSupervision { tail: None, scope: BuildScope::Tool, ..supervision };
        let libdir =
            rustc.and_then(|rustc| ToolProcess::start(&rustc, asked, dir, StderrTarget::Dropped, quiet)).ok();
        Ok(Self { cargo, libdir })
    }

    /// Waits for the build to end, and returns its result.
    ///
    /// # Errors
    /// The build fails, or cargo's output can't be read.
    pub fn finish(self) -> Result<CargoBuildResult, CargoError> {
        self.finish_with(|_line| {})
    }

    /// Waits like [`Self::finish`], and passes each of cargo's messages to `take`.
    ///
    /// # Errors
    /// Same as [`Self::finish`].
    pub fn finish_with(self, mut take: impl FnMut(&[u8])) -> Result<CargoBuildResult, CargoError> {
        let dir = self.cargo.dir.clone();
        let command = self.cargo.command_line.clone();
        let mut messages = CargoMessages::default();
        self.cargo.finish(|line| {
            take(line);
            messages.record_line(line);
        })?;
        if let Some(source) = messages.take_error() {
            return Err(CargoError::Message { command, source });
        }
        let mut libdir = None;
        if let Some(command) = self.libdir {
            let read = command
                .finish(|line| libdir = Some(PathBuf::from(OsStr::new(&*String::from_utf8_lossy(line)))));
            libdir = libdir.filter(|_| read.is_ok());
        }
        let metadata =
            messages.first_manifest().map_or(Value::Null, |manifest| read_metadata(&dir, manifest.as_str()));
        let surroundings = CargoEnvironmentInputs {
            metadata,
            library_path: std::env::var_os("LD_LIBRARY_PATH"),
            cargo: libdir
                .as_deref()
                .and_then(|libdir| toolchain_tool(libdir, "cargo"))
                .or_else(|| find_tool("CARGO", "cargo").ok()),
            libdir,
        };
        let rustdoc = surroundings.libdir.as_deref().and_then(|libdir| toolchain_tool(libdir, "rustdoc"));
        let has_doctests = messages.has_doctests();
        let without_doctests = messages.take_without_doctests();
        let programs = messages.into_programs(&surroundings);
        Ok(CargoBuildResult { programs, has_doctests, without_doctests, rustdoc })
    }
}

/// Runs `cargo metadata` for the package names and versions that build messages lack. Tests also run without
/// them.
fn read_metadata(dir: &Path, manifest: &str) -> Value {
    let words = ["metadata", "--no-deps", "--format-version", "1", "--manifest-path", manifest];
    let read = || {
        let cargo = find_tool("CARGO", "cargo").ok()?;
        let words = words.map(OsString::from).to_vec();
        let command =
            ToolProcess::start(&cargo, words, dir, StderrTarget::Dropped, BuildSupervision::default())
                .ok()?;
        let mut value = None;
        command.finish(|line| value = serde_json::from_slice(line).ok()).ok()?;
        value
    };
    read().unwrap_or_else(|| {
        tracing::warn!(manifest, "cargo metadata failed; some CARGO_PKG_* variables are not set for tests");
        Value::Null
    })
}

/// Returns the path of a tool in the toolchain's own `bin` directory, which bypasses rustup's proxy.
fn toolchain_tool(libdir: &Path, name: &str) -> Option<PathBuf> {
    let tool = libdir.ancestors().nth(4)?.join("bin").join(name);
    tool.is_file().then_some(tool)
}
