//! The compiler shim for C and C++ builds. It adds the guard runtime to every compilation, keeps
//! machine-readable compiler errors, and records how each output was made. Builds find the shim as `cc` or
//! `c++` in the first directory of `PATH`, so no makefile has to name it.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Write as _},
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use super::{
    compile_command::{compiled_language, output, preprocessing, with_runtime},
    preprocessor::CompiledGuards,
};
use crate::{
    fingerprint::Fingerprint,
    selection::normalized,
    tree_copy::{link_to, remove, write_changed},
};
use heeler_mutant::compiler::{CompilerError, gcc, gnu};
use heeler_mutant_model::Language;
use heeler_sys::spawn::{ChildStdio, SpawnError, SpawnOptions, exec, spawn};

/// Compiler names that builds look for.
const COMPILERS: [&str; 6] = ["cc", "gcc", "c99", "c11", "c++", "g++"];
const HEADER: &str = "heeler_guard.h";
const HEADER_TEXT: &str = include_str!("heeler_guard.h");
/// Directory of the shims, below the runtime directory. A shim recognises its own directory in `PATH` by
/// this name.
const SHIMS: &str = "heeler-cc";
/// Directory with one file per failed compilation.
const ERRORS: &str = "errors";
/// Directory with one file per output: working directory, compiler and arguments.
const COMMANDS: &str = "commands";
/// First word of an error file: the format of the diagnostics that follow.
const JSON: &str = "json";
const TEXT: &str = "text";

/// The compiler shims of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompilerShims {
    dir: PathBuf,
}

impl CompilerShims {
    /// Creates the shims below a directory; `own_program` is the path of this program.
    ///
    /// # Errors
    /// A file can't be written.
    pub fn prepare(dir: &Path, own_program: &Path) -> io::Result<Self> {
        let shims = Self { dir: dir.join(SHIMS) };
        fs::create_dir_all(shims.dir.join(COMMANDS))?;
        for name in COMPILERS {
            link_to(&shims.dir.join(name), own_program)?;
        }
        // Builds that track dependencies recompile when the header is newer.
        write_changed(&shims.dir.join(HEADER), HEADER_TEXT.as_bytes())?;
        Ok(shims)
    }

    /// Returns a `PATH` that begins with the directory of the shims.
    #[must_use]
    pub fn path_variable(&self, inherited: Option<&OsStr>) -> OsString {
        let mut value = self.dir.clone().into_os_string();
        if let Some(inherited) = inherited.filter(|value| !value.is_empty()) {
            value.push(":");
            value.push(inherited);
        }
        value
    }

    /// Removes the errors of the previous build.
    ///
    /// # Errors
    /// The errors can't be removed.
    pub fn clear_errors(&self) -> io::Result<()> {
        let errors = self.dir.join(ERRORS);
        remove(&errors)?;
        fs::create_dir_all(errors)
    }

    /// Returns the errors of a build, with files relative to `root`, the directory of the sources.
    ///
    /// # Errors
    /// The errors can't be read.
    pub fn errors(&self, root: &Path) -> io::Result<Vec<CompilerError>> {
        let mut errors: Vec<CompilerError> = Vec::new();
        // A header can cause the same error in many compilations.
        let mut known = HashSet::new();
        for file in files_of(&self.dir.join(ERRORS))? {
            let text = String::from_utf8_lossy(&fs::read(&file)?).into_owned();
            let Some((head, diagnostics)) = text.split_once('\n') else { continue };
            let Some((form, directory)) = head.split_once(' ') else { continue };
            let found = match form {
                JSON => diagnostics.lines().flat_map(gcc::errors_of_line).collect(),
                _ => gnu::errors(diagnostics),
            };
            for mut error in found {
                for span in &mut error.spans {
                    let absolute = normalized(&Path::new(directory).join(&span.file));
                    let below = absolute.strip_prefix(root).unwrap_or(&absolute);
                    span.file = below.to_string_lossy().into_owned();
                }
                if known.insert(format!("{error:?}")) {
                    errors.push(error);
                }
            }
        }
        Ok(errors)
    }

    /// Removes all recorded outputs, so the build makes them again. A build that does not track which
    /// headers a source includes would otherwise keep the code of other mutants.
    ///
    /// # Errors
    /// An output can't be removed.
    pub fn remove_outputs(&self, tree: &Path) -> io::Result<()> {
        for file in files_of(&self.dir.join(COMMANDS))? {
            let command = CompileCommand::read(&file)?;
            let made = command.as_ref().map(|command| normalized(&command.dir.join(output(&command.args))));
            if let Some(made) = made.filter(|made| made.starts_with(tree)) {
                remove(&made)?;
            }
            remove(&file)?;
        }
        Ok(())
    }

