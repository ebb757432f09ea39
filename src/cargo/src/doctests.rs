//! Documentation tests of cargo's libraries. Only cargo knows the rustdoc arguments of a library. So
//! `cargo test --doc` starts this program instead of rustdoc, and the program only records its arguments.
//! The recorded rustdoc command is the test program.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{self, Write as _},
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{DirBuilderExt as _, symlink},
    },
    path::{Path, PathBuf},
    process::ExitCode,
};

use heeler_core::error_chain;
use heeler_sys::spawn::{ChildStdio, SpawnOptions, exec};

use crate::{
    build::DiagnosticsTarget,
    error::CargoError,
    program::{CargoProgram, LibrarySearch},
    tool_process::{BuildSupervision, OutputTail, StderrTarget, ToolProcess},
    tools::find_tool,
};

/// Started under this name, this program replaces rustdoc.
const RECORDER: &str = "heeler-rustdoc";
/// Name of the link to the real rustdoc, in the recorder's directory.
const REAL: &str = "rustdoc";
/// Name of the framework of documentation tests.
pub const FRAMEWORK: &str = "rustdoc";
const RECORD_EXTENSION: &str = "start";

/// Returns whether a process with this name (argument 0) replaces rustdoc.
#[must_use]
pub fn is_recorder(own_name: &OsStr) -> bool {
    Path::new(own_name).file_name() == Some(OsStr::new(RECORDER))
}

/// Records the arguments of this process if rustdoc was started for tests; otherwise executes the real
/// rustdoc.
#[must_use]
pub fn record_start() -> ExitCode {
    let own = PathBuf::from(std::env::args_os().next().unwrap_or_default());
    let dir = own.parent().unwrap_or(Path::new("."));
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if !args.iter().any(|word| word == "--test") {
        let real = fs::read_link(dir.join(REAL)).unwrap_or_else(|_| PathBuf::from(REAL));
        let error = exec(SpawnOptions { args, stdin: ChildStdio::Inherit, ..SpawnOptions::new(real) });
        eprintln!("error: failed to {}", error_chain(&error));
        return ExitCode::FAILURE;
    }
    match write_record(dir, &args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: failed to record the start of rustdoc: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes working directory, number of arguments, arguments and variables, each followed by a zero byte,
/// which none of them can contain.
fn write_record(dir: &Path, args: &[OsString]) -> io::Result<()> {
    let mut bytes = Vec::new();
    let mut add = |parts: &[&[u8]]| {
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.push(0);
    };
    add(&[std::env::current_dir()?.as_os_str().as_bytes()]);
    add(&[args.len().to_string().as_bytes()]);
    args.iter().for_each(|word| add(&[word.as_bytes()]));
    for (name, value) in std::env::vars_os() {
        add(&[name.as_bytes(), b"=", value.as_bytes()]);
    }
    let path = dir.join(std::process::id().to_string()).with_extension(RECORD_EXTENSION);
    fs::File::create_new(path)?.write_all(&bytes)
}

/// Recorded rustdoc command of one library.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct RecordedStart {
    cwd: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
}

impl RecordedStart {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut parts = bytes.strip_suffix(b"\0")?.split(|byte| *byte == 0);
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let cwd = PathBuf::from(text(parts.next()?));
        let count: usize = str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        let args: Vec<OsString> = parts.by_ref().take(count).map(text).collect();
        let variable = |part: &[u8]| {
            let cut = part.iter().position(|byte| *byte == b'=')?;
            Some((text(&part[..cut]), text(&part[cut + 1..])))
        };
        (args.len() == count).then(|| Self { cwd, args, env: parts.filter_map(variable).collect() })
    }

    fn has_source_among(&self, sources: &[PathBuf]) -> bool {
        self.args.iter().any(|word| sources.contains(&self.cwd.join(word)))
    }

    /// Returns the program that runs the library's documentation tests. Drops `variables`, which were set
    /// only for cargo.
    fn into_program(self, rustdoc: &Path, variables: &[(OsString, OsString)]) -> CargoProgram {
        let variable = |name: &str| self.env.iter().find(|(own, _)| own == name).map(|(_, value)| value);
        let package = variable("CARGO_PKG_NAME").cloned().unwrap_or_default();
        let at = self.args.iter().position(|word| word == "--crate-name");
        let library = at.and_then(|at| self.args.get(at + 1)).unwrap_or(&package);
        let suite = format!("{}::doc/{}", package.to_string_lossy(), library.to_string_lossy());
        let is_own = |(name, value): &(OsString, OsString)| {
            name != "RUSTDOC"
                && std::env::var_os(name).as_ref() != Some(value)
                && !variables.iter().any(|(set, _)| set == name)
        };
        let env = self.env.iter().filter(|one| is_own(one)).cloned().collect();
        CargoProgram {
            suite,
            path: rustdoc.to_owned(),
            args: self.args,
            cwd: self.cwd,
            env,
            framework: Some(FRAMEWORK),
            libraries: LibrarySearch::System,
        }
    }
}

/// Directory where this program replaces rustdoc; removed when dropped.
struct RecorderDirectory {
    path: PathBuf,
}

impl RecorderDirectory {
    fn create(rustdoc: &Path) -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("heeler-rustdoc-{}", uuid::Uuid::new_v4()));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        let created = Self { path };
        symlink(heeler_sys::process::shared_program_path(), created.path.join(RECORDER))?;
        symlink(rustdoc, created.path.join(REAL))?;
        Ok(created)
    }

    fn records(&self) -> io::Result<Vec<RecordedStart>> {
        let mut starts = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            if path.extension() == Some(OsStr::new(RECORD_EXTENSION)) {
                starts.extend(RecordedStart::parse(&fs::read(&path)?));
            }
        }
        Ok(starts)
    }
}

