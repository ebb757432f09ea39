//! `heeler list`: discovers, selects and prints tests.

use std::{io::Write, sync::Arc, time::Instant};

use super::{
    arguments::ListArguments,
    command_user::CommandUser,
    display::{self, DisplayStream, RunDisplay, list::TestList},
    exit::{CliExitCode, CommandError},
    local_client::{LocalClient, SchedulerUse},
    run::describe_empty_selection,
    run_output::RunOutput,
    run_view::{Answer, RunView, display_options},
    select::{check_filters, is_unlisted_program, select},
    sources::{DebugData, NamedSources, find_sources},
    suites::with_chosen_suites,
};
use heeler_config::ResolvedSettings;
use heeler_run_store::Provenance;
use heeler_server::{
    discovery::{Catalogue, TestRef},
    pool::WorkerStdout,
};

/// Prints the tests to standard output, and everything else to standard error.
pub(super) async fn list(arguments: &ListArguments) -> Result<CliExitCode, CommandError> {
    let config = super::configuration::load_config(arguments.general.config_file.as_deref())?;
    let settings = Arc::new(
        ResolvedSettings::resolve(&config, arguments.command_line()).map_err(CommandError::Profile)?,
    );
    let config = config.with_state_dir(&settings.state_dir);
    let config = with_chosen_suites(config, &arguments.programs, &settings).map_err(CommandError::Suites)?;
    check_filters(&settings)?;
    let mut options = display_options(&arguments.general, &settings, DisplayStream::StandardOutput);
    let (colour, root) = (options.colour, options.root.clone());
    options.kind = display::DisplayKind::Plain;
    let mut display = RunDisplay::new(options, DisplayStream::StandardError.writer());
    // Find the test programs.
    let mut say = |label: &str, words: &str| display.show_phase(label, words, Instant::now());
    let named = NamedSources::of_existing(&arguments.programs).map_err(CommandError::Sources)?;
    named.check_framework().map_err(CommandError::Sources)?;
    let sources =
        find_sources(&config, &named, DebugData::Omitted, &mut say).map_err(CommandError::Sources)?;
    if sources.is_empty() {
        return Err(CommandError::NothingToRun);
    }
    // List their tests.
    let user = CommandUser::listen()?;
    let client = LocalClient::start(
        Arc::clone(&settings),
        sources,
        Provenance::default(),
        WorkerStdout::StandardOutput,
        SchedulerUse::List,
    );
    let client = client.await.map_err(CommandError::Scheduler)?;
    let mut view = RunView::new(client, RunOutput::new(display, None, user));
    let Answer::Ended(catalogue) = view.discover().await? else { return Ok(CliExitCode::Aborted) };
    view.shut_down().await;
    // Select tests and print them.
    let (broken, tests): (Vec<_>, Vec<_>) = catalogue.all().partition(is_unlisted_program);
    let found = tests.len();
    let list = TestList::new(arguments.format, colour, &root);
    let is_any_selected = print_selected(&catalogue, tests, &settings, list)?;
    if !broken.is_empty() {
        return Ok(CliExitCode::Setup);
    }
    Ok(exit_code_of_list(is_any_selected, found, &settings))
}

/// Prints the tests that the settings select. Returns whether there are any.
///
/// # Errors
/// The history for the split can't be read, or the split's digest differs from the requested one.
pub(super) fn print_selected(
    catalogue: &Catalogue,
    tests: Vec<TestRef>,
    settings: &ResolvedSettings,
    mut list: TestList<'_>,
) -> Result<bool, CommandError> {
    let selection = select(catalogue, tests, settings)?;
    if let Some(warning) = selection.split_warning {
        eprintln!("heeler: {warning}");
    }
    for test in &selection.chosen {
        catalogue.with_description(*test, |test| list.add(test));
    }
    // A closed pipe (`heeler list | head`) is not an error.
    let _closed = std::io::stdout().write_all(list.render().as_bytes());
    Ok(!selection.chosen.is_empty())
}

/// Returns the exit code for a list of `found` tests. Prints why no test is selected, if none is.
pub(super) fn exit_code_of_list(
    is_any_selected: bool,
    found: usize,
    settings: &ResolvedSettings,
) -> CliExitCode {
    if is_any_selected {
        return CliExitCode::Success;
    }
    eprintln!("heeler: {}", describe_empty_selection(found, settings));
    CliExitCode::ZeroTests
}
