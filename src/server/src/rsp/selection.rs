//! The tests of a launch: all tests of the suite, tests selected by a filter, or tests of an earlier run.

use heeler_config::{
    ResolvedSettings,
    filter::{Filter, FilterSubject},
};
use heeler_protocol::manifest::RerunSet;
use heeler_run_store::{EarlierRun, RecordedRun, RunOwnership, list_runs, read_recorded_run, rerun_set};

use super::launch::LaunchOptions;
use crate::{
    discovery::{Catalogue, TestRef},
    run::HistorySnapshot,
};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SelectedTests {
    pub(super) uids: Vec<String>,
    /// The earlier run that is continued, and its rerun set.
    pub(super) continued: Option<(String, RerunSet)>,
}

/// Selects the tests of a suite. Reads files of earlier runs if the options require it.
///
/// # Errors
/// No tests are selected, or the selection failed. The error is one sentence.
pub(super) fn select_suite_tests(
    catalogue: &Catalogue,
    suite: &str,
    options: &LaunchOptions,
    settings: &ResolvedSettings,
) -> Result<SelectedTests, String> {
    let all = suite_tests(catalogue, suite)?;
    let found = all.len();
    let mut chosen = match &options.filter {
        Some(filter) => filter_tests(catalogue, all, filter, settings)?,
        None => all,
    };
    if chosen.is_empty() {
        return Err(match found {
            0 => format!("no test ran: {suite} has no tests"),
            _ => format!("no test ran: no test matches the filter (tests in this suite: {found})"),
        });
    }
    let mut continued = None;
    if let Some(selector) = &options.rerun {
        let (run, left) = latest_rerun_set(settings, suite)?;
        let wanted = selector.select(&left);
        chosen.retain(|test| wanted.contains(uid_of(catalogue, *test)));
        if chosen.is_empty() {
            return Err(format!("no test ran: run {run} left none of the selected tests to rerun"));
        }
        continued = Some((run, left));
    }
    let uids = chosen.into_iter().map(|test| uid_of(catalogue, test).to_owned()).collect();
    Ok(SelectedTests { uids, continued })
}

/// Returns the tests of a suite, or the program itself if it can't be listed.
fn suite_tests(catalogue: &Catalogue, suite: &str) -> Result<Vec<TestRef>, String> {
    let has_name = |program: usize| catalogue.programs()[program].source.program.suite == suite;
    let known = (0..catalogue.programs().len()).any(has_name);
    if !known {
        return Err(format!("the suite {suite} no longer exists"));
    }
    Ok(catalogue.all().filter(|test| has_name(test.program)).collect())
}

fn uid_of(catalogue: &Catalogue, test: TestRef) -> &str {
    let suite = &catalogue.programs()[test.program].source.program.suite;
    catalogue.test(test).map_or(suite, |entry| entry.uid())
}

fn filter_tests(
    catalogue: &Catalogue,
    tests: Vec<TestRef>,
    filter: &Filter,
    settings: &ResolvedSettings,
) -> Result<Vec<TestRef>, String> {
    let history = match filter.depends_on_history() {
        true if !settings.run.is_history_kept => {
            return Err(format!(
                "failed to evaluate the filter \"{filter}\": it needs the test history, which is turned off"
            ));
        }
        true => {
            let uids = tests.iter().map(|test| uid_of(catalogue, *test));
            HistorySnapshot::read(&settings.state_dir, uids).map_err(|error| failure(&error))?
        }
        false => HistorySnapshot::default(),
    };
    let is_selected = |test: &TestRef| {
        let program = &catalogue.programs()[test.program].source.program;
        let entry = catalogue.test(*test);
        let uid = uid_of(catalogue, *test);
        let subject = FilterSubject {
            uid,
            suite: &program.suite,
            config_suite: catalogue.config_suite(*test),
            program: program.path.to_text(),
            tags: entry.map(|entry| entry.traits().collect()).unwrap_or_default(),
            last: history.outcome_of(uid),
        };
        match entry {
            Some(_) => filter.is_match(&subject),
            // Skipping a program that can't be listed would look like success.
            None => filter.may_match(&subject),
        }
    };
    Ok(tests.into_iter().filter(is_selected).collect())
}

/// Returns this user's latest run that contains tests of the suite, and its rerun set.
fn latest_rerun_set(settings: &ResolvedSettings, suite: &str) -> Result<(String, RerunSet), String> {
    let is_own = |run: &&EarlierRun| run.ownership == RunOwnership::Own;
    for run in list_runs(&settings.state_dir).iter().rev().filter(is_own) {
        // The directory of a run may have been removed in the meantime.
        let Ok(recorded) = read_recorded_run(run) else { continue };
        if has_tests_of(&recorded, suite) {
            return Ok((recorded.manifest.head.run.clone(), rerun_set(&recorded)));
        }
    }
    Err(format!("no test ran: no earlier run of {suite} is recorded"))
}

fn has_tests_of(run: &RecordedRun, suite: &str) -> bool {
    let plan = &run.manifest.plan;
    plan.tests.iter().any(|test| plan.suite(test) == suite)
}

fn failure(error: &(dyn std::error::Error + 'static)) -> String {
    format!("failed to {}", heeler_core::error_chain(error))
}