impl Drop for RecorderDirectory {
    fn drop(&mut self) {
        // Files left in the temporary directory do no harm.
        let _left = fs::remove_dir_all(&self.path);
    }
}

/// How to build the libraries with documentation tests.
pub struct DoctestRecording<'a, Word> {
    pub dir: &'a Path,
    /// Arguments for cargo.
    pub args: &'a [Word],
    /// Environment variables for cargo, but not for the tests.
    pub variables: &'a [(OsString, OsString)],
    /// Sources of libraries whose tests are skipped, although `cargo test --doc` would run them.
    pub left_out: &'a [PathBuf],
    pub toolchain_rustdoc: Option<PathBuf>,
    pub diagnostics: DiagnosticsTarget,
    pub supervision: BuildSupervision<'a>,
}

impl<Word: AsRef<OsStr>> DoctestRecording<'_, Word> {
    /// Builds the libraries, and returns the programs that run their documentation tests, sorted by suite.
    /// Passes each of cargo's output lines to `take`.
    ///
    /// # Errors
    /// Cargo or rustdoc is not found, or the build fails.
    pub fn build(self, take: impl FnMut(&[u8])) -> Result<Vec<CargoProgram>, CargoError> {
        // Put the recorder in place of rustdoc.
        let rustdoc = match std::env::var_os("RUSTDOC").map(PathBuf::from).filter(|path| path.is_absolute()) {
            Some(path) => path,
            None => self.toolchain_rustdoc.map_or_else(|| find_tool("RUSTDOC", REAL), Ok)?,
        };
        let unreadable = |source| CargoError::Read {
            command: "rustdoc, as cargo test --doc starts it".to_owned(),
            source,
        };
        let recorder = RecorderDirectory::create(&rustdoc).map_err(unreadable)?;
        // Let cargo start the recorder for each library.
        let cargo = find_tool("CARGO", "cargo")?;
        let (format, errors): (&[&str], _) = match self.diagnostics {
            DiagnosticsTarget::Shown => (&[], StderrTarget::Shown),
            DiagnosticsTarget::Messages => (&["--message-format", "json"], StderrTarget::Kept),
        };
        let words = ["test", "--doc"].iter().chain(format).map(OsString::from);
        let words = words.chain(self.args.iter().map(OsString::from)).collect();
        let own = ("RUSTDOC".into(), recorder.path.join(RECORDER).into_os_string());
        let env: Vec<_> = self.variables.iter().cloned().chain([own]).collect();
        ToolProcess::start_with(&cargo, words, &env, self.dir, errors, self.supervision)?.finish(take)?;
        // Turn the recorded commands into test programs.
        let starts = recorder.records().map_err(unreadable)?;
        let selected = starts.into_iter().filter(|start| !start.has_source_among(self.left_out));
        let mut programs: Vec<_> =
            selected.map(|start| start.into_program(&rustdoc, self.variables)).collect();
        programs.sort_by(|a, b| a.suite.cmp(&b.suite));
        Ok(programs)
    }
}

pub struct RustdocOutput {
    pub stdout: Vec<u8>,
    /// The end of standard error.
    pub stderr: String,
}

/// Runs a recorded rustdoc command with a directory for temporary files. Ignores the exit code, because
/// tests may fail.
///
/// # Errors
/// Rustdoc can't be started, or was cancelled.
pub fn run_rustdoc(
    program: &CargoProgram,
    temporary: &Path,
    supervision: BuildSupervision<'_>,
) -> Result<RustdocOutput, CargoError> {
    let tail = OutputTail::default();
    let kept = BuildSupervision { tail: Some(&tail), ..supervision };
    let mut env = program.env.clone();
    env.push(("TMPDIR".into(), temporary.into()));
    let (args, cwd) = (program.args.clone(), &program.cwd);
    let tool = ToolProcess::start_with(&program.path, args, &env, cwd, StderrTarget::Kept, kept)?;
    let mut stdout = Vec::new();
    let ended = tool.finish(|line| {
        stdout.extend_from_slice(line);
        stdout.push(b'\n');
    });
    match ended {
        Ok(()) | Err(CargoError::Failed { .. }) => Ok(RustdocOutput { stdout, stderr: tail.text() }),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_start_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let args: Vec<OsString> = ["--test", "--crate-name", "dt", "a b", ""].map(OsString::from).to_vec();
        write_record(dir.path(), &args).unwrap();
        let file = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
        let bytes = fs::read(file).unwrap();
        let start = RecordedStart::parse(&bytes).unwrap();
        assert_eq!((&start.args, &start.cwd), (&args, &std::env::current_dir().unwrap()));
        assert_eq!(start.env.len(), std::env::vars_os().count());
        let program = start.clone().into_program(Path::new("/x/rustdoc"), &[]);
        assert!(program.suite.ends_with("::doc/dt"), "{}", program.suite);
        assert_eq!((program.framework, program.env.as_slice()), (Some("rustdoc"), &[][..]));
        assert_eq!(RecordedStart::parse(&bytes[..bytes.len() - 1]), None);
        let start =
            RecordedStart { cwd: "/w".into(), args: vec!["--test".into(), "src/lib.rs".into()], ..start };
        assert!(start.has_source_among(&["/x/src/lib.rs".into(), "/w/src/lib.rs".into()]));
        assert!(!start.has_source_among(&["/w/lib.rs".into()]));
        assert_eq!(RecordedStart::parse(b""), None);
    }

    #[test]
    fn only_the_recorders_name_records() {
        assert!(is_recorder(OsStr::new("/tmp/x/heeler-rustdoc")));
        assert!(!is_recorder(OsStr::new("/usr/bin/heeler")) && !is_recorder(OsStr::new("")));
    }
}
