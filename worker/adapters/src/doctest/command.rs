//! Commands of doctest programs. A test is selected by its place in the listing, which is exact for every
//! name: a batch of neighbours is one range. A batch with gaps is selected by names, where the filter
//! language can express them.

use heeler_protocol::control::{ListedTest, OsText};

use super::listing::{NameUse, TestSelector};
use crate::{AdapterInvocation, CommandLineError};

/// Limit of all names, which travel in one argument: Linux accepts none above 131,072 bytes.
const MAX_SELECTION_BYTES: usize = 120_000;

/// Options of every command. Places are counted in the order of the source files.
const ORDER: &str = "--dt-order-by=file";
const REPORTER: &str = "--dt-reporters=xml";

/// Options of every run. A program that is traced would take the tracer for a debugger, and stop for it at
/// each failed assertion.
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

/// Returns the listing command, which lists skipped tests too.
pub(super) fn listing_command() -> AdapterInvocation {
    invocation(vec!["--dt-list-test-cases".into(), "--dt-no-skip=true".into(), REPORTER.into(), ORDER.into()])
}

/// Returns the command that lists the tests that are not skipped.
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
    let places: Vec<_> = tests.iter().map(|test| TestSelector::of(test).map(|one| one.place)).collect();
    let is_next =
        |pair: &&[Option<u32>]| matches!(pair, [Some(one), Some(next)] if one.checked_add(1) == Some(*next));
    let range = 1 + places.windows(2).take_while(is_next).count();
    let mut budget = MAX_SELECTION_BYTES;
    let is_fitting = |test: &&&ListedTest| {
        let cost = test.name.len() + 1;
        let is_fitting = cost <= budget && is_selectable_by_name(test);
        budget = budget.saturating_sub(cost);
        is_fitting
    };
    tests.iter().take_while(is_fitting).count().max(range).min(tests.len())
}

fn is_selectable_by_name(test: &ListedTest) -> bool {
    TestSelector::of(test).is_some_and(|selector| selector.name == NameUse::Exact)
}

/// Returns the command that runs these tests.
pub(super) fn run_command(
    tests: &[&ListedTest],
    runs_ignored: bool,
) -> Result<AdapterInvocation, CommandLineError> {
    if let Some(place) = tests.iter().position(|test| TestSelector::of(test).is_none()) {
        let reason = "the listing gave it no place in its program".to_owned();
        return Err(CommandLineError::Unselectable { place, reason });
    }
    let mut args: Vec<OsText> = RUN_OPTIONS.map(OsText::from).to_vec();
    if runs_ignored {
        args.push("--dt-no-skip=true".into());
    }
    args.extend(selection(tests).into_iter().map(|word| OsText::from(word.as_str())));
    Ok(invocation(args))
}

/// Returns the options that select these tests.
pub(super) fn selection(tests: &[&ListedTest]) -> Vec<String> {
    let places = || tests.iter().filter_map(|test| TestSelector::of(test)).map(|selector| selector.place);
    let (first, last) = (places().min().unwrap_or(0), places().max().unwrap_or(0));
    let count = usize::try_from(last - first).unwrap_or(usize::MAX).saturating_add(1);
    let is_range = count == tests.len();
    if is_range || !tests.iter().all(|test| is_selectable_by_name(test)) {
        return vec![ORDER.to_owned(), format!("--dt-first={first}"), format!("--dt-last={last}")];
    }
    let names: Vec<_> = tests.iter().map(|test| test.name.as_str()).collect();
    vec![
        ORDER.to_owned(),
        "--dt-case-sensitive=true".to_owned(),
        format!("--dt-test-case={}", names.join(",")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(name: &str, selector: &str) -> ListedTest {
        ListedTest { name: name.into(), selector: Some(selector.into()), ..ListedTest::default() }
    }

    fn words(tests: &[&ListedTest]) -> String {
        let command = run_command(tests, false).unwrap();
        command.args[RUN_OPTIONS.len()..]
            .iter()
            .map(|arg| arg.to_text().into_owned())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn neighbours_are_one_range_and_others_are_named() {
        let (a, b, c, odd) = (test("a", "3="), test("b", "4="), test("c", "9="), test("x,*", "5"));
        assert_eq!(words(&[&a, &b, &odd]), "--dt-order-by=file --dt-first=3 --dt-last=5");
        assert_eq!(words(&[&a, &c]), "--dt-order-by=file --dt-case-sensitive=true --dt-test-case=a,c");
        assert_eq!(words(&[&odd]), "--dt-order-by=file --dt-first=5 --dt-last=5");
        for (tests, count) in [
            (vec![&a, &b, &odd, &c], 3),
            (vec![&a, &c, &odd], 2),
            (vec![&odd, &c], 1),
            (vec![&a, &c, &b], 3),
            (vec![&c], 1),
        ] {
            assert_eq!(selectable_together(&tests), count, "{tests:?}");
        }
    }

    #[test]
    fn test_without_place_is_refused_by_itself() {
        let (fine, odd) = (test("a", "1="), ListedTest::default());
        let error = run_command(&[&fine, &odd], false).unwrap_err();
        assert!(matches!(error, CommandLineError::Unselectable { place: 1, .. }), "{error}");
    }

    #[test]
    fn names_of_one_command_stay_below_the_limit_of_an_argument() {
        let tests: Vec<_> = (0..40_000)
            .map(|number| test(&format!("case {number}"), &format!("{}=", number * 2 + 1)))
            .collect();
        let all: Vec<_> = tests.iter().collect();
        let count = selectable_together(&all);
        assert!((5_000..40_000).contains(&count), "{count}");
        let command = run_command(&all[..count], false).unwrap();
        assert!(command.args.iter().all(|arg| arg.as_bytes().len() < 131_000));
    }
}
