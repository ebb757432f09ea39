//! The role in which this program stands in for the C compiler of a build: it adds the runtime of guards to
//! what is compiled, and keeps errors as the compiler describes them to programs. Builds find it as `cc` or
//! `gcc` in the first directory of `PATH`, so that no makefile has to name it.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::tree_copy::{link_to, remove, write_changed};
use heeler_mutant::compiler::{CompilerError, gcc};
use heeler_sys::spawn::{ChildStdio, SpawnError, SpawnOptions, exec, spawn};

/// Names of compilers that builds look for.
const COMPILERS: [&str; 4] = ["cc", "gcc", "c99", "c11"];
const HEADER: &str = "heeler_guard.h";
const HEADER_TEXT: &str = include_str!("heeler_guard.h");
/// The directory of the stand-ins below that of the runtime, by which they know that they are.
const SHIMS: &str = "heeler-cc";
/// The directory with one file for each compilation that has failed.
const ERRORS: &str = "errors";

/// The stand-ins for the compilers of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompilerShims {
    dir: PathBuf,
}

impl CompilerShims {
    /// Makes the stand-ins below a directory; `own_program` is this program.
    ///
    /// # Errors
    /// A file can't be written.
    pub fn prepare(dir: &Path, own_program: &Path) -> io::Result<Self> {
        let shims = Self { dir: dir.join(SHIMS) };
        fs::create_dir_all(&shims.dir)?;
        for name in COMPILERS {
            link_to(&shims.dir.join(name), own_program)?;
        }
        // Builds that know what they depend on compile again if it is newer.
        write_changed(&shims.dir.join(HEADER), HEADER_TEXT.as_bytes())?;
        Ok(shims)
    }

    /// Returns the value of `PATH` with which builds find the stand-ins.
    #[must_use]
    pub fn path_variable(&self, inherited: Option<&OsStr>) -> OsString {
        let mut value = self.dir.clone().into_os_string();
        if let Some(inherited) = inherited.filter(|value| !value.is_empty()) {
            value.push(":");
            value.push(inherited);
        }
        value
    }

    /// Forgets the errors of the build before.
    ///
    /// # Errors
    /// They can't be removed.
    pub fn clear_errors(&self) -> io::Result<()> {
        let errors = self.dir.join(ERRORS);
        remove(&errors)?;
        fs::create_dir_all(errors)
    }

    /// Returns the errors of a build, with files relative to `root`, the directory of the sources.
    ///
    /// # Errors
    /// They can't be read.
    pub fn errors(&self, root: &Path) -> io::Result<Vec<CompilerError>> {
        let mut errors = Vec::new();
        let mut files: Vec<PathBuf> =
            fs::read_dir(self.dir.join(ERRORS))?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
        files.sort();
        for file in files {
            let text = String::from_utf8_lossy(&fs::read(&file)?).into_owned();
            let Some((directory, diagnostics)) = text.split_once('\n') else { continue };
            for mut error in diagnostics.lines().flat_map(gcc::errors_of_line) {
                for span in &mut error.spans {
                    let absolute = crate::selection::normalized(&Path::new(directory).join(&span.file));
                    let below = absolute.strip_prefix(root).unwrap_or(&absolute);
                    span.file = below.to_string_lossy().into_owned();
                }
                errors.push(error);
            }
        }
        Ok(errors)
    }
}

/// Returns whether a process is to stand in for a compiler, by the name under which it was started.
#[must_use]
pub fn is_compiler_shim(own_name: &OsStr) -> bool {
    compiler_name(own_name).is_some()
}

fn compiler_name(own_name: &OsStr) -> Option<&'static str> {
    let name = Path::new(own_name).file_name()?;
    COMPILERS.into_iter().find(|compiler| name == *compiler)
}

