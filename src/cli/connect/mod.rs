//! `heeler connect`: tests clients with Connect's conformance suite.
//!
//! - `run`, `list`: run and list the cases of a judge that Heeler starts; `relay`: serves a judge that has
//!   started Heeler.
//! - `case_patterns`: patterns of cases.
//! - `judge`: the judge's process; `forward`: the process that the judge starts as its client.
//! - `round`: one run of the judge, with the session that runs its cases.
//! - `verdicts`: combines Heeler's results with the judge's verdicts. Pure.
//! - `reproduce`: the command that runs a failed case again.

mod case_patterns;
mod forward;
mod judge;
mod list;
mod relay;
mod reproduce;
mod round;
mod run;
mod verdicts;

use std::path::{Path, PathBuf};

use heeler_config::{
    CommandLineSettings, Config, JobCount, ResolvedSettings, RunLayer, TestLayer, TimeLimit,
};
use heeler_core::RetryPolicy;
use heeler_protocol::control::{OsText, TestProgram};
use heeler_server::{connect::FRAMEWORK, discovery::ProgramSource};

use super::{
    arguments::{ClientArguments, ConnectArguments, ConnectCommand, JudgeArguments},
    exit::{CliExitCode, CommandError},
};
use heeler_sys::program_search::find_program;
use judge::JudgeCommand;
pub(super) use judge::JudgeError;

/// Default number of client processes. Most cases wait for a server or for a timeout, so more processes save
/// no time.
const DEFAULT_JOBS: usize = 16;
/// Default timeout of a case. The suite aborts the whole run after reading nothing for 20 s.
const DEFAULT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(15);

pub(super) async fn connect(arguments: &ConnectArguments) -> Result<CliExitCode, CommandError> {
    match &arguments.command {
        ConnectCommand::Run(arguments) => run::run(arguments).await,
        ConnectCommand::List(arguments) => list::list(arguments).await,
        ConnectCommand::Relay(client) => relay::relay(client).await,
        ConnectCommand::Forward(arguments) => forward::forward(&arguments.socket).await,
    }
}

/// Returns the settings for running a client. History is off, because durations that include a process start
/// predict nothing; retries are off, because the suite retries.
fn client_settings(config: &Config, client: &ClientArguments) -> Result<ResolvedSettings, CommandError> {
    let general = client.general.command_line();
    let tests = TestLayer { retries: Some(RetryPolicy::default()), ..case_settings(client) };
    // A process that never reads its request blocks the suite like a case without an answer. So the case
    // timeout, or the default if that is longer, limits the startup, too.
    let limit = tests.timeout.and_then(TimeLimit::duration).map(|limit| limit.max(DEFAULT_TIMEOUT));
    let run = RunLayer {
        jobs: Some(jobs_of(client)),
        is_history_kept: Some(false),
        startup_timeout: limit.or(general.run.startup_timeout),
        ..general.run
    };
    let command_line = CommandLineSettings { run, tests, ..general };
    ResolvedSettings::resolve(config, command_line).map_err(CommandError::Profile)
}

fn case_settings(client: &ClientArguments) -> TestLayer {
    TestLayer {
        timeout: Some(client.timeout.unwrap_or(TimeLimit::After(DEFAULT_TIMEOUT))),
        is_isolated: client.is_isolated.then_some(true),
        max_memory: client.max_memory,
        ..TestLayer::default()
    }
}

fn jobs_of(client: &ClientArguments) -> JobCount {
    let default = JobCount::Count(std::num::NonZeroUsize::new(DEFAULT_JOBS).expect("it is not zero"));
    client.jobs.unwrap_or(default)
}

fn program_of(client: &ClientArguments) -> Result<ProgramSource, CommandError> {
    let (name, args) = client.command.split_first().ok_or(CommandError::NothingToRun)?;
    let cwd = working_directory();
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

/// Returns the judge's command.
///
/// # Errors
/// The program does not exist.
fn judge_command(arguments: &JudgeArguments) -> Result<JudgeCommand, CommandError> {
    let program = find_program(&arguments.judge, &working_directory());
    Ok(JudgeCommand {
        program: program.ok_or_else(|| CommandError::NoJudge { name: arguments.judge.clone() })?,
        config: arguments.conf.clone(),
        known_failing: arguments.known_failing.clone(),
    })
}

fn working_directory() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_| Path::new("/").to_owned())
}
