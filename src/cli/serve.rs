//! `heeler serve`, and the server that an editor starts.

use std::{io::Write as _, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::mpsc;

use super::{
    arguments::{EditorArguments, ServeArguments, ServedArguments},
    exit::{CliExitCode, CommandError},
    rerun,
    signals::{SignalListener, SignalRequest},
    sources::{DebugData, NamedSources, SourceFinder, find_sources, has_sources},
    suites::with_chosen_suites,
};
use heeler_config::ResolvedSettings;
use heeler_server::{
    listen::{
        self, Announcement, ClientServer, ClientStream, FRONT_ENDS, FrontEnd, SessionCommand, SessionEnd,
        SessionOptions, TcpAddress,
    },
    pool::WorkerStdout,
    scheduler::{SchedulerHandle, SchedulerOptions},
};

/// Time limit for all processes to end after the last session.
const SCHEDULER_END_LIMIT: Duration = Duration::from_secs(5);

/// Warning for an address that other machines can reach, because the protocol has no authentication.
const NO_AUTHENTICATION: &str =
    "no authentication: anyone who can reach this address can run tests and read results";

/// How clients reach the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerTransport {
    /// Standard input and output, for the one client that started this process.
    StandardStreams,
    Tcp(TcpAddress),
    Local(PathBuf),
}

/// Serves until the clients end or the user ends the server.
pub(super) async fn serve(arguments: &ServeArguments) -> Result<CliExitCode, CommandError> {
    let named = arguments.protocol.as_deref().and_then(listen::front_end);
    let front_end = named.unwrap_or(FRONT_ENDS[0]);
    let mut options = session_options(front_end, &arguments.served)?;
    options.is_debug = arguments.is_debug;
    let address = arguments.port.map(|port| format!("127.0.0.1:{port}")).or(arguments.listen.clone());
    let transport = match (address, &arguments.pipe) {
        _ if arguments.is_stdio => ServerTransport::StandardStreams,
        (Some(address), _) => ServerTransport::Tcp(TcpAddress::Named(address)),
        (None, Some(path)) => ServerTransport::Local(path.clone()),
        // The parser requires one transport.
        (None, None) => return Ok(CliExitCode::Success),
    };
    serve_clients(front_end, options, &transport).await
}

/// Serves clients of any protocol until they end or the user ends the server.
pub(super) async fn serve_clients(
    front_end: &'static dyn FrontEnd,
    options: SessionOptions,
    transport: &ServerTransport,
) -> Result<CliExitCode, CommandError> {
    if *transport == ServerTransport::StandardStreams {
        let stream = listen::standard_streams().await.map_err(CommandError::Listen)?;
        // Standard output is reserved for the client.
        let scheduler = SchedulerOptions::new(&options.settings, WorkerStdout::StandardError);
        return serve_session(front_end, Box::new(stream), options, scheduler).await;
    }
    // Start the scheduler, then listen until the clients end or a signal arrives.
    let (scheduler, scheduler_task) =
        SchedulerHandle::start(SchedulerOptions::new(&options.settings, WorkerStdout::StandardOutput));
    let server = ClientServer { front_end, options, scheduler };
    let (stop, stopped) = mpsc::channel(1);
    let mut signals = SignalListener::listen().map_err(CommandError::Signals)?;
    let serving = async {
        match transport {
            ServerTransport::Tcp(address) => {
                listen::serve_tcp(address, &server, |bound| announce(front_end, bound), stopped).await
            }
            ServerTransport::Local(path) => {
                let ready = || eprintln!("heeler: listening on {}", path.display());
                listen::serve_local(path, &server, ready, stopped).await
            }
            ServerTransport::StandardStreams => Ok(()),
        }
    };
    let ending = async {
        signals.end_requested().await;
        drop(stop);
        // A second signal exits at once; the watchdogs detect the exit and clean up.
        signals.end_requested().await;
    };
    let served = tokio::select! {
        served = serving => served,
        () = ending => return Ok(CliExitCode::Aborted),
    };
    drop(server);
    scheduler_task.join(SCHEDULER_END_LIMIT).await;
    served.map(|()| CliExitCode::Success).map_err(CommandError::Listen)
}

