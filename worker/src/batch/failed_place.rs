//! Chooses the place that a failure is reported at: the innermost known place in the user's own sources, as
//! opposed to the line of the test's definition, and to lines of runtimes and libraries.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

use heeler_core::{SourcePlace, TestResult, describe};
use heeler_protocol::control::ListedTest;

/// Path prefixes of runtime sources. The C library's paths are relative to its build directories.
const RUNTIME_FILES: [&str; 6] = ["<rust>/", "/rustc/", "/rust/deps/", "/usr/", "./", "../"];
/// Path parts of runtimes and third-party libraries, also below a workspace.
const LIBRARY_PARTS: [&str; 9] = [
    "/lib/rustlib/src/rust/",
    "/.cargo/registry/",
    "/.cargo/git/",
    "/googletest/src/",
    "/site-packages/",
    "/dist-packages/",
    "/node_modules/",
    "/_deps/",
    "/pkg/mod/",
];

/// Directories of the sources that the user maintains.
#[derive(Debug, Default)]
pub(crate) struct OwnSources {
    /// Looked up at the first failure.
    roots: OnceLock<Vec<PathBuf>>,
}

impl OwnSources {
    /// Returns the workspace of the working directory, which is the user's. A working directory outside of
    /// any workspace stands for itself.
    fn roots(&self) -> &[PathBuf] {
        self.roots.get_or_init(|| {
            let here = std::env::current_dir().ok();
            let home = std::env::home_dir();
            here.map(|here| heeler_sys::workspace::workspace_root(&here, home.as_deref()).unwrap_or(here))
                .into_iter()
                .collect()
        })
    }

    /// Returns the place if it is in the user's own sources, with an absolute path where the file is found.
    fn own(&self, place: SourcePlace, test_file: Option<&str>) -> Option<SourcePlace> {
        let file = place.file.as_str();
        if test_file == Some(file) {
            return Some(place);
        }
        if file.is_empty() || is_of_library(file) {
            return None;
        }
        // Compilers record the path that they were given, and a test's own file may be known by both forms.
        let is_same = |test_file: &&str| test_file.strip_suffix(file).is_some_and(|rest| rest.ends_with('/'));
        if let Some(test_file) = test_file.filter(is_same) {
            return Some(SourcePlace { file: test_file.to_owned(), ..place });
        }
        let directory = test_file.and_then(|file| Path::new(file).parent()).filter(|one| one.is_absolute());
        let mut roots = self.roots().iter().map(PathBuf::as_path).chain(directory);
        if file.starts_with('/') {
            return roots.any(|root| Path::new(file).starts_with(root)).then_some(place);
        }
        let found = roots.map(|root| root.join(file)).find(|path| path.is_file())?;
        Some(SourcePlace { file: found.to_string_lossy().into_owned(), ..place })
    }
}

/// Returns the place of a result's failure, if one is known.
pub(super) fn failed_place(
    result: &TestResult,
    listed: &ListedTest,
    sources: &OwnSources,
) -> Option<SourcePlace> {
    if !result.outcome.is_failure() {
        return None;
    }
    let test_file = listed.file.as_deref();
    let message = describe::shown_message(result);
    let captured = result.diagnostics.as_deref().map(|diagnostics| diagnostics.stack.as_str());
    // The first failure is the one whose message is shown first.
    let of_failures = result.failures.iter().flat_map(|failure| {
        failure.place().into_iter().chain(stack_places(failure.stack.as_deref().unwrap_or_default()))
    });
    let known: Vec<_> = of_failures
        .chain(message.as_deref().and_then(sanitizer_place))
        .chain(stack_places(captured.unwrap_or_default()))
        .collect();
    let own = known.iter().find_map(|place| sources.own(place.clone(), test_file));
    own.or_else(|| result.failures.iter().find_map(heeler_core::Failure::place)).or_else(|| {
        known.into_iter().find(|place| !is_of_runtime(&place.file) && !is_of_library(&place.file))
    })
}

/// Returns the places of a stack trace, innermost first.
fn stack_places(stack: &str) -> impl Iterator<Item = SourcePlace> + '_ {
    stack.lines().filter_map(line_place)
}

