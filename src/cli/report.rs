//! `heeler report`: prints the report of an earlier run, computed from its files alone, in the form of a run
//! that has just ended.

use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
    time::Instant,
};

use wire::{journal::StopReason, manifest::Head, mtp::LogLevel};

use super::{
    arguments::ReportArguments,
    display::{self, Display, End, RunHead},
    exit::{CommandError, Exit},
    run::write_junit,
    watch::display_options,
};
use crate::{
    config::{Settings, StatusLevel},
    report::{Summary, junit},
    runs::{self, EarlierRun, Story},
};

/// Prints or writes the report of an earlier run.
pub(super) fn report(arguments: &ReportArguments) -> Result<Exit, CommandError> {
    let config = super::load_config(arguments.general.config_file.as_deref())?;
    let settings = Settings::resolve(&config, arguments.command_line()).map_err(CommandError::Profile)?;
    let all = runs::list(&settings.state_dir);
    let dir = settings.state_dir.join(runs::DIR_NAME).display().to_string();
    let run = runs::choose(&all, &arguments.run, &dir).map_err(CommandError::Choose)?;
    let story = runs::read(run).map_err(CommandError::Story)?;
    let summary = summary(&story);
    for loss in &story.losses {
        eprintln!("error: damaged: {loss}");
    }
    match &arguments.junit {
        Some(path) => write(&story, &summary, path)?,
        None => show(arguments, &settings, (run, &story), &summary),
    }
    Ok(if story.losses.is_empty() { Exit::Success } else { Exit::Setup })
}

/// Returns the summary of a recorded run, equal to the one that its own command line computed.
pub(super) fn summary(story: &Story) -> Summary {
    // Programs that can't be listed are reported beside the tests and not counted as tests.
    let is_test = |test: &&wire::manifest::PlannedTest| test.uid != test.suite;
    let selected = story.manifest.plan.tests.iter().filter(is_test).count();
    let mut summary = Summary::new(Some(selected));
    summary.apply(&story.changes);
    if let Some(end) = &story.end {
        summary.add_leaks(&end.result.leaks);
        summary.add_shared(&end.result.largest);
    }
    summary
}

fn write(story: &Story, summary: &Summary, path: &Path) -> Result<(), CommandError> {
    let Head { run, began_utc, profile, .. } = &story.manifest.head;
    let head = junit::Head { name: profile, run, start_utc: began_utc, duration: story.duration() };
    write_junit(summary, &head, path)?;
    eprintln!("heeler: written: {}", path.display());
    Ok(())
}

fn show(
    arguments: &ReportArguments,
    settings: &Settings,
    (run, story): (&EarlierRun, &Story),
    summary: &Summary,
) {
    let head = &story.manifest.head;
    let mut options = display_options(&arguments.general, settings);
    // A run that has ended needs no live view.
    if options.kind == display::Kind::Live {
        options.kind = display::Kind::Plain;
    }
    options.status_level = Some(settings.run.status_level.unwrap_or(StatusLevel::Fail));
    let now = Instant::now();
    let mut display = Display::new(options, Box::new(std::io::stdout()));
    let of_suites: BTreeSet<_> = story.manifest.plan.tests.iter().map(|test| test.suite.as_str()).collect();
    display.phase("Report", &format!("of run {}, which began at {}", run.name, head.began_utc), now);
    display.begin(
        &RunHead {
            run: head.run.clone(),
            tests: head.tests,
            filtered: 0,
            programs: of_suites.len(),
            workers: 0,
            expected: HashMap::new(),
            notes: vec![ending(story)],
        },
        now,
    );
    display.changes(&story.changes, now);
    for loss in &story.losses {
        display.log(LogLevel::Error, loss);
    }
    let end = End { duration: story.duration(), ..End::default() };
    // A closed pipe (`heeler report latest | head`) is no error.
    let _closed = display.end(summary, &end);
}

/// Returns how the run ended, as text.
fn ending(story: &Story) -> String {
    let Some(end) = &story.end else { return "interrupted before its end".to_owned() };
    match end.stopped_by {
        None => "run to its end".to_owned(),
        Some(StopReason::Cancelled) => "cancelled".to_owned(),
        Some(StopReason::TooManyFailures) => "stopped at its limit of failures".to_owned(),
        Some(StopReason::TimeIsUp) => "stopped at its limit of time".to_owned(),
        Some(StopReason::Unknown) => "stopped early".to_owned(),
    }
}