    /// Preprocesses every compiled source whose output still exists, and returns the guards found. Blocks,
    /// on several cores.
    ///
    /// # Errors
    /// The recorded commands can't be read.
    pub fn compiled_guards(&self, tree: &Path) -> io::Result<CompiledGuards> {
        let commands = files_of(&self.dir.join(COMMANDS))?;
        let commands = commands.iter().map(|file| CompileCommand::read(file));
        let commands = commands.collect::<io::Result<Vec<_>>>()?.into_iter().flatten().enumerate();
        let of_command = |(place, command): (usize, CompileCommand)| {
            let is_compilation = compiled_language("cc", &command.args).is_some();
            if !is_compilation || !command.dir.join(output(&command.args)).exists() {
                return CompiledGuards::default();
            }
            let text = self.dir.join(format!("preprocessed-{place}"));
            let read = if command.preprocess_into(&text) { fs::read(&text).ok() } else { None };
            // A leftover file is harmless: the next run overwrites it.
            let _stays = fs::remove_file(&text);
            let Some(read) = read else { return CompiledGuards::unknown() };
            let mut guards = CompiledGuards::default();
            guards.add(&String::from_utf8_lossy(&read), &command.dir, tree);
            guards
        };
        let mut all = CompiledGuards::default();
        for guards in heeler_sys::cpu_pool::map(commands.collect::<Vec<_>>(), of_command) {
            all.extend(guards);
        }
        Ok(all)
    }
}

fn files_of(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    files.sort();
    Ok(files)
}

/// The command that made an output.
struct CompileCommand {
    dir: PathBuf,
    compiler: PathBuf,
    args: Vec<OsString>,
}

impl CompileCommand {
    /// Records the command for its output and replaces an earlier record.
    fn write(&self, commands: &Path) -> io::Result<()> {
        let made = normalized(&self.dir.join(output(&self.args)));
        let name = Fingerprint::of([made.as_os_str().as_encoded_bytes()]).to_string();
        let head = [self.dir.as_os_str(), self.compiler.as_os_str()];
        let words = head.into_iter().chain(self.args.iter().map(OsString::as_os_str));
        let words: Vec<&[u8]> = words.map(OsStr::as_encoded_bytes).collect();
        write_changed(&commands.join(name), &words.join(&0)).map(|_is_written| ())
    }

    fn read(file: &Path) -> io::Result<Option<Self>> {
        let bytes = fs::read(file)?;
        let mut words = bytes.split(|byte| *byte == 0).map(|word| OsStr::from_bytes(word).to_owned());
        let (Some(dir), Some(compiler)) = (words.next(), words.next()) else { return Ok(None) };
        Ok(Some(Self { dir: dir.into(), compiler: compiler.into(), args: words.collect() }))
    }

    /// Writes the preprocessed text to a file; returns whether that succeeded.
    fn preprocess_into(&self, text: &Path) -> bool {
        let Ok(file) = File::create(text) else { return false };
        let options = SpawnOptions {
            args: preprocessing(&self.args),
            cwd: Some(self.dir.clone()),
            stdout: ChildStdio::Fd(file.into()),
            stderr: ChildStdio::Null,
            ..SpawnOptions::new(&self.compiler)
        };
        let ended = spawn(options).ok().and_then(|mut child| child.wait().ok());
        ended.is_some_and(|status| status.code == Some(0))
    }
}

/// Returns whether the process was started under the name of a compiler, and so must act as a shim.
#[must_use]
pub fn is_compiler_shim(own_name: &OsStr) -> bool {
    compiler_name(own_name).is_some()
}

fn compiler_name(own_name: &OsStr) -> Option<&'static str> {
    let name = Path::new(own_name).file_name()?;
    COMPILERS.into_iter().find(|compiler| name == *compiler)
}

/// Runs the real compiler and exits with its exit code.
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
    #[error("no {name} in PATH besides Heeler's own")]
    NoCompiler { name: String },
    #[error("failed to {}", heeler_core::error_chain(.0))]
    Exec(SpawnError),
    #[error("failed to wait for {}: {source}", path.display())]
    Wait { path: PathBuf, source: io::Error },
    #[error("failed to save the compiler's messages in {}: {source}", path.display())]
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
    let language = compiled_language(name, &args);
    // Paths in compiler messages are relative to this directory.
    let directory =
        std::env::current_dir().map_err(|source| ShimError::Said { path: PathBuf::from("."), source })?;
    let Some(language) = language else {
        if args.iter().any(|word| word == "-o") {
            let command = CompileCommand { dir: directory, compiler: compiler.clone(), args: args.clone() };
            let commands = own.join(COMMANDS);
            command.write(&commands).map_err(|source| ShimError::Said { path: commands, source })?;
        }
        let options = SpawnOptions { args, stdin: ChildStdio::Inherit, ..SpawnOptions::new(&compiler) };
        return Err(ShimError::Exec(exec(options)));
    };
    let args = with_runtime(args, &own.join(HEADER), language);
    let command = CompileCommand { dir: directory, compiler, args };
    command.run(own, language)
}

