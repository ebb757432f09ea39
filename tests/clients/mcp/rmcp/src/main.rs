//! A server and a client that use the Rust library of the Model Context Protocol, for both eras and both
//! transports:
//!
//! ```text
//! heeler-rmcp-peer server stdio|http [harmless]
//! heeler-rmcp-peer client legacy|modern stdio COMMAND [ARGUMENT]...
//! heeler-rmcp-peer client legacy|modern http URL
//! heeler-rmcp-peer filtered-client legacy|modern stdio COMMAND [ARGUMENT]...
//! heeler-rmcp-peer filtered-client legacy|modern http URL
//! ```
//!
//! `client` lists and calls the tools of `heeler serve mcp kinds`. `filtered-client` lists and calls the
//! tools of `../server.mjs` behind `heeler mcp filter`. Both exit with 0 if every check passes.

use std::sync::Arc;

use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use rmcp::{
    ClientLifecycleMode, ClientServiceExt as _, ErrorData, ServerHandler, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorCode, JsonObject,
        ListToolsResult, MetaObject, PaginatedRequestParams, ProtocolVersion, ServerCapabilities,
        ServerConfig, Tool,
    },
    service::{RequestContext, RoleClient, RoleServer, RunningService},
    transport::{
        StreamableHttpClientTransport, TokioChildProcess, stdio,
        streamable_http_server::{
            StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
        },
    },
};
use serde_json::{Value, json};

/// Error of a failed check or of the library.
type Failure = Box<dyn std::error::Error + Send + Sync>;

const TOOLS: [&str; 7] = [
    "list_tests",
    "run_tests",
    "get_failures",
    "get_output",
    "cancel_run",
    "mcp.test.capabilities",
    "mcp.test.protocol",
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["server", "stdio", more @ ..] => {
            TestServer { is_harmless: more.contains(&"harmless") }.serve(stdio()).await?.waiting().await?;
            Ok(())
        }
        ["server", "http", more @ ..] => {
            serve_http(TestServer { is_harmless: more.contains(&"harmless") }).await
        }
        [client @ ("client" | "filtered-client"), era, server @ ..] => {
            let connected = connect(era, server).await?;
            match *client {
                "client" => use_tools(connected).await,
                _ => use_filtered_tools(connected).await,
            }
        }
        _ => Err(format!("unknown arguments: {words:?}").into()),
    }
}

#[derive(Debug, Clone)]
struct TestServer {
    is_harmless: bool,
}

impl TestServer {
    fn names(&self) -> Vec<&'static str> {
        let all = [
            "mcp.test.capabilities",
            "mcp.test.protocol.basic",
            "mcp.test.tools.fails",
            "mcp.test.tools.throws",
            "mcp.test.custom.aborts",
            "mcp.test.custom.hangs",
            "mcp.test.custom.last",
        ];
        let is_bad = |name: &str| name.ends_with("aborts") || name.ends_with("hangs");
        all.into_iter().filter(|name| !(self.is_harmless && is_bad(name))).collect()
    }
}

fn result(success: bool, message: Option<&str>) -> CallToolResult {
    let details = json!({ "passed": [], "failed": [], "skipped": [] });
    let value = json!({ "success": success, "message": message, "details": details, "duration": 1 });
    CallToolResult::success(vec![ContentBlock::text(value.to_string())])
}

impl ServerHandler for TestServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema: JsonObject = [("type".to_owned(), json!("object"))].into_iter().collect();
        let tool = |name: &'static str| {
            let priority = if name.contains("custom") { 3 } else { 1 };
            let category = name.split('.').nth(2);
            let metadata = json!({ "category": category, "priority": priority, "timeout": 1500 });
            let mut tool = Tool::new(name, name, schema.clone());
            tool.meta = Some(MetaObject([("testMetadata".to_owned(), metadata)].into_iter().collect()));
            tool
        };
        Ok(ListToolsResult::with_all_items(self.names().into_iter().map(tool).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let answer = match request.name.as_ref() {
            "mcp.test.tools.fails" => result(false, Some("expected 2 templates, got 1")),
            "mcp.test.tools.throws" => return Err(ErrorData::internal_error("a bug", None)),
            "mcp.test.custom.aborts" => std::process::abort(),
            "mcp.test.custom.hangs" => std::future::pending().await,
            _ => result(true, None),
        };
        Ok(answer.into())
    }
}

