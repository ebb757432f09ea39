//! Conversations through the filter, split at every byte.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// A step of a conversation.
#[derive(Clone, Copy)]
enum Step<'a> {
    Client(&'a str),
    Server(&'a str),
}
use Step::{Client, Server};

/// Plays a conversation in pieces of this size; `0` for whole steps.
fn play_in_pieces(steps: &[Step<'_>], size: usize) -> FilterOutput {
    let mut filter = ToolFilter::default();
    let mut out = FilterOutput::default();
    for step in steps {
        let (Client(text) | Server(text)) = step;
        for piece in text.as_bytes().chunks(if size == 0 { text.len().max(1) } else { size }) {
            match step {
                Client(_) => filter.on_client_bytes(piece, &mut out).unwrap(),
                Server(_) => filter.on_server_bytes(piece, &mut out).unwrap(),
            }
        }
    }
    filter.on_client_end(&mut out);
    filter.on_server_end(&mut out);
    out
}

impl FilterOutput {
    fn into_texts(self) -> (String, String) {
        (text(&self.to_server), text(&self.to_client))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Plays a conversation, and checks that the result does not depend on how its bytes are split.
#[track_caller]
fn play(steps: &[Step<'_>]) -> (String, String) {
    let whole = play_in_pieces(steps, 0);
    for size in 1..40 {
        assert_eq!(play_in_pieces(steps, size), whole, "in pieces of {size}");
    }
    for (place, step) in steps.iter().enumerate() {
        let (Client(text) | Server(text)) = *step;
        for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
            let (one, other) = text.split_at(cut);
            let halves = match step {
                Client(_) => [Client(one), Client(other)],
                Server(_) => [Server(one), Server(other)],
            };
            let cut_steps = [&steps[..place], &halves, &steps[place + 1..]].concat();
            assert_eq!(play_in_pieces(&cut_steps, 0), whole, "step {place} cut at {cut}");
        }
    }
    whole.into_texts()
}

const LIST: &str = "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"tools/list\"}\n";

/// Returns the list of tools that the client receives for a list of the server.
#[track_caller]
fn filtered(tools: &str) -> String {
    let line =
        |tools: &str| format!("{{\"id\":0,\"result\":{{\"tools\":{tools},\"nextCursor\":\"n\"}}}}\r\n");
    let (_, to_client) = play(&[Client(LIST), Server(&line(tools))]);
    let head = line("").len() - ",\"nextCursor\":\"n\"}}\r\n".len();
    to_client[head..to_client.len() - ",\"nextCursor\":\"n\"}}\r\n".len()].to_owned()
}

#[test]
fn test_tools_are_cut_out_of_a_list_and_every_other_byte_stays() {
    let test = r#"{"name":"mcp.test.a","x":[{}]}"#;
    for (tools, expected) in [
        ("[]", "[]".to_owned()),
        ("[ ]", "[ ]".to_owned()),
        (r#"[{"name":"a"} , {"name":"b"}]"#, r#"[{"name":"a"} , {"name":"b"}]"#.to_owned()),
        (&format!("[{test}]"), "[]".to_owned()),
        (&format!("[ {test} ]"), "[  ]".to_owned()),
        (&format!(r#"[{test}, {{"name":"b"}}]"#), r#"[{"name":"b"}]"#.to_owned()),
        (&format!(r#"[{{"name":"b"}} , {test}]"#), r#"[{"name":"b"}]"#.to_owned()),
        (
            &format!(r#"[{test},{test},{{"name":"b"}},{test}, {{"name":"c"}},{test}]"#),
            r#"[{"name":"b"}, {"name":"c"}]"#.to_owned(),
        ),
        (
            r#"[{"name":"mcp.test"},{"name":"my.mcp.test.a"},{"name":"MCP.test.a"}]"#,
            r#"[{"name":"mcp.test"},{"name":"my.mcp.test.a"},{"name":"MCP.test.a"}]"#.to_owned(),
        ),
        (r#"[{"name":"\u006dcp\u002etest.a"}]"#, "[]".to_owned()),
        (r#"[{"name":"ok","name":"mcp.test.a"},{"Name":"mcp.test.b"}]"#, "[]".to_owned()),
        (r#"[7,null,"mcp.test.a",["mcp.test.a"]]"#, r#"[7,null,"mcp.test.a",["mcp.test.a"]]"#.to_owned()),
        (r#"{"name":"mcp.test.a"}"#, r#"{"name":"mcp.test.a"}"#.to_owned()),
    ] {
        assert_eq!(filtered(tools), expected, "{tools}");
    }
}

#[test]
fn call_of_a_test_tool_is_answered_and_not_forwarded() {
    for (id, answered) in [("0", "0"), ("\"a\"", "\"a\""), ("1.50", "1.50"), ("null", "null"), ("{}", "null")]
    {
        let call = format!(
            "{{\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"mcp.test.x\",\"arguments\":{{}}}}}}\n"
        );
        let (to_server, to_client) = play(&[Client(&call)]);
        assert_eq!(to_server, "", "{id}");
        assert_eq!(
            to_client,
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":{answered},\"error\":{{\"code\":-32602,\"message\":\"Unknown tool: mcp.test.x\",\"data\":{{}}}}}}\n"
            )
        );
    }
    // A message without an id gets no response.
    let notification = r#"{"method":"tools/call","params":{"name":"mcp.test.x"}}"#;
    assert_eq!(play(&[Client(notification)]), (String::new(), String::new()));
}

#[test]
fn call_is_recognised_however_it_is_written() {
    for call in [
        r#"{"id":1,"method":"tools\/call","params":{"name":"mcp.test.x"}}"#,
        r#"{"params":{"name":"\u006dcp.test.x"},"method":"\u0074ools/call","id":1}"#,
        r#"{"id":1,"method":"ping","method":"tools/call","params":{},"params":{"name":"a","name":"mcp.test."}}"#,
        r#"{"ID":1,"Method":"tools/call","Params":{"NAME":"mcp.test.x"}}"#,
        "\u{feff}{\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"mcp.test.\\ud800\"}}",
        r#"{"id":1,"x":NaN,"method":"tools/call","params":{"name":"mcp.test.x","y":-Infinity}}"#,
        // A reader that converts the list to text finds the tool.
        r#"{"id":1,"method":"tools/call","params":{"name":["mcp.test.x"]}}"#,
    ] {
        let (to_server, to_client) = play(&[Client(&format!("{call}\n"))]);
        assert_eq!(to_server, "", "{call}");
        assert!(to_client.contains("-32602"), "{call}: {to_client}");
    }
    let deep = format!(
        r#"{{"id":1,"method":"tools/call","params":{{"a":{}{},"name":"mcp.test.x"}}}}"#,
        "[".repeat(300),
        "]".repeat(300)
    );
    assert_eq!(play_in_pieces(&[Client(&deep)], 0).to_server, b""[..]);
}

#[test]
fn everything_else_passes_byte_for_byte() {
    let client = [
        "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"name\":\"mcp.test.x\"}}\r\n",
        "{ \"id\" : 1 , \"method\" : \"tools/call\" , \"params\" : {\"name\":\"add\",\"arguments\":{\"name\":\"mcp.test.x\"}} }\n",
        "{\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":77}}\n",
        "[{\"id\":2,\"method\":\"ping\"},7]\n",
        "\n \r\n",
        "no JSON at all, mcp.test.x\n",
        "{\"a\":1}} mcp.test.x\n",
        "\"mcp.test.x\"\n",
        "{\"id\":3,\"result\":{\"tools\":[{\"name\":\"mcp.test.x\"}]}}",
    ];
    let server = [
        "{\"id\":0,\"result\":{\"tools\":[{\"name\":\"mcp.test.x\"}]}}\n",
        "listening on {\n",
        "{\"id\":5,\"method\":\"roots/list\"}\r\n",
        "{\"method\":\"notifications/message\",\"params\":{\"data\":\"mcp.test.x\"}}\n",
        "{\n",
        "no end",
    ];
    let steps: Vec<_> =
        client.iter().map(|text| Client(text)).chain(server.iter().map(|text| Server(text))).collect();
    // No list was requested, so no response contains one.
    assert_eq!(play(&steps), (client.concat(), server.concat()));
}

const TOOL: &str = "{\"name\":\"mcp.test.x\"}";

/// Returns a response that lists a test.
fn response_with_tools(id: &str) -> String {
    format!("{{\"id\":{id},\"result\":{{\"tools\":[{TOOL}]}}}}\n")
}

#[test]
fn every_response_with_tools_is_filtered_whatever_its_id() {
    for (requested, answered) in [
        ("0", "0"),
        ("1", "1.0"),
        ("1e0", "1"),
        ("9007199254740993", "9007199254740992"),
        ("\"a\"", "\"\\u0061\""),
        // Clients convert ids: `Number(id)` in TypeScript, `int(id)` in Python.
        ("1", "\"1\""),
        ("1", "\" 0x1 \""),
        ("10", "\"1_0\""),
        ("\"7\"", "7"),
        ("0", "null"),
        ("0", "[]"),
        ("1", "true"),
        ("1", "2"),
    ] {
        let list = format!("{{\"id\":{requested},\"method\":\"tools/list\"}}\n");
        let response = response_with_tools(answered);
        // Several requests may have the same id, so the second response may also be a list.
        let (_, to_client) = play(&[Client(&list), Server(&response), Server(&response)]);
        assert_eq!(to_client, response.replace(TOOL, "").repeat(2), "{requested} {answered}");
    }
    let without_id = response_with_tools("0").replace("\"id\":0,", "");
    let (_, to_client) = play(&[Client(LIST), Server(&without_id)]);
    assert_eq!(to_client, without_id.replace(TOOL, ""));
}

#[test]
fn nothing_that_a_client_sends_ends_the_filtering_of_lists() {
    let cancel = "{\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":0}}\n";
    let lists: String = (0..100).map(|_| format!("{LIST}{cancel}")).collect();
    let late = response_with_tools("0");
    let (to_server, to_client) = play_in_pieces(&[Client(&lists), Server(&late.repeat(100))], 0).into_texts();
    assert_eq!((to_server, to_client), (lists, late.replace(TOOL, "").repeat(100)));

    // Another request with the same id, which is answered first.
    let other = "{\"id\":0,\"method\":\"ping\"}\n";
    for answer in
        ["{\"id\":0,\"result\":{}}\n", "{\"id\":0,\"error\":{\"code\":-32603,\"message\":\"no\"}}\n"]
    {
        let (_, to_client) = play(&[Client(LIST), Client(other), Server(answer), Server(&late)]);
        assert_eq!(to_client, format!("{answer}{}", late.replace(TOOL, "")));
    }
}

#[test]
fn message_behind_another_line_end_is_seen() {
    let call = r#"{"id":1,"method":"tools/call","params":{"name":"mcp.test.x"}}"#;
    for end in ["\r", "\u{2028}", "\u{2029}", "\u{b}", "\u{c}", "\u{1c}", "\u{1d}", "\u{1e}", "\u{85}"] {
        for line in [
            format!("garbage{end}{call}\n"),
            format!("{call}{end}garbage\r\n"),
            format!("{{{end}[7,{call}]{end}\n"),
            format!("\u{2028}{{\"a\":1}}{end}{call}{end}\n"),
        ] {
            let (to_server, to_client) = play(&[Client(&line)]);
            assert_eq!(to_server, "", "{line:?}");
            assert!(to_client.contains("Unknown tool: mcp.test.x"), "{line:?}: {to_client}");
        }
        let list = format!("garbage{end}{LIST}");
        let response = response_with_tools("0");
        let (to_server, to_client) = play(&[Client(&list), Server(&response)]);
        assert_eq!((to_server, to_client), (list, response.replace(TOOL, "")));
    }
    // Inside a JSON string, these characters do not end a line.
    let text = "{\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"a\",\"x\":\"\u{2028}mcp.test.x\u{85}\"}}\r\n";
    assert_eq!(play(&[Client(text)]).0, text);
    // A server writes its progress before the message.
    let response = response_with_tools("0");
    let line = format!("10 %\r20 %\r{response}");
    assert_eq!(play(&[Client(LIST), Server(&line)]).1, line.replace(TOOL, ""));
}

#[test]
fn line_that_readers_decode_otherwise_is_refused() {
    let call = "{\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"mcp.test.x\"}}\n";
    let utf16 = |bytes: fn(u16) -> [u8; 2]| call.encode_utf16().flat_map(bytes).collect::<Vec<_>>();
    let overlong =
        [b"{\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"mcp\xc0\xaetest.x\"}}\n".as_slice()];
    for line in [utf16(u16::to_le_bytes), utf16(u16::to_be_bytes), overlong.concat()] {
        let (mut filter, mut out) = (ToolFilter::default(), FilterOutput::default());
        filter.on_client_bytes(&line, &mut out).unwrap();
        filter.on_client_end(&mut out);
        assert_eq!(out.to_server, b""[..]);
        assert!(text(&out.to_client).contains("-32700"), "{}", text(&out.to_client));
    }
}

#[test]
fn bodies_that_no_strict_reader_takes_are_not_readable() {
    for body in ["", " ", "{}", "[{\"a\":NaN},7]", "{\"a\":{\"b\":[1]}} {}", "\u{feff}7"] {
        assert!(is_readable_message(body.as_bytes()), "{body}");
    }
    for body in
        ["{", "{}}", "{a:1}", "{'a':1}", "{/**/\"a\":1}", "[{a:1}]", "{\"p\":{a:1}}", "a: 1", "//\n{}"]
    {
        assert!(!is_readable_message(body.as_bytes()), "{body}");
    }
}

#[test]
fn batches_are_filtered_item_by_item() {
    let call = r#"{"id":1,"method":"tools/call","params":{"name":"mcp.test.x"}}"#;
    let batch = format!("[{LIST},{call} ,{{\"id\":2,\"method\":\"ping\"}}]\n").replace("}\n,", "},");
    let responses =
        r#"[{"id":2,"result":{}}, {"id":0,"result":{"tools":[{"name":"a"},{"name":"mcp.test.x"}]}}]"#;
    let (to_server, to_client) = play(&[Client(&batch), Server(responses)]);
    assert_eq!(to_server, batch.replace(&format!(",{call}"), ""));
    assert!(to_client.starts_with("{\"jsonrpc\":\"2.0\",\"id\":1,\"error\""), "{to_client}");
    assert!(
        to_client.ends_with(r#"[{"id":2,"result":{}}, {"id":0,"result":{"tools":[{"name":"a"}]}}]"#),
        "{to_client}"
    );
    let (to_server, to_client) = play(&[Client(&format!("[{call},{call}]\n"))]);
    assert_eq!((to_server.as_str(), to_client.lines().count()), ("", 2));
}

#[test]
fn several_messages_on_a_line_are_checked_each() {
    let call = r#"{"id":1,"method":"tools/call","params":{"name":"mcp.test.x"}}"#;
    let (to_server, _) = play(&[Client(&format!("{{\"id\":2,\"method\":\"ping\"}}{call}\n"))]);
    assert_eq!(to_server, "{\"id\":2,\"method\":\"ping\"}\n");
}

#[test]
fn message_over_several_lines_is_refused() {
    let (to_server, to_client) = play(&[
        Client("{\"id\":1,\n"),
        Client("\"method\":\"tools/call\",\"params\":{\"name\":\"mcp.test.x\"}}\n"),
    ]);
    // The rest is not a message.
    assert_eq!(to_server, "\"method\":\"tools/call\",\"params\":{\"name\":\"mcp.test.x\"}}\n");
    assert!(to_client.contains("-32700"), "{to_client}");
    let (_, to_client) = play(&[
        Client(LIST),
        Server("{\"id\":0,\"result\":\n"),
        Server("{\"tools\":[{\"name\":\"mcp.test.x\"}]}}\n"),
    ]);
    assert_eq!(to_client, "{\"tools\":[{\"name\":\"mcp.test.x\"}]}}\n");
}

#[test]
fn answer_of_the_filter_never_splits_a_line_of_the_server() {
    let call = "{\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"mcp.test.x\"}}\n";
    let mut filter = ToolFilter::default();
    let mut out = FilterOutput::default();
    filter.on_server_bytes(b"{\"method\":", &mut out).unwrap();
    filter.on_client_bytes(call.as_bytes(), &mut out).unwrap();
    assert_eq!(out.to_client, b"{\"method\":"[..]);
    filter.on_server_bytes(b"\"x\"}\n{", &mut out).unwrap();
    let text = text(&out.to_client);
    let lines: Vec<_> = text.split('\n').collect();
    assert_eq!((lines[0], lines[2]), ("{\"method\":\"x\"}", "{"));
    assert!(lines[1].contains("-32602"));
}

#[test]
fn too_long_lines_end_the_connection() {
    let chunk = vec![b'x'; 1 << 20];
    let mut filter = ToolFilter::default();
    let mut out = FilterOutput::default();
    // The server's lines are only collected while a list is expected.
    for _ in 0..20 {
        filter.on_server_bytes(&chunk, &mut out).unwrap();
    }
    filter.on_server_bytes(b"\n", &mut out).unwrap();
    assert_eq!(out.to_client.len(), (20 << 20) + 1);
    filter.on_client_bytes(LIST.as_bytes(), &mut out).unwrap();
    let fed = (0..17).map(|_| filter.on_server_bytes(&chunk, &mut out)).find_map(Result::err);
    assert_eq!(fed, Some(FilterError::ServerLine));
    // After the list has arrived, the result of a tool may have any size.
    let (mut filter, mut out) = (ToolFilter::default(), FilterOutput::default());
    filter.on_client_bytes(LIST.as_bytes(), &mut out).unwrap();
    filter.on_server_bytes(response_with_tools("0").as_bytes(), &mut out).unwrap();
    out.to_client.clear();
    for _ in 0..20 {
        filter.on_server_bytes(&chunk, &mut out).unwrap();
    }
    filter.on_server_bytes(b"\n", &mut out).unwrap();
    assert_eq!(out.to_client.len(), (20 << 20) + 1);
    let mut filter = ToolFilter::default();
    let fed = (0..17).map(|_| filter.on_client_bytes(&chunk, &mut out)).find_map(Result::err);
    assert_eq!(fed, Some(FilterError::ClientLine));
}

proptest! {
    #[test]
    fn list_has_the_other_tools_in_their_order(names in prop::collection::vec("(mcp\\.test\\.[a-c]|[a-c\"\\\\]{0,3})", 0..8)) {
        let tools: Vec<Value> = names.iter().map(|name| serde_json::json!({"name": name, "d": [name]})).collect();
        let line = format!("{}\n", serde_json::json!({"id": 0, "result": {"tools": tools}}));
        let out = play_in_pieces(&[Client(LIST), Server(&line)], 0);
        let read: Value = serde_json::from_slice(&out.to_client).unwrap();
        let kept: Vec<Value> = tools.into_iter().filter(|tool| !is_test_tool(tool["name"].as_str().unwrap())).collect();
        prop_assert_eq!(&read["result"]["tools"], &Value::from(kept));
    }
}
