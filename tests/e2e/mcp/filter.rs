//! `heeler mcp filter` with servers and clients that exit in every way.

use std::os::unix::process::ExitStatusExt as _;

use serde_json::json;

use super::session::LineProcess;
use crate::support::{
    process::{children, signal, state, wait_until},
    world::{TestWorld, run},
};

/// Starts a shell script as a server behind the filter.
fn filtered(world: &TestWorld, script: &str) -> LineProcess {
    world.write_program("server", &format!("#!/bin/bash\n{script}"));
    LineProcess::start(world.heeler(&["mcp", "filter", "--", "./server"]))
}

fn call(tool: &str) -> serde_json::Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": tool } })
}

#[test]
fn bytes_pass_unchanged_and_the_exit_code_is_that_of_the_server() {
    let world = TestWorld::new();
    let mut server = filtered(&world, "cat; echo over; exit 42");
    let odd = "no JSON \u{1}\t{\r\n\n{\"a\" : 1.50e0}\n{ \"jsonrpc\":\"2.0\" , \"id\":\"\\u0061\",\"method\":\"x/y\"}\r\nlast";
    server.write(odd.as_bytes());
    let (status, lines, stderr) = server.end();
    assert_eq!((lines.join("\n"), stderr.as_str()), (format!("{odd}over"), ""));
    assert_eq!(status.code(), Some(42));
}

#[test]
fn tests_are_neither_listed_nor_called() {
    let world = TestWorld::new();
    let list = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"mcp.test.a"}, {"name":"add"}],"nextCursor":"x"}}"#;
    let mut server = filtered(&world, &format!("read -r line; echo '{list}'; cat >seen; exit 0"));
    server.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
    let expected = list.replace(r#"{"name":"mcp.test.a"}, "#, "");
    assert_eq!(server.next_line(), Some(expected));
    server.send(&call("mcp.test.a"));
    let refused = server.response(&json!(7));
    assert_eq!(refused["error"]["code"], -32602);
    assert_eq!(refused["error"]["message"], "Unknown tool: mcp.test.a");
    server.send(&call("add"));
    assert_eq!(server.end().0.code(), Some(0));
    assert_eq!(world.read("seen"), format!("{}\n", call("add")));
}

#[test]
fn server_that_dies_in_the_middle_ends_the_filter_with_its_signal() {
    let world = TestWorld::new();
    let mut server = filtered(&world, "read -r line; printf '{\"half\":'; kill -SEGV $$");
    server.send(&call("add"));
    let (status, lines, stderr) = server.end_with_open_stdin();
    assert_eq!((status.code(), lines, stderr.as_str()), (Some(128 + 11), vec!["{\"half\":".to_owned()], ""));
}

#[test]
fn server_that_reads_nothing_still_writes() {
    let world = TestWorld::new();
    let mut server = filtered(&world, "exec 0<&-; for i in {1..200}; do echo \"line $i\"; done; exit 3");
    // Write more than a pipe buffer's capacity.
    for _ in 0..40 {
        server.write(&[vec![b'x'; 10_000], b"\n".to_vec()].concat());
    }
    let (status, lines, _) = server.end();
    assert_eq!((status.code(), lines.len()), (Some(3), 200));
}

#[test]
fn process_that_the_server_leaves_behind_does_not_keep_the_filter() {
    let world = TestWorld::new();
    let server = filtered(&world, "sleep 1000 & echo $! >left; echo here; exit 5");
    let (status, lines, _) = server.end_with_open_stdin();
    assert_eq!((status.code(), lines), (Some(5), vec!["here".to_owned()]));
    let left: u32 = world.read("left").trim().parse().unwrap();
    wait_until("the process that was left behind is gone", || state(left).is_none_or(|state| state == 'Z'));
}

#[test]
fn output_of_a_server_that_has_exited_is_passed_on_to_a_slow_client() {
    let world = TestWorld::new();
    // The output must fit in the buffers between server and client, because the client reads only after the
    // server has exited.
    let script = "for i in {1..7000}; do echo \"line $i of many\"; done; echo done >gone; exit 6";
    world.write_program("server", &format!("#!/bin/bash\n{script}"));
    let client = "until [ -e gone ]; do :; done; cat";
    let line = format!(
        "mkfifo in; exec 3<>in; \"$HEELER\" mcp filter -- ./server <in | {{ {client}; }}; exit ${{PIPESTATUS[0]}}"
    );
    let mut command = world.shell(&line);
    command.env("HEELER", env!("CARGO_BIN_EXE_heeler"));
    let ran = run(command).assert_code(6);
    assert_eq!(ran.stdout.lines().count(), 7000);
}

#[test]
fn signals_are_passed_on() {
    let world = TestWorld::new();
    let mut server = filtered(
        &world,
        "trap 'echo terminated; exit 9' TERM; echo ready; while :; do read -r -t 1 line; done",
    );
    assert_eq!(server.next_line().as_deref(), Some("ready"));
    signal(server.child.id(), "TERM");
    let (status, lines, _) = server.end_with_open_stdin();
    assert_eq!((status.code(), lines), (Some(9), vec!["terminated".to_owned()]));
}

#[test]
fn killed_filter_takes_the_server_with_it() {
    let world = TestWorld::new();
    let mut server = filtered(&world, "echo ready; read -r line");
    assert_eq!(server.next_line().as_deref(), Some("ready"));
    let pids: Vec<_> = children(server.child.id()).into_iter().map(|pid| pid.as_u32()).collect();
    assert_eq!(pids.len(), 1);
    signal(server.child.id(), "KILL");
    assert_eq!(server.end_with_open_stdin().0.signal(), Some(9));
    wait_until("the server is gone", || state(pids[0]).is_none_or(|state| state == 'Z'));
}

#[test]
fn too_long_line_ends_the_filter_with_its_limit() {
    let world = TestWorld::new();
    let mut server = filtered(&world, "cat >/dev/null");
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..17 {
        server.write(&chunk);
    }
    let (status, _, stderr) = server.end_with_open_stdin();
    assert_eq!(status.code(), Some(4));
    assert!(
        stderr.contains("failed to run the MCP server: read a line of the client: it exceeds 16777216 bytes"),
        "{stderr}"
    );
}

#[test]
fn large_messages_pass_in_both_directions() {
    let world = TestWorld::new();
    let mut server = filtered(&world, "cat");
    let text = "y".repeat(1 << 20);
    for id in 0..8 {
        server.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "x", "params": { "text": text } }));
    }
    let (status, lines, _) = server.end();
    assert_eq!((status.code(), lines.len()), (Some(0), 8));
    assert!(lines.iter().all(|line| line.len() > 1 << 20));
}

#[test]
fn missing_server_is_named() {
    let world = TestWorld::new();
    let ran = world.run(&["mcp", "filter", "--", "no-such-server", "--server"]).assert_code(4);
    ran.assert_stderr("MCP server not found in PATH: no-such-server");
    let ran = world.run(&["mcp", "filter", "--", "./no-such-server"]).assert_code(4);
    ran.assert_stderr("failed to run the MCP server: execute ./no-such-server: No such file or directory");
    world.run(&["mcp", "filter", "node"]).assert_code(5);
}
