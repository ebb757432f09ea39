//! `heeler report`: prints the report of an earlier run, computed from its files alone, in the form of a run
//! that has just ended.

use std::{
    collections::{BTreeSet, HashMap},
    time::Instant,
};

use heeler_core::NotRunReason;
use heeler_protocol::mtp::LogLevel;

use super::{
    arguments::ReportArguments,
    display::{self, RunDisplay, RunHead, SummaryExtras},
    exit::{CliExitCode, CommandError},
    run_view::display_options,
};
use heeler_config::{ResolvedSettings, StatusLevel};
use heeler_report::{ReportRequest, RunSummary};
use heeler_run_store::{self, EarlierRun, RecordedRun};

/// Prints or writes the report of an earlier run.
pub(super) fn report(arguments: &ReportArguments) -> Result<CliExitCode, CommandError> {
    let config = super::load_config(arguments.general.config_file.as_deref())?;
    let settings =
        ResolvedSettings::resolve(&config, arguments.command_line()).map_err(CommandError::Profile)?;
    let all = heeler_run_store::list_runs(&settings.state_dir);
    let dir = settings.state_dir.join(heeler_run_store::DIR_NAME).display().to_string();
    let run = heeler_run_store::resolve_run(&all, &arguments.run, &dir).map_err(CommandError::ResolveRun)?;
    let story = heeler_run_store::read_recorded_run(run).map_err(CommandError::ReadRun)?;
    let summary = story.summarise();
    for loss in &story.losses {
        eprintln!("error: damaged: {loss}");
    }
    match arguments.report_files.requests() {
        Some(requests) => write_report_files(&story, &summary, &requests)?,
        None => print_report(arguments, &settings, run, &story, &summary),
    }
    Ok(if story.losses.is_empty() { CliExitCode::Success } else { CliExitCode::Setup })
}

/// Writes the requested reports, instead of printing one.
fn write_report_files(
    story: &RecordedRun,
    summary: &RunSummary,
    requests: &[ReportRequest],
) -> Result<(), CommandError> {
    for request in requests {
        let path = heeler_run_store::write_report(request, summary, &story.report_info())
            .map_err(CommandError::Report)?;
        eprintln!("heeler: written: {}", path.display());
    }
    Ok(())
}

fn print_report(
    arguments: &ReportArguments,
    settings: &ResolvedSettings,
    run: &EarlierRun,
    story: &RecordedRun,
    summary: &RunSummary,
) {
    let head = &story.manifest.head;
    let mut options = display_options(&arguments.general, settings);
    // A run that has ended needs no live view.
    if options.kind == display::DisplayKind::Live {
        options.kind = display::DisplayKind::Plain;
    }
    options.status_level = Some(settings.run.status_level.unwrap_or(StatusLevel::Fail));
    let now = Instant::now();
    let mut display = RunDisplay::new(options, Box::new(std::io::stdout()));
    let plan = &story.manifest.plan;
    let of_suites: BTreeSet<_> = plan.tests.iter().map(|test| plan.suite(test)).collect();
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
    display.apply_reports(&story.reports(), now);
    for loss in &story.losses {
        display.log(LogLevel::Error, loss);
    }
    let end = SummaryExtras { duration: story.duration(), ..SummaryExtras::default() };
    // A closed pipe (`heeler report latest | head`) is no error.
    let _closed = display.end(summary, &end);
}

/// Returns how the run ended, as text.
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
