//! Commands of Go test programs. Tests are selected by a regular expression over their names, which are
//! identifiers.

use heeler_protocol::control::{ListedTest, OsText, SelectionLimit};

use super::adapter::Go;
use crate::{AdapterInvocation, BatchSelection, DeathFiles, SelectionScope, StackReports};

/// Limit of the names in one argument. Linux rejects arguments above 131,072 bytes.
pub(super) const SELECTION_LIMIT: SelectionLimit =
    SelectionLimit { budget_bytes: 100_000, overhead_bytes: 1 };

/// Options of every run. A test that calls `os.Exit(0)` must panic, and Heeler enforces the time limits. The
/// user's options come first, and must not leave out tests or repeat them.
const RUN_OPTIONS: [&str; 6] = [
    "-test.paniconexit0",
    "-test.timeout=0",
    "-test.count=1",
    "-test.failfast=false",
    "-test.bench=",
    "-test.fuzz=",
];

pub(super) fn listing_command() -> AdapterInvocation {
    AdapterInvocation {
        args: ["-test.list", ".*"].map(OsText::from).to_vec(),
        ..AdapterInvocation::default()
    }
}

pub(super) fn run_command(variant: Go, selection: &BatchSelection<'_>) -> AdapterInvocation {
    let mut args: Vec<OsText> = RUN_OPTIONS.map(OsText::from).to_vec();
    args.extend(match variant {
        Go::Framed => ["-test.skip=", "-test.v=test2json"].map(OsText::from).to_vec(),
        Go::Plain => vec!["-test.v".into()],
    });
    let pattern = match selection.scope {
        SelectionScope::WholeProgram => String::new(),
        SelectionScope::SomeTests | SelectionScope::TestsOfVariant => pattern(selection.tests),
    };
    args.push(OsText::from(format!("-test.run={pattern}").as_str()));
    let death_files = DeathFiles { reports: StackReports::StandardError, journal: None };
    AdapterInvocation { args, death_files: Some(death_files), ..AdapterInvocation::default() }
}

/// Returns the regular expression that matches exactly these tests.
pub(super) fn pattern(tests: &[&ListedTest]) -> String {
    let names: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
    match names[..] {
        [name] => format!("^{name}$"),
        _ => format!("^({})$", names.join("|")),
    }
}

#[cfg(test)]
mod cases {
    use super::*;

    #[test]
    fn names_are_one_pattern_and_a_whole_program_has_none() {
        let [a, b] =
            ["TestA", "ExampleB"].map(|name| ListedTest { name: name.to_owned(), ..ListedTest::default() });
        let selection = BatchSelection {
            tests: &[&a, &b],
            scope: SelectionScope::SomeTests,
            runs_ignored: false,
            follows_unclear_death: false,
        };
        let last = |variant, selection| {
            let args = run_command(variant, selection).args;
            let words: Vec<_> = args.iter().map(|arg| arg.to_text().into_owned()).collect();
            words[words.len() - 2..].join(" ")
        };
        assert_eq!(last(Go::Framed, &selection), "-test.v=test2json -test.run=^(TestA|ExampleB)$");
        assert_eq!(last(Go::Plain, &selection), "-test.v -test.run=^(TestA|ExampleB)$");
        let whole = BatchSelection { scope: SelectionScope::WholeProgram, ..selection };
        assert_eq!(last(Go::Framed, &whole), "-test.v=test2json -test.run=");
        assert_eq!(pattern(&[&a]), "^TestA$");
    }
}
