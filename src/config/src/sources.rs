//! The keys of `[[suite]]` that select its source of test programs. Each source has one selecting key, and
//! may have more keys.

use std::path::{Path, PathBuf};

use heeler_core::{OsText, SourceRequest};
use serde::Deserialize;

#[cfg(test)]
use super::reference::WriteNotation as _;
use super::{
    notation::{
        CommandText, DirectoryPath, Notation as _, PackagesText, PathArray, PathOrPaths, ProgramText,
        TextArray,
    },
    profiles::resolve_path,
    reader::TableReader,
};

/// The keys of each source: the selecting key first, then keys that have no effect without it.
const SOURCE_KEYS: [&[&str]; 8] = [
    &["programs"],
    &["cargo", "cargo-args"],
    &["mcp"],
    &["mtp"],
    &["pytest", "python"],
    &["go", "go-args"],
    &["ctest", "ctest-args"],
    &["command", "pattern"],
];
/// Key that selects its source even without the source's first key.
const FURTHER_SELECTING_KEY: &str = "pattern";

/// The keys of `[[suite]]` that name its source; exactly one source is named.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct SourceTable {
    /// Test programs: paths or globs (`*`, `?`, `**`, `[…]`, `{…}`), relative to the configuration file. Each
    /// suite has exactly one source: `programs`, `cargo`, `mcp`, `mtp`, `pytest`, `go`, `ctest`, `command` or
    /// `pattern` (the last two can be combined).
    #[serde(with = "PathArray")]
    programs: Option<Vec<String>>,
    /// Cargo package or workspace whose tests are built and run, relative to the configuration file.
    #[serde(with = "DirectoryPath")]
    cargo: Option<PathBuf>,
    /// Arguments for `cargo test --no-run`, such as `["--features", "net"]`.
    #[serde(with = "TextArray")]
    cargo_args: Option<Vec<String>>,
    /// Command that starts an MCP server whose `mcp.test.*` tools are run as tests, such as
    /// `"node server.js"`, quoted as in a shell. The program is looked up in `PATH`, or relative to the
    /// configuration file.
    #[serde(with = "CommandText")]
    mcp: Option<String>,
    /// Command that starts a Microsoft Testing Platform application, such as `"bin/Debug/net10.0/Tests"`,
    /// quoted as in a shell. The program is looked up in `PATH`, or relative to the configuration file.
    #[serde(with = "CommandText")]
    mtp: Option<String>,
    /// Build directory of a CMake project whose CTest tests are run, relative to the configuration file.
    #[serde(with = "DirectoryPath")]
    ctest: Option<PathBuf>,
    /// Arguments for `ctest`, such as `["-C", "Debug"]`.
    #[serde(with = "TextArray")]
    ctest_args: Option<Vec<String>>,
    /// Command that is run as one test, such as `"./check.sh --all"`, quoted as in a shell. The program is
    /// looked up in `PATH`, or relative to the configuration file. The result is its exit code or, with
    /// `framework = "tap"`, the TAP that it prints.
    #[serde(with = "CommandText")]
    command: Option<String>,
    /// Scripts or programs that are run as one test each: paths or globs, relative to the configuration file.
    /// With `command`, each file is passed to that command (such as `"perl -w"`) as its last argument.
    #[serde(with = "PathArray")]
    pattern: Option<Vec<String>>,
    /// Directory or file whose tests pytest collects and runs, or an array of several for one pytest session,
    /// relative to the configuration file. pytest runs in the directory of that file.
    #[serde(with = "PathOrPaths")]
    pytest: Option<Vec<String>>,
    /// Python interpreter that runs pytest, looked up in `PATH`, or relative to the configuration file.
    /// Default: the interpreter of `VIRTUAL_ENV`, of `.venv` beside the tests or above, or `python3`.
    #[serde(with = "ProgramText")]
    python: Option<String>,
    /// Go packages whose tests are built and run, as for `go test`, such as `"./..."`. Separate several with
    /// spaces. Relative paths start at the configuration file.
    #[serde(with = "PackagesText")]
    go: Option<String>,
    /// Arguments for `go test` when it builds, such as `["-race", "-tags=net"]`.
    #[serde(with = "TextArray")]
    go_args: Option<Vec<String>>,
}

