//! `heeler serve`, and the form in which an editor starts Heeler.

use std::{path::PathBuf, sync::Arc};

use tokio::sync::mpsc;

use super::{
    arguments::{EditorArguments, ProgramArguments, ServeArguments},
    exit::{CliExitCode, CommandError},
    rerun,
    signals::{SignalListener, SignalRequest},
    sources,
};
use heeler_config::{CommandLineSettings, ResolvedSettings};
use heeler_server::front::{self, ServerSession, ServerSessionOptions, SessionCommand, SessionEnd};

/// Warning for an address that other machines can reach: the protocol has no authentication.
const NO_AUTHENTICATION: &str =
    "whoever on the network reaches this address may run the tests and read what comes of them";

/// Serves until the clients end or the user ends the server.
pub(super) async fn serve(arguments: &ServeArguments) -> Result<CliExitCode, CommandError> {
    let general = &arguments.general;
    let mut options =
        session_options(general.config_file.clone(), arguments.command_line(), &arguments.programs)?;
    options.is_debug = arguments.is_debug;
    if arguments.is_stdio {
        return serve_session(front::standard_streams().await.map_err(CommandError::Listen)?, options).await;
    }
    let (stop, stopped) = mpsc::channel(1);
    let mut signals = SignalListener::listen().map_err(CommandError::Signals)?;
    let serving = async {
        match (&arguments.listen, &arguments.pipe) {
            (Some(address), _) => {
                front::serve_tcp(
                    address,
                    &options,
                    |address| {
                        eprintln!("heeler: listening on {address}");
                        if !address.ip().is_loopback() {
                            eprintln!("heeler: {NO_AUTHENTICATION}");
                        }
                    },
                    stopped,
                )
                .await
            }
            (None, Some(path)) => {
                let ready = || eprintln!("heeler: listening on {}", path.display());
                front::serve_local(path, &options, ready, stopped).await
            }
            // The parser requires one of the three.
            (None, None) => Ok(()),
        }
    };
    let ending = async {
        while signals.next().await != SignalRequest::End {}
        drop(stop);
        // A second signal exits at once; the watchdogs detect the exit and clean up.
        while signals.next().await != SignalRequest::End {}
    };
    tokio::select! {
        served = serving => served.map(|()| CliExitCode::Success).map_err(CommandError::Listen),
        () = ending => Ok(CliExitCode::Aborted),
    }
}

/// Serves the editor that started this process.
pub(super) async fn serve_editor(arguments: &EditorArguments) -> Result<CliExitCode, CommandError> {
    if !arguments.ignored.is_empty() {
        tracing::warn!(options = ?arguments.ignored, "options that mean nothing to Heeler are ignored");
    }
    let programs = ProgramArguments { programs: arguments.programs.clone(), ..ProgramArguments::default() };
    let mut options =
        session_options(arguments.config_file.clone(), CommandLineSettings::default(), &programs)?;
    options.client_host.clone_from(&arguments.client_host);
    options.exit_with = arguments.exit_on_process_exit;
    options.is_debug = arguments.is_debug;
    let stream =
        front::dial(&arguments.client_host, arguments.client_port).await.map_err(CommandError::Listen)?;
    serve_session(stream, options).await
}

fn session_options(
    config_file: Option<PathBuf>,
    command_line: CommandLineSettings,
    programs: &ProgramArguments,
) -> Result<ServerSessionOptions, CommandError> {
    let config = super::load_config(config_file.as_deref())?;
    let settings = ResolvedSettings::resolve(&config, command_line).map_err(CommandError::Profile)?;
    let mut say = |label: &str, words: &str| eprintln!("heeler: {label} {words}");
    let sources = sources::find_sources(&config, programs, &mut say).map_err(CommandError::Sources)?;
    if sources.is_empty() {
        return Err(CommandError::NothingToRun);
    }
    Ok(ServerSessionOptions {
        settings: Arc::new(settings),
        sources,
        client_host: "127.0.0.1".to_owned(),
        exit_with: None,
        initialize_within: None,
        is_debug: false,
        provenance: rerun::provenance(programs, None),
    })
}

async fn serve_session<S>(stream: S, options: ServerSessionOptions) -> Result<CliExitCode, CommandError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let mut signals = SignalListener::listen().map_err(CommandError::Signals)?;
    let (commands, receiver) = mpsc::channel(4);
    let session = ServerSession::new(stream, options).serve(receiver);
    tokio::pin!(session);
    let mut is_ending = false;
    loop {
        tokio::select! {
            end = &mut session => return Ok(match end {
                SessionEnd::Exit => CliExitCode::Success,
                SessionEnd::Disconnected => CliExitCode::Aborted,
                SessionEnd::ParentDied => CliExitCode::ParentExited,
            }),
            wish = signals.next() => match wish {
                SignalRequest::End if is_ending => return Ok(CliExitCode::Aborted),
                SignalRequest::End => {
                    is_ending = true;
                    // A session that is gone has already ended.
                    let _gone = commands.try_send(SessionCommand::Exit);
                }
                // A server has no terminal to return.
                SignalRequest::Pause => {}
            },
        }
    }
}
