//! Commands of doctest programs. A test is selected by its position in the listing, which works for every
//! name: a batch of neighbours is one range. Batches with gaps, and tests whose position is uncertain, are
//! selected by name if the filter language can express it.

use heeler_protocol::control::{ListedTest, OsText};

use super::listing::{NameUse, PlacedSelector};
use crate::{AdapterInvocation, BatchSelection, CommandLineError, SelectionScope};

/// Limit of all names, which are passed in one argument. Linux rejects arguments above 131,072 bytes.
const MAX_SELECTION_BYTES: usize = 120_000;

/// Option of every command. Positions are counted in source file order.
const ORDER: &str = "--dt-order-by=file";
const REPORTER: &str = "--dt-reporters=xml";

/// Options of every run. `--dt-no-breaks` is needed because a traced program would mistake the tracer for a
/// debugger and break at each failed assertion.
const RUN_OPTIONS: [&str; 5] = [
    REPORTER,
    "--dt-duration=true",
    "--dt-no-breaks=true",
    "--dt-no-skipped-summary=true",
    "--dt-no-skip=false",
];

fn invocation(args: Vec<OsText>) -> AdapterInvocation {
    AdapterInvocation { args, ..AdapterInvocation::default() }
}

/// Returns the listing command, which includes skipped tests.
pub(super) fn listing_command() -> AdapterInvocation {
    invocation(vec!["--dt-list-test-cases".into(), "--dt-no-skip=true".into(), REPORTER.into(), ORDER.into()])
}

/// Returns the command that lists only tests that are not skipped.
pub(super) fn listing_command_without_skipped() -> AdapterInvocation {
    invocation(vec![
        "--dt-list-test-cases".into(),
        "--dt-no-skip=false".into(),
        REPORTER.into(),
        ORDER.into(),
    ])
}

/// Returns the number of tests, from the front, that one command can select.
pub(super) fn selectable_together(tests: &[&ListedTest]) -> usize {
    let mut budget = MAX_SELECTION_BYTES;
    let is_fitting = |test: &&&ListedTest| {
        let cost = test.name.len() + 1;
        let is_fitting = cost <= budget && is_selectable_by_name(test);
        budget = budget.saturating_sub(cost);
        is_fitting
    };
    let named = tests.iter().take_while(is_fitting).count();
    named.max(range_length(tests, named)).min(tests.len())
}

/// Returns the number of neighbouring tests, from the front. The first `named` tests can also be selected by
/// name.
fn range_length(tests: &[&ListedTest], named: usize) -> usize {
    let mut has_gap = false;
    let mut length = 1;
    for pair in tests.windows(2) {
        let [Some(one), Some(next)] = [0, 1].map(|at| PlacedSelector::of(pair[at]).places) else { break };
        let is_next = one.of_all.checked_add(1) == Some(next.of_all);
        let is_next_unskipped =
            one.of_not_skipped > 0 && one.of_not_skipped.checked_add(1) == Some(next.of_not_skipped);
        // Tests with a skipped test between them are neighbours only if skipped tests do not run.
        has_gap |= !is_next;
        if !(is_next || is_next_unskipped) || has_gap && length >= named {
            break;
        }
        length += 1;
    }
    length
}

fn is_selectable_by_name(test: &ListedTest) -> bool {
    PlacedSelector::of(test).name == NameUse::Exact
}

/// Whether tests that doctest skips by default run too. If so, they count in the positions of the other
/// tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SkippedTests {
    Run,
    LeftOut,
}

impl SkippedTests {
    /// Returns the position of a test among the counted tests; `None` if no range can select it.
    fn place_of(self, test: &ListedTest) -> Option<u32> {
        let places = PlacedSelector::of(test).places?;
        let place = match self {
            Self::Run => places.of_all,
            Self::LeftOut => places.of_not_skipped,
        };
        (place > 0).then_some(place)
    }
}

pub(super) fn run_command(selection: &BatchSelection<'_>) -> Result<AdapterInvocation, CommandLineError> {
    let skipped = if selection.runs_ignored { SkippedTests::Run } else { SkippedTests::LeftOut };
    let is_unselectable =
        |test: &&ListedTest| !is_selectable_by_name(test) && skipped.place_of(test).is_none();
    if let Some(place) = selection.tests.iter().position(is_unselectable) {
        let reason = "cannot be selected by name (not usable as a filter) or by position (the program ignores \
                      --order-by=file)";
        return Err(CommandLineError::Unselectable { place, reason: reason.to_owned() });
    }
    let mut args: Vec<OsText> = RUN_OPTIONS.map(OsText::from).to_vec();
    if skipped == SkippedTests::Run {
        args.push("--dt-no-skip=true".into());
    }
    // To run all its tests, doctest needs no filter and no known order.
    if selection.scope == SelectionScope::WholeProgram {
        args.push(ORDER.into());
    } else {
        args.extend(words(selection.tests, skipped).into_iter().map(|word| OsText::from(word.as_str())));
    }
    Ok(invocation(args))
}

