//! `heeler connect list`, and the case list that a run selects from. The judge runs once, and every case it
//! sends is immediately answered with an error.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use heeler_config::ResolvedSettings;
use heeler_protocol::{
    connect::{JudgeFinding, JudgeReport},
    control::ListedTest,
};
use heeler_server::{
    connect::{ListCasesError, case_catalogue, list_cases},
    discovery::{Catalogue, ProgramSource, TestRef},
};
use heeler_transport::local::LocalListener;

use super::{
    case_patterns::matching_cases,
    judge::{Judge, JudgeCommand, JudgeError, JudgeEvent, JudgedCases},
    judge_command, program_of,
};
use crate::cli::{
    arguments::{ConnectListArguments, JudgeArguments},
    configuration::load_config,
    display::{DisplayStream, list::TestList},
    exit::{CliExitCode, CommandError},
    list::{exit_code_of_list, print_selected},
    run_view::display_options,
    select::check_filters,
    signals::SignalListener,
};

/// Time limit for the judge to send all cases. Sending about 5,000 takes one second.
const LISTING_LIMIT: Duration = Duration::from_secs(120);

pub(super) struct CaseList {
    pub(super) catalogue: Catalogue,
    /// Cases known to fail, by the user's patterns.
    pub(super) known_failing: BTreeSet<String>,
    /// Cases known to be flaky, by the user's patterns.
    pub(super) known_flaky: BTreeSet<String>,
    /// Cases that `--skip` excludes.
    left_out: BTreeSet<String>,
}

/// Prints the cases to standard output, and everything else to standard error.
pub(super) async fn list(arguments: &ConnectListArguments) -> Result<CliExitCode, CommandError> {
    let config = load_config(arguments.client.general.config_file.as_deref())?;
    let settings =
        ResolvedSettings::resolve(&config, arguments.command_line()).map_err(CommandError::Profile)?;
    check_filters(&settings)?;
    let judge = judge_command(&arguments.judge)?;
    let source = program_of(&arguments.client)?;
    let options = display_options(&arguments.client.general, &settings, DisplayStream::StandardOutput);
    let mut signals = SignalListener::listen().map_err(CommandError::Signals)?;
    let listed = list_selectable(&arguments.judge, &judge, source, &mut signals).await?;
    let Some(cases) = listed else { return Ok(CliExitCode::Aborted) };
    let tests = cases.selectable();
    let found = tests.len();
    let list = TestList::new(arguments.format, options.colour, &options.root);
    let is_any_selected = print_selected(&cases.catalogue, tests, &settings, list)?;
    Ok(exit_code_of_list(is_any_selected, found, &settings))
}

/// Lists the judge's cases and applies the user's patterns; `None` when the user ends the command.
///
/// # Errors
/// The judge can't list its cases.
///
/// Cancel safe: no, because the judge would then run until this process ends.
pub(super) async fn list_selectable(
    arguments: &JudgeArguments,
    judge: &JudgeCommand,
    client: ProgramSource,
    signals: &mut SignalListener,
) -> Result<Option<CaseList>, CommandError> {
    let Some(mut cases) = list_judge(judge, client, signals).await? else { return Ok(None) };
    cases.apply_patterns(arguments).map_err(CommandError::Judge)?;
    Ok(Some(cases))
}

impl CaseList {
    fn new(catalogue: Catalogue, known_failing: BTreeSet<String>) -> Self {
        Self { catalogue, known_failing, known_flaky: BTreeSet::new(), left_out: BTreeSet::new() }
    }

    /// Returns the cases that are not left out.
    pub(super) fn selectable(&self) -> Vec<TestRef> {
        let is_wanted =
            |place: &_| self.catalogue.test(*place).is_none_or(|test| !self.left_out.contains(test.name()));
        self.catalogue.all().filter(is_wanted).collect()
    }

