//! `heeler connect`: clients under test of Connect's conformance suite.

mod relay;

use std::path::PathBuf;

use heeler_config::{CommandLineSettings, JobCount, ResolvedSettings, RunLayer, TestLayer, TimeLimit};
use heeler_protocol::control::{OsText, TestProgram};
use heeler_server::{connect::FRAMEWORK, discovery::ProgramSource};

use super::{
    arguments::{ClientArguments, ConnectArguments, ConnectCommand},
    exit::{CliExitCode, CommandError},
    load_config,
    program_search::find_program,
};

/// Number of processes of the client unless the user names another: most cases wait for a server or for a
/// timeout, and more processes than this save nothing.
const DEFAULT_JOBS: usize = 16;
/// Time limit of a case unless the user names another: the suite ends the whole run when it has read nothing
/// for 20 s.
const DEFAULT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(15);

pub(super) async fn connect(arguments: &ConnectArguments) -> Result<CliExitCode, CommandError> {
    match &arguments.command {
        ConnectCommand::Relay(client) => relay::relay(client).await,
    }
}

/// Returns the settings of runs of a client.
fn settings_of(client: &ClientArguments) -> Result<ResolvedSettings, CommandError> {
    let config = load_config(client.general.config_file.as_deref())?;
    let general = client.general.command_line();
    let default_jobs = std::num::NonZeroUsize::new(DEFAULT_JOBS).map(JobCount::Count);
    let command_line = CommandLineSettings {
        // Durations that include a process start would predict nothing.
        run: RunLayer { jobs: client.jobs.or(default_jobs), is_history_kept: Some(false), ..general.run },
        tests: TestLayer {
            timeout: Some(client.timeout.unwrap_or(TimeLimit::After(DEFAULT_TIMEOUT))),
            is_isolated: client.is_isolated.then_some(true),
            max_memory: client.max_memory,
            ..TestLayer::default()
        },
        ..general
    };
    ResolvedSettings::resolve(&config, command_line).map_err(CommandError::Profile)
}

/// Returns the client as a program.
fn program_of(client: &ClientArguments) -> Result<ProgramSource, CommandError> {
    let (name, args) = client.command.split_first().ok_or(CommandError::NothingToRun)?;
    let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let path = find_program(name, &cwd).ok_or_else(|| CommandError::NoClient { name: name.clone() })?;
    let suite = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let program = TestProgram {
        suite,
        path: OsText::from(path.as_path()),
        args: args.iter().map(|arg| OsText::from(arg.as_str())).collect(),
        cwd: OsText::from(cwd.as_path()),
        framework: Some(FRAMEWORK.to_owned()),
        ..TestProgram::default()
    };
    Ok(ProgramSource { program, config_suite: None })
}
