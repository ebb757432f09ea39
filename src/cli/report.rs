//! `heeler report`: prints the report of an earlier run, computed from its files alone, in the format of a
//! run that has just ended.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    path::PathBuf,
    time::Instant,
};

use heeler_core::NotRunReason;
use heeler_protocol::mtp::LogLevel;

use super::{
    arguments::ReportArguments,
    display::{self, DisplayStream, RunDisplay, RunHead, SummaryExtras},
    exit::{CliExitCode, CommandError},
    report_job::passed_outputs,
    run_events::RunEventPrinter,
    run_view::display_options,
};
use heeler_config::{ResolvedSettings, StatusLevel};
use heeler_report::{ReportContent, ReportRequest, ReportRunInfo, RunExplanation, TestReport, explain_run};
use heeler_run_store::{
    self, EarlierRun, RecordedDetails, RecordedRun, ShardRun, check_shards, measured_run, summarise_shards,
};

/// Prints or writes the report of an earlier run.
pub(super) fn report(arguments: &ReportArguments) -> Result<CliExitCode, CommandError> {
    let mut events = RunEventPrinter::of(arguments.format);
    let result = report_run(arguments, events.as_mut());
    if let Some(events) = events {
        events.end(&result);
    }
    result
}

fn report_run(
    arguments: &ReportArguments,
    events: Option<&mut RunEventPrinter>,
) -> Result<CliExitCode, CommandError> {
    let config = super::configuration::load_config(arguments.general.config_file.as_deref())?;
    let settings =
        ResolvedSettings::resolve(&config, arguments.command_line()).map_err(CommandError::Profile)?;
    if !arguments.shards.is_empty() {
        return report_shards(arguments, &settings, events);
    }
    let all = heeler_run_store::list_runs(&settings.state_dir);
    let dir = settings.state_dir.join(heeler_run_store::DIR_NAME).display().to_string();
    let run = heeler_run_store::resolve_run(&all, &arguments.run, &dir).map_err(CommandError::ResolveRun)?;
    let story = heeler_run_store::read_recorded_run(run).map_err(CommandError::ReadRun)?;
    let summary = story.summarise_with(passed_outputs(&settings));
    for loss in &story.losses {
        eprintln!("error: damaged: {loss}");
    }
    let details = RecordedDetails::new([&story]);
    let content = ReportContent { summary: &summary, info: story.report_info(), details: &details };
    match (events, arguments.report_files.requests()) {
        (Some(events), requests) => {
            let head = RunHead { run: story.manifest.head.run.clone(), ..RunHead::default() };
            print_events(events, &head, story.latest_reports(), &content);
            write_report_files(&content, &requests.unwrap_or_default())?;
        }
        (None, Some(requests)) => write_report_files(&content, &requests)?,
        (None, None) => print_report(arguments, &settings, run, &story, &content),
    }
    Ok(if story.losses.is_empty() { CliExitCode::Success } else { CliExitCode::Setup })
}

/// Prints the event stream of an ended run.
fn print_events(
    events: &mut RunEventPrinter,
    head: &RunHead,
    reports: impl Iterator<Item = TestReport>,
    content: &ReportContent<'_>,
) {
    events.begin(&RunHead { tests: content.summary.selected(), ..head.clone() });
    // Print one event for a test that is in several partitions.
    let mut printed = HashSet::new();
    for report in reports.filter(|report| printed.insert(report.uid.clone())) {
        events.print_end(&report, false);
    }
    events.set_totals(content.summary, content.info.duration);
}

fn write_report_files(content: &ReportContent<'_>, requests: &[ReportRequest]) -> Result<(), CommandError> {
    for request in requests {
        let path = heeler_run_store::write_report(request, content).map_err(CommandError::Report)?;
        eprintln!("heeler: wrote {}", path.display());
    }
    Ok(())
}

