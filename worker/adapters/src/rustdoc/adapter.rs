//! The adapter of rustdoc, which connects its parts. The program is rustdoc with the arguments that cargo
//! gives it for one library.

use std::path::Path;

use heeler_protocol::control::{ListedTest, TestProgram};

use super::{failure, grammar, selection};
use crate::{
    Adapter, AdapterInvocation, AdapterListing, AdapterTraits, BatchSelection, ClaimConfidence,
    CommandLineError, DiscoveryTarget, ListingError, ListingOutput, SelectionScope, TranscriptParser,
    libtest, scan, shell,
};

/// The adapter of rustdoc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rustdoc;

static TRAITS: AdapterTraits = AdapterTraits {
    is_own_line: |line| libtest::is_own_plain_line(line) || line.starts_with(b"all doctests ran in "),
    details_from_stderr: Some(failure::add_failure),
    ..AdapterTraits::new("rustdoc", "Rust documentation test")
};

/// Returns the invocation with words for the test runner in rustdoc, which splits them at white space.
fn invocation(words: &str) -> AdapterInvocation {
    AdapterInvocation {
        args: vec!["--test-args".into(), words.into()],
        env: libtest::unset_variables(),
        ..AdapterInvocation::default()
    }
}

impl Adapter for Rustdoc {
    fn traits(&self) -> &'static AdapterTraits {
        &TRAITS
    }

    /// A rustdoc is no test program by itself: only cargo knows its arguments.
    fn claims(&self, _target: &DiscoveryTarget<'_>) -> ClaimConfidence {
        ClaimConfidence::Unclaimed
    }

    fn next_listing(
        &self,
        _program: &TestProgram,
        outputs: &[ListingOutput],
        _scratch: &Path,
    ) -> Option<AdapterInvocation> {
        match outputs {
            [] => Some(invocation("--list --format terse")),
            // The first one does not tell ignored tests from others.
            [all] if all.code == Some(0) => Some(invocation("--list --format terse --ignored")),
            _ => None,
        }
    }

    fn read_listing(
        &self,
        program: &TestProgram,
        outputs: &[ListingOutput],
    ) -> Result<AdapterListing, ListingError> {
        let damaged =
            || ListingError::Damaged { framework: TRAITS.name, reason: "it did not run".to_owned() };
        if let Some(dead) = outputs.iter().find(|output| output.code != Some(0)) {
            return Err(ListingError::of_exit(dead));
        }
        let [all, ignored] = outputs else { return Err(damaged()) };
        let (all, ignored) = (scan::decode_lossy(&all.stdout), scan::decode_lossy(&ignored.stdout));
        let (names, ignored) = (listed_names(&all), listed_names(&ignored));
        let selectors = selection::selectors(&names);
        let test = |(name, selector): (&&str, String)| {
            let (file, line) = place(name).unzip();
            let mut test = ListedTest {
                name: (*name).to_owned(),
                file: file.map(|file| program.cwd.as_path().join(file).display().to_string()),
                line,
                selector: Some(selector),
                ..ListedTest::default()
            };
            if ignored.contains(name) {
                libtest::mark_ignored(&mut test, String::new());
            }
            test
        };
        let tests = names.iter().zip(selectors).map(test).collect();
        Ok(AdapterListing {
            framework: TRAITS.name,
            tests,
            failure: None,
            warnings: Vec::new(),
            depends_on: Vec::new(),
        })
    }

    fn selectable_together(&self, tests: &[&ListedTest]) -> usize {
        selection::selectable_together(tests)
    }

    fn run_command(
        &self,
        _program: &TestProgram,
        selection: &BatchSelection<'_>,
        _scratch: &Path,
    ) -> Result<AdapterInvocation, CommandLineError> {
        // Output is not captured: captured output is printed only after the last test. One thread, so that
        // the running test is known.
        let mut words = vec!["--test-threads=1".to_owned(), "--nocapture".into(), "--color=never".into()];
        if selection.runs_ignored {
            words.push("--include-ignored".into());
        }
        match (selection.scope, selection::select(selection.tests)) {
            // Also of a whole program: the lines of ignored tests would stand between those of the others.
            (_, Ok(names)) => words.extend(names),
            (SelectionScope::WholeProgram, Err(_)) => {}
            (SelectionScope::SomeTests | SelectionScope::TestsOfVariant, Err(error)) => return Err(error),
        }
        Ok(invocation(&words.join(" ")))
    }

    fn transcript_parser(&self, tests: &[&ListedTest]) -> Box<dyn TranscriptParser + Send> {
        Box::new(grammar::rustdoc_parser(tests))
    }

    fn reproduce_command(&self, program: &TestProgram, test: &ListedTest) -> String {
        let words = selection::select(&[test]).unwrap_or_default().join(" ");
        let words = shell::quote(words.as_bytes());
        shell::command_line(program, &format!("--test-args {words}"))
    }
}

fn listed_names(listing: &str) -> Vec<&str> {
    listing.lines().filter_map(|line| line.strip_suffix(": test")).collect()
}

/// Returns the file and line in a name such as `src/lib.rs - module::function (line 12)`.
fn place(name: &str) -> Option<(&str, u32)> {
    let (file, rest) = name.split_once(" - ")?;
    let (_, line) = rest.rsplit_once("(line ")?;
    Some((file, line.strip_suffix(')')?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_holds_the_place() {
        assert_eq!(place("src/lib.rs - one (line 14)"), Some(("src/lib.rs", 14)));
        assert_eq!(place("src/a b.rs - (line 3)"), Some(("src/a b.rs", 3)));
        assert_eq!(place("src/lib.rs - one"), None);
        assert_eq!(place("one (line 14)"), None);
    }

    #[test]
    fn some_tests_are_selected_by_words_and_all_by_none() {
        let program = TestProgram::default();
        let stdout = b"src/lib.rs - a (line 9): test\nsrc/lib.rs - b (line 19): test\n".to_vec();
        let output = ListingOutput { stdout, code: Some(0), ..ListingOutput::default() };
        let ignored = b"src/lib.rs - b (line 19): test\n".to_vec();
        let ignored = ListingOutput { stdout: ignored, ..output.clone() };
        assert!(
            Rustdoc.read_listing(&program, std::slice::from_ref(&output)).is_err(),
            "a command did not run"
        );
        let listing = Rustdoc.read_listing(&program, &[output, ignored]).unwrap();
        assert_eq!(listing.tests.iter().map(ListedTest::is_ignored).collect::<Vec<_>>(), [false, true]);
        let tests: Vec<&ListedTest> = listing.tests.iter().collect();
        let words = |tests: &[&ListedTest], scope| {
            let selection =
                BatchSelection { tests, scope, runs_ignored: false, follows_unclear_death: false };
            let command = Rustdoc.run_command(&program, &selection, Path::new("")).unwrap();
            command.args[1].to_text().into_owned()
        };
        let always = "--test-threads=1 --nocapture --color=never";
        assert_eq!(words(&tests, SelectionScope::WholeProgram), format!("{always} 9) 19)"));
        assert_eq!(words(&tests[..1], SelectionScope::SomeTests), format!("{always} 9) --skip 19)"));
        assert_eq!(words(&tests[1..], SelectionScope::SomeTests), format!("{always} 19)"));
    }
}
