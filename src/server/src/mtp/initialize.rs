//! `initialize`: checks the protocol version and exchanges capabilities with the client.

use heeler_protocol::{
    control::CallbackAddress,
    mtp::{ClientTestingCapabilities, InitializeParams, InitializeResult, LogForm, PROTOCOL_VERSION},
    rpc::{RpcError, code},
};

/// Client properties that the session keeps.
#[derive(Debug, Clone, Default)]
pub(super) struct ClientProperties {
    pub(super) process_id: Option<u32>,
    pub(super) testing: ClientTestingCapabilities,
}

impl ClientProperties {
    /// Returns the form of log messages that the client accepts.
    pub(super) fn log_form(&self) -> LogForm {
        if self.testing.batch_logging_support { LogForm::Batch } else { LogForm::Single }
    }

    /// Returns whether the client listens for callback connections.
    pub(super) fn has_callback_port(&self) -> bool {
        self.testing.callback_provider.as_ref().is_some_and(|provider| provider.port != 0)
    }

    /// Returns the address for callback connections, if the client listens for them.
    pub(super) fn callback(&self, host: &str) -> Option<CallbackAddress> {
        let provider = self.testing.callback_provider.as_ref().filter(|provider| provider.port != 0)?;
        Some(CallbackAddress::new(host, provider.port, provider.token.clone()))
    }
}

/// Validates an `initialize` request and returns its result.
pub(super) fn negotiate(params: InitializeParams) -> Result<(ClientProperties, InitializeResult), RpcError> {
    if let Some(versions) = &params.protocol_versions
        && !versions.iter().any(|version| is_compatible_version(version))
    {
        let message = format!(
            "none of the client's protocol versions ({}) is supported; the server supports {PROTOCOL_VERSION}",
            versions.join(", ")
        );
        return Err(RpcError::new(code::PROTOCOL_VERSION, message));
    }
    let result = InitializeResult::of_heeler(std::process::id());
    Ok((ClientProperties { process_id: params.process_id, testing: params.capabilities.testing }, result))
}

/// Returns whether a version is compatible: it has the same major number as ours.
fn is_compatible_version(version: &str) -> bool {
    version.split('.').next() == PROTOCOL_VERSION.split('.').next()
}