/// Returns the options that select these tests.
pub(super) fn words(tests: &[&ListedTest], skipped: SkippedTests) -> Vec<String> {
    let places: Option<Vec<_>> = tests.iter().map(|test| skipped.place_of(test)).collect();
    let range = places.as_ref().and_then(|places| {
        let (first, last) = (*places.iter().min()?, *places.iter().max()?);
        let count = usize::try_from(last - first).unwrap_or(usize::MAX).saturating_add(1);
        let is_range = count == tests.len() || !tests.iter().all(|test| is_selectable_by_name(test));
        is_range.then(|| vec![format!("--dt-first={first}"), format!("--dt-last={last}")])
    });
    let by_name = || {
        let names: Vec<_> = tests.iter().map(|test| test.name.as_str()).collect();
        vec!["--dt-case-sensitive=true".to_owned(), format!("--dt-test-case={}", names.join(","))]
    };
    let mut words = vec![ORDER.to_owned()];
    words.extend(range.unwrap_or_else(by_name));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(name: &str, selector: &str) -> ListedTest {
        ListedTest { name: name.into(), selector: Some(selector.into()), ..ListedTest::default() }
    }

    fn selection<'a>(tests: &'a [&'a ListedTest], runs_ignored: bool) -> BatchSelection<'a> {
        let scope = SelectionScope::SomeTests;
        BatchSelection { tests, scope, runs_ignored, follows_unclear_death: false }
    }

    fn words(tests: &[&ListedTest], runs_ignored: bool) -> String {
        let command = run_command(&selection(tests, runs_ignored)).unwrap();
        command.args[RUN_OPTIONS.len()..]
            .iter()
            .map(|arg| arg.to_text().into_owned())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn neighbours_are_one_range_and_others_are_named() {
        let (a, b, c, odd) = (test("a", "3/3="), test("b", "4/4="), test("c", "9/9="), test("x,*", "5/5"));
        assert_eq!(words(&[&a, &b, &odd], false), "--dt-order-by=file --dt-first=3 --dt-last=5");
        let by_name = "--dt-order-by=file --dt-case-sensitive=true --dt-test-case=a,c";
        assert_eq!(words(&[&a, &c], false), by_name);
        assert_eq!(words(&[&odd], false), "--dt-order-by=file --dt-first=5 --dt-last=5");
        for (tests, count) in [
            (vec![&a, &b, &odd, &c], 3),
            (vec![&a, &c, &odd], 2),
            (vec![&odd, &c], 1),
            (vec![&a, &c, &b], 3),
            (vec![&c], 1),
        ] {
            assert_eq!(selectable_together(&tests), count, "{tests:?}");
        }
        // All tests, in any order.
        let tests = [&a, &c];
        let whole = BatchSelection { scope: SelectionScope::WholeProgram, ..selection(&tests, false) };
        assert_eq!(run_command(&whole).unwrap().args.last(), Some(&ORDER.into()));
    }

    #[test]
    fn skipped_tests_count_in_places_only_where_they_run() {
        let (odd, off) = (test("x,y", "1/2"), test("o,ff", "0/1"));
        assert_eq!(words(&[&odd], false), "--dt-order-by=file --dt-first=1 --dt-last=1");
        assert_eq!(words(&[&odd], true), "--dt-no-skip=true --dt-order-by=file --dt-first=2 --dt-last=2");
        assert_eq!(words(&[&off], true), "--dt-no-skip=true --dt-order-by=file --dt-first=1 --dt-last=1");
        assert_eq!(selectable_together(&[&off, &odd]), 2);
        let (other, next) = (test("z,", "2/4"), test("z", "2/4="));
        assert_eq!(selectable_together(&[&odd, &other]), 1);
        let a = test("a", "1/2=");
        assert_eq!(selectable_together(&[&a, &next, &other]), 2);
        assert_eq!(words(&[&a, &next], false), "--dt-order-by=file --dt-first=1 --dt-last=2");
        assert!(words(&[&a, &next], true).ends_with(" --dt-test-case=a,z"));
    }

    #[test]
    fn test_without_place_is_named_or_refused_by_itself() {
        let (fine, odd) = (test("a", "="), test("x,y", ""));
        let by_name = "--dt-order-by=file --dt-case-sensitive=true --dt-test-case=a";
        assert_eq!(words(&[&fine], false), by_name);
        let error = run_command(&selection(&[&fine, &odd], false)).unwrap_err();
        assert!(matches!(error, CommandLineError::Unselectable { place: 1, .. }), "{error}");
    }

    #[test]
    fn names_of_one_command_stay_below_the_limit_of_an_argument() {
        let tests: Vec<_> = (0..40_000)
            .map(|number| test(&format!("case {number}"), &format!("{0}/{0}=", number * 2 + 1)))
            .collect();
        let all: Vec<_> = tests.iter().collect();
        let count = selectable_together(&all);
        assert!((5_000..40_000).contains(&count), "{count}");
        let command = run_command(&selection(&all[..count], false)).unwrap();
        assert!(command.args.iter().all(|arg| arg.as_bytes().len() < 131_000));
    }
}
