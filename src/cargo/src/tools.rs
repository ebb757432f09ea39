//! Runs tools to their end: build commands, and programs whose output is read.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use crate::{
    error::CargoError,
    tool_process::{BuildSupervision, OutputTail, StderrTarget, ToolProcess},
};

/// Runs a suite's build command in `dir`, with its output on standard error.
///
/// # Errors
/// The command can't be started, or fails.
pub fn run_build_command(
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

/// Whether a build's output is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildOutput {
    Shown,
    Hidden,
}

/// Runs a build command in `dir`. If the command fails, returns the end of its output.
///
/// # Errors
/// The command can't be started, or was cancelled.
pub fn try_build_command(
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

/// Runs a tool. If the tool fails, returns the end of its output.
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

/// Runs a user's command in a shell, with these variables in addition to this process's environment. Shows
/// no output. If the command fails, returns the end of its standard error.
///
/// # Errors
/// The shell can't be started, or was cancelled.
pub fn run_shell(
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

/// Returns the files and directories below `root` that Git ignores; empty outside a repository.
///
/// # Errors
/// Git fails.
pub fn ignored_files(root: &Path) -> Result<Vec<PathBuf>, CargoError> {
    if !root.ancestors().any(|dir| dir.join(".git").exists()) {
        return Ok(Vec::new());
    }
    let words = ["ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"];
    let words = words.map(OsString::from).to_vec();
    let listed = read_tool_output("git", words, root, BuildSupervision::default())?;
    // `read_tool_output` ends the output with a line end, which is not a name.
    let names = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty() && *name != b"\n");
    Ok(names.map(|name| root.join(OsStr::from_bytes(name.strip_suffix(b"/").unwrap_or(name)))).collect())
}

/// Returns a tool's standard output; its standard error is shown.
///
/// # Errors
/// The tool is not found, can't be started, or fails.
pub fn read_tool_output(
    name: &str,
    args: Vec<OsString>,
    dir: &Path,
    supervision: BuildSupervision<'_>,
) -> Result<Vec<u8>, CargoError> {
    read_program_output(&find_in_path(name)?, args, dir, supervision)
}

/// Returns a program's standard output; its standard error is shown.
///
/// # Errors
/// The program can't be started, or fails.
pub fn read_program_output(
    program: &Path,
    args: Vec<OsString>,
    dir: &Path,
    supervision: BuildSupervision<'_>,
) -> Result<Vec<u8>, CargoError> {
    read_output(program, args, dir, StderrTarget::Shown, supervision)
}

/// Returns a program's standard output; its standard error is not shown.
///
/// # Errors
/// The program can't be started, or fails.
pub fn read_quiet_output(
    program: &Path,
    args: Vec<OsString>,
    dir: &Path,
    supervision: BuildSupervision<'_>,
) -> Result<Vec<u8>, CargoError> {
    read_output(program, args, dir, StderrTarget::Dropped, supervision)
}

fn read_output(
    program: &Path,
    args: Vec<OsString>,
    dir: &Path,
    errors: StderrTarget,
    supervision: BuildSupervision<'_>,
) -> Result<Vec<u8>, CargoError> {
    // The output does not describe the build, so keep it out of the tail.
    let quiet = BuildSupervision { tail: None, ..supervision };
    let tool = ToolProcess::start(program, args, dir, errors, quiet)?;
    let mut output = Vec::new();
    tool.finish(|line| {
        output.extend_from_slice(line);
        output.push(b'\n');
    })?;
    Ok(output)
}

/// Returns `cargo metadata` of the workspace around a directory. Dependencies are not resolved, because
/// resolving would write a missing lock file.
///
/// # Errors
/// Cargo is not found, or finds no package here; its message is on standard error.
pub fn read_cargo_metadata(dir: &Path) -> Result<String, CargoError> {
    read_toolchain_output(
        &find_tool("CARGO", "cargo")?,
        &["metadata", "--no-deps", "--format-version", "1"],
        dir,
    )
}

/// Returns the compiler's version information: `rustc -vV`.
///
/// # Errors
/// Rustc is not found or fails.
pub fn read_rustc_version(dir: &Path) -> Result<String, CargoError> {
    read_toolchain_output(&find_tool("RUSTC", "rustc")?, &["-vV"], dir)
}

/// Runs the compiler.
///
/// # Errors
/// Rustc is not found or fails; its message is on standard error.
pub fn run_rustc(args: Vec<OsString>, dir: &Path) -> Result<(), CargoError> {
    let rustc = find_tool("RUSTC", "rustc")?;
    ToolProcess::start(&rustc, args, dir, StderrTarget::Shown, BuildSupervision::default())?
        .finish(|_line| {})
}

/// Returns the configuration (`cfg`) of the host target: `rustc --print cfg`.
///
/// # Errors
/// Rustc is not found or fails.
pub fn read_rustc_configuration(dir: &Path) -> Result<String, CargoError> {
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

/// Returns the program in an environment variable if it is an absolute path, otherwise the program of this
/// name in `PATH`.
pub(crate) fn find_tool(variable: &str, name: &str) -> Result<PathBuf, CargoError> {
    match std::env::var_os(variable).map(PathBuf::from) {
        Some(path) if path.is_absolute() => Ok(path),
        _ => find_in_path(name),
    }
}

fn find_in_path(name: &str) -> Result<PathBuf, CargoError> {
    heeler_sys::program_search::search_path(OsStr::new(name))
        .ok_or_else(|| CargoError::Missing { program: name.to_owned() })
}

/// Makes a path absolute, because a relative program would be resolved in the child's directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