fn announce(front_end: &dyn FrontEnd, bound: SocketAddr) {
    match front_end.announcement(bound) {
        Announcement::Diagnostic(address) => {
            eprintln!("heeler: listening on {address}");
            if !bound.ip().is_loopback() {
                eprintln!("heeler: {NO_AUTHENTICATION}");
            }
        }
        Announcement::Output(line) => {
            let mut stdout = std::io::stdout();
            // If the pipe is closed, no process reads the line.
            let _closed = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
        }
    }
}

/// Serves the editor that started this process.
pub(super) async fn serve_editor(arguments: &EditorArguments) -> Result<CliExitCode, CommandError> {
    let mut options = session_options(FRONT_ENDS[0], &arguments.served)?;
    options.client_host.clone_from(&arguments.client_host);
    options.exit_with = arguments.exit_on_process_exit;
    options.is_debug = arguments.is_debug;
    if !arguments.ignored.is_empty() {
        let notice = format!("ignoring unsupported options: {}", arguments.ignored.join(", "));
        eprintln!("heeler: {notice}");
        options.notices.push(notice);
    }
    let stream =
        listen::dial(&arguments.client_host, arguments.client_port).await.map_err(CommandError::Listen)?;
    let scheduler = SchedulerOptions::new(&options.settings, WorkerStdout::StandardOutput);
    serve_session(FRONT_ENDS[0], Box::new(stream), options, scheduler).await
}

fn session_options(
    front_end: &dyn FrontEnd,
    served: &ServedArguments,
) -> Result<SessionOptions, CommandError> {
    let config = super::configuration::load_config(served.general.config_file.as_deref())?;
    let settings =
        ResolvedSettings::resolve(&config, served.command_line()).map_err(CommandError::Profile)?;
    let config = config.with_state_dir(&settings.state_dir);
    let config = with_chosen_suites(config, &served.programs, &settings).map_err(CommandError::Suites)?;
    let mut say = |label: &str, words: &str| eprintln!("heeler: {label} {words}");
    let named = NamedSources::from_arguments(&served.programs);
    let sources = match front_end.finds_programs_for_each_listing() {
        true if has_sources(&config, &named) => Vec::new(),
        true => return Err(CommandError::NothingToRun),
        false => {
            // A client may request a debugger in any run, so keep debug data.
            let found = find_sources(&config, &named, DebugData::Kept, &mut say);
            let found = found.map_err(CommandError::Sources)?;
            if found.is_empty() {
                return Err(CommandError::NothingToRun);
            }
            found
        }
    };
    let provenance = rerun::provenance(&named, None);
    Ok(SessionOptions {
        finder: Some(Arc::new(SourceFinder::new(config, named, sources.clone()))),
        provenance,
        ..SessionOptions::new(Arc::new(settings), sources)
    })
}

async fn serve_session(
    front_end: &dyn FrontEnd,
    stream: ClientStream,
    options: SessionOptions,
    scheduler: SchedulerOptions,
) -> Result<CliExitCode, CommandError> {
    let mut signals = SignalListener::listen().map_err(CommandError::Signals)?;
    let (commands, receiver) = mpsc::channel(4);
    let (scheduler, scheduler_task) = SchedulerHandle::start(scheduler);
    let mut session = front_end.serve(stream, options, scheduler, receiver);
    let mut is_ending = false;
    let end = loop {
        tokio::select! {
            end = &mut session => break end,
            wish = signals.next() => match wish {
                SignalRequest::End if is_ending => return Ok(CliExitCode::Aborted),
                SignalRequest::End => {
                    is_ending = true;
                    // A failed send means that the session has already ended.
                    let _gone = commands.try_send(SessionCommand::Exit);
                }
                // Ctrl-Z is ignored, because a server does not use the terminal.
                SignalRequest::Pause => {}
            },
        }
    };
    scheduler_task.join(SCHEDULER_END_LIMIT).await;
    Ok(match end {
        SessionEnd::Exit | SessionEnd::Shutdown => CliExitCode::Success,
        SessionEnd::Disconnected => CliExitCode::Aborted,
        SessionEnd::ParentDied => CliExitCode::ParentExited,
    })
}