impl CompileCommand {
    /// Compiles; on failure keeps the compiler's messages, on success the command.
    fn run(self, own: &Path, language: Language) -> Result<ExitCode, ShimError> {
        let said = own.join(ERRORS).join(std::process::id().to_string());
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ShimError::Said { path, source }
        };
        let options = SpawnOptions {
            args: self.args.clone(),
            env: Some(in_english()),
            stdin: ChildStdio::Inherit,
            stderr: ChildStdio::Fd(File::create(&said).map_err(failed(&said))?.into()),
            ..SpawnOptions::new(&self.compiler)
        };
        let mut child = spawn(options).map_err(ShimError::Exec)?;
        let status = child.wait();
        let status = status.map_err(|source| ShimError::Wait { path: self.compiler.clone(), source })?;
        let text = fs::read(&said).map_err(failed(&said))?;
        // The build log shows the messages too. A closed stderr does not fail the build.
        let _shown = io::stderr().write_all(&text);
        if status.code == Some(0) {
            fs::remove_file(&said).map_err(failed(&said))?;
            let commands = own.join(COMMANDS);
            self.write(&commands).map_err(failed(&commands))?;
            return Ok(ExitCode::SUCCESS);
        }
        let form = if language == Language::Cpp { TEXT } else { JSON };
        let directory = self.dir.as_os_str().as_encoded_bytes();
        let record = [form.as_bytes(), b" ", directory, b"\n", &text].concat();
        fs::write(&said, record).map_err(failed(&said))?;
        Ok(ExitCode::from(status.code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
    }
}

/// Returns the environment with the C locale: the error parsers read English messages.
fn in_english() -> Vec<(OsString, OsString)> {
    let is_other = |name: &OsStr| name != "LC_ALL" && name != "LANGUAGE";
    let others = std::env::vars_os().filter(|(name, _)| is_other(name));
    others.chain([(OsString::from("LC_ALL"), OsString::from("C"))]).collect()
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stand_ins_are_known_by_their_names() {
        assert!(is_compiler_shim(OsStr::new("/x/heeler-cc/gcc")) && is_compiler_shim(OsStr::new("cc")));
        assert!(!is_compiler_shim(OsStr::new("/usr/bin/heeler")) && !is_compiler_shim(OsStr::new("clang++")));
    }

    #[test]
    fn errors_have_paths_below_the_sources() {
        let dir = tempfile::tempdir().unwrap();
        let shims = CompilerShims::prepare(dir.path(), Path::new("/bin/true")).unwrap();
        shims.clear_errors().unwrap();
        let json = r#"[{"kind":"error","message":"expected","locations":[{"caret":{"file":"../src/a.c","line":3,"byte-column":7}}]}]"#;
        fs::write(shims.dir.join(ERRORS).join("12"), format!("json /w/tree/build\n{json}\nmake: 1\n"))
            .unwrap();
        let text = "text /w/tree/build\n../src/a.hpp:3:7: error: expected\n";
        for name in ["13", "14"] {
            fs::write(shims.dir.join(ERRORS).join(name), text).unwrap();
        }
        let errors = shims.errors(Path::new("/w/tree")).unwrap();
        let files: Vec<&str> = errors.iter().map(|error| error.spans[0].file.as_str()).collect();
        assert_eq!(files, ["src/a.c", "src/a.hpp"], "the same error once");
        shims.clear_errors().unwrap();
        assert_eq!(shims.errors(Path::new("/w/tree")).unwrap(), []);
    }

    #[test]
    fn outputs_are_removed_below_the_tree_only() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("build")).unwrap();
        let shims = CompilerShims::prepare(dir.path(), Path::new("/bin/true")).unwrap();
        let (inside, outside) = (tree.join("build/a.o"), dir.path().join("b.o"));
        for (made, name) in [(&inside, "a.o"), (&outside, "../../b.o")] {
            fs::write(made, "made").unwrap();
            let args = ["-c", "../a.c", "-o", name].map(OsString::from).to_vec();
            let command = CompileCommand { dir: tree.join("build"), compiler: "/bin/true".into(), args };
            command.write(&shims.dir.join(COMMANDS)).unwrap();
        }
        shims.remove_outputs(&tree).unwrap();
        assert!(!inside.exists() && outside.exists());
        assert_eq!(files_of(&shims.dir.join(COMMANDS)).unwrap(), [""; 0].map(PathBuf::from));
    }

    #[test]
    fn runtime_reads_the_variables_of_that_for_rust() {
        for name in ["HEELER_MUTANT", "HEELER_MUTANT_HITS", "HEELER_MUTANT_STEPS", "HEELER_MUTANT_COVERAGE"] {
            assert!(HEADER_TEXT.contains(&format!("\"{name}\"")), "{name}");
        }
    }
}
