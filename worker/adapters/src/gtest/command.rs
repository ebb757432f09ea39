//! Commands of GoogleTest programs: arguments, environment, and the flag file that selects tests.

use std::path::Path;

use heeler_protocol::control::{ListedTest, OsText};

use crate::{AdapterInvocation, BatchSelection, RunReportFiles, SelectionScope};

/// GoogleTest and Bazel variables that would select, repeat, reorder, redirect or silence tests. The shard
/// variables do not affect a listing, but would drop most of a batch in a run.
const UNSET_VARIABLES: [&str; 22] = [
    "GTEST_ALSO_RUN_DISABLED_TESTS",
    "GTEST_BREAK_ON_FAILURE",
    "GTEST_BRIEF",
    "GTEST_COLOR",
    "GTEST_FAIL_FAST",
    "GTEST_FILTER",
    "GTEST_FLAGFILE",
    "GTEST_LIST_TESTS",
    "GTEST_OUTPUT",
    "GTEST_PRINT_TIME",
    "GTEST_RANDOM_SEED",
    "GTEST_REPEAT",
    "GTEST_SHARD_INDEX",
    "GTEST_SHARD_STATUS_FILE",
    "GTEST_SHUFFLE",
    "GTEST_STREAM_RESULT_TO",
    "GTEST_THROW_ON_FAILURE",
    "GTEST_TOTAL_SHARDS",
    "TESTBRIDGE_TEST_ONLY",
    "TESTBRIDGE_TEST_RUNNER_FAIL_FAST",
    "TEST_PREMATURE_EXIT_FILE",
    "XML_OUTPUT_FILE",
];

/// Flags repeated on the command line, because the program's own arguments or its `main` may have set them.
/// Every version since 1.8 knows these flags. A program that does not know a flag prints its help, runs
/// nothing and exits with code 0.
const RUN_FLAGS: [&str; 7] = [
    "--gtest_also_run_disabled_tests=0",
    "--gtest_break_on_failure=0",
    "--gtest_color=no",
    "--gtest_print_time=1",
    "--gtest_repeat=1",
    "--gtest_shuffle=0",
    "--gtest_throw_on_failure=0",
];

/// Newer flags, reset only if the program's own arguments set them: such a program knows them.
const NEWER_FLAGS: [(&str, &str); 2] =
    [("gtest_brief", "--gtest_brief=0"), ("gtest_fail_fast", "--gtest_fail_fast=0")];

fn unset_variables() -> Vec<(OsText, Option<OsText>)> {
    UNSET_VARIABLES.iter().map(|name| ((*name).into(), None)).collect()
}

/// Where a listing command gets the flag that names its output file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlagSource {
    /// In a flag file, which also shows whether the program reads GoogleTest's flag files.
    File,
    CommandLine,
}

pub(super) fn listing_command(scratch: &Path, source: FlagSource) -> AdapterInvocation {
    let file = scratch.join("gtest-list.xml");
    let output = [b"--gtest_output=xml:", file.as_os_str().as_encoded_bytes()].concat();
    let mut invocation = AdapterInvocation {
        args: vec!["--gtest_list_tests".into()],
        env: unset_variables(),
        listing_file: Some(file),
        ..AdapterInvocation::default()
    };
    match source {
        FlagSource::CommandLine => invocation.args.push(output.into()),
        FlagSource::File => {
            let flags = scratch.join("gtest-list-flags");
            let flag = [b"--gtest_flagfile=", flags.as_os_str().as_encoded_bytes()].concat();
            invocation.args.push(flag.into());
            invocation.files.push((flags, [output, b"\n".to_vec()].concat()));
        }
    }
    invocation
}

