//! `heeler serve mutation`, `heeler serve stdio` and `heeler serve socket`: servers of the Mutation Server
//! Protocol. The first method of a client decides which version it speaks.

use std::{io::Write as _, sync::Arc, time::Duration};

use heeler_mutation::DirectoryMutationService;
use heeler_server::{
    listen,
    mutation::{
        FirstMethod, MutationListener, MutationServer, MutationService, MutationSessionOptions, ProgressForm,
        serve_stream,
    },
};

use super::run_test_finder::RunTestFinder;
use crate::cli::{
    arguments::{MutationServerArguments, MutationServerTransport, ProgressFormArgument},
    exit::{CliExitCode, CommandError},
    signals::{SignalListener, SignalRequest},
};

/// Time limit for the first method of a connection.
const BEGIN_LIMIT: Duration = Duration::from_secs(60);

/// Serves until the user ends the server; on standard input and output, until the client does.
pub(in crate::cli) async fn serve_mutants(
    arguments: &MutationServerArguments,
) -> Result<CliExitCode, CommandError> {
    let directory = std::env::current_dir().map_err(CommandError::CurrentDirectory)?;
    let build = arguments.build.options();
    build.check_tests().map_err(CommandError::Mutate)?;
    let service: Arc<dyn MutationService> = Arc::new(DirectoryMutationService {
        directory,
        build,
        finder: &RunTestFinder,
        config_file: arguments.general.config_file.clone(),
        command_line: arguments.command_line(),
    });
    let progress_form = match arguments.progress_form {
        ProgressFormArgument::List => ProgressForm::List,
        ProgressFormArgument::Object => ProgressForm::Object,
    };
    let mut signals = SignalListener::listen().map_err(CommandError::Signals)?;
    let stop = async move { while signals.next().await != SignalRequest::End {} };
    match arguments.transport {
        MutationServerTransport::Stdio => {
            let stream = listen::standard_streams().await.map_err(CommandError::Listen)?;
            let options = MutationSessionOptions {
                first_method: FirstMethod::AnyOfV04,
                progress_form,
                begin_within: None,
            };
            serve_stream(stream, service, options, stop).await;
        }
        MutationServerTransport::Socket | MutationServerTransport::Mutation => {
            let first_method = match arguments.transport {
                MutationServerTransport::Socket => FirstMethod::AnyOfV04,
                MutationServerTransport::Stdio | MutationServerTransport::Mutation => FirstMethod::Handshake,
            };
            let options =
                MutationSessionOptions { first_method, progress_form, begin_within: Some(BEGIN_LIMIT) };
            let listener = MutationListener::bind(arguments.address, arguments.port.unwrap_or(0)).await;
            let listener = listener.map_err(CommandError::BindMutationServer)?;
            let mut stdout = std::io::stdout();
            // Who started the server reads the port; a closed pipe means that nobody does.
            let _closed = writeln!(stdout, "Server is listening on port: {}", listener.port())
                .and_then(|()| stdout.flush());
            listener.serve(MutationServer { service, options }, stop).await;
        }
    }
    Ok(CliExitCode::Success)
}
