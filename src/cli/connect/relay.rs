//! `heeler connect relay`: a front end of the conformance suite on standard input and output.

use std::sync::Arc;

use heeler_run_store::Provenance;
use heeler_server::{connect::ConnectFrontEnd, listen::SessionOptions};

use crate::cli::{
    arguments::ClientArguments,
    configuration::load_config,
    exit::{CliExitCode, CommandError},
    serve::serve_standard_streams,
};

/// Answers the cases of the suite that has started this process, until it has no more.
pub(super) async fn relay(client: &ClientArguments) -> Result<CliExitCode, CommandError> {
    let config = load_config(client.general.config_file.as_deref())?;
    let settings = super::client_settings(&config, client)?;
    let source = super::program_of(client)?;
    let options = SessionOptions {
        settings: Arc::new(settings),
        sources: vec![source],
        finder: None,
        client_host: String::new(),
        callback: None,
        // Without the suite nobody reads the answers.
        exit_with: Some(std::os::unix::process::parent_id()),
        initialize_within: None,
        is_debug: false,
        allows_program_options: false,
        notices: Vec::new(),
        provenance: Provenance::default(),
    };
    serve_standard_streams(&ConnectFrontEnd, options).await
}