/// Returns the command that runs the selected tests. The last flag wins: these flags override the program's
/// own flags, and the flags that a thread-safe death test appends override these flags. `flag_file_name` is
/// the flag that names a flag file.
pub(super) fn run_command(
    own: &[OsText],
    selection: &BatchSelection<'_>,
    scratch: &Path,
    flag_file_name: &str,
) -> AdapterInvocation {
    let mut args: Vec<OsText> = RUN_FLAGS.iter().map(|flag| (*flag).into()).collect();
    if selection.runs_ignored {
        // After the other flags, because the last flag wins.
        args.push("--gtest_also_run_disabled_tests=1".into());
    }
    for (name, flag) in NEWER_FLAGS {
        let sets = |arg: &OsText| memchr::memmem::find(arg.as_bytes(), name.as_bytes()).is_some();
        if own.iter().any(sets) {
            args.push(flag.into());
        }
    }
    let mut files = Vec::new();
    // Without a filter, because some programs check that all of their tests run and fail with any filter.
    if selection.scope != SelectionScope::WholeProgram {
        let file = scratch.join("gtest-flags");
        args.push([flag_file_name.as_bytes(), file.as_os_str().as_encoded_bytes()].concat().into());
        files.push((file, flag_file(selection.tests)));
    }
    let run_report = report_files(own, scratch);
    let mut env = unset_variables();
    if let Some(files) = &run_report {
        args.push([b"--gtest_output=xml:", files.report.as_os_str().as_encoded_bytes()].concat().into());
        env.retain(|(name, _)| name.as_bytes() != RUN_MARK_VARIABLE.as_bytes());
        env.push((RUN_MARK_VARIABLE.into(), Some(files.run_mark.as_os_str().into())));
    }
    AdapterInvocation { args, env, files, run_report, ..AdapterInvocation::default() }
}

/// GoogleTest and Bazel variable that names a file that exists while tests run.
const RUN_MARK_VARIABLE: &str = "TEST_PREMATURE_EXIT_FILE";

/// Returns the report files of a run; `None` if the program's own arguments direct the report elsewhere.
fn report_files(own: &[OsText], scratch: &Path) -> Option<RunReportFiles> {
    let directs = |arg: &OsText| memchr::memmem::find(arg.as_bytes(), b"gtest_output").is_some();
    let files =
        RunReportFiles { report: scratch.join("gtest-report.xml"), run_mark: scratch.join("gtest-runs") };
    (!own.iter().any(directs)).then_some(files)
}

fn flag_file(tests: &[&ListedTest]) -> Vec<u8> {
    let mut flags = b"--gtest_filter=".to_vec();
    for (place, test) in tests.iter().enumerate() {
        if place > 0 {
            flags.push(b':');
        }
        write_pattern(&mut flags, &test.name);
    }
    flags.push(b'\n');
    flags
}

/// Writes the narrowest pattern that selects a test. The filter language has no escapes, so a special
/// character or a line break becomes `?`, and a byte that was not UTF-8 becomes `*`. The pattern may
/// therefore select other tests too.
pub(super) fn write_pattern(out: &mut Vec<u8>, name: &str) {
    for character in name.chars() {
        match character {
            ':' | '*' | '?' | '-' | '\n' => out.push(b'?'),
            char::REPLACEMENT_CHARACTER => out.push(b'*'),
            _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Returns whether the patterns of these tests may select other tests.
pub(super) fn selects_other_names(tests: &[&ListedTest]) -> bool {
    tests.iter().any(|test| matches_other_names(&test.name))
}

/// Returns whether an inexact pattern of one of these tests selects a test with this name.
pub(super) fn is_selected(tests: &[&ListedTest], name: &str) -> bool {
    tests.iter().filter(|test| matches_other_names(&test.name)).any(|test| {
        let mut pattern = Vec::new();
        write_pattern(&mut pattern, &test.name);
        is_match(&pattern, name.as_bytes())
    })
}

/// Returns whether a pattern with `?` and `*` matches a whole text.
fn is_match(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // Where to resume, with the last `*` matching one more byte.
    let mut retry = None;
    while read < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                retry = Some((at + 1, read));
                at += 1;
            }
            Some(one) if *one == b'?' || *one == text[read] => (at, read) = (at + 1, read + 1),
            _ => {
                let Some((after, begun)) = retry else { return false };
                retry = Some((after, begun + 1));
                (at, read) = (after, begun + 1);
            }
        }
    }
    pattern[at..].iter().all(|one| *one == b'*')
}

