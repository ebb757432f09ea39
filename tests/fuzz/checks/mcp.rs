//! The Model Context Protocol: the filter hides all tests, and messages from agents are accepted or rejected.

use bytes::BytesMut;
use heeler_protocol::{
    StreamDecoder as _,
    mcp::{
        ANSWER_LIMIT_BYTES, CallToolResult, CancelRunArguments, FilterOutput, GetFailuresArguments,
        GetOutputArguments, LineDecoder, ListTestsArguments, NoArguments, OutputAnswer, PeerLine,
        RunTestsArguments, Tool, ToolFilter, is_test_tool, piece, request_era,
    },
    rpc::{self, RpcMessage},
};
use serde_json::Value;

use super::pieces::pieces;

/// Maximum line length. A low limit, so that the fuzzer reaches it.
const LINE_BYTES: usize = 1024;

/// Checks the filter with a conversation. Lines from the server begin with `<`; the others are from the
/// client.
pub fn mcp_filter(bytes: &[u8]) {
    let (whole, pieces) = pieces(bytes);
    let out = play(whole.split_inclusive(|byte| *byte == b'\n'));
    let single = pieces.len() > 1;
    let cut = whole.split_inclusive(|byte| *byte == b'\n').map(|line| play_line_in_bytes(line, single));
    let mut filter = ToolFilter::default();
    let mut again = FilterOutput::default();
    for (is_server, chunks) in cut {
        for chunk in chunks {
            feed(&mut filter, is_server, chunk, &mut again);
        }
    }
    filter.on_client_end(&mut again);
    filter.on_server_end(&mut again);
    assert_eq!(again, out, "cut otherwise");
    for line in out.to_server[..].split(|byte| *byte == b'\n') {
        for message in messages(line) {
            let is_call = message["method"] == "tools/call";
            let name = message["params"]["name"].as_str().unwrap_or_default();
            assert!(!(is_call && is_test_tool(name)), "a test is called: {message}");
        }
    }
    if let Ok(tools) = serde_json::from_slice::<Vec<Value>>(whole)
        && !whole.contains(&b'\n')
    {
        list(whole, tools);
    }
}

/// Checks a tool list that the filter sends to the client.
fn list(text: &[u8], tools: Vec<Value>) {
    let mut filter = ToolFilter::default();
    let mut out = FilterOutput::default();
    feed(&mut filter, false, b"{\"id\":1,\"method\":\"tools/list\"}\n", &mut out);
    let line = [b"{\"id\":1,\"result\":{\"tools\":", text, b"}}\n"].concat();
    feed(&mut filter, true, &line, &mut out);
    let read: Value = serde_json::from_slice(&out.to_client).expect("a filtered message is a message");
    let is_test = |tool: &Value| tool["name"].as_str().is_some_and(is_test_tool);
    let found = read["result"]["tools"].as_array().expect("a filtered list is a list");
    assert!(!found.iter().any(is_test), "a test is listed: {read}");
    // With keys in other cases or escapes, a lenient reader may see more tools than this check.
    let has_other_keys = text.to_ascii_lowercase() != text || !text.is_ascii() || text.contains(&b'\\');
    if !has_other_keys {
        let kept: Vec<_> = tools.into_iter().filter(|tool| !is_test(tool)).collect();
        let has_repeated_names = found.len() < kept.len();
        assert!(has_repeated_names || *found == kept, "another tool is gone");
    }
}

fn messages(line: &[u8]) -> Vec<Value> {
    match serde_json::from_slice(line) {
        Ok(Value::Array(batch)) => batch,
        Ok(message) => vec![message],
        Err(_) => Vec::new(),
    }
}

fn play<'a>(lines: impl Iterator<Item = &'a [u8]>) -> FilterOutput {
    let mut filter = ToolFilter::default();
    let mut out = FilterOutput::default();
    for line in lines {
        let (is_server, line) = side(line);
        feed(&mut filter, is_server, line, &mut out);
    }
    filter.on_client_end(&mut out);
    filter.on_server_end(&mut out);
    out
}

fn side(line: &[u8]) -> (bool, &[u8]) {
    line.strip_prefix(b"<").map_or((false, line), |line| (true, line))
}

fn play_line_in_bytes(line: &[u8], single: bool) -> (bool, Vec<&[u8]>) {
    let (is_server, line) = side(line);
    (is_server, line.chunks(if single { 1 } else { 7 }).collect())
}

fn feed(filter: &mut ToolFilter, is_server: bool, bytes: &[u8], out: &mut FilterOutput) {
    let fed = if is_server { filter.on_server_bytes(bytes, out) } else { filter.on_client_bytes(bytes, out) };
    fed.expect("no input is as long as the limit");
}

/// Checks messages from an agent: lines, eras and arguments.
pub fn mcp_message(bytes: &[u8]) {
    let (whole, pieces) = pieces(bytes);
    let lines = decode(&[whole]);
    assert_eq!(decode(&pieces), lines, "cut otherwise");
    for line in lines {
        let PeerLine::Message(line) = line else { continue };
        if let Ok(RpcMessage::Request { method, params, .. }) = rpc::parse(&line) {
            let _either_era = request_era(&method, params.as_deref());
        }
    }
    let Ok(text) = std::str::from_utf8(whole) else { return };
    let raw = serde_json::value::RawValue::from_string(text.to_owned()).ok();
    let _arguments = Tool::ListTests.parse_arguments::<ListTestsArguments>(raw.as_deref());
    let _arguments = Tool::RunTests.parse_arguments::<RunTestsArguments>(raw.as_deref());
    let _arguments = Tool::GetFailures.parse_arguments::<GetFailuresArguments>(raw.as_deref());
    let _arguments = Tool::GetOutput.parse_arguments::<GetOutputArguments>(raw.as_deref());
    let _arguments = Tool::CancelRun.parse_arguments::<CancelRunArguments>(raw.as_deref());
    let _arguments = Tool::TestProtocol.parse_arguments::<NoArguments>(raw.as_deref());
    let mut from = 0;
    while from < text.len() {
        let (begin, part) = piece(text, from, 0);
        assert_eq!(begin, from, "pieces join");
        let output = OutputAnswer { text: part.to_owned(), ..OutputAnswer::default() };
        let result = CallToolResult { structured_content: None, ..CallToolResult::object(&output) };
        let size = serde_json::to_string(&result).expect("an answer is JSON").len();
        assert!(size <= ANSWER_LIMIT_BYTES, "{size}");
        from += part.len();
    }
}

fn decode(pieces: &[&[u8]]) -> Vec<PeerLine> {
    let mut decoder = LineDecoder::with_limit(LINE_BYTES);
    let mut buffer = BytesMut::new();
    let mut lines = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        while let Ok(Some(line)) = decoder.decode(&mut buffer) {
            lines.push(line);
        }
    }
    lines
}
