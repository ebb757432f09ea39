//! The adapter of rustdoc. The program is rustdoc, with the arguments that cargo passes for one library.

use std::path::Path;

use heeler_core::batching::ProcessTraits;
use heeler_protocol::control::{ListedTest, OsText, TestProgram};

use super::{failure, grammar, selection};
use crate::{
    Adapter, AdapterInvocation, AdapterListing, AdapterTraits, BatchSelection, ClaimConfidence,
    CommandLineError, DiscoveryTarget, ListingError, ListingOutput, SelectionScope, TranscriptParser,
    libtest, scan, shell,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rustdoc;

/// First Rust edition whose documentation tests rustdoc compiles together.
const FIRST_MERGED_EDITION: u32 = 2024;
/// Number of separately compiled tests that do not justify a second process.
const FEW_TESTS: usize = 4;

static TRAITS: AdapterTraits = AdapterTraits {
    is_own_line: |line| libtest::is_own_plain_line(line) || line.starts_with(b"all doctests ran in "),
    details_from_stderr: Some(failure::add_failure),
    ..AdapterTraits::new("rustdoc", "Rust documentation test")
};

/// Returns the invocation with arguments for rustdoc's test runner. rustdoc splits them at whitespace.
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

    /// A rustdoc executable alone is not a test program: only cargo knows its arguments.
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
            [] => Some(json_listing()),
            [json] if libtest::is_json_listing(json) || json.signal.is_some() => None,
            [_] => Some(invocation("--list --format terse")),
            // The first terse listing does not mark ignored tests.
            [_, all] if all.code == Some(0) => Some(invocation("--list --format terse --ignored")),
            _ => None,
        }
    }

    fn read_listing(
        &self,
        program: &TestProgram,
        outputs: &[ListingOutput],
    ) -> Result<AdapterListing, ListingError> {
        let listed = match outputs {
            [json, ..] if libtest::is_json_listing(json) => libtest::read_json_listing(&json.stdout)?,
            _ => read_terse_listings(outputs)?,
        };
        let names: Vec<&str> = listed.iter().map(|test| test.name.as_str()).collect();
        let selectors = selection::selectors(&names);
        let test = |(listed, selector): (&ListedTest, String)| {
            let (file, line) = place(&listed.name).unzip();
            ListedTest {
                file: file.map(|file| program.cwd.as_path().join(file).display().to_string()),
                line,
                selector: Some(selector),
                ..listed.clone()
            }
        };
        let tests = listed.iter().zip(selectors).map(test).collect();
        Ok(AdapterListing {
            framework: TRAITS.name,
            tests,
            failure: None,
            warnings: Vec::new(),
            depends_on: Vec::new(),
        })
    }

    fn process_traits(&self, program: &TestProgram, tests: &[ListedTest]) -> ProcessTraits {
        let is_one_batch = has_merged_tests(program) || tests.len() <= FEW_TESTS;
        ProcessTraits { is_one_batch, ..ProcessTraits::NONE }
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
        // No capture: captured output is printed only after the last test. One thread, so that the running
        // test is known.
        let mut words = vec!["--test-threads=1".to_owned(), "--nocapture".into(), "--color=never".into()];
        if selection.runs_ignored {
            words.push("--include-ignored".into());
        }
        match (selection.scope, selection::select(selection.tests)) {
            // Used for whole programs too: otherwise lines of ignored tests would appear among the others.
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
        // The arguments that cargo passes to rustdoc are long, and name files of one build.
        let mut words = shell::environment_words(program);
        words.extend(["heeler", "run", "--doc"].map(str::to_owned));
        words.extend(program.reproduction.options.iter().map(|word| shell::quote(word.as_bytes())));
        words.push("-E".to_owned());
        words.push(shell::test_filter(&format!("{}::{}", program.suite, test.name)));
        format!("(cd {} && {})", shell::quote(program.cwd.as_bytes()), words.join(" "))
    }
}

/// Returns the command that lists tests as JSON without compiling them. By default, rustdoc compiles the
/// tests of an edition together even for a listing. Both options are unstable; without them,
/// [`read_terse_listings`] is used.
fn json_listing() -> AdapterInvocation {
    let words = ["-Zunstable-options", "--merge-doctests", "no", "--test-args"].map(OsText::from);
    let mut env = libtest::unset_variables();
    env.push(("RUSTC_BOOTSTRAP".into(), Some("1".into())));
    AdapterInvocation {
        args: words.into_iter().chain(["-Zunstable-options --list --format json".into()]).collect(),
        env,
        ..AdapterInvocation::default()
    }
}

