//! `heeler list`: discovers, selects and prints tests.

use std::{io::Write, sync::Arc, time::Instant};

use super::{
    arguments::ListArguments,
    display::{self, Display},
    exit::{CommandError, Exit},
    here::Here,
    run::{discover, is_broken, nothing_selected},
    select::{check, select},
    signals::Signals,
    sources,
    watch::{Watch, display_options},
};
use crate::{client::ClientOptions, config::Settings, runs::Provenance};

/// Prints the tests to standard output, and everything else to standard error.
pub(super) async fn list(arguments: &ListArguments) -> Result<Exit, CommandError> {
    let config = super::load_config(arguments.general.config_file.as_deref())?;
    let settings =
        Arc::new(Settings::resolve(&config, arguments.command_line()).map_err(CommandError::Profile)?);
    check(&settings)?;
    let mut options = display_options(&arguments.general, &settings);
    let (colour, root) = (options.colour, options.root.clone());
    options.kind = display::Kind::Plain;
    let mut display = Display::new(options, Box::new(std::io::stderr()));
    let mut say = |label: &str, words: &str| display.phase(label, words, Instant::now());
    let sources = sources::find(&config, &arguments.programs, &mut say).map_err(CommandError::Sources)?;
    if sources.is_empty() {
        return Err(CommandError::NothingToRun);
    }
    let signals = Signals::listen().map_err(CommandError::Signals)?;
    let (here, events) =
        Here::start(Arc::clone(&settings), (sources, Provenance::default()), ClientOptions::default())
            .await
            .map_err(CommandError::Client)?;
    let mut watch = Watch::new(events, display, signals);
    let Some(Some(nodes)) = discover(&here, &mut watch).await? else { return Ok(Exit::Aborted) };
    here.end(watch.into_events()).await.map_err(CommandError::Client)?;
    let (broken, nodes): (Vec<_>, Vec<_>) = nodes.into_iter().partition(is_broken);
    let found = nodes.len();
    let selection = select(nodes, &settings);
    let text = display::list::list(&selection.chosen, arguments.format, colour, &root);
    // A closed pipe (`heeler list | head`) is no error.
    let _closed = std::io::stdout().write_all(text.as_bytes());
    if !broken.is_empty() {
        return Ok(Exit::Setup);
    }
    if selection.chosen.is_empty() {
        eprintln!("heeler: {}", nothing_selected(found));
        return Ok(Exit::ZeroTests);
    }
    Ok(Exit::Success)
}
