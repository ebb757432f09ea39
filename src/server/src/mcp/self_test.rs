//! Tools that test this server. An in-memory client, written against the protocol's specification, plays both
//! eras in its own session. It lists tests but runs none.

use std::time::Duration;

use heeler_protocol::mcp::{AssertionLists, McpTestResult, TEST_TOOL_PREFIX, Tool};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf},
    sync::mpsc,
    task::JoinSet,
    time::{Instant, timeout_at},
};

use super::McpFrontEnd;
use crate::listen::{FrontEnd as _, SessionEnd, SessionOptions};
use crate::scheduler::SchedulerHandle;

/// Capacity of the in-memory connection.
const CONNECTION_BYTES: usize = 64 << 10;
/// Time limit of a whole test, shorter than the timeouts that the tools declare.
const TIME_LIMIT: Duration = Duration::from_secs(55);
/// Maximum number of test pages to read. The first ones show whether paging works.
const MAX_PAGES: usize = 20;

/// Runs one of the test tools.
///
/// Cancel safe: yes, because the session in memory ends with the test.
pub(super) async fn run(tool: Tool, options: SessionOptions, scheduler: SchedulerHandle) -> McpTestResult {
    let begun = Instant::now();
    let mut peer = Peer::connect(options, scheduler, begun + TIME_LIMIT);
    let played = match tool {
        Tool::TestProtocol => peer.test_protocol().await,
        _ => peer.test_capabilities().await,
    };
    let mut details = peer.assertions;
    if let Err(Lost(what)) = played {
        details.failed.push(what);
    }
    let success = details.failed.is_empty();
    McpTestResult {
        success,
        message: details.failed.first().cloned(),
        details: Some(details),
        duration: begun.elapsed().as_secs_f64() * 1000.0,
    }
}

/// The test can't continue. Contains the check that failed, or what the server did wrong.
struct Lost(String);

/// A client and its session.
struct Peer {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    deadline: Instant,
    /// Messages received while waiting for another one.
    passed_over: Vec<Value>,
    assertions: AssertionLists,
    /// Keeps the session from ending.
    _commands: mpsc::Sender<crate::listen::SessionCommand>,
    _session: JoinSet<SessionEnd>,
}

impl Peer {
    fn connect(options: SessionOptions, scheduler: SchedulerHandle, deadline: Instant) -> Self {
        let (ours, theirs) = tokio::io::duplex(CONNECTION_BYTES);
        let (commands, receiver) = mpsc::channel(1);
        let mut session = JoinSet::new();
        session.spawn(McpFrontEnd.serve(Box::new(theirs), options, scheduler, receiver));
        let (read, writer) = tokio::io::split(ours);
        Self {
            lines: BufReader::new(read).lines(),
            writer,
            deadline,
            passed_over: Vec::new(),
            assertions: AssertionLists::default(),
            _commands: commands,
            _session: session,
        }
    }

    fn check(&mut self, what: &str, holds: bool) {
        let list = if holds { &mut self.assertions.passed } else { &mut self.assertions.failed };
        list.push(what.to_owned());
    }

