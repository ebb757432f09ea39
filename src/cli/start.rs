//! The command line's main function: from process arguments to exit code.

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use tracing_subscriber::EnvFilter;

#[cfg(feature = "connect")]
use super::connect;
#[cfg(feature = "minidump")]
use super::dump;
#[cfg(feature = "mutation")]
use super::mutate;
use super::{
    arguments::{self, CliCommand, McpCommand},
    check_adapter, completion, doctor,
    exit::{CliExitCode, CommandError},
    history, init, list, mcp_bridge, mcp_filter, mcp_http_filter, report, run, runs, serve,
};

/// Keep-alive of the blocking threads. They never end, because the system may refuse to create new ones
/// later.
const THREAD_KEEP_ALIVE: Duration = Duration::from_secs(365 * 24 * 3600);

/// Runs the command line and returns its exit code.
#[must_use]
pub fn main() -> ExitCode {
    let command = match arguments::parse(std::env::args_os().collect()) {
        Ok(command) => command,
        Err(refusal) => {
            refusal.print();
            return ExitCode::from(refusal.exit_code());
        }
    };
    init_logging(verbosity(&command));
    // One thread, because the coordinator mostly waits, and because a child process is killed when the
    // thread that started it ends.
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = match heeler_transport::runtime::build(builder.thread_keep_alive(THREAD_KEEP_ALIVE)) {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: failed to start: {error}");
            return process_exit_code(CliExitCode::Internal);
        }
    };
    let ended = runtime.block_on(run_command(&command));
    // A blocked read of standard input must not delay the exit.
    runtime.shutdown_background();
    match ended {
        Ok(exit) => exit,
        Err(error) => {
            eprintln!("error: {}", heeler_core::error_chain(&error));
            process_exit_code(error.exit_code())
        }
    }
}

fn process_exit_code(exit: CliExitCode) -> ExitCode {
    ExitCode::from(exit as u8)
}

async fn run_command(command: &CliCommand) -> Result<ExitCode, CommandError> {
    let exit = match command {
        CliCommand::Run(arguments) => run::run(arguments).await,
        CliCommand::List(arguments) => list::list(arguments).await,
        CliCommand::Init => init::init(),
        CliCommand::Runs(arguments) => runs::list_runs(arguments),
        CliCommand::Report(arguments) => report::report(arguments),
        CliCommand::History(arguments) => history::history(arguments),
        #[cfg(feature = "mutation")]
        CliCommand::Mutate(arguments) => mutate::mutate(arguments).await,
        CliCommand::Serve(arguments) => serve::serve(arguments).await,
        #[cfg(feature = "mutation")]
        CliCommand::ServeMutants(arguments) => mutate::serve_mutants(arguments).await,
        #[cfg(feature = "connect")]
        CliCommand::Connect(arguments) => connect::connect(arguments).await,
        CliCommand::Editor(arguments) => serve::serve_editor(arguments).await,
        CliCommand::CheckAdapter(arguments) => check_adapter::check_adapter(arguments),
        #[cfg(feature = "minidump")]
        CliCommand::Dump(arguments) => dump::dump(&arguments.file),
        CliCommand::Mcp(arguments) => {
            let McpCommand::Filter { port, url, command } = &arguments.command;
            match (port, url) {
                (Some(port), Some(url)) => mcp_http_filter::serve_filtered(*port, url).await,
                // The exit code is the server's.
                _ => return mcp_filter::run_filtered(command).await.map(ExitCode::from),
            }
            .map(|()| CliExitCode::Success)
        }
        CliCommand::McpBridge(arguments) => {
            mcp_bridge::run_bridge(&arguments.url).await.map(|()| CliExitCode::Success)
        }
        CliCommand::Doctor(general) => doctor::check_machine(general).await,
        CliCommand::Completions { shell } => {
            // A closed pipe is not an error.
            let _closed = std::io::stdout().write_all(&completion::completion_script(*shell));
            Ok(CliExitCode::Success)
        }
        CliCommand::Man { dir } => {
            arguments::write_manual_pages(dir)
                .map_err(|source| CommandError::ManualPages { dir: dir.clone(), source })?;
            Ok(CliExitCode::Success)
        }
    };
    exit.map(process_exit_code)
}

fn verbosity(command: &CliCommand) -> u8 {
    match command {
        CliCommand::Run(arguments) => arguments.general.verbose,
        CliCommand::List(arguments) => arguments.general.verbose,
        CliCommand::Runs(arguments) => arguments.general.verbose,
        CliCommand::Report(arguments) => arguments.general.verbose,
        CliCommand::History(arguments) => arguments.general().verbose,
        #[cfg(feature = "mutation")]
        CliCommand::Mutate(arguments) => arguments.general.verbose,
        CliCommand::Serve(arguments) => arguments.served.general.verbose,
        #[cfg(feature = "mutation")]
        CliCommand::ServeMutants(arguments) => arguments.general.verbose,
        #[cfg(feature = "connect")]
        CliCommand::Connect(arguments) => arguments.general().verbose,
        CliCommand::Editor(arguments) => {
            arguments.served.general.verbose.max(u8::from(arguments.is_diagnostic))
        }
        CliCommand::Doctor(general) => general.verbose,
        CliCommand::Mcp(_)
        | CliCommand::McpBridge(_)
        | CliCommand::CheckAdapter(_)
        | CliCommand::Init
        | CliCommand::Completions { .. }
        | CliCommand::Man { .. } => 0,
        #[cfg(feature = "minidump")]
        CliCommand::Dump(_) => 0,
    }
}

/// Installs logging to standard error. `HEELER_LOG` sets levels in the syntax of the `tracing` crates.
fn init_logging(verbose: u8) {
    let level = match verbose {
        0 => "error",
        1 => "info",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_env("HEELER_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}
