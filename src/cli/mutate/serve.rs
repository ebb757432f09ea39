//! `heeler serve mutation`, `heeler serve stdio` and `heeler serve socket`: servers of the Mutation Server
//! Protocol. A client's first method decides the protocol version.

use std::{sync::Arc, time::Duration};

use heeler_config::{CommandLineSettings, Config, ResolvedSettings};
use heeler_mutation::DirectoryMutationService;
use heeler_server::{
    listen::{ListenError, SessionOptions, TcpAddress},
    mutation::{
        FirstMethod, MutationFrontEnd, MutationServer, MutationService, MutationSessionOptions, ProgressForm,
    },
};

use super::run_test_finder::RunTestFinder;
use crate::cli::{
    arguments::{MutationServerArguments, MutationServerTransport, ProgressFormArgument},
    exit::{CliExitCode, CommandError},
    serve::{ServerTransport, serve_clients},
};

/// Time limit for a connection's first method.
const BEGIN_LIMIT: Duration = Duration::from_secs(60);

/// Serves clients until the user ends the server; on standard streams, until the client ends.
pub(in crate::cli) async fn serve_mutants(
    arguments: &MutationServerArguments,
) -> Result<CliExitCode, CommandError> {
    let directory = std::env::current_dir().map_err(CommandError::CurrentDirectory)?;
    let build = arguments.build.options();
    build.check_tests().map_err(CommandError::Mutate)?;
    let service: Arc<dyn MutationService> = Arc::new(DirectoryMutationService {
        directory: directory.clone(),
        build,
        finder: &RunTestFinder,
        config_file: arguments.general.config_file.clone(),
        command_line: arguments.command_line(),
    });
    let progress_form = match arguments.progress_form {
        ProgressFormArgument::List => ProgressForm::List,
        ProgressFormArgument::Object => ProgressForm::Object,
    };
    // Choose the transport and its options.
    let (first_method, begin_within) = match arguments.transport {
        MutationServerTransport::Stdio => (FirstMethod::AnyOfV04, None),
        MutationServerTransport::Socket => (FirstMethod::AnyOfV04, Some(BEGIN_LIMIT)),
        MutationServerTransport::Mutation => (FirstMethod::Handshake, Some(BEGIN_LIMIT)),
    };
    let transport = match arguments.transport {
        MutationServerTransport::Stdio => ServerTransport::StandardStreams,
        MutationServerTransport::Socket | MutationServerTransport::Mutation => {
            let port = arguments.port.unwrap_or(0);
            ServerTransport::Tcp(TcpAddress::Loopback { address: arguments.address, port })
        }
    };
    let options = MutationSessionOptions { first_method, progress_form, begin_within };
    // Each project has its own settings. Errors in them appear when a client opens the project, so load no
    // file here.
    let settings =
        ResolvedSettings::resolve(&Config::without_file(&directory), CommandLineSettings::default());
    let options = SessionOptions {
        mutation: Some(MutationServer::new(service, options)),
        ..SessionOptions::new(Arc::new(settings.map_err(CommandError::Profile)?), Vec::new())
    };
    match serve_clients(&MutationFrontEnd, options, &transport).await {
        Err(CommandError::Listen(ListenError::Tcp { source, .. })) => {
            Err(CommandError::BindMutationServer(source))
        }
        served => served,
    }
}