/// Returns whether the pattern of a test may select other tests.
fn matches_other_names(name: &str) -> bool {
    name.contains([':', '*', '?', '-', '\n', char::REPLACEMENT_CHARACTER])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(name: &str) -> ListedTest {
        ListedTest { name: name.to_owned(), ..ListedTest::default() }
    }

    fn run(own: &[OsText], tests: &[&ListedTest]) -> AdapterInvocation {
        let selection = BatchSelection {
            tests,
            scope: SelectionScope::SomeTests,
            runs_ignored: false,
            follows_unclear_death: false,
        };
        run_command(own, &selection, Path::new("/s"), "--gtest_flagfile=")
    }

    #[test]
    fn whole_program_needs_no_filter() {
        let tests = ["A.b", "C.d"].map(test);
        let tests = tests.each_ref();
        let selection = BatchSelection {
            tests: &tests,
            scope: SelectionScope::WholeProgram,
            runs_ignored: false,
            follows_unclear_death: false,
        };
        let whole = run_command(&[], &selection, Path::new("/s"), "--gtest_flagfile=");
        assert_eq!(whole.files, []);
        let some = run(&[], &tests);
        let flag = OsText::from("--gtest_flagfile=/s/gtest-flags");
        let others: Vec<_> = some.args.iter().filter(|arg| **arg != flag).cloned().collect();
        assert_eq!((whole.args, some.args.len()), (others.clone(), others.len() + 1));
        let variant = BatchSelection { scope: SelectionScope::TestsOfVariant, ..selection };
        let variant = run_command(&[], &variant, Path::new("/s"), "--gtest_flagfile=");
        assert_eq!(variant.files, some.files, "tests of a variant are some of the program's");
    }

    #[test]
    fn filter_metacharacters_become_question_marks() {
        let tests = ["A.b", "C.a:b*c?d-e\nf", "Ü. x'\"", "\u{fffd}"].map(test);
        let command = run(&[], &tests.each_ref());
        let (path, flags) = &command.files[0];
        assert_eq!(path, Path::new("/s/gtest-flags"));
        assert_eq!(String::from_utf8_lossy(flags), "--gtest_filter=A.b:C.a?b?c?d?e?f:Ü. x'\":*\n");
        assert!(command.args.contains(&"--gtest_flagfile=/s/gtest-flags".into()));
        assert!(!matches_other_names("A.b/0") && matches_other_names("A.b-0"));
    }

    #[test]
    fn patterns_select_what_they_match() {
        let tests = ["A.a:b", "B.\u{fffd}x", "C.c"].map(test);
        for (name, is_match) in [
            ("A.a-b", true),
            ("A.ab", false),
            ("B.yyx", true),
            ("B.x", true),
            ("B.xy", false),
            ("C.c", false),
        ] {
            assert_eq!(is_selected(&tests.each_ref(), name), is_match, "{name}");
        }
    }

    #[test]
    fn own_output_flag_replaces_the_report() {
        let command = run(&[], &[]);
        assert_eq!(command.args.last(), Some(&"--gtest_output=xml:/s/gtest-report.xml".into()));
        let mark = (RUN_MARK_VARIABLE.into(), Some("/s/gtest-runs".into()));
        assert_eq!(command.env.iter().filter(|one| one.0 == mark.0).collect::<Vec<_>>(), [&mark]);
        let command = run(&["--gtest_output=json:mine".into()], &[]);
        assert!(command.run_report.is_none() && command.env.contains(&(mark.0, None)));
    }

    #[test]
    fn newer_flags_are_reset_only_if_set() {
        let args = |own: &[OsText]| run(own, &[]).args;
        assert!(!args(&["--data".into()]).contains(&"--gtest_brief=0".into()));
        assert!(args(&["--gtest_brief=1".into()]).contains(&"--gtest_brief=0".into()));
    }

    #[test]
    fn large_batch_names_go_into_flag_file() {
        let tests: Vec<_> = (0..20_000).map(|number| test(&format!("N/Big.Case/{number}"))).collect();
        let command = run(&[], &tests.iter().collect::<Vec<_>>());
        assert!(command.args.iter().all(|arg| arg.as_bytes().len() < 100));
        let flags = String::from_utf8(command.files[0].1.clone()).unwrap();
        assert_eq!(flags.split(':').count(), 20_000);
        assert!(flags.ends_with(":N/Big.Case/19999\n"));
    }
}
