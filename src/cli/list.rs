//! `heeler list`: discovers, selects and prints tests.

use std::{io::Write, sync::Arc, time::Instant};

use super::{
    arguments::ListArguments,
    display::{self, DisplayStream, RunDisplay},
    exit::{CliExitCode, CommandError},
    in_process_server::{InProcessServer, ServerUse},
    run::{describe_empty_selection, discover},
    run_output::RunOutput,
    run_view::{RunView, display_options},
    select::{check_filters, is_unlisted_program, select},
    signals::SignalListener,
    sources::{DebugData, NamedSources, check_programs_exist, find_sources},
};
use heeler_client::ClientOptions;
use heeler_config::ResolvedSettings;
use heeler_run_store::Provenance;
use heeler_server::pool::WorkerStdout;

/// Prints the tests to standard output, and everything else to standard error.
pub(super) async fn list(arguments: &ListArguments) -> Result<CliExitCode, CommandError> {
    let config = super::configuration::load_config(arguments.general.config_file.as_deref())?;
    let settings = Arc::new(
        ResolvedSettings::resolve(&config, arguments.command_line()).map_err(CommandError::Profile)?,
    );
    let config = config.with_state_dir(&settings.state_dir);
    check_filters(&settings)?;
    let mut options = display_options(&arguments.general, &settings, DisplayStream::StandardOutput);
    let (colour, root) = (options.colour, options.root.clone());
    options.kind = display::DisplayKind::Plain;
    let mut display = RunDisplay::new(options, DisplayStream::StandardError.writer());
    let mut say = |label: &str, words: &str| display.show_phase(label, words, Instant::now());
    check_programs_exist(&arguments.programs).map_err(CommandError::Sources)?;
    let named = NamedSources::from_arguments(&arguments.programs);
    let sources =
        find_sources(&config, &named, DebugData::Omitted, &mut say).map_err(CommandError::Sources)?;
    if sources.is_empty() {
        return Err(CommandError::NothingToRun);
    }
    let signals = SignalListener::listen().map_err(CommandError::Signals)?;
    let (here, events) = InProcessServer::start(
        Arc::clone(&settings),
        sources,
        Provenance::default(),
        ClientOptions::default(),
        WorkerStdout::StandardOutput,
        ServerUse::List,
    )
    .await
    .map_err(CommandError::Client)?;
    let mut watch = RunView::new(events, RunOutput::new(display, None, signals));
    let Some(Some(nodes)) = discover(&here, &mut watch).await? else { return Ok(CliExitCode::Aborted) };
    here.shut_down(watch.into_events()).await.map_err(CommandError::Client)?;
    let (broken, nodes): (Vec<_>, Vec<_>) = nodes.into_iter().partition(is_unlisted_program);
    let found = nodes.len();
    let selection = select(nodes, &settings)?;
    if let Some(warning) = selection.split_warning {
        eprintln!("heeler: {warning}");
    }
    let text = display::list::render_list(&selection.chosen, arguments.format, colour, &root);
    // A closed pipe (`heeler list | head`) is no error.
    let _closed = std::io::stdout().write_all(text.as_bytes());
    if !broken.is_empty() {
        return Ok(CliExitCode::Setup);
    }
    if selection.chosen.is_empty() {
        eprintln!("heeler: {}", describe_empty_selection(found));
        return Ok(CliExitCode::ZeroTests);
    }
    Ok(CliExitCode::Success)
}
