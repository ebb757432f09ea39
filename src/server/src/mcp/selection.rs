//! Selects tests by filter or from an earlier run, and plans their run. It reads files, so it runs outside
//! the session's task.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use heeler_config::{
    ResolvedSettings, RunOptions,
    filter::{Filter, FilterSubject},
};
use heeler_core::{Outcome, error_chain};
use heeler_protocol::mcp::{
    ListTestsArguments, ListedTestItem, RunTestsArguments, TestsAnswer, known_cursor, page,
};
use heeler_run_store::{
    DIR_NAME, Provenance, RerunSelector,
    history::{FILE_NAME, HistoryStore},
};

use crate::discovery::{Catalogue, TestRef, TestSelection};
use crate::run::{PlanContext, PreparedRun, RunRequest, prepare_run};

pub(super) struct PlannedRun {
    pub(super) prepared: PreparedRun,
    /// The session's settings, changed by the options of the call.
    pub(super) settings: Arc<ResolvedSettings>,
}

/// Returns a page of tests.
///
/// # Errors
/// The filter can't be evaluated. The text is shown to the caller.
pub(super) fn list_tests(
    catalogue: &Catalogue,
    settings: &ResolvedSettings,
    arguments: &ListTestsArguments,
) -> Result<TestsAnswer, String> {
    let selected = match &arguments.filter {
        None => catalogue.all().collect(),
        Some(filter) => select(catalogue, settings, filter)?,
    };
    let cursor = known_cursor(arguments.cursor, selected.len())?;
    let items = selected.iter().skip(cursor.0).map(|place| listed_test(catalogue, *place).bounded());
    let tests = page(items, cursor, selected.len(), 0);
    Ok(TestsAnswer { total: selected.len(), tests: tests.items, next_cursor: tests.next })
}

fn listed_test(catalogue: &Catalogue, place: TestRef) -> ListedTestItem {
    catalogue.with_description(place, |test| ListedTestItem {
        test: test.uid.to_owned(),
        file: test.file.map(str::to_owned),
        line: test.line,
        error: catalogue.listing_error(place).map(str::to_owned),
    })
}

/// Returns the tests that a filter selects. A program that can't be listed is selected if the filter may
/// match any of its tests.
fn select(catalogue: &Catalogue, settings: &ResolvedSettings, filter: &str) -> Result<Vec<TestRef>, String> {
    let filter: Filter = filter.parse().map_err(|error| format!("invalid filter: {error}"))?;
    let outcomes = match filter.depends_on_history() {
        true if !settings.run.is_history_kept => {
            return Err(format!(
                "state(…) in the filter needs the test history, which is turned off: {filter}"
            ));
        }
        true => last_outcomes(catalogue, settings)?,
        false => HashMap::new(),
    };
    let is_selected = |place: &TestRef| {
        catalogue.with_description(*place, |test| {
            let subject = FilterSubject {
                uid: test.uid,
                suite: test.suite,
                config_suite: catalogue.config_suite(*place),
                program: test.program.into(),
                tags: test.traits.iter().map(|one| (one.name.as_str(), one.value.as_str())).collect(),
                last: outcomes.get(test.uid).copied(),
            };
            match catalogue.test(*place) {
                Some(_) => filter.is_match(&subject),
                None => filter.may_match(&subject),
            }
        })
    };
    Ok(catalogue.all().filter(is_selected).collect())
}

fn last_outcomes(
    catalogue: &Catalogue,
    settings: &ResolvedSettings,
) -> Result<HashMap<String, Outcome>, String> {
    let path = settings.state_dir.join(FILE_NAME);
    if !path.exists() {
        return Ok(HashMap::new());
    }
    let uids = catalogue.all().filter_map(|place| Some(catalogue.test(place)?.uid()));
    let known = HistoryStore::open(&path).and_then(|history| history.load(uids));
    let known = known.map_err(|error| format!("failed to {}", error_chain(&error)))?;
    Ok(known.into_iter().map(|(uid, test)| (uid, test.outcome)).collect())
}

