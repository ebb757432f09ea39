//! The command `heeler mutate`: lists or tests mutants.

use std::{
    io::{BufWriter, Write as _},
    time::Instant,
};

use heeler_config::{Config, ResolvedSettings};
use heeler_mutant_model::{MutantResult, MutantStatus, MutationCounts};
use heeler_mutate::SourceSelection;
use heeler_mutation::{
    FinishedMutants, FoundMutants, MutantRun, MutantSearch, MutateError, SearchedProject, TimeLimit,
    Unfinished, changed_lines,
};
use heeler_report::ReportError;

use super::{run_test_finder::RunTestFinder, user_observer::UserObserver};
use crate::cli::{
    arguments::MutateArguments,
    command_user::CommandUser,
    configuration::load_config,
    display::{
        DisplayKind, DisplayStream,
        mutants::{MutantFormat, render_mutants},
        mutation::{MutationDisplay, MutationEnding},
    },
    exit::{CliExitCode, CommandError},
    run_view::display_options,
};

/// Maximum number of unparsable sources named in warnings.
const SHOWN_SYNTAX_ERRORS: usize = 5;

pub(in crate::cli) async fn mutate(arguments: &MutateArguments) -> Result<CliExitCode, CommandError> {
    let config = load_config(arguments.general.config_file.as_deref())?;
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
    let stream = DisplayStream::StandardError;
    let options = display_options(&arguments.general, &settings, stream);
    let mut display = MutationDisplay::new(options, stream, Instant::now());
    if !has_mutants {
        for (path, line) in found.syntax_errors().into_iter().take(SHOWN_SYNTAX_ERRORS) {
            display.warn(&format!("failed to parse {path}:{line}: no mutants are created around it"));
        }
        found.end().await;
        display.end(&[], &MutationEnding::default());
        return Ok(CliExitCode::ZeroTests);
    }
    let began = Instant::now();
    let user = CommandUser::listen()?;
    let time_limit = arguments.time_limit.map(|limit| TimeLimit::new(limit, began));
    let mut observer = UserObserver { display, user, time_limit };
    let reports = arguments.report_files();
    let run = MutantRun { settings: &settings, finder: &RunTestFinder, reports: &reports, began };
    match run.test(found, &mut observer).await.map_err(CommandError::Mutate)? {
        Some(finished) => report(arguments, finished, observer.display, began).map_err(CommandError::Mutate),
        None => Ok(CliExitCode::Aborted),
    }
}

/// Finds the mutants selected by the arguments.
///
/// # Errors
/// No package is found, or none of its sources is selected.
///
/// Cancel safe: yes, because [`MutantSearch::run`] is.
async fn find_selected(
    arguments: &MutateArguments,
    config: &Config,
    settings: &ResolvedSettings,
) -> Result<FoundMutants, MutateError> {
    let directory = std::env::current_dir().map_err(MutateError::Directory)?;
    let selection = SourceSelection::read(&arguments.sources, &directory).map_err(MutateError::Selection)?;
    let selection = selection.with_operators(arguments.operators.level());
    let build = arguments.build.options();
    if !arguments.is_list {
        build.check_tests()?;
    }
    let project = SearchedProject::open(&build, &directory, config)?;
    if let Some(text) = project.left_out() {
        eprintln!("warning: {text}");
    }
    let search = MutantSearch::of_user(selection, &project, settings.run.jobs);
    let mut found = search.run(&project).await?;
    let changed = arguments.in_diff.as_deref().map(|reference| changed_lines(reference, found.root()));
    let changed = changed.transpose()?;
    found.retain(|mutant| {
        arguments.shard.is_none_or(|shard| shard.contains(mutant.id))
            && changed.as_ref().is_none_or(|changed| changed.touch(mutant))
    });
    Ok(found)
}

/// Prints the mutants to standard output. A closed pipe (`heeler mutate --list | head`) is not an error.
fn list(
    arguments: &MutateArguments,
    settings: &ResolvedSettings,
    found: &FoundMutants,
) -> Result<(), MutateError> {
    let options = display_options(&arguments.general, settings, DisplayStream::StandardOutput);
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

/// Writes the reports and the summary; returns the exit code.
///
/// # Errors
/// A report can't be written.
fn report(
    arguments: &MutateArguments,
    finished: FinishedMutants,
    mut display: MutationDisplay,
    began: Instant,
) -> Result<CliExitCode, MutateError> {
    let took = began.elapsed();
    let reported = finished.write_reports(&arguments.report_files())?;
    let ending = MutationEnding {
        took,
        kept: reported.kept,
        unfinished: reported.unfinished.map(Unfinished::summary),
        notes: reported.notes.clone(),
        files: reported.files.clone(),
    };
    display.end(&reported.results, &ending);
    if arguments.is_github || display.kind() == DisplayKind::GitHub {
        let mut text = reported.annotations().join("\n");
        if !text.is_empty() {
            text.push('\n');
        }
        // A closed pipe is not an error.
        let _closed = std::io::stdout().write_all(text.as_bytes());
    }
    Ok(exit_code(&reported.results, arguments.min_score, reported.unfinished.is_some()))
}

fn exit_code(results: &[MutantResult], min_score: Option<f64>, is_unfinished: bool) -> CliExitCode {
    let counts: MutationCounts = results.iter().map(|result| result.status).collect();
    let is_below = min_score.is_some_and(|least| counts.score().is_some_and(|score| score < least));
    if is_unfinished {
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

    use heeler_mutant_model::{ForeignMutant, ForeignSource, Language, Position};

    use super::*;

    fn result(status: MutantStatus) -> MutantResult {
        let position = Position { line: 1, column: 1 };
        let source =
            ForeignSource { path: "src/lib.rs".into(), language: Language::Rust, text: "true".into() };
        let found = ForeignMutant {
            start: position,
            end: position,
            mutator: "BooleanLiteral".to_owned(),
            replacement: "false".to_owned(),
            description: None,
        };
        MutantResult::new(Arc::new(source.mutants(vec![found]).unwrap().remove(0)), status, None)
    }

    #[test]
    fn exit_code_says_whether_the_score_is_reached() {
        use MutantStatus::{Ignored, Killed, Pending, Survived};
        for (statuses, least, is_unfinished, expected) in [
            (vec![Killed, Survived], None, false, CliExitCode::Success),
            (vec![Killed, Survived], Some(50.0), false, CliExitCode::Success),
            (vec![Killed, Survived], Some(50.1), false, CliExitCode::TestsFailed),
            (vec![Ignored], Some(100.0), false, CliExitCode::Success),
            (vec![Survived, Pending], Some(50.0), false, CliExitCode::Internal),
            (vec![Survived, Pending], Some(50.0), true, CliExitCode::Aborted),
        ] {
            let results: Vec<_> = statuses.iter().map(|status| result(*status)).collect();
            assert_eq!(exit_code(&results, least, is_unfinished), expected, "{statuses:?}");
        }
    }
}
