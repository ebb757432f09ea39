//! The test programs of a cargo package or workspace: builds them as `cargo test` does, and determines how
//! cargo would start each; documentation tests are in `doctests`. Build commands of other suites run here
//! too, in the same way.
//!
//! Everything here blocks until the build ends. The build is killed when the thread that started it ends;
//! with [`BuildScope::Tree`] also all that it has started.

pub(crate) mod doctests;
mod environment;
mod messages;
#[cfg(test)]
mod tests;
mod tool_guard;
mod tool_process;

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use heeler_sys::spawn::SpawnError;
use serde_json::Value;

use super::program_search::search_path;
use environment::CargoEnvironmentInputs;
use messages::CargoMessages;
use tool_process::{StderrTarget, ToolProcess};

pub(crate) use tool_process::{BuildScope, BuildSupervision, OutputTail};

/// A test program built by cargo, and how to start it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CargoProgram {
    /// The first part of its tests' uids, the same on every machine: `parse_package_id` for a library's own
    /// tests, `package::name` for integration tests, `package::bin/name` and similar for the rest.
    pub suite: String,
    /// Absolute path of the executable.
    pub path: PathBuf,
    /// Arguments before all others.
    pub args: Vec<OsString>,
    /// Directory of its package.
    pub cwd: PathBuf,
    /// Variables that cargo sets in addition to its own environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its framework, where it is known.
    pub framework: Option<&'static str>,
}

/// The result of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CargoBuildResult {
    /// The test programs, sorted by suite.
    pub programs: Vec<CargoProgram>,
    /// A library of the tested packages may have documentation tests.
    pub has_doctests: bool,
    /// Sources of the libraries whose manifests have `doctest = false`.
    pub without_doctests: Vec<PathBuf>,
    /// The rustdoc of the toolchain, if it was found.
    pub rustdoc: Option<PathBuf>,
}

/// Error while building test programs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CargoError {
    /// The program is not in any directory of `PATH`.
    #[error("find {program} in PATH; is it installed?")]
    Missing { program: String },
    /// The command could not be started.
    #[error("start {command}")]
    Start { command: String, source: SpawnError },
    /// The command's output or exit status could not be read.
    #[error("read the output of {command}")]
    Read { command: String, source: io::Error },
    /// The command was ended, because nothing needs its result any more.
    #[error("finish {command}, which was cancelled")]
    Cancelled { command: String },
    /// A message of cargo about a test program can't be read.
    #[error("read a message about a test program from {command}; is this version of cargo supported?")]
    Message { command: String, source: serde_json::Error },
    /// The command failed; its own error messages have already been printed to standard error.
    #[error("run {command} in {}, which ended with {end}", dir.display())]
    Failed {
        command: String,
        /// Working directory of the command.
        dir: PathBuf,
        /// Exit code or signal, as text.
        end: String,
    },
}

/// Where the diagnostics of a build go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiagnosticsTarget {
    /// To our standard error, as people read them.
    Shown,
    /// Among the messages. The end of standard error is kept by the supervision.
    Messages,
}

/// A running build. Its messages for the user go to our standard error.
#[derive(Debug)]
pub(crate) struct CargoBuild<'a> {
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
    pub(crate) fn start(
        dir: &Path,
        args: &[impl AsRef<OsStr>],
        supervision: BuildSupervision<'a>,
    ) -> Result<Self, CargoError> {
        Self::start_with(dir, args, &[], DiagnosticsTarget::Shown, supervision)
    }

    /// Starts the same with these variables.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(crate) fn start_with(
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
        // This ends before cargo does; without its result, only programs that load Rust's own shared
        // libraries fail.
        let rustc = find_tool("RUSTC", "rustc");
        let asked = ["--print", "target-libdir"].map(OsString::from).to_vec();
        let quiet = BuildSupervision { tail: None, scope: BuildScope::Tool, ..supervision };
        let libdir =
            rustc.and_then(|rustc| ToolProcess::start(&rustc, asked, dir, StderrTarget::Dropped, quiet)).ok();
        Ok(Self { cargo, libdir })
    }

    /// Waits for the end of the build and returns its result.
    ///
    /// # Errors
    /// The build fails, or cargo's output can't be read.
    pub(crate) fn finish(self) -> Result<CargoBuildResult, CargoError> {
        self.finish_with(|_line| {})
    }

    /// Waits in the same way, and passes on each message of cargo.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub(crate) fn finish_with(self, mut take: impl FnMut(&[u8])) -> Result<CargoBuildResult, CargoError> {
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

