//! The command: lists the mutants, or tests them.

use std::{io::Write as _, time::Instant};

use heeler_config::ResolvedSettings;
use heeler_mutant::{MutantResult, MutantStatus, MutationCounts};

use super::{
    build::{GuardedBuild, WorkPlace, build_guarded},
    engine::{EngineEnd, MutantEngine, TestedRun},
    error::MutateError,
    find::{FoundProject, find, json, texts_of},
    observer::MutationObserver,
    report_files::ReportedRun,
    testing::{MutantTesting, TestedMutants},
};
use crate::cli::{
    arguments::MutateArguments,
    cargo::BuildSupervision,
    display::{
        DisplayKind, OutputStream,
        mutants::{MutantFormat, render_mutants},
        mutation::{MutationDisplay, MutationEnding},
    },
    exit::{CliExitCode, CommandError},
    run_view::display_options,
    signals::SignalListener,
};

/// Lists or tests mutants.
pub(in crate::cli) async fn mutate(arguments: &MutateArguments) -> Result<CliExitCode, CommandError> {
    let config = crate::cli::load_config(arguments.general.config_file.as_deref())?;
    let settings =
        ResolvedSettings::resolve(&config, arguments.command_line()).map_err(CommandError::Profile)?;
    let found = find(arguments).map_err(CommandError::Mutate)?;
    let has_mutants = found.mutated.sources.iter().any(|source| !source.selected.is_empty());
    if arguments.is_list {
        list(arguments, &settings, &found).map_err(CommandError::Mutate)?;
        return Ok(if has_mutants { CliExitCode::Success } else { CliExitCode::ZeroTests });
    }
    let stream = OutputStream::StandardError;
    let options = display_options(&arguments.general, &settings, stream);
    let mut display = MutationDisplay::new(options, stream, Instant::now());
    if !has_mutants {
        display.end(&[], &MutationEnding::default());
        return Ok(CliExitCode::ZeroTests);
    }
    let run = MutationCommand { arguments, settings: &settings, began: Instant::now() };
    run.run(found, display).await
}

/// Prints the mutants to standard output.
fn list(
    arguments: &MutateArguments,
    settings: &ResolvedSettings,
    found: &FoundProject,
) -> Result<(), MutateError> {
    let options = display_options(&arguments.general, settings, OutputStream::StandardOutput);
    let text = match arguments.format {
        MutantFormat::Human => render_mutants(&found.mutated, options.colour),
        MutantFormat::Json => json(&found.mutated).map_err(MutateError::Json)?,
    };
    // A closed pipe (`heeler mutate --list | head`) is no error.
    let _closed = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// A run of mutants.
struct MutationCommand<'a> {
    arguments: &'a MutateArguments,
    settings: &'a ResolvedSettings,
    began: Instant,
}

impl MutationCommand<'_> {
    async fn run(
        &self,
        found: FoundProject,
        mut display: MutationDisplay,
    ) -> Result<CliExitCode, CommandError> {
        let state_dir =
            std::path::absolute(&self.settings.state_dir).unwrap_or_else(|_| self.settings.state_dir.clone());
        let place = WorkPlace::open(&state_dir, &found.mutated.root).map_err(CommandError::Mutate)?;
        // Until it has ended, the user's Ctrl-C ends this process, and the build with it.
        let build =
            build_guarded(found, &place, &state_dir, BuildSupervision::default(), &mut |label, words| {
                display.show_phase(label, words);
            });
        let mut build = build.map_err(CommandError::Mutate)?;
        let signals = SignalListener::listen().map_err(CommandError::Signals)?;
        display.show_phase("Testing", "the original, and what its tests reach");
        let observer = MutationObserver::User { display: Box::new(display), signals };
        let engine = MutantEngine { settings: self.settings, place: &place, setup: self.began.elapsed() };
        let ended = engine.test(&mut build, observer).await.map_err(CommandError::Mutate)?;
        let EngineEnd::Over(tested, MutationObserver::User { mut display, .. }) = ended else {
            return Ok(CliExitCode::Aborted);
        };
        self.finish(&build, *tested, &mut display).map_err(CommandError::Mutate)
    }

    /// Writes the reports and the summary.
    fn finish(
        &self,
        build: &GuardedBuild,
        ended: TestedRun,
        display: &mut MutationDisplay,
    ) -> Result<CliExitCode, MutateError> {
        let TestedRun { tested, tests, phases, is_cancelled } = ended;
        let results = MutantTesting::all_results(&build.guarded, &tested);
        let project = build.guarded.project();
        let sources = texts_of(project);
        let reported =
            ReportedRun { results: &results, sources: &sources, root: &project.root, tests: &tests, phases };
        let files = reported.write_files(self.arguments)?;
        let ending = MutationEnding {
            took: self.began.elapsed(),
            kept: tested.kept,
            is_cancelled,
            notes: notes(build, &tested, &results),
            files,
        };
        display.end(&results, &ending);
        if self.arguments.is_github || display.kind() == DisplayKind::GitHub {
            let mut text = reported.annotations().join("\n");
            if !text.is_empty() {
                text.push('\n');
            }
            // A closed pipe is no error.
            let _closed = std::io::stdout().write_all(text.as_bytes());
        }
        Ok(exit_code(&results, self.arguments.min_score, is_cancelled))
    }
}