/// Prints or writes the combined report of all partitions, and checks that the partitions are disjoint and
/// complete.
fn report_shards(
    arguments: &ReportArguments,
    settings: &ResolvedSettings,
    events: Option<&mut RunEventPrinter>,
) -> Result<CliExitCode, CommandError> {
    let read = |dir: &PathBuf| ShardRun::read(dir).map_err(CommandError::ReadRun);
    let shards = arguments.shards.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let summary = summarise_shards(&shards);
    let mut problems = check_shards(&shards);
    for shard in &shards {
        problems.extend(shard.run.losses.iter().map(|loss| format!("damaged: {loss}")));
    }
    let first = &shards[0].run;
    let duration = shards.iter().map(|shard| shard.run.duration()).max().unwrap_or_default();
    let info = ReportRunInfo { duration, ..first.report_info() };
    let details = RecordedDetails::new(shards.iter().map(|shard| &shard.run));
    let content = ReportContent { summary: &summary, info, details: &details };
    match (events, arguments.report_files.requests()) {
        (Some(events), requests) => {
            let head = RunHead { run: first.manifest.head.run.clone(), ..RunHead::default() };
            let reports = shards.iter().flat_map(|shard| shard.run.latest_reports());
            print_events(events, &head, reports, &content);
            write_report_files(&content, &requests.unwrap_or_default())?;
        }
        (None, Some(requests)) => write_report_files(&content, &requests)?,
        (None, None) => print_shards(arguments, settings, &shards, &content),
    }
    for problem in &problems {
        eprintln!("error: {problem}");
    }
    Ok(if problems.is_empty() { CliExitCode::Success } else { CliExitCode::Setup })
}

fn print_shards(
    arguments: &ReportArguments,
    settings: &ResolvedSettings,
    shards: &[ShardRun],
    content: &ReportContent<'_>,
) {
    let now = Instant::now();
    let mut display = report_display(arguments, settings);
    let suites: BTreeSet<_> = shards
        .iter()
        .flat_map(|shard| &shard.run.manifest.plan.programs)
        .map(|program| program.suite.as_str())
        .collect();
    display.show_phase("Report", &format!("of {} partitions", shards.len()), now);
    let head = RunHead {
        run: shards[0].run.manifest.head.run.clone(),
        tests: shards.iter().map(|shard| shard.run.manifest.head.tests).sum(),
        filtered: 0,
        programs: suites.len(),
        workers: 0,
        expected: HashMap::new(),
        notes: shards
            .iter()
            .map(|shard| describe_run_end(&shard.run))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
    };
    display.begin(&head, now);
    for shard in shards {
        display.show_results(shard.run.reports(), now);
    }
    end_display(display, content, None);
}

/// Returns the display of ended runs, which need no live view.
fn report_display(arguments: &ReportArguments, settings: &ResolvedSettings) -> RunDisplay {
    let mut options = display_options(&arguments.general, settings, DisplayStream::StandardOutput);
    if options.kind == display::DisplayKind::Live {
        options.kind = display::DisplayKind::Plain;
    }
    options.status_level = Some(settings.run.status_level.unwrap_or(StatusLevel::Fail));
    RunDisplay::new(options, DisplayStream::StandardOutput.writer())
}

fn print_report(
    arguments: &ReportArguments,
    settings: &ResolvedSettings,
    run: &EarlierRun,
    story: &RecordedRun,
    content: &ReportContent<'_>,
) {
    let head = &story.manifest.head;
    let now = Instant::now();
    let mut display = report_display(arguments, settings);
    let plan = &story.manifest.plan;
    let of_suites: BTreeSet<_> = plan.selected_tests().map(|(_, test)| plan.suite(test)).collect();
    display.show_phase("Report", &format!("of run {}, started at {}", run.name, head.began_utc), now);
    display.begin(
        &RunHead {
            run: head.run.clone(),
            tests: head.tests,
            filtered: 0,
            programs: of_suites.len(),
            workers: 0,
            expected: HashMap::new(),
            notes: vec![describe_run_end(story)],
        },
        now,
    );
    display.show_results(story.reports(), now);
    for loss in &story.losses {
        display.log(LogLevel::Error, loss);
    }
    let explanation = arguments.is_explained.then(|| explain_run(&measured_run(story)));
    end_display(display, content, explanation);
}

fn end_display(mut display: RunDisplay, content: &ReportContent<'_>, explanation: Option<RunExplanation>) {
    display.print_final_outputs(content, Instant::now());
    let end = SummaryExtras { duration: content.info.duration, explanation, ..SummaryExtras::default() };
    // A closed pipe (`heeler report latest | head`) is not an error.
    let _closed = display.end(content.summary, &end);
}

fn describe_run_end(story: &RecordedRun) -> String {
    let Some(end) = &story.end else { return "interrupted".to_owned() };
    match end.stopped_by {
        None => "completed".to_owned(),
        Some(NotRunReason::Cancelled) => "cancelled".to_owned(),
        Some(NotRunReason::TooManyFailures) => "stopped at its failure limit".to_owned(),
        Some(NotRunReason::TimeLimitReached) => "stopped at its time limit".to_owned(),
        Some(_) => "stopped early".to_owned(),
    }
}