/// Runs the build command of a suite in `dir`, with its output on our standard error.
///
/// # Errors
/// The command can't be started, or fails.
pub(crate) fn run_build_command(
    words: &[String],
    dir: &Path,
    supervision: BuildSupervision<'_>,
) -> Result<(), CargoError> {
    let (first, args) = words.split_first().expect("the configuration has no empty build commands");
    let program = if first.contains('/') { absolute(dir).join(first) } else { find_in_path(first)? };
    let args = args.iter().map(OsString::from).collect();
    let command = ToolProcess::start(&program, args, dir, StderrTarget::Shown, supervision)?;
    command.finish(|line| eprintln!("{}", String::from_utf8_lossy(line)))
}

/// Whether the output of a build is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuildOutput {
    Shown,
    Hidden,
}

/// Runs a build command in `dir`, which may fail: then the end of its output is returned.
///
/// # Errors
/// The command can't be started, or was cancelled.
pub(crate) fn try_build_command(
    words: &[String],
    dir: &Path,
    output: BuildOutput,
    supervision: BuildSupervision<'_>,
) -> Result<Result<(), String>, CargoError> {
    let (first, args) = words.split_first().expect("a build command has a program");
    let program = find_in_path(first)?;
    let args = args.iter().map(OsString::from).collect();
    let target = match output {
        BuildOutput::Shown => StderrTarget::Shown,
        BuildOutput::Hidden => StderrTarget::Kept,
    };
    try_tool(supervision, |kept| ToolProcess::start(&program, args, dir, target, kept))
}

/// Runs a tool, which may fail: then the end of its output is returned.
fn try_tool(
    supervision: BuildSupervision<'_>,
    start: impl FnOnce(BuildSupervision<'_>) -> Result<ToolProcess<'_>, CargoError>,
) -> Result<Result<(), String>, CargoError> {
    let tail = OutputTail::default();
    let tool = start(BuildSupervision { tail: Some(&tail), ..supervision })?;
    match tool.finish(|_| {}) {
        Ok(()) => Ok(Ok(())),
        Err(CargoError::Failed { .. }) => Ok(Err(tail.text())),
        Err(error) => Err(error),
    }
}

/// Runs a command of the user in a shell, with these variables in addition to the environment of this
/// process. Nothing of its output is shown. It may fail: then the end of its standard error is returned.
///
/// # Errors
/// It can't be started, or was cancelled.
pub(crate) fn run_shell(
    command: &str,
    variables: &[(OsString, OsString)],
    dir: &Path,
    supervision: BuildSupervision<'_>,
) -> Result<Result<(), String>, CargoError> {
    let args = vec!["-c".into(), command.into()];
    let shell = Path::new("/bin/sh");
    let target = StderrTarget::Kept;
    try_tool(supervision, |kept| ToolProcess::start_with(shell, args, variables, dir, target, kept))
}

/// Returns the files and directories below a directory that Git ignores; none outside of a repository.
///
/// # Errors
/// Git fails.
pub(crate) fn ignored_files(root: &Path) -> Result<Vec<PathBuf>, CargoError> {
    if !root.ancestors().any(|dir| dir.join(".git").exists()) {
        return Ok(Vec::new());
    }
    let words = ["ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"];
    let words = words.map(OsString::from).to_vec();
    let listed = read_tool_output("git", words, root, BuildSupervision::default())?;
    // Its lines end where it ends names.
    let names = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty() && *name != b"\n");
    Ok(names.map(|name| root.join(OsStr::from_bytes(name.strip_suffix(b"/").unwrap_or(name)))).collect())
}