/// Returns the place of a line of a stack trace: `#0 function at FILE:LINE`, `at Function() in FILE:line N`
/// (.NET), `at function (FILE:LINE:COLUMN)` (JavaScript), or just `FILE:LINE`.
fn line_place(line: &str) -> Option<SourcePlace> {
    let line = line.trim();
    if let Some(frame) = line.strip_prefix('#') {
        return file_and_line(frame.rsplit_once(" at ")?.1);
    }
    if let Some(frame) = line.strip_prefix("at ") {
        if let Some((file, number)) =
            frame.rsplit_once(" in ").and_then(|(_, place)| place.rsplit_once(":line "))
        {
            return place(file, number);
        }
        let inner = frame.rsplit_once('(').map_or(frame, |(_, inner)| inner.trim_end_matches(')'));
        let (rest, _column) = inner.rsplit_once(':')?;
        return file_and_line(rest.strip_prefix("file://").unwrap_or(rest));
    }
    if line.contains(char::is_whitespace) { None } else { file_and_line(line) }
}

fn file_and_line(text: &str) -> Option<SourcePlace> {
    let (file, number) = text.rsplit_once(':')?;
    place(file, number)
}

fn place(file: &str, line: &str) -> Option<SourcePlace> {
    let line = line.parse().ok().filter(|line| *line > 0)?;
    Some(SourcePlace { file: file.to_owned(), line: Some(line) })
}

/// Returns the place in a sanitizer's summary at the start of the message:
/// `AddressSanitizer: heap-use-after-free FILE:LINE in FUNCTION`.
fn sanitizer_place(message: &str) -> Option<SourcePlace> {
    let line = message.lines().next()?;
    let (_, finding) = line.split_once(": ").filter(|(name, _)| name.ends_with("Sanitizer"))?;
    finding.split_whitespace().find_map(|word| {
        let mut parts = word.split(':');
        let (file, line) = (parts.next()?, parts.next()?);
        let is_file = file.contains(['.', '/']) && parts.all(|column| column.parse::<u32>().is_ok());
        place(file, line).filter(|_| is_file)
    })
}

fn is_of_runtime(file: &str) -> bool {
    RUNTIME_FILES.iter().any(|start| file.starts_with(start))
}

fn is_of_library(file: &str) -> bool {
    LIBRARY_PARTS.iter().any(|part| file.contains(part))
}

#[cfg(test)]
mod tests {
    use heeler_core::{Failure, Outcome, TestDiagnostics};

    use super::*;

    /// Returns the place of a failure with these parts, in a workspace with `src/t.cc` and a library in it.
    struct Workspace(tempfile::TempDir);

    impl Workspace {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(directory.path().join("src")).unwrap();
            std::fs::write(directory.path().join("src/t.cc"), "").unwrap();
            Self(directory)
        }

        fn path(&self, file: &str) -> String {
            self.0.path().join(file).to_str().unwrap().to_owned()
        }

        /// Returns the place of a result. `@` in it stands for the workspace.
        fn place(&self, result: &TestResult, test_file: Option<&str>) -> Option<String> {
            let sources = OwnSources { roots: OnceLock::from(vec![self.0.path().to_owned()]) };
            let listed = ListedTest { file: test_file.map(str::to_owned), ..ListedTest::default() };
            let place = failed_place(result, &listed, &sources)?.to_string();
            Some(place.replace(self.0.path().to_str().unwrap(), "@"))
        }

        fn of_stack(&self, stack: &str, test_file: Option<&str>) -> Option<String> {
            let diagnostics = Some(Box::new(TestDiagnostics {
                stack: stack.replace('@', self.0.path().to_str().unwrap()),
                ..TestDiagnostics::default()
            }));
            self.place(&TestResult { diagnostics, ..TestResult::new(Outcome::Crashed) }, test_file)
        }

