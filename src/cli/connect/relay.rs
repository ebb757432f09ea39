//! `heeler connect relay`: serves a conformance suite on standard input and output.

use std::sync::Arc;

use heeler_server::{connect::ConnectFrontEnd, listen::SessionOptions};

use crate::cli::{
    arguments::ClientArguments,
    configuration::load_config,
    exit::{CliExitCode, CommandError},
    serve::{ServerTransport, serve_clients},
};

/// Answers the cases of the suite that has started this process until the suite sends no more.
pub(super) async fn relay(client: &ClientArguments) -> Result<CliExitCode, CommandError> {
    let config = load_config(client.general.config_file.as_deref())?;
    let settings = super::client_settings(&config, client)?;
    let source = super::program_of(client)?;
    let options = SessionOptions {
        // Without the suite, nothing reads the answers.
        exit_with: Some(std::os::unix::process::parent_id()),
        ..SessionOptions::new(Arc::new(settings), vec![source])
    };
    serve_clients(&ConnectFrontEnd, options, &ServerTransport::StandardStreams).await
}