    /// Applies the patterns that are not passed to the judge: `--known-flaky` and `--skip`.
    fn apply_patterns(&mut self, arguments: &JudgeArguments) -> Result<(), JudgeError> {
        let tests = self.catalogue.all().filter_map(|place| self.catalogue.test(place));
        let names: Vec<&str> = tests.map(|test| test.name()).collect();
        let matched = |option, patterns: &[String]| {
            matching_cases(patterns, &names).map_err(|source| JudgeError::Patterns { option, source })
        };
        let known_flaky = matched("--known-flaky", &arguments.known_flaky)?;
        let left_out = matched("--skip", &arguments.skip)?;
        if let Some(case) = known_flaky.intersection(&self.known_failing).next() {
            return Err(JudgeError::Ambiguous { case: case.clone() });
        }
        (self.known_flaky, self.left_out) = (known_flaky, left_out);
        Ok(())
    }
}

/// Runs the judge once to collect its cases; `None` when the user ends the command.
///
/// # Errors
/// The judge refuses its configuration or patterns, ends early, or takes too long.
///
/// Cancel safe: no, because the judge would then run until this process ends.
async fn list_judge(
    command: &JudgeCommand,
    client: ProgramSource,
    signals: &mut SignalListener,
) -> Result<Option<CaseList>, CommandError> {
    let (mut judge, mut listener) =
        Judge::start(command, &JudgedCases::default()).map_err(CommandError::Judge)?;
    let asked = tokio::select! {
        asked = ask_judge(&mut judge, &mut listener) => asked,
        () = tokio::time::sleep(LISTING_LIMIT) => {
            Err(CommandError::Judge(JudgeError::Listing { limit: LISTING_LIMIT }))
        }
        () = signals.end_requested() => {
            judge.end().await;
            return Ok(None);
        }
    };
    let cases = match asked {
        Ok(cases) => cases,
        Err(error) => {
            judge.end().await;
            return Err(error);
        }
    };
    let report = judge.report(cases.is_some()).await.map_err(CommandError::Judge)?;
    let cases = cases.unwrap_or_default();
    check_listing(&cases, &report).map_err(CommandError::Judge)?;
    let is_known = |(name, finding): (String, JudgeFinding)| {
        matches!(finding, JudgeFinding::FailedAsExpected(_)).then_some(name)
    };
    let known_failing = report.findings.into_iter().filter_map(is_known).collect();
    let catalogue = case_catalogue(vec![client], cases);
    Ok(Some(CaseList::new(catalogue, known_failing)))
}

/// Answers the judge's requests until the judge exits; `None` if its client never connected.
async fn ask_judge(
    judge: &mut Judge,
    listener: &mut LocalListener,
) -> Result<Option<Vec<ListedTest>>, CommandError> {
    let listing = async {
        loop {
            match listener.accept().await {
                Ok(stream) => return list_cases(stream).await,
                Err(error) => {
                    tracing::warn!(error = heeler_core::error_chain(&error), "failed to accept the client")
                }
            }
        }
    };
    let mut listing = std::pin::pin!(listing);
    let mut listed: Option<Result<Vec<ListedTest>, ListCasesError>> = None;
    loop {
        tokio::select! {
            cases = &mut listing, if listed.is_none() => listed = Some(cases),
            event = judge.next_event() => {
                if let JudgeEvent::Exited = event.map_err(CommandError::Judge)? {
                    return listed.transpose().map_err(CommandError::ListCases);
                }
            }
        }
    }
}

/// Checks that the judge reports exactly the cases it has sent.
fn check_listing(cases: &[ListedTest], report: &JudgeReport) -> Result<(), JudgeError> {
    let asked: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    let reported = report.findings.len() + report.passed + report.not_run;
    match report.findings.keys().find(|name| !asked.contains(name.as_str())) {
        Some(name) => {
            Err(JudgeError::Contradiction(format!("the judge reports {name:?} but never requested it")))
        }
        None if asked.len() != cases.len() || reported != cases.len() => Err(JudgeError::Contradiction(
            format!("the judge requested {} cases but reports {reported}", cases.len()),
        )),
        None => Ok(()),
    }
}

/// Maps the name of each case to its uid.
pub(super) fn uids_of(catalogue: &Catalogue) -> HashMap<String, String> {
    let tests = catalogue.all().filter_map(|place| catalogue.test(place));
    tests.map(|test| (test.name().to_owned(), test.uid().to_owned())).collect()
}