/// Serves on a free port of 127.0.0.1 and prints the address.
async fn serve_http(server: TestServer) -> Result<(), Failure> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/mcp", listener.local_addr()?);
    let service = TowerToHyperService::new(StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    ));
    loop {
        let (stream, _) = listener.accept().await?;
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service.clone());
        #[allow(clippy::disallowed_methods, reason = "the process ends with its server")]
        tokio::spawn(connection);
    }
}

/// Connects a client to a server: `stdio COMMAND [ARGUMENT]...` or `http URL`.
async fn connect(era: &str, server: &[&str]) -> Result<RunningService<RoleClient, ()>, Failure> {
    match server {
        ["stdio", program, args @ ..] => {
            let mut command = tokio::process::Command::new(program);
            command.args(args);
            Ok(().serve_with_lifecycle(TokioChildProcess::new(command)?, lifecycle(era)).await?)
        }
        ["http", url] => {
            let transport = StreamableHttpClientTransport::from_uri(*url);
            Ok(().serve_with_lifecycle(transport, lifecycle(era)).await?)
        }
        _ => Err(format!("unknown server: {server:?}").into()),
    }
}

fn lifecycle(era: &str) -> ClientLifecycleMode {
    match era {
        "modern" => ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] },
        _ => ClientLifecycleMode::Initialize,
    }
}

/// Lists the tools of `heeler serve mcp kinds` and calls some of them.
async fn use_tools(client: RunningService<RoleClient, ()>) -> Result<(), Failure> {
    let tools = client.list_all_tools().await?;
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    assert_eq!(names, TOOLS);

    let listed = answer(&client, "list_tests", json!({ "filter": "Math." })).await?;
    assert_eq!(listed["total"], 5, "{listed}");
    let run = answer(&client, "run_tests", json!({ "filter": "test(Math)" })).await?;
    assert_eq!(run["state"], "completed", "{run}");
    assert_eq!(run["counts"], json!({ "selected": 5, "passed": 1, "failed": 2, "skipped": 2 }), "{run}");
    let failures = answer(&client, "get_failures", json!({ "run": run["run"] })).await?;
    assert_eq!(failures["failures"], run["failures"]);
    let output =
        answer(&client, "get_output", json!({ "run": "latest", "test": "kinds::Math.Fail" })).await?;
    assert!(output["text"].as_str().is_some_and(|text| text.contains("msg <with>")), "{output}");
    for name in &TOOLS[5..] {
        assert_eq!(answer(&client, name, json!({})).await?["success"], true, "{name}");
    }

    let wrong = call(&client, "run_tests", json!({ "repeat": 0 })).await?;
    assert_eq!(wrong.is_error, Some(true), "{wrong:?}");
    match call(&client, "no_such_tool", json!({})).await.unwrap_err() {
        rmcp::ServiceError::McpError(error) => assert_eq!(error.code, ErrorCode::INVALID_PARAMS),
        other => return Err(other.into()),
    }
    client.cancel().await?;
    Ok(())
}

/// Lists and calls the tools of `../server.mjs`. Its tests must be hidden.
async fn use_filtered_tools(client: RunningService<RoleClient, ()>) -> Result<(), Failure> {
    let tools = client.list_all_tools().await?;
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    assert_eq!(names, ["add", "slow", "echo", "my.mcp.test.x"]);
    let added = call(&client, "add", json!({ "a": 2, "b": 3 })).await?;
    assert_eq!(serde_json::to_value(&added.content)?[0]["text"], "5", "{added:?}");
    match call(&client, "mcp.test.first", json!({})).await.unwrap_err() {
        rmcp::ServiceError::McpError(error) => {
            assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
            assert_eq!(error.message, "Unknown tool: mcp.test.first");
        }
        other => return Err(other.into()),
    }
    client.cancel().await?;
    Ok(())
}

async fn call(
    client: &RunningService<RoleClient, ()>,
    name: &str,
    arguments: Value,
) -> Result<CallToolResult, rmcp::ServiceError> {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    client.call_tool(CallToolRequestParams::new(name.to_owned()).with_arguments(arguments)).await
}

/// Calls a tool that must succeed; returns the answer.
async fn answer(
    client: &RunningService<RoleClient, ()>,
    name: &str,
    arguments: Value,
) -> Result<Value, Failure> {
    let result = call(client, name, arguments).await?;
    assert_ne!(result.is_error, Some(true), "{result:?}");
    let content = serde_json::to_value(&result.content)?;
    Ok(serde_json::from_str(content[0]["text"].as_str().ok_or("the answer has no text")?)?)
}