/// Reads the last two listings: all tests, and ignored tests.
fn read_terse_listings(outputs: &[ListingOutput]) -> Result<Vec<ListedTest>, ListingError> {
    let [.., all, ignored] = outputs else {
        return Err(match outputs {
            [dead] if dead.code != Some(0) => ListingError::of_exit(dead),
            _ => ListingError::Damaged {
                framework: TRAITS.name,
                reason: "the listing command did not run".to_owned(),
            },
        });
    };
    if let Some(dead) = [ignored, all].into_iter().find(|output| output.code != Some(0)) {
        return Err(ListingError::of_exit(dead));
    }
    let (all, ignored) = (scan::decode_lossy(&all.stdout), scan::decode_lossy(&ignored.stdout));
    let ignored = listed_names(&ignored);
    let test = |name: &str| {
        let mut test = ListedTest { name: name.to_owned(), ..ListedTest::default() };
        if ignored.contains(&name) {
            libtest::mark_ignored(&mut test, String::new());
        }
        test
    };
    Ok(listed_names(&all).into_iter().map(test).collect())
}

/// Returns whether rustdoc compiles the tests of the library together. If so, every additional process
/// compiles them again.
fn has_merged_tests(program: &TestProgram) -> bool {
    let words: Vec<_> = program.args.iter().map(OsText::to_text).collect();
    let mut named =
        words.iter().enumerate().filter_map(|(place, word)| match word.strip_prefix("--edition") {
            Some("") => words.get(place + 1).map(|next| next.to_string()),
            Some(value) => value.strip_prefix('=').map(str::to_owned),
            None => None,
        });
    named
        .next()
        .and_then(|edition| edition.parse().ok())
        .is_some_and(|year: u32| year >= FIRST_MERGED_EDITION)
}

fn listed_names(listing: &str) -> Vec<&str> {
    listing.lines().filter_map(|line| line.strip_suffix(": test")).collect()
}

/// Returns the file and line from a name such as `src/lib.rs - module::function (line 12)`.
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
    fn one_listing_is_enough_and_compiles_nothing() {
        let program = TestProgram { cwd: "/w".into(), ..TestProgram::default() };
        let first = Rustdoc.next_listing(&program, &[], Path::new("")).unwrap();
        let words: Vec<_> = first.args.iter().map(|word| word.to_text().into_owned()).collect();
        assert!(words.join(" ").contains("--merge-doctests no"), "{words:?}");
        let entry = |name: &str, is_ignored: bool| {
            format!(
                "{{ \"type\": \"test\", \"event\": \"discovered\", \"name\": \"{name}\", \"ignore\": {is_ignored}, \
                 \"ignore_message\": \"\", \"source_path\": \"\", \"start_line\": 0, \"start_col\": 0, \"end_line\": 0, \
                 \"end_col\": 0 }}\n"
            )
        };
        let stdout = format!(
            "{{ \"type\": \"suite\", \"event\": \"discovery\" }}\n{}{}{{ \"type\": \"suite\", \"event\": \
             \"completed\", \"tests\": 2, \"benchmarks\": 0, \"total\": 2, \"ignored\": 1 }}\n",
            entry("src/lib.rs - a (line 3)", false),
            entry("src/lib.rs - b (line 8)", true)
        );
        let json = ListingOutput { stdout: stdout.into_bytes(), code: Some(0), ..ListingOutput::default() };
        assert!(Rustdoc.next_listing(&program, std::slice::from_ref(&json), Path::new("")).is_none());
        let tests = Rustdoc.read_listing(&program, &[json]).unwrap().tests;
        assert_eq!(tests.iter().map(ListedTest::is_ignored).collect::<Vec<_>>(), [false, true]);
        assert_eq!((tests[0].file.as_deref(), tests[0].line), (Some("/w/src/lib.rs"), Some(3)));
        // A rustdoc without these options.
        let refused = ListingOutput { code: Some(1), ..ListingOutput::default() };
        let second = Rustdoc.next_listing(&program, std::slice::from_ref(&refused), Path::new("")).unwrap();
        assert_eq!(second.args[1].to_text(), "--list --format terse");
        let listed =
            |stdout: &[u8]| ListingOutput { stdout: stdout.to_vec(), code: Some(0), ..refused.clone() };
        let outputs = [refused.clone(), listed(b"src/lib.rs - a (line 9): test\n"), listed(b"")];
        assert!(Rustdoc.next_listing(&program, &outputs[..2], Path::new("")).is_some());
        assert_eq!(Rustdoc.read_listing(&program, &outputs).unwrap().tests.len(), 1);
    }

    #[test]
    fn tests_that_are_compiled_together_run_in_one_process() {
        let is_one = |args: &[&str], count: usize| {
            let args = args.iter().map(|word| OsText::from(*word)).collect();
            let program = TestProgram { args, ..TestProgram::default() };
            Rustdoc.process_traits(&program, &vec![ListedTest::default(); count]).is_one_batch
        };
        assert!(is_one(&["--edition=2024"], 500) && is_one(&["--edition", "2027"], 500));
        assert!(!is_one(&["--edition=2021"], 500) && !is_one(&[], 500) && is_one(&["--edition=2021"], 3));
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
            "a listing command did not run"
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