/// Runs the compiler for which this process stands in, and exits as it does.
#[must_use]
pub fn run_compiler_shim() -> ExitCode {
    let mut words = std::env::args_os();
    let name = words.next().unwrap_or_default();
    let args: Vec<OsString> = words.collect();
    match compile(&name, args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Why the compiler could not be run.
#[derive(Debug, thiserror::Error)]
enum ShimError {
    #[error("no {name} in PATH behind Heeler's own")]
    NoCompiler { name: String },
    #[error("failed to {}", heeler_core::error_chain(.0))]
    Exec(SpawnError),
    #[error("failed to wait for {}: {source}", path.display())]
    Wait { path: PathBuf, source: io::Error },
    #[error("failed to keep what the compiler says in {}: {source}", path.display())]
    Said { path: PathBuf, source: io::Error },
}

fn compile(own_name: &OsStr, args: Vec<OsString>) -> Result<ExitCode, ShimError> {
    let name = compiler_name(own_name).unwrap_or("cc");
    let missing = || ShimError::NoCompiler { name: name.to_owned() };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let (own, others): (Vec<PathBuf>, Vec<PathBuf>) =
        std::env::split_paths(&path).partition(|dir| dir.file_name() == Some(OsStr::new(SHIMS)));
    let own = own.first().ok_or_else(missing)?;
    let compiler = others.iter().map(|dir| dir.join(name)).find(|path| is_executable(path));
    let compiler = compiler.ok_or_else(missing)?;
    let is_guarded = args.iter().any(|word| is_c_source(word));
    let args = if is_guarded { with_runtime(args, own) } else { args };
    let said = own.join(ERRORS).join(std::process::id().to_string());
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ShimError::Said { path, source }
    };
    let stderr = if is_guarded {
        ChildStdio::Fd(File::create(&said).map_err(failed(&said))?.into())
    } else {
        ChildStdio::Inherit
    };
    let options = SpawnOptions { args, stdin: ChildStdio::Inherit, stderr, ..SpawnOptions::new(&compiler) };
    if !is_guarded {
        return Err(ShimError::Exec(exec(options)));
    }
    let mut child = spawn(options).map_err(ShimError::Exec)?;
    let status = child.wait().map_err(|source| ShimError::Wait { path: compiler, source })?;
    let text = fs::read(&said).map_err(failed(&said))?;
    // The build's log shows it as well; without one there is nobody to tell.
    let _shown = io::stderr().write_all(&text);
    if status.code == Some(0) {
        fs::remove_file(&said).map_err(failed(&said))?;
        return Ok(ExitCode::SUCCESS);
    }
    // Its places are relative to this directory.
    let directory = std::env::current_dir().map_err(failed(Path::new(".")))?;
    let record = [directory.as_os_str().as_encoded_bytes(), b"\n", &text].concat();
    fs::write(&said, record).map_err(failed(&said))?;
    Ok(ExitCode::from(status.code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn is_c_source(word: &OsStr) -> bool {
    Path::new(word).extension() == Some(OsStr::new("c"))
}

/// Returns the arguments of a compiler of C, with the runtime.
fn with_runtime(mut args: Vec<OsString>, own: &Path) -> Vec<OsString> {
    let mut all: Vec<OsString> = vec!["-include".into(), own.join(HEADER).into_os_string()];
    all.append(&mut args);
    // Mutants are allowed what the code is not.
    all.extend(["-w", "-Wno-error", "-fdiagnostics-format=json"].map(OsString::from));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stand_ins_are_known_by_their_names() {
        assert!(is_compiler_shim(OsStr::new("/x/heeler-cc/gcc")) && is_compiler_shim(OsStr::new("cc")));
        assert!(!is_compiler_shim(OsStr::new("/usr/bin/heeler")) && !is_compiler_shim(OsStr::new("g++")));
    }

    #[test]
    fn runtime_is_before_what_the_build_includes() {
        let words = ["-c", "a.c", "-Werror"].map(OsString::from).to_vec();
        let expected = "-include /r/heeler_guard.h -c a.c -Werror -w -Wno-error -fdiagnostics-format=json";
        let expected: Vec<OsString> = expected.split(' ').map(OsString::from).collect();
        assert_eq!(with_runtime(words, Path::new("/r")), expected);
        assert!(is_c_source(OsStr::new("../a.c")) && !is_c_source(OsStr::new("a.o")));
    }

    #[test]
    fn errors_have_paths_below_the_sources() {
        let dir = tempfile::tempdir().unwrap();
        let shims = CompilerShims::prepare(dir.path(), Path::new("/bin/true")).unwrap();
        shims.clear_errors().unwrap();
        let json = r#"[{"kind":"error","message":"expected","locations":[{"caret":{"file":"../src/a.c","line":3,"byte-column":7}}]}]"#;
        fs::write(shims.dir.join(ERRORS).join("12"), format!("/w/tree/build\n{json}\nmake: 1\n")).unwrap();
        let errors = shims.errors(Path::new("/w/tree")).unwrap();
        assert_eq!((errors.len(), errors[0].spans[0].file.as_str()), (1, "src/a.c"));
        shims.clear_errors().unwrap();
        assert_eq!(shims.errors(Path::new("/w/tree")).unwrap(), []);
    }

    #[test]
    fn runtime_reads_the_variables_of_that_for_rust() {
        for name in ["HEELER_MUTANT", "HEELER_MUTANT_HITS", "HEELER_MUTANT_STEPS", "HEELER_MUTANT_COVERAGE"] {
            assert!(HEADER_TEXT.contains(&format!("\"{name}\"")), "{name}");
        }
    }
}
