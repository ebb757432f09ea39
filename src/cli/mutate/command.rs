//! The command: lists the mutants, or tests them.

use std::{
    io::{BufWriter, Write as _},
    time::Instant,
};

use heeler_config::ResolvedSettings;
use heeler_mutant::FoundMutant;
use heeler_report::ReportError;

use super::{
    build::WorkPlace,
    building::{BuildEnd, build_followed},
    engine::{EngineEnd, MutantEngine},
    error::MutateError,
    find::FoundProject,
    finished::FinishedMutants,
    found::{FoundMutants, find_selected},
    observer::MutationObserver,
    stryker::{FoundByStryker, StrykerEnd},
    unfinished::TimeLimit,
};
use crate::cli::{
    arguments::MutateArguments,
    display::{
        OutputStream,
        mutants::{MutantFormat, render_mutants},
        mutation::{MutationDisplay, MutationEnding},
    },
    exit::{CliExitCode, CommandError},
    run_view::display_options,
    signals::SignalListener,
};

/// Number of sources that are named because they can't be parsed.
const SHOWN_SYNTAX_ERRORS: usize = 5;

/// Lists or tests mutants.
pub(in crate::cli) async fn mutate(arguments: &MutateArguments) -> Result<CliExitCode, CommandError> {
    let config = crate::cli::configuration::load_config(arguments.general.config_file.as_deref())?;
    let settings =
        ResolvedSettings::resolve(&config, arguments.command_line()).map_err(CommandError::Profile)?;
    let found = find_selected(arguments, &config, &settings).await.map_err(CommandError::Mutate)?;
    let has_mutants = found.has_selected();
    if arguments.is_list {
        let listed = list(arguments, &settings, &found);
        found.end().await;
        listed.map_err(CommandError::Mutate)?;
        return Ok(if has_mutants { CliExitCode::Success } else { CliExitCode::ZeroTests });
    }
    let stream = OutputStream::StandardError;
    let options = display_options(&arguments.general, &settings, stream);
    let mut display = MutationDisplay::new(options, stream, Instant::now());
    if !has_mutants {
        for (path, line) in found.syntax_errors().into_iter().take(SHOWN_SYNTAX_ERRORS) {
            display.warn(&format!("{path}:{line} can't be parsed, and no mutants are found around it"));
        }
        found.end().await;
        display.end(&[], &MutationEnding::default());
        return Ok(CliExitCode::ZeroTests);
    }
    let run = MutationCommand { arguments, settings: &settings, began: Instant::now() };
    run.run(found, display).await
}

/// Prints the mutants to standard output. A closed pipe (`heeler mutate --list | head`) is no error.
fn list(
    arguments: &MutateArguments,
    settings: &ResolvedSettings,
    found: &FoundMutants,
) -> Result<(), MutateError> {
    let options = display_options(&arguments.general, settings, OutputStream::StandardOutput);
    let mut stdout = BufWriter::new(std::io::stdout());
    let written = match arguments.format {
        MutantFormat::Human => {
            let text = render_mutants(&found.untested(), options.colour);
            stdout.write_all(text.as_bytes()).map_err(ReportError::from)
        }
        MutantFormat::Json => found.write_json(&mut stdout),
    };
    match written.and_then(|()| stdout.flush().map_err(ReportError::from)) {
        Err(ReportError::Json(error)) if !error.is_io() => Err(MutateError::Json(error.into())),
        Ok(()) | Err(ReportError::Json(_) | ReportError::Io(_)) => Ok(()),
    }
}

/// A run of mutants.
struct MutationCommand<'a> {
    arguments: &'a MutateArguments,
    settings: &'a ResolvedSettings,
    began: Instant,
}

impl MutationCommand<'_> {
    async fn run(&self, found: FoundMutants, display: MutationDisplay) -> Result<CliExitCode, CommandError> {
        let mut finished = FinishedMutants::new(&found);
        let FoundMutants { built, stryker, .. } = found;
        let mut observer = MutationObserver::User {
            display: Box::new(display),
            signals: Box::new(SignalListener::listen().map_err(CommandError::Signals)?),
            time_limit: self.arguments.time_limit.map(|limit| TimeLimit::new(limit, self.began)),
        };
        let (tested, untested) = stryker.into_iter().partition::<Vec<_>, _>(FoundByStryker::has_selected);
        for found in untested {
            // It is not needed any more.
            found.end().await;
        }
        if let Some(project) = built.filter(FoundProject::has_selected) {
            match self.test_built(project, observer, &mut finished).await? {
                Some(following) => observer = following,
                None => return Ok(CliExitCode::Aborted),
            }
        }
        for found in tested {
            match self.test_with_stryker(found, observer, &mut finished).await? {
                Some(following) => observer = following,
                None => return Ok(CliExitCode::Aborted),
            }
        }
        let took = self.began.elapsed();
        let Some(mut display) = observer.into_display() else { return Ok(CliExitCode::Success) };
        finished.report(self.arguments, &mut display, took).map_err(CommandError::Mutate)
    }

    /// Tests mutants of sources that are built here; `None` if the user does not wait for the end.
    async fn test_built(
        &self,
        project: FoundProject,
        mut observer: MutationObserver,
        finished: &mut FinishedMutants,
    ) -> Result<Option<MutationObserver>, CommandError> {
        let state_dir =
            std::path::absolute(&self.settings.state_dir).unwrap_or_else(|_| self.settings.state_dir.clone());
        let mut place = WorkPlace::open(&state_dir, &project.mutated.root).map_err(CommandError::Mutate)?;
        place.leave_out_reports(self.arguments.report_files());
        finished.note_reports_in(place.reports());
        let sources = &project.mutated.sources;
        let found: Vec<FoundMutant> = sources.iter().flat_map(|source| source.mutants().cloned()).collect();
        let built = build_followed(project, place, state_dir, &mut observer).await;
        let (mut build, place) = match built.map_err(CommandError::Mutate)? {
            BuildEnd::Built(build, place) => (build, place),
            BuildEnd::Ended(why) => {
                finished.add_unbuilt(found, why);
                return Ok(Some(observer));
            }
            BuildEnd::Left => return Ok(None),
        };
        drop(found);
        observer.show_phase("Testing", "the original, and what its tests reach");
        let engine = MutantEngine { settings: self.settings, place: &place, setup: self.began.elapsed() };
        match engine.test(&mut build, observer).await.map_err(CommandError::Mutate)? {
            EngineEnd::Over(tested, observer) => {
                finished.add_built(&build, *tested);
                Ok(Some(observer))
            }
            EngineEnd::Left => Ok(None),
        }
    }

    /// Tests mutants that StrykerJS has found; `None` if the user does not wait for the end.
    async fn test_with_stryker(
        &self,
        found: FoundByStryker,
        mut observer: MutationObserver,
        finished: &mut FinishedMutants,
    ) -> Result<Option<MutationObserver>, CommandError> {
        if finished.is_unfinished() {
            finished.add_untested(&found.end().await);
            return Ok(Some(observer));
        }
        observer.show_phase("Testing", "JavaScript and TypeScript with StrykerJS");
        match found.test(observer).await {
            StrykerEnd::Over(tested, mut observer) => {
                if let Some(error) = &tested.error {
                    if !finished.has_verdicts() && !tested.has_verdicts() {
                        return Err(CommandError::Mutate(MutateError::stryker(error)));
                    }
                    observer.warn(&format!("failed to {}", error.text_with_output()));
                }
                finished.add_stryker(tested);
                Ok(Some(observer))
            }
            StrykerEnd::Left => Ok(None),
        }
    }
}