    async fn send(&mut self, text: &str) -> Result<(), Lost> {
        let written = timeout_at(self.deadline, self.writer.write_all(format!("{text}\n").as_bytes())).await;
        match written {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Lost("the server accepts input".to_owned())),
        }
    }

    /// Returns the next response with this id.
    async fn response(&mut self, id: &Value, what: &str) -> Result<Value, Lost> {
        loop {
            let line = match timeout_at(self.deadline, self.lines.next_line()).await {
                Ok(Ok(Some(line))) => line,
                Ok(Ok(None) | Err(_)) => {
                    return Err(Lost(format!("{what}: the server ended before it answered")));
                }
                Err(_) => return Err(Lost(format!("{what}: no answer within {} s", TIME_LIMIT.as_secs()))),
            };
            let message: Value = serde_json::from_str(&line)
                .map_err(|_| Lost(format!("{what}: the server sent a line that is not JSON")))?;
            if message["id"] == *id && message.get("method").is_none() {
                return Ok(message);
            }
            self.passed_over.push(message);
        }
    }

    /// Sends a request and returns the response.
    async fn request(&mut self, id: Value, method: &str, params: Value) -> Result<Value, Lost> {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(&message.to_string()).await?;
        self.response(&id, method).await
    }

    async fn test_capabilities(&mut self) -> Result<(), Lost> {
        let initialized = self.request(json!(1), "initialize", handshake("2025-11-25")).await?;
        // Methods of capabilities that are not declared must be rejected.
        let capabilities = &initialized["result"]["capabilities"];
        self.check("initialize declares tools", capabilities["tools"].is_object());
        for (capability, method) in
            [("resources", "resources/list"), ("prompts", "prompts/list"), ("logging", "logging/setLevel")]
        {
            let is_declared = capabilities.get(capability).is_some();
            let code = self.request(json!(2), method, json!({})).await?["error"]["code"].clone();
            self.check(&format!("{method} is served if it is declared"), is_declared || code == -32601);
        }
        // The list of tools.
        let listed = self.request(json!(3), "tools/list", json!({})).await?;
        let size = listed["result"].to_string().len();
        self.check("the list of tools has at most 6 KiB", size <= 6 << 10);
        let tools = listed["result"]["tools"].as_array().cloned().unwrap_or_default();
        let names: Vec<_> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
        self.check("all tools are listed", names == Tool::ALL.map(Tool::name));
        for tool in &tools {
            let name = tool["name"].as_str().unwrap_or_default();
            let is_described = tool["description"].is_string() && tool["inputSchema"]["type"] == "object";
            self.check(&format!("{name} has a description and a schema"), is_described);
            if name.starts_with(TEST_TOOL_PREFIX) {
                let metadata = &tool["testMetadata"];
                let is_complete = metadata["timeout"].is_u64()
                    && *metadata == tool["_meta"]["testMetadata"]
                    && tool["outputSchema"].is_object();
                self.check(
                    &format!("{name} has testMetadata at the top level and in _meta, and an output schema"),
                    is_complete,
                );
            }
        }
        // Invalid calls.
        let unknown = self.request(json!(4), "tools/call", json!({ "name": "no_such_tool" })).await?;
        self.check("an unknown tool is rejected", unknown["error"]["code"] == -32602);
        let wrong = json!({ "name": "list_tests", "arguments": { "filtre": "x" } });
        let wrong = self.request(json!(5), "tools/call", wrong).await?;
        self.check("invalid arguments are reported with isError", wrong["result"]["isError"] == true);
        Ok(())
    }

    async fn test_protocol(&mut self) -> Result<(), Lost> {
        self.test_legacy_era().await?;
        self.test_modern_era().await?;
        self.test_invalid_messages().await?;
        self.test_pages().await?;
        self.test_progress_and_cancel().await
    }

    async fn test_legacy_era(&mut self) -> Result<(), Lost> {
        for (requested, expected) in [("2024-11-05", "2024-11-05"), ("1999-01-01", "2025-11-25")] {
            let answer = self.request(json!(0), "initialize", handshake(requested)).await?;
            self.check(
                &format!("initialize with {requested} is answered with {expected}"),
                answer["result"]["protocolVersion"] == expected,
            );
        }
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string()).await?;
        for id in [json!(0), json!("a"), json!(1.5), json!(-7)] {
            let answer = self.request(id.clone(), "ping", json!({})).await?;
            self.check(&format!("ping with the id {id} is answered"), answer["result"] == json!({}));
        }
        Ok(())
    }

    async fn test_modern_era(&mut self) -> Result<(), Lost> {
        let discovered = self.request(json!("d"), "server/discover", modern("2026-07-28")).await?;
        let result = &discovered["result"];
        self.check(
            "server/discover names the versions",
            result["supportedVersions"] == json!(["2026-07-28"]) && result["resultType"] == "complete",
        );
        self.check(
            "server/discover states its TTL",
            result["ttlMs"].is_u64() && result["cacheScope"].is_string(),
        );
        let listed = self.request(json!("l"), "tools/list", modern("2026-07-28")).await?;
        let result = &listed["result"];
        self.check(
            "tools/list works without a handshake",
            result["tools"].is_array() && result["ttlMs"].is_u64(),
        );
        let other = self.request(json!("o"), "tools/list", modern("2099-01-01")).await?;
        let error = &other["error"];
        self.check(
            "an unsupported version is rejected with the supported versions",
            error["code"] == -32022 && error["data"]["supported"] == json!(["2026-07-28"]),
        );
        let bare = self.request(json!("b"), "server/discover", json!({})).await?;
        self.check("server/discover without _meta is rejected", bare["error"]["code"] == -32602);
        let ping = self.request(json!("p"), "ping", modern("2026-07-28")).await?;
        self.check("ping requires a handshake", ping["error"]["code"] == -32601);
        Ok(())
    }

    async fn test_invalid_messages(&mut self) -> Result<(), Lost> {
        for (text, code, what) in [
            ("{", -32700, "a line that is not JSON is rejected"),
            ("[{\"id\":1,\"method\":\"ping\"}]", -32600, "a batch is rejected"),
            ("{\"id\":{},\"method\":\"ping\"}", -32600, "an id that is an object is rejected"),
            ("{\"id\":null,\"method\":\"ping\"}", -32600, "an id that is null is rejected"),
        ] {
            self.send(text).await?;
            let answer = self.response(&Value::Null, what).await?;
            self.check(what, answer["error"]["code"] == code);
        }
        let unknown = self.request(json!(6), "no/such", json!({})).await?;
        self.check("an unknown method is rejected", unknown["error"]["code"] == -32601);
        Ok(())
    }

    async fn test_pages(&mut self) -> Result<(), Lost> {
        let (mut names, mut total, mut cursor) = (Vec::new(), 0, None);
        for page in 0..MAX_PAGES {
            let arguments = cursor.map_or(json!({}), |cursor: String| json!({ "cursor": cursor }));
            let call = json!({ "name": "list_tests", "arguments": arguments });
            let answer = self.request(json!(100 + page), "tools/call", call).await?;
            let size = answer["result"]["content"].to_string().len();
            self.check(&format!("page {} of the tests has at most 8 KiB", page + 1), size <= 8 << 10);
            let listed: Value = match content_text(&answer) {
                Some(text) if answer["result"]["isError"].is_null() => {
                    serde_json::from_str(text).unwrap_or_default()
                }
                text => {
                    let why = text.unwrap_or("no text");
                    self.assertions.skipped.push(format!("each test is on exactly one page: {why}"));
                    return Ok(());
                }
            };
            let tests = listed["tests"].as_array().cloned().unwrap_or_default();
            names.extend(tests.iter().map(|test| test["test"].to_string()));
            total = listed["total"].as_u64().unwrap_or(0);
            cursor = listed["nextCursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        let count = names.len() as u64;
        names.sort();
        names.dedup();
        let is_whole = cursor.is_some() || count == total;
        self.check("each test is on exactly one page", names.len() as u64 == count && is_whole);
        Ok(())
    }

    async fn test_progress_and_cancel(&mut self) -> Result<(), Lost> {
        self.passed_over.clear();
        let call = json!({ "name": "list_tests", "_meta": { "progressToken": "token" } });
        let answer = self.request(json!(200), "tools/call", call).await?;
        let mut progress =
            self.passed_over.iter().filter(|message| message["method"] == "notifications/progress");
        let has_progress = progress.any(|message| message["params"]["progressToken"] == "token");
        match answer["result"]["isError"].is_null() {
            true => self.check("progress comes before the answer", has_progress),
            false => self.assertions.skipped.push("progress comes before the answer".to_owned()),
        }
        // Sent in one write: the cancellation must be read before the listing can end.
        let call = json!({ "id": 201, "method": "tools/call", "params": { "name": "list_tests" } });
        let cancel = |id: i64| json!({ "method": "notifications/cancelled", "params": { "requestId": id } });
        self.passed_over.clear();
        self.send(&format!("{call}\n{}\n{}", cancel(201), cancel(999))).await?;
        let _later = self.request(json!(202), "tools/call", json!({ "name": "list_tests" })).await?;
        let is_answered = self.passed_over.iter().any(|message| message["id"] == 201);
        self.check("a cancelled call gets no answer", !is_answered);
        let ping = self.request(json!(203), "ping", json!({})).await?;
        self.check("cancelling an unknown id is ignored", ping["result"].is_object());
        Ok(())
    }
}

fn handshake(version: &str) -> Value {
    json!({
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": { "name": "heeler-self-test", "version": env!("CARGO_PKG_VERSION") },
    })
}

fn modern(version: &str) -> Value {
    json!({ "_meta": {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    } })
}

fn content_text(answer: &Value) -> Option<&str> {
    answer["result"]["content"][0]["text"].as_str()
}
