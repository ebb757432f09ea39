//! Sample of each message that Heeler sends over the Model Context Protocol.

use std::fmt::Debug;

use bytes::Bytes;
use heeler_protocol::{
    mcp::{
        AssertionLists, CallToolResult, Cursor, DiscoverResult, Era, EraResult, FailureItem, FilterOutput,
        InitializeResult, ListedTestItem, McpTestResult, OutputAnswer, ProgressParams, ResultCaching,
        RunAnswer, RunCounts, TestsAnswer, ToolFilter, encode_error, encode_notification, encode_result,
        list_of_tools, method, request_era,
    },
    rpc::{self, RequestId, RpcError, RpcMessage},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::messages::MessageSample;

const RUN: &str = "0b1f6f57-0d0e-4d0c-8a4b-5a1f3f4c2d11";
const INSTRUCTIONS: &str = "Runs this project's tests.";

fn id() -> RequestId {
    RequestId::number(7)
}

fn sample(
    name: &'static str,
    line: &Bytes,
    read_back: impl Fn(RpcMessage) -> bool + 'static,
) -> MessageSample {
    let line = String::from_utf8(line.to_vec()).unwrap();
    let body = line.strip_suffix('\n').unwrap();
    // Keeps the sample unchanged across releases.
    let own = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let body = body.replace(&own, "\"version\":\"0.1.0\"");
    let read_back = move |text: &str| {
        let message = rpc::parse(text.as_bytes()).map_err(|error| error.to_string())?;
        let described = format!("{message:?}");
        if read_back(message) { Ok(()) } else { Err(described) }
    };
    MessageSample { name, body, read_back: Box::new(read_back) }
}

/// Returns the sample of an answer in an era.
fn result<R>(name: &'static str, result: R, era: Era, caching: ResultCaching) -> MessageSample
where
    R: Serialize + DeserializeOwned + PartialEq + Debug + Clone + 'static,
{
    let line = encode_result(&id(), &EraResult::new(result.clone(), era, caching));
    sample(name, &line, move |message| match message {
        RpcMessage::Response { id: read, outcome: Ok(Some(text)) } => {
            read == id() && serde_json::from_str::<R>(text.get()).is_ok_and(|read| read == result)
        }
        _ => false,
    })
}

fn error(name: &'static str, line: &Bytes, error: RpcError) -> MessageSample {
    sample(name, line, move |message| {
        matches!(message, RpcMessage::Response { id: read, outcome: Err(read_error) }
            if read == id() && read_error == error)
    })
}

pub(crate) fn samples() -> Vec<MessageSample> {
    let modern = |name, text| result(name, text, Era::Modern, ResultCaching::Volatile);
    let mut initialized = InitializeResult::new("2025-11-25", INSTRUCTIONS);
    initialized.server_info.version = "0.1.0".to_owned();
    let progress = ProgressParams {
        progress_token: id(),
        progress: 12.0,
        total: Some(70),
        message: Some(format!("run {RUN}: 12 of 70 tests, 1 failed")),
    };
    let line = encode_notification(method::PROGRESS, &progress);
    let progress = sample("mcp-progress", &line, move |message| match message {
        RpcMessage::Notification { method: called, params: Some(text) } => {
            called == method::PROGRESS
                && serde_json::from_str::<ProgressParams>(text.get()).is_ok_and(|read| read == progress)
        }
        _ => false,
    });
    vec![
        result("mcp-initialize-answer", initialized, Era::Legacy, ResultCaching::Stable),
        result("mcp-discover-answer", DiscoverResult::new(INSTRUCTIONS), Era::Modern, ResultCaching::Stable),
        tools_list(),
        modern("mcp-tests-answer", CallToolResult::object(&tests_answer())),
        modern("mcp-run-answer", CallToolResult::object(&run_answer())),
        modern("mcp-output-answer", CallToolResult::object(&output_answer())),
        modern("mcp-test-tool-answer", CallToolResult::object(&test_result())),
        result(
            "mcp-error-answer",
            CallToolResult::error("invalid filter".to_owned()),
            Era::Legacy,
            ResultCaching::Volatile,
        ),
        progress,
        unsupported_version(),
        refused_call(),
    ]
}

/// Raw values are equal if their texts are equal.
fn tools_list() -> MessageSample {
    let line = encode_result(&id(), &EraResult::new(list_of_tools(), Era::Modern, ResultCaching::Stable));
    sample("mcp-tools-list-answer", &line, |message| match message {
        RpcMessage::Response { id: read, outcome: Ok(Some(text)) } => {
            let value: serde_json::Value = serde_json::from_str(text.get()).unwrap();
            let tools: serde_json::Value = serde_json::from_str(list_of_tools().tools.get()).unwrap();
            read == id() && value["tools"] == tools
        }
        _ => false,
    })
}

fn tests_answer() -> TestsAnswer {
    let (test, file) = ("unit::Parser.ReadsNothing".to_owned(), Some("/src/parser_test.cc".to_owned()));
    let listed = ListedTestItem { test, file, line: Some(7), error: None };
    let error = Some("the program can't be listed".to_owned());
    let broken = ListedTestItem { test: "net".to_owned(), error, ..ListedTestItem::default() };
    TestsAnswer { total: 600, tests: vec![listed, broken], next_cursor: Some(Cursor(2)) }
}

fn run_answer() -> RunAnswer {
    let failure = FailureItem {
        test: "unit::Parser.ReadsNothing".to_owned(),
        outcome: "failed".to_owned(),
        file: Some("/src/parser_test.cc".to_owned()),
        line: Some(9),
        message: Some("expected 1, got \"2\"".to_owned()),
    };
    RunAnswer {
        run: RUN.to_owned(),
        state: "completed",
        duration_ms: 1500,
        counts: RunCounts { selected: 70, by_outcome: vec![("passed", 68), ("failed", 2)] },
        total_failures: 2,
        failures: vec![failure],
        next_cursor: Some(Cursor(1)),
        warnings: vec!["the history can't be read".to_owned()],
    }
}

fn output_answer() -> OutputAnswer {
    OutputAnswer {
        run: RUN.to_owned(),
        test: "unit::Parser.ReadsNothing".to_owned(),
        outcome: "failed".to_owned(),
        from: 0,
        total: 9000,
        text: "--- message ---\nexpected 1\n".to_owned(),
        next: Some(7000),
    }
}

fn test_result() -> McpTestResult {
    let details = AssertionLists {
        passed: vec!["initialize declares tools".to_owned()],
        failed: vec!["a batch is rejected".to_owned()],
        skipped: vec!["progress comes before the answer".to_owned()],
    };
    let message = Some("a batch is rejected".to_owned());
    McpTestResult { success: false, message, details: Some(details), duration: 5.5 }
}

fn unsupported_version() -> MessageSample {
    let params = serde_json::json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2099-01-01" } });
    let params = serde_json::value::to_raw_value(&params).unwrap();
    let refused = request_era(method::TOOLS_LIST, Some(&params)).unwrap_err();
    error("mcp-version-error", &encode_error(&id(), &refused), refused)
}

/// The filter's answer in place of the server's.
fn refused_call() -> MessageSample {
    let mut out = FilterOutput::default();
    let call = b"{\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"mcp.test.protocol\"}}\n";
    ToolFilter::default().on_client_bytes(call, &mut out).unwrap();
    let refused = RpcError::new(rpc::code::INVALID_PARAMS, "Unknown tool: mcp.test.protocol");
    error("mcp-refused-call", &out.to_client.freeze(), refused)
}
