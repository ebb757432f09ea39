//! `heeler runs`: lists earlier runs and their states, and prunes old runs according to `keep-runs`.

use std::io::Write;

use super::{
    arguments::RunsArguments,
    display::{self, DisplayStream, runs::RunsTableContext},
    exit::{CliExitCode, CommandError},
    run_view::display_options,
};
use heeler_config::ResolvedSettings;

/// Prints earlier runs to standard output.
pub(super) fn list_runs(arguments: &RunsArguments) -> Result<CliExitCode, CommandError> {
    let config = super::configuration::load_config(arguments.general.config_file.as_deref())?;
    let settings = ResolvedSettings::resolve(&config, arguments.general.command_line())
        .map_err(CommandError::Profile)?;
    if arguments.is_pruning {
        prune_runs(&settings);
    }
    let all = heeler_run_store::list_runs(&settings.state_dir);
    let options = display_options(&arguments.general, &settings, DisplayStream::StandardOutput);
    let surroundings = RunsTableContext {
        colour: options.colour,
        state_dir: settings.state_dir.display().to_string(),
        keep: settings.run.keep_runs.get(),
    };
    let text = display::runs::render_runs(&all, arguments.format, &surroundings);
    // A closed pipe (`heeler runs | head`) is not an error.
    let _closed = std::io::stdout().write_all(text.as_bytes());
    Ok(CliExitCode::Success)
}

fn prune_runs(settings: &ResolvedSettings) {
    let removed = heeler_run_store::prune_runs(
        &settings.state_dir.join(heeler_run_store::DIR_NAME),
        settings.run.keep_runs.get() as usize,
    );
    for name in &removed {
        eprintln!("heeler: removed {name}");
    }
    if removed.is_empty() {
        let keep = settings.run.keep_runs;
        eprintln!("heeler: nothing to remove: the newest {keep} completed runs are kept (keep-runs)");
    }
}
