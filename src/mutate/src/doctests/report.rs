//! Parses rustdoc's output about documentation tests: one line per test, and the output of failed tests.

use std::collections::BTreeMap;

use super::keeper::{KEPT_MARK, NUMBER_MARK};

/// rustdoc's message for a test that does not compile.
const NOT_COMPILED: &str = "Couldn't compile the test.";

/// One `test NAME ... RESULT` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PrintedTest {
    /// Name without the remark after it.
    pub(super) name: String,
    pub(super) result: PrintedResult,
    /// The test is only compiled, or must not compile.
    pub(super) is_never_run: bool,
    /// The line says `should panic`. rustdoc does not say so for every such test.
    pub(super) is_said_to_panic: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrintedResult {
    Passed,
    Failed,
    Ignored,
}

/// The parsed output for a library's tests, or for one multi-test program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RustdocReport {
    pub(super) tests: Vec<PrintedTest>,
    /// Names of kept programs by test name, which several tests can share.
    pub(super) kept: BTreeMap<String, Vec<String>>,
    /// Test numbers by test name.
    pub(super) numbers: BTreeMap<String, Vec<usize>>,
    /// First compiler error of each test that does not compile.
    pub(super) uncompiled: BTreeMap<String, String>,
    /// Whether rustdoc got as far as running tests, even if there were none.
    pub(super) has_run: bool,
}

impl RustdocReport {
    pub(super) fn parse(output: &str) -> Self {
        let mut report = Self::default();
        // The test whose output follows, and the first error in that output.
        let mut current: Option<(&str, Option<&str>)> = None;
        for line in output.lines() {
            if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"))
            {
                current = Some((without_remark(name).0, None));
            } else if let Some(test) = parse_test(line).filter(|_| current.is_none()) {
                report.tests.push(test);
            } else if line.starts_with("running ") && line.contains(" test") {
                report.has_run = true;
                current = None;
            } else if let Some((name, error)) = &mut current {
                if let Some(kept) = line.strip_prefix(KEPT_MARK) {
                    report.kept.entry((*name).to_owned()).or_default().push(kept.to_owned());
                } else if let Some(number) = line.strip_prefix(NUMBER_MARK).and_then(|text| text.parse().ok())
                {
                    report.numbers.entry((*name).to_owned()).or_default().push(number);
                } else if line.starts_with(NOT_COMPILED) {
                    let error = error.unwrap_or(NOT_COMPILED).to_owned();
                    report.uncompiled.entry((*name).to_owned()).or_insert(error);
                } else if line.starts_with("error") {
                    error.get_or_insert(line);
                }
            }
        }
        report
    }
}

/// Parses `test NAME ... RESULT`.
fn parse_test(line: &str) -> Option<PrintedTest> {
    let (name, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let result = match result.split([',', ' ']).next()? {
        "ok" => PrintedResult::Passed,
        "FAILED" => PrintedResult::Failed,
        "ignored" => PrintedResult::Ignored,
        _ => return None,
    };
    let (name, remark) = without_remark(name);
    Some(PrintedTest {
        name: name.to_owned(),
        result,
        is_never_run: matches!(remark, Some(Remark::CompileFail | Remark::Compile)),
        is_said_to_panic: remark == Some(Remark::ShouldPanic),
    })
}

/// The remark after a test name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Remark {
    CompileFail,
    Compile,
    ShouldPanic,
}

const REMARKS: [(&str, Remark); 3] = [
    (" - compile fail", Remark::CompileFail),
    (" - compile", Remark::Compile),
    (" - should panic", Remark::ShouldPanic),
];

fn without_remark(name: &str) -> (&str, Option<Remark>) {
    let found = REMARKS.iter().find_map(|(text, remark)| Some((name.strip_suffix(text)?, Some(*remark))));
    found.unwrap_or((name, None))
}

/// Extracts file and line from a name such as `src/lib.rs - module::function (line 12)`.
pub(super) fn place_in_name(name: &str) -> Option<(&str, u32)> {
    let (file, rest) = name.split_once(" - ")?;
    let (_, line) = rest.rsplit_once("(line ")?;
    Some((file, line.strip_suffix(')')?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "
running 6 tests
test src/lib.rs - a (line 3) ... FAILED
test src/lib.rs - b (line 9) - compile ... ok
test src/lib.rs - b (line 13) - compile fail ... ok
test src/lib.rs - c (line 20) ... ok
test src/lib.rs - d (line 30) ... FAILED
test src/lib.rs - e (line 40) ... ignored

failures:

---- src/lib.rs - a (line 3) stdout ----
Test executable failed (exit status: 1).

stdout:
heeler-doctest kept 7-0


---- src/lib.rs - d (line 30) stdout ----
error[E0425]: cannot find value `nothing` in this scope
  --> src/lib.rs:31:1
error: aborting due to 1 previous error
Couldn't compile the test.

failures:
    src/lib.rs - a (line 3)
    src/lib.rs - d (line 30)

test result: FAILED. 3 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.75s
";

    #[test]
    fn kinds_and_results_of_tests_are_read() {
        let report = RustdocReport::parse(PRINTED);
        assert!(report.has_run);
        let shown: Vec<(&str, PrintedResult, bool)> =
            report.tests.iter().map(|test| (test.name.as_str(), test.result, test.is_never_run)).collect();
        assert_eq!(
            shown,
            [
                ("src/lib.rs - a (line 3)", PrintedResult::Failed, false),
                ("src/lib.rs - b (line 9)", PrintedResult::Passed, true),
                ("src/lib.rs - b (line 13)", PrintedResult::Passed, true),
                ("src/lib.rs - c (line 20)", PrintedResult::Passed, false),
                ("src/lib.rs - d (line 30)", PrintedResult::Failed, false),
                ("src/lib.rs - e (line 40)", PrintedResult::Ignored, false),
            ]
        );
        assert_eq!(report.kept["src/lib.rs - a (line 3)"], ["7-0"]);
        let error = &report.uncompiled["src/lib.rs - d (line 30)"];
        assert_eq!(error, "error[E0425]: cannot find value `nothing` in this scope");
        assert!(!RustdocReport::parse("error: Unrecognized option: 'test-runtool'\n").has_run);
    }

    #[test]
    fn program_of_several_tests_prints_numbers() {
        let printed = "running 2 tests\ntest src/lib.rs - a (line 1) ... FAILED\n\
                       test src/lib.rs - b (line 2) - should panic ... ok\n\nfailures:\n\n\
                       ---- src/lib.rs - a (line 1) stdout ----\nstdout:\nheeler-doctest number 0\n";
        let report = RustdocReport::parse(printed);
        assert_eq!(report.numbers["src/lib.rs - a (line 1)"], [0]);
        assert!(report.tests[1].is_said_to_panic && report.tests[1].name == "src/lib.rs - b (line 2)");
    }

    #[test]
    fn name_holds_the_place() {
        assert_eq!(place_in_name("src/lib.rs - one (line 14)"), Some(("src/lib.rs", 14)));
        assert_eq!(place_in_name("src/a b.rs - (line 3)"), Some(("src/a b.rs", 3)));
        assert_eq!(place_in_name("src/lib.rs - one"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_output_is_read(output in "(test |---- |heeler-doctest kept |running | tests| stdout ----| \\.\\.\\. ok|\n|x){0,40}") {
            let _read = RustdocReport::parse(&output);
        }
    }
}
