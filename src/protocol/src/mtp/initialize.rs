//! `initialize`: versions and capabilities of client and server.

use serde::{Deserialize, Serialize};

use super::nulls::null_as_default;

/// Version of the protocol that Heeler implements.
pub const PROTOCOL_VERSION: &str = "1.0.0";

/// Parameters of `initialize`. Every member may be missing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InitializeParams {
    /// Process id of the client; the server exits when this process dies.
    pub process_id: Option<u32>,
    /// Name and version of the client.
    pub client_info: Option<PeerInfo>,
    /// Capabilities of the client.
    #[serde(deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<ClientCapabilities>"))]
    pub capabilities: ClientCapabilities,
    /// Protocol versions that the client supports; absent means any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol_versions: Option<Vec<String>>,
}

/// Name and version of a client.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PeerInfo {
    /// Name of the program, such as `vscode`.
    #[serde(deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub name: String,
    /// Version as free text.
    #[serde(deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub version: String,
}

/// Capabilities of a client.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ClientCapabilities {
    /// Capabilities that concern tests.
    #[serde(deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<ClientTestingCapabilities>"))]
    pub testing: ClientTestingCapabilities,
}

/// Test capabilities of a client.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ClientTestingCapabilities {
    /// Whether the client can attach and launch debuggers.
    #[serde(deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<bool>"))]
    pub debugger_provider: bool,
    /// Whether the client reads several log messages in one notification.
    #[serde(deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<bool>"))]
    pub batch_logging_support: bool,
    /// Whether the client reads the attachments stream.
    #[serde(deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<bool>"))]
    pub attachments_support: bool,
    /// Port at which the client accepts further connections, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback_provider: Option<CallbackProvider>,
    /// Extensions by Heeler that the client uses and has to request.
    #[serde(
        rename = "heeler",
        deserialize_with = "null_as_default",
        skip_serializing_if = "ClientExtensions::is_default"
    )]
    #[cfg_attr(feature = "schema", schemars(with = "Option<ClientExtensions>"))]
    pub extensions: ClientExtensions,
}

/// Extensions of the protocol by Heeler that are off until a client requests them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ClientExtensions {
    /// Whether the client is notified with `$/heeler/programsChanged` when files of test programs change.
    #[serde(deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<bool>"))]
    pub program_changes: bool,
}

impl ClientExtensions {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Port at which a client accepts connections of workers and watchdog.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct CallbackProvider {
    /// TCP port on the client's host.
    #[serde(deserialize_with = "null_as_default")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u16>"))]
    pub port: u16,
    /// Extension by Heeler: a secret sent first on each connection, so that no other local user can report
    /// results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// Result of `initialize`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct InitializeResult {
    /// Process id of the server.
    pub process_id: u32,
    /// Name and version of the server.
    pub server_info: ServerInfo,
    /// Protocol version that both peers support.
    pub protocol_version: String,
    /// Capabilities of the server.
    pub capabilities: ServerCapabilities,
}

impl InitializeResult {
    /// Returns Heeler's result for the server process with this id.
    #[must_use]
    pub fn of_heeler(process_id: u32) -> Self {
        Self {
            process_id,
            server_info: ServerInfo {
                name: "heeler".to_owned(),
                version: PROTOCOL_VERSION.to_owned(),
                product_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            },
            protocol_version: PROTOCOL_VERSION.to_owned(),
            capabilities: ServerCapabilities {
                testing: ServerTestingCapabilities {
                    supports_discovery: true,
                    experimental_multi_request_support: true,
                    vstest_provider: false,
                    attachments_support: true,
                    attachments_provider: true,
                    multiple_connection_provider: false,
                    supports_test_coverage_messages: false,
                    extensions: Some(ExtensionCapabilities {
                        debug: true,
                        callback_token: true,
                        failures: true,
                        run_options: true,
                        live_output: true,
                        repeat: true,
                        program_changes: true,
                        build: true,
                    }),
                },
            },
        }
    }
}

/// Name and versions of a server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ServerInfo {
    /// Name of the program: `heeler`.
    pub name: String,
    /// Version of the protocol that the server speaks, as `protocolVersion`.
    pub version: String,
    /// Extension by Heeler: version of the program.
    #[serde(rename = "heeler.version", skip_serializing_if = "Option::is_none")]
    pub product_version: Option<String>,
}

/// Capabilities of a server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ServerCapabilities {
    /// Capabilities that concern tests.
    pub testing: ServerTestingCapabilities,
}

/// Test capabilities of a server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ServerTestingCapabilities {
    /// Whether the server answers `testing/discoverTests`.
    pub supports_discovery: bool,
    /// Whether one process serves many requests.
    #[serde(rename = "experimental_multiRequestSupport")]
    pub experimental_multi_request_support: bool,
    /// Whether the server uses VSTest internally.
    pub vstest_provider: bool,
    /// Whether the server sends attachments.
    pub attachments_support: bool,
    /// The specification's older name for `attachmentsSupport`.
    pub attachments_provider: bool,
    /// Whether the server opens additional connections without an offer by the client.
    pub multiple_connection_provider: bool,
    /// Whether the server sends coverage.
    pub supports_test_coverage_messages: bool,
    /// Extensions by Heeler that the server offers; absent from other servers.
    #[serde(rename = "heeler", skip_serializing_if = "Option::is_none")]
    pub extensions: Option<ExtensionCapabilities>,
}

/// Extensions of the protocol by Heeler, each `true` where it is offered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ExtensionCapabilities {
    /// `heeler.debug` in the parameters of a run makes it a debug run.
    pub debug: bool,
    /// `callbackProvider.token` is sent first on each callback connection.
    pub callback_token: bool,
    /// A test with several failures lists them in `heeler.failures`.
    pub failures: bool,
    /// `heeler.options` in the parameters of a run sets options of that run.
    pub run_options: bool,
    /// The run option `liveOutput` sends the output of tests while they run.
    pub live_output: bool,
    /// The run option `repeat` runs each test several times.
    pub repeat: bool,
    /// `capabilities.testing.heeler.programChanges` of the client requests `$/heeler/programsChanged`.
    pub program_changes: bool,
    /// `heeler.build` in the parameters of a discovery or a run builds the tests before they are listed.
    pub build: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initialize_with_unknown_members_is_read() {
        let params: InitializeParams = serde_json::from_str(
            r#"{"processId":null,"rootUri":null,"capabilities":{"textDocument":{},"testing":{"callbackProvider":{"port":5}}},"trace":"off"}"#,
        )
        .unwrap();
        assert_eq!(params.capabilities.testing.callback_provider.unwrap().port, 5);
    }
}