/// Returns what a tool of the user writes to its standard output; its standard error is shown.
///
/// # Errors
/// The tool is not found, can't be started, or fails.
pub(crate) fn read_tool_output(
    name: &str,
    args: Vec<OsString>,
    dir: &Path,
    supervision: BuildSupervision<'_>,
) -> Result<Vec<u8>, CargoError> {
    read_program_output(&find_in_path(name)?, args, dir, supervision)
}

/// Returns what a program writes to its standard output; its standard error is shown.
///
/// # Errors
/// It can't be started, or fails.
pub(crate) fn read_program_output(
    program: &Path,
    args: Vec<OsString>,
    dir: &Path,
    supervision: BuildSupervision<'_>,
) -> Result<Vec<u8>, CargoError> {
    // What it writes is no message of a build.
    let quiet = BuildSupervision { tail: None, ..supervision };
    let tool = ToolProcess::start(program, args, dir, StderrTarget::Shown, quiet)?;
    let mut output = Vec::new();
    tool.finish(|line| {
        output.extend_from_slice(line);
        output.push(b'\n');
    })?;
    Ok(output)
}

/// Returns what `cargo metadata` says about the workspace around a directory. Nothing is resolved, which
/// would write a lock file where there is none.
///
/// # Errors
/// Cargo is not found, or finds no package here; it has then said so on standard error.
pub(crate) fn read_cargo_metadata(dir: &Path) -> Result<String, CargoError> {
    read_toolchain_output(
        &find_tool("CARGO", "cargo")?,
        &["metadata", "--no-deps", "--format-version", "1"],
        dir,
    )
}

/// Returns what the compiler says about itself: `rustc -vV`.
///
/// # Errors
/// Rustc is not found or fails.
pub(crate) fn read_rustc_version(dir: &Path) -> Result<String, CargoError> {
    read_toolchain_output(&find_tool("RUSTC", "rustc")?, &["-vV"], dir)
}

/// Runs the compiler.
///
/// # Errors
/// Rustc is not found or fails; it has then said why on standard error.
pub(crate) fn run_rustc(args: Vec<OsString>, dir: &Path) -> Result<(), CargoError> {
    let rustc = find_tool("RUSTC", "rustc")?;
    ToolProcess::start(&rustc, args, dir, StderrTarget::Shown, BuildSupervision::default())?
        .finish(|_line| {})
}

/// Returns the configuration of the toolchain's own target: `rustc --print cfg`.
///
/// # Errors
/// Rustc is not found or fails.
pub(crate) fn read_rustc_configuration(dir: &Path) -> Result<String, CargoError> {
    read_toolchain_output(&find_tool("RUSTC", "rustc")?, &["--print", "cfg"], dir)
}

fn read_toolchain_output(program: &Path, args: &[&str], dir: &Path) -> Result<String, CargoError> {
    let args = args.iter().map(OsString::from).collect();
    let tool = ToolProcess::start(program, args, dir, StderrTarget::Shown, BuildSupervision::default())?;
    let mut output = String::new();
    tool.finish(|line| {
        output.push_str(&String::from_utf8_lossy(line));
        output.push('\n');
    })?;
    Ok(output)
}

/// Returns the package names and versions that are missing in the build messages. Tests still run without
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
        tracing::warn!(manifest, "cargo metadata failed; tests miss some CARGO_PKG_ variables");
        Value::Null
    })
}

/// Returns the real tool of a toolchain, found by its library directory, rather than rustup's proxy.
fn toolchain_tool(libdir: &Path, name: &str) -> Option<PathBuf> {
    let tool = libdir.ancestors().nth(4)?.join("bin").join(name);
    tool.is_file().then_some(tool)
}

/// Returns the program that an environment variable names, otherwise the one of the given name in `PATH`.
fn find_tool(variable: &str, name: &str) -> Result<PathBuf, CargoError> {
    match std::env::var_os(variable).map(PathBuf::from) {
        Some(path) if path.is_absolute() => Ok(path),
        _ => find_in_path(name),
    }
}

fn find_in_path(name: &str) -> Result<PathBuf, CargoError> {
    search_path(OsStr::new(name)).ok_or_else(|| CargoError::Missing { program: name.to_owned() })
}

/// Makes a path absolute: a relative program would be resolved in the child's directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