        fn of_failures(&self, failures: &[(&str, &str)]) -> Option<String> {
            let text = |text: &str| Some(text.replace('@', self.0.path().to_str().unwrap()));
            let failure = |(file, stack): &(&str, &str)| Failure {
                file: text(file).filter(|file| !file.is_empty()),
                line: Some(3),
                stack: text(stack),
                ..Failure::default()
            };
            let failures = failures.iter().map(failure).collect();
            self.place(&TestResult { failures, ..TestResult::new(Outcome::Failed) }, None)
        }
    }

    #[test]
    fn innermost_frame_below_the_workspace_is_the_place() {
        let workspace = Workspace::new();
        let place = |stack| workspace.of_stack(stack, None);
        let abort = "  #0   raise at ./nptl/pthread_kill.c:44\n  #1   abort at ./stdlib/abort.c:79\n  \
                     #2   check (inlined) at /opt/lib/d.cc:9\n  #3   A_B_Test::TestBody() at @/src/t.cc:10\n";
        assert_eq!(place(abort).as_deref(), Some("@/src/t.cc:10"));
        let overflow = "  #0   f at /rust/deps/hashbrown-0.16.1/src/sse2.rs:52\n  #1   g at src/t.cc:3\n";
        assert_eq!(place(overflow).as_deref(), Some("@/src/t.cc:3"));
        let library = "  #0   f at @/.venv/lib/site-packages/a.py:1\n  #1   g at @/src/t.cc:3\n";
        assert_eq!(place(library).as_deref(), Some("@/src/t.cc:3"));
        // Sources that have moved, or are on another machine, are better than nothing; runtimes are not.
        assert_eq!(place("  #0   raise at ./a.c:4\n  #1   f at lib/d.cc:9\n").as_deref(), Some("lib/d.cc:9"));
        assert_eq!(place("  #0   f at ./a.c:44\n  #1   g at /rustc/1/a.rs:3\n"), None);
        assert_eq!(place("  #0   abort in libc.so.6+0x12\n"), None);
        assert_eq!(place("no place: 7"), None);
    }

    #[test]
    fn file_of_the_test_is_known_in_every_form() {
        let workspace = Workspace::new();
        let place = |stack, file| workspace.of_stack(stack, Some(file));
        assert_eq!(place("  #0   f at ./t.cc:3\n", "./t.cc").as_deref(), Some("./t.cc:3"));
        assert_eq!(place("  #0   f at src/t.cc:3\n", "/w/src/t.cc").as_deref(), Some("/w/src/t.cc:3"));
        assert_eq!(place("  #0   f at t.cc:3\n", "/w/src/at.cc").as_deref(), Some("t.cc:3"));
        // A test outside of the workspace has its sources beside it.
        let both = "  #0   f at /opt/b.cc:1\n  #1   g at /w/src/b.cc:3\n";
        assert_eq!(place(both, "/w/src/a.cc").as_deref(), Some("/w/src/b.cc:3"));
    }

    #[test]
    fn stack_of_a_failure_names_the_place_that_its_own_file_does_not() {
        let workspace = Workspace::new();
        let place = |failures: &[(&str, &str)]| workspace.of_failures(failures);
        let dotnet =
            "   at NUnit.Framework.Assert.Fail(String message)\n   at M.T.Fails() in @/src/t.cc:line 12";
        assert_eq!(place(&[("", dotnet)]).as_deref(), Some("@/src/t.cc:12"));
        let node = "    at Object.equal (node:assert:9:1)\n    at check (file://@/src/t.cc:7:5)";
        assert_eq!(place(&[("", node)]).as_deref(), Some("@/src/t.cc:7"));
        assert_eq!(place(&[("/usr/lib/json.py", "src/t.cc:8")]).as_deref(), Some("@/src/t.cc:8"));
        assert_eq!(place(&[("/usr/lib/json.py", "")]).as_deref(), Some("/usr/lib/json.py:3"));
        assert_eq!(place(&[("@/src/t.cc", dotnet), ("src/t.cc", "")]).as_deref(), Some("@/src/t.cc:3"));
    }

    #[test]
    fn sanitizer_summary_names_the_place() {
        let workspace = Workspace::new();
        let place = |message: &str| {
            let message = message.replace('@', workspace.0.path().to_str().unwrap());
            workspace
                .place(&TestResult::with_reason(Outcome::Crashed, message), Some(&workspace.path("src/a.cc")))
        };
        let asan = "AddressSanitizer: heap-use-after-free @/lib/a.cc:2 in a::use(int*)\nexited with code 1";
        assert_eq!(place(asan).as_deref(), Some("@/lib/a.cc:2"));
        let ubsan = "UndefinedBehaviorSanitizer: overflow: 1 + 2 of type 'int' at src/t.cc:4:35";
        assert_eq!(place(ubsan).as_deref(), Some("@/src/t.cc:4"));
        assert_eq!(place("AddressSanitizer: overflow ../../src/libsanitizer/a.cpp:8 in memcpy"), None);
        assert_eq!(place("AddressSanitizer: SEGV (/w/a_test+0x4d) in f"), None);
        assert_eq!(place("a message about a.cc:2"), None);
    }

    #[test]
    fn test_that_did_not_fail_has_no_place() {
        let workspace = Workspace::new();
        assert_eq!(workspace.place(&TestResult::with_reason(Outcome::Skipped, "a.cc:2"), None), None);
    }
}