impl SourceTable {
    /// Returns the request for the source selected by the keys.
    fn into_request(self, dir: &Path) -> Option<SourceRequest> {
        let texts = |texts: Vec<String>| texts.into_iter().map(OsText::from);
        let programs = self.programs.map(|patterns| SourceRequest::new("programs", texts(patterns)));
        let cargo_args = self.cargo_args.unwrap_or_default();
        let cargo = self.cargo.map(|path| {
            let path = OsText::from(resolve_path(dir, path).as_path());
            SourceRequest::new("cargo", [path].into_iter().chain(texts(cargo_args)))
        });
        let command = |source, command: Option<String>| {
            command.map(|command| SourceRequest::new(source, [OsText::from(dir), command.into()]))
        };
        let ctest_args = self.ctest_args.unwrap_or_default();
        let ctest = self.ctest.map(|path| {
            let path = OsText::from(resolve_path(dir, path).as_path());
            SourceRequest::new("ctest", [path, OsText::from("--")].into_iter().chain(texts(ctest_args)))
        });
        let is_command = self.command.is_some() || self.pattern.is_some();
        let commands = is_command.then(|| {
            let words = OsText::from(self.command.unwrap_or_default());
            let patterns = texts(self.pattern.unwrap_or_default());
            SourceRequest::new("command", [OsText::from(dir), words].into_iter().chain(patterns))
        });
        let pytest = self.pytest.map(|paths| pytest_request(dir, paths, self.python));
        let go_args = self.go_args.unwrap_or_default();
        let go = self.go.map(|packages| {
            let words = packages.split_whitespace().map(OsText::from).collect::<Vec<_>>();
            let packages = [OsText::from(dir)].into_iter().chain(words);
            SourceRequest::new("go", packages.chain([OsText::from("--")]).chain(texts(go_args)))
        });
        programs
            .or(cargo)
            .or(command("mcp", self.mcp))
            .or(command("mtp", self.mtp))
            .or(pytest)
            .or(go)
            .or(ctest)
            .or(commands)
    }
}

/// Returns the request for tests that pytest collects from these paths.
fn pytest_request(dir: &Path, paths: Vec<String>, python: Option<String>) -> SourceRequest {
    let mut paths = paths.into_iter().map(OsText::from);
    let first = paths.next().unwrap_or_default();
    let others: Vec<OsText> = paths.collect();
    // The interpreter comes before further paths. An empty text stands for the default interpreter.
    let python = python.map(OsText::from).or_else(|| (!others.is_empty()).then(OsText::default));
    SourceRequest::new("pytest", [OsText::from(dir), first].into_iter().chain(python).chain(others))
}

/// Reads the source of a suite. A missing source, or more than one, is reported.
pub(super) fn read_source(dir: &Path, table: &TableReader<'_, '_>) -> SourceRequest {
    let source: SourceTable = table.read();
    let is_selected = |keys: &&&[&str]| {
        let further = keys.contains(&FURTHER_SELECTING_KEY) && table.contains_key(FURTHER_SELECTING_KEY);
        further || table.contains_key(keys[0])
    };
    let selected: Vec<&str> = SOURCE_KEYS.iter().filter(is_selected).map(|keys| keys[0]).collect();
    match selected[..] {
        [] => {
            let keys = SOURCE_KEYS.map(|keys| format!("{:?}", keys[0])).join(", ");
            table
                .document
                .report(table.span.clone(), format!("[[suite]] needs one of {keys} to find its tests"));
        }
        [key] => report_keys_without_effect(table, key),
        [first, other, ..] => {
            let message = format!("{other:?} and {first:?} can't be combined; split them into two suites");
            // The other source may have been selected by its second key alone.
            let key = if table.contains_key(other) { other } else { FURTHER_SELECTING_KEY };
            table.document.report(table.key_span(key), message);
        }
    }
    // A wrong value has been reported, so the file will not be used.
    source.into_request(dir).unwrap_or_default()
}

/// Reports keys of sources that are not selected.
fn report_keys_without_effect(table: &TableReader<'_, '_>, selected: &str) {
    for keys in SOURCE_KEYS.iter().filter(|keys| keys[0] != selected) {
        for key in keys[1..].iter().filter(|key| table.contains_key(key)) {
            let message = format!("{key:?} has no effect without {:?}", keys[0]);
            table.document.report(table.key_span(key), message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn pytest_takes_a_path_or_several() {
        let source = |keys: &str| {
            let text = format!("[[suite]]\nname = \"s\"\n{keys}\n");
            Config::parse(Path::new("/w/heeler.toml"), &text).unwrap().suites[0].source.clone()
        };
        let request = |words: &[&str]| SourceRequest::new("pytest", words.iter().map(|word| (*word).into()));
        assert_eq!(source("pytest = \"unit\""), request(&["/w", "unit"]));
        assert_eq!(source("pytest = [\"unit\"]"), request(&["/w", "unit"]));
        assert_eq!(source("pytest = [\"unit\", \"docs\"]"), request(&["/w", "unit", "", "docs"]));
        let named = source("pytest = [\"unit\", \"docs\", \"a.py\"]\npython = \"py\"");
        assert_eq!(named, request(&["/w", "unit", "py", "docs", "a.py"]));
    }

    #[test]
    fn array_of_no_or_empty_paths_is_reported() {
        let expected = "expected a path or an array of paths for \"pytest\" in [[suite]], found an";
        for (value, found) in [("[]", "empty array"), ("[\"a\", \"\"]", "array"), ("\"\"", "empty string")] {
            let text = format!("[[suite]]\nname = \"p\"\npytest = {value}\n");
            let error = Config::parse(Path::new("heeler.toml"), &text).unwrap_err().to_string();
            assert!(error.ends_with(&format!("heeler.toml:3:10: {expected} {found}")), "{error}");
        }
    }
}