/// Number of flaky tests that a note names.
const NAMED_TESTS: usize = 5;

/// Returns what the user should know of the verdicts.
fn notes(build: &GuardedBuild, tested: &TestedMutants, results: &[MutantResult]) -> Vec<String> {
    let mut notes = Vec::new();
    let is_uncovered = results.iter().any(|result| result.status == MutantStatus::NoCoverage);
    if build.has_doctests && is_uncovered {
        notes.push("documentation tests do not run: what only they reach counts as not covered".to_owned());
    }
    if !tested.flaky.is_empty() {
        let named: Vec<&str> = tested.flaky.iter().take(NAMED_TESTS).map(|uid| &**uid).collect();
        let more = tested.flaky.len() - named.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        notes.push(format!(
            "tests that also fail now and then without a mutant killed one only where they failed {} times in a row: {}{more}",
            heeler_mutate::CONFIRMED_FAILURES,
            named.join(", "),
        ));
    }
    if let Some(error) = &tested.cache_error {
        notes.push(format!("the next run begins anew: failed to write the verdicts: {error}"));
    }
    let undecided = results.iter().find(|result| result.status == MutantStatus::Pending);
    if let Some(reason) = undecided.and_then(|result| result.reason.as_deref()) {
        notes.push(format!("some mutants could not be tested: {reason}"));
    }
    notes
}

fn exit_code(results: &[MutantResult], min_score: Option<f64>, is_cancelled: bool) -> CliExitCode {
    let counts: MutationCounts = results.iter().map(|result| result.status).collect();
    let is_below = min_score.is_some_and(|least| counts.score().is_some_and(|score| score < least));
    if is_cancelled {
        CliExitCode::Aborted
    } else if counts.of(MutantStatus::Pending) > 0 {
        CliExitCode::Internal
    } else if is_below {
        CliExitCode::TestsFailed
    } else {
        CliExitCode::Success
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use heeler_mutant::{Language, Mutant, MutantId, Mutator, Position, Span};

    use super::*;

    fn result(status: MutantStatus) -> MutantResult {
        let position = Position { line: 1, column: 1 };
        let mutant = Mutant {
            id: MutantId(1),
            path: "src/lib.rs".into(),
            language: Language::Rust,
            span: Span { bytes: 0..1, start: position, end: position },
            mutator: Mutator::BOOLEAN_LITERAL,
            original: "true".into(),
            replacement: "false".to_owned(),
            item: "f".into(),
            description: None,
        };
        MutantResult::new(Arc::new(mutant), status, None)
    }

    #[test]
    fn exit_code_says_whether_the_score_is_reached() {
        use MutantStatus::{Ignored, Killed, Pending, Survived};
        for (statuses, least, is_cancelled, expected) in [
            (vec![Killed, Survived], None, false, CliExitCode::Success),
            (vec![Killed, Survived], Some(50.0), false, CliExitCode::Success),
            (vec![Killed, Survived], Some(50.1), false, CliExitCode::TestsFailed),
            (vec![Ignored], Some(100.0), false, CliExitCode::Success),
            (vec![Survived, Pending], Some(50.0), false, CliExitCode::Internal),
            (vec![Survived, Pending], Some(50.0), true, CliExitCode::Aborted),
        ] {
            let results: Vec<_> = statuses.iter().map(|status| result(*status)).collect();
            assert_eq!(exit_code(&results, least, is_cancelled), expected, "{statuses:?}");
        }
    }
}