/// Plans a run and makes its directory.
///
/// # Errors
/// There is nothing to run, or the directory can't be made. The text is shown to the caller.
pub(super) fn plan_run(
    catalogue: &Catalogue,
    settings: &Arc<ResolvedSettings>,
    provenance: &Provenance,
    run_id: &str,
    arguments: &RunTestsArguments,
) -> Result<PlannedRun, String> {
    // Select by filter, then restrict to the tests of an earlier run.
    let mut selected = match &arguments.filter {
        None => catalogue.all().collect(),
        Some(filter) => select(catalogue, settings, filter)?,
    };
    let mut provenance = provenance.clone();
    if let Some(word) = &arguments.rerun {
        let wanted = tests_to_rerun(settings, word, &mut provenance)?;
        selected.retain(|place| {
            catalogue
                .with_description(*place, |test| wanted.contains(test.uid) || wanted.contains(test.suite))
        });
    }
    if selected.is_empty() {
        return Err(match (&arguments.filter, &arguments.rerun) {
            (_, Some(_)) => {
                "the tests to rerun no longer exist or do not match the filter; list_tests lists all"
                    .to_owned()
            }
            (Some(filter), None) => {
                format!("no test matches the filter {filter:?}; use list_tests to see all tests")
            }
            (None, None) => "no tests found".to_owned(),
        });
    }
    // A run of everything needs no uids.
    let is_all = arguments.filter.is_none() && arguments.rerun.is_none();
    let uid = |place: &TestRef| catalogue.with_description(*place, |test| test.uid.to_owned());
    let uids = (!is_all).then(|| selected.iter().map(uid).collect());
    let settings = match run_options(arguments)? {
        Some(options) => Arc::new(settings.for_run(&options)),
        None => Arc::clone(settings),
    };
    let selection = TestSelection { uids, filter: None };
    let request =
        RunRequest { run_id, selection: &selection, is_debugged: false, has_attachments_stream: false };
    let context = PlanContext { catalogue, settings: &settings, provenance: &provenance };
    let prepared =
        prepare_run(&request, &context).map_err(|error| format!("failed to {}", error_chain(&error)))?;
    Ok(PlannedRun { prepared, settings })
}

/// Returns the run options of a call, validated like the options of any other client.
fn run_options(arguments: &RunTestsArguments) -> Result<Option<RunOptions>, String> {
    let RunTestsArguments { repeat, timeout_ms, .. } = arguments;
    if repeat.is_none() && timeout_ms.is_none() {
        return Ok(None);
    }
    let timeout = timeout_ms.map(|limit| format!("{limit}ms"));
    let members = serde_json::json!({ "repeat": repeat, "timeout": timeout });
    serde_json::from_value(members).map(Some).map_err(|error| error.to_string())
}

/// Returns the tests that an earlier run left to rerun, and records that run as the origin.
fn tests_to_rerun(
    settings: &ResolvedSettings,
    word: &str,
    provenance: &mut Provenance,
) -> Result<HashSet<String>, String> {
    let Ok(selector) = word.parse::<RerunSelector>();
    let runs = heeler_run_store::list_runs(&settings.state_dir);
    let dir = settings.state_dir.join(DIR_NAME).display().to_string();
    let run =
        heeler_run_store::resolve_run(&runs, selector.run_word(), &dir).map_err(|error| error.to_string())?;
    let recorded = heeler_run_store::read_recorded_run(run)
        .map_err(|error| format!("failed to read the run: {}", error_chain(&error)))?;
    let left = heeler_run_store::rerun_set(&recorded);
    let wanted: HashSet<String> = selector.select(&left).into_iter().map(str::to_owned).collect();
    if wanted.is_empty() {
        let (failed, not_run) = (left.failed.len(), left.not_run.len());
        let run = &recorded.manifest.head.run;
        return Err(format!(
            "nothing to rerun with rerun = {word:?}: run {run} has {failed} failed tests and {not_run} tests without a \
             result (rerun = \"not-run\")"
        ));
    }
    provenance.origin.continues = Some(recorded.manifest.head.run);
    provenance.inherited_rerun_set = left;
    Ok(wanted)
}
