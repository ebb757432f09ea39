//! `heeler serve mcp` with clients that break the protocol or disconnect at any time.

use serde_json::{Value, json};

use super::session::LineProcess;
use crate::support::{
    process::{signal, wait_until},
    world::TestWorld,
};

fn served(world: &TestWorld, words: &[&str]) -> LineProcess {
    LineProcess::start(world.heeler(&[&["serve", "mcp"], words].concat()))
}

/// Returns the parameters of a request of the modern era.
fn modern(arguments: Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let mut params = arguments;
    params["_meta"] = meta;
    params
}

#[test]
fn garbage_is_refused_and_the_session_goes_on() {
    let world = TestWorld::with_fake("json-lines");
    let mut server = served(&world, &["json-lines"]);
    // Lines that are not requests, are wrongly encoded or are too long.
    for (line, code) in [
        ("{", -32700),
        ("\u{1}", -32700),
        ("[]", -32600),
        ("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", -32600),
        ("{}", -32600),
        ("7", -32600),
        ("{\"id\":{},\"method\":\"ping\"}", -32600),
        ("{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", -32600),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"tools/call\",\"params\":{\"name\":\"list_tests\"}}",
            -32600,
        ),
        ("{\"id\":1,\"id\":2,\"method\":\"ping\"}", -32600),
    ] {
        server.write(format!("{line}\n").as_bytes());
        assert_eq!(server.response(&Value::Null)["error"]["code"], code, "{line}");
    }
    server.write(b"{\"id\":1,\"method\":\"\xff\"}\n\n\r\n");
    assert_eq!(server.response(&Value::Null)["error"]["code"], -32700);
    server.write(&[vec![b'x'; (16 << 20) + 1], b"\n".to_vec()].concat());
    let too_long = server.response(&Value::Null);
    assert_eq!(too_long["error"]["message"], "line too long: the limit is 16777216 bytes");
    // Requests with wrong methods or parameters.
    for (method, params, code) in [
        ("no/such", json!({}), -32601),
        ("tools/call", json!([]), -32602),
        ("tools/call", json!({ "name": 7 }), -32602),
        ("tools/call", json!({ "name": "x" }), -32602),
        ("initialize", json!({}), -32602),
        ("tools/list", json!({ "cursor": "no such page" }), -32602),
        ("tools/list", json!({ "cursor": 7 }), -32602),
        ("server/discover", json!({}), -32602),
        ("ping", modern(json!({})), -32601),
    ] {
        assert_eq!(
            server.request(json!(1), method, params.clone())["error"]["code"],
            code,
            "{method} {params}"
        );
    }
    // The server ignores responses and notifications that do not match an open request.
    server.send(&json!({ "jsonrpc": "2.0", "id": 9, "result": {} }));
    server.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "none" } }),
    );
    server.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": 7 }));
    server.send(&json!({ "jsonrpc": "2.0", "method": "notifications/whatever" }));
    assert_eq!(server.request(json!(2), "ping", json!({}))["result"], json!({}));
    let (status, lines, _) = server.end();
    assert_eq!((status.code(), lines), (Some(0), vec![]));
}

#[test]
fn ids_of_every_kind_are_echoed() {
    let world = TestWorld::with_fake("json-lines");
    let mut server = served(&world, &["json-lines"]);
    for id in ["0", "-1", "1.5", "1e3", "\"\"", "\"a\\u00fc\"", "18446744073709551616"] {
        server.write(format!("{{\"id\":{id},\"method\":\"ping\"}}\n").as_bytes());
        let expected = id.replace("\\u00fc", "ü");
        assert_eq!(
            server.next_line().unwrap(),
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{expected},\"result\":{{}}}}")
        );
    }
    // A call may have the id 0, but two open calls must not share an id.
    let call = json!({ "id": 0, "method": "tools/call", "params": { "name": "list_tests" } });
    server.write(format!("{call}\n{call}\n").as_bytes());
    assert_eq!(server.response(&json!(0))["error"]["message"], "request id 0 is already in use");
    assert!(server.response(&json!(0))["result"]["content"].is_array());
    assert_eq!(server.end().0.code(), Some(0));
}

#[test]
fn calls_beyond_the_limit_are_refused() {
    let world = TestWorld::with_gtest("kinds");
    let mut server = served(&world, &["kinds"]);
    begin_endless_run(&mut server);
    let run = json!({ "name": "run_tests", "arguments": { "filter": "test(Hang.Forever)" } });
    for id in 2..=65 {
        server.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": run }));
    }
    let refused = server.response(&json!(65));
    assert_eq!(refused["error"]["message"], "too many calls in progress (limit: 64); wait for one to finish");
    assert_eq!(server.request(json!("p"), "ping", json!({}))["result"], json!({}));
    assert_eq!(server.end().0.code(), Some(0));
    world.check_tidy();
}

/// Checks the size of the answer's text and of its structured content.
#[track_caller]
fn check_size(answer: &Value) {
    for form in ["content", "structuredContent"] {
        assert!(answer["result"][form].to_string().len() <= 8 << 10, "{form}");
    }
}

#[test]
fn answers_stay_within_their_limit_and_pages_have_everything_once() {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "600");
    let mut server = served(&world, &["big"]);
    let (mut names, mut cursor) = (Vec::new(), json!(null));
    for id in 1.. {
        let call = json!({ "name": "list_tests", "arguments": { "cursor": cursor } });
        let answer = server.request(json!(id), "tools/call", modern(call));
        check_size(&answer);
        assert_eq!(answer["result"]["resultType"], "complete");
        let page: Value =
            serde_json::from_str(answer["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(page["total"], 600);
        names.extend(page["tests"].as_array().unwrap().iter().map(|test| test["test"].to_string()));
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 600);
    assert_eq!(server.end().0.code(), Some(0));
}

#[test]
fn results_have_the_form_that_their_tools_declare() {
    let world = TestWorld::with_gtest("kinds");
    let mut server = served(&world, &["kinds"]);
    let listed = server.request(json!(0), "tools/list", json!({}));
    let run = server.call(1, "run_tests", json!({ "filter": "not test(Hang.Forever)" }));
    let failed = run["failures"][0]["test"].clone();
    for (id, tool) in (10..).zip(listed["result"]["tools"].as_array().unwrap()) {
        let arguments = match tool["name"].as_str().unwrap() {
            "run_tests" => json!({ "filter": "Math" }),
            "get_failures" => json!({ "run": run["run"] }),
            "get_output" => json!({ "run": run["run"], "test": failed }),
            // `cancel_run` needs a running run.
            "cancel_run" => json!({ "run": begin_endless_run(&mut server) }),
            _ => json!({}),
        };
        let call = json!({ "name": tool["name"], "arguments": arguments });
        let result = server.request(json!(id), "tools/call", call)["result"].clone();
        let schema = jsonschema::validator_for(&tool["outputSchema"]).unwrap();
        let errors: Vec<_> =
            schema.iter_errors(&result["structuredContent"]).map(|one| one.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:?}: {result}", tool["name"]);
        let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, result["structuredContent"], "older clients read the text");
    }
    for (tool, arguments) in [
        ("list_tests", json!({ "cursor": "100000" })),
        ("get_failures", json!({ "run": run["run"], "cursor": "100000" })),
    ] {
        let call = json!({ "name": tool, "arguments": arguments });
        let result = server.request(json!(99), "tools/call", call)["result"].clone();
        assert_eq!(result["isError"], true, "{result}");
        assert!(
            result["content"][0]["text"].as_str().unwrap().starts_with("unknown cursor 100000"),
            "{result}"
        );
    }
    assert_eq!(server.end().0.code(), Some(0));
}

/// Returns the parameters of a modern call by a client that supports tasks.
fn with_tasks(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
    });
    params
}

/// Polls a task until it ends.
fn ended_task(server: &mut LineProcess, task: &Value) -> Value {
    let deadline = std::time::Instant::now() + crate::support::recorder::DEADLINE;
    loop {
        let state =
            server.request(json!("get"), "tasks/get", with_tasks(json!({ "taskId": task })))["result"]
                .clone();
        assert_eq!(state["resultType"], "complete", "{state}");
        if state["status"] != "working" {
            return state;
        }
        assert!(std::time::Instant::now() < deadline, "{state}");
    }
}

#[test]
fn long_run_is_a_task_for_clients_that_take_tasks() {
    let world = TestWorld::with_gtest("kinds");
    let mut server = served(&world, &["kinds"]);
    let discovered = server.request(json!(0), "server/discover", with_tasks(json!({})));
    let extensions = &discovered["result"]["capabilities"]["extensions"];
    assert_eq!(*extensions, json!({ "io.modelcontextprotocol/tasks": {} }), "{discovered}");
    // Starts a task by calling the tool; returns the task's id.
    let call = |server: &mut LineProcess, filter: &str| {
        let call = json!({ "name": "run_tests", "arguments": { "filter": filter } });
        let created = server.request(json!("run"), "tools/call", with_tasks(call))["result"].clone();
        assert_eq!(
            (&created["resultType"], &created["status"]),
            (&json!("task"), &json!("working")),
            "{created}"
        );
        for member in ["createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs", "statusMessage"] {
            assert!(!created[member].is_null(), "{member}: {created}");
        }
        created["taskId"].clone()
    };
    // Two tasks run at the same time, and their calls have the same id.
    let (endless, short) = (call(&mut server, "test(Hang.Forever)"), call(&mut server, "Math"));
    let ended = ended_task(&mut server, &short);
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(ended["result"]["structuredContent"]["state"], "completed", "{ended}");
    assert_eq!(ended_task(&mut server, &short)["result"], ended["result"], "it is kept");
    // The endless task keeps the status `working` until it is cancelled.
    let working =
        server.request(json!(1), "tasks/get", with_tasks(json!({ "taskId": endless })))["result"].clone();
    assert_eq!((&working["status"], &working["result"]), (&json!("working"), &json!(null)), "{working}");
    for method in ["tasks/update", "tasks/cancel"] {
        let params = with_tasks(json!({ "taskId": endless, "inputResponses": {} }));
        assert_eq!(server.request(json!(2), method, params)["result"], json!({ "resultType": "complete" }));
    }
    assert_eq!(ended_task(&mut server, &endless)["status"], "cancelled");
    // Unknown tasks and clients of the legacy era get an error.
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let unknown = server.request(json!(3), method, with_tasks(json!({ "taskId": "none" })));
        assert_eq!(unknown["error"]["code"], -32602, "{method}: {unknown}");
        let legacy = server.request(json!(4), method, json!({ "taskId": short }));
        assert_eq!(legacy["error"]["code"], -32601, "{method}: {legacy}");
    }
    // Clients that do not support tasks get the result itself.
    let plain = json!({ "name": "run_tests", "arguments": { "filter": "Math" } });
    assert_eq!(server.request(json!(5), "tools/call", modern(plain))["result"]["resultType"], "complete");
    assert_eq!(server.end().0.code(), Some(0));
    world.check_tidy();
}

/// Writes a configuration whose build creates the file `begun` and waits until the file `built` exists.
fn write_waiting_build(world: &TestWorld) {
    let build = "touch begun; until [ -e built ]; do sleep 0.05; done";
    world.write(
        "heeler.toml",
        &format!(
            "[profile.default]\ngrace-period = \"200ms\"\n[[suite]]\nname = \"kinds\"\n\
             programs = [\"kinds\"]\nbuild = [\"sh\", \"-c\", {build:?}]\n"
        ),
    );
}

#[test]
fn session_begins_before_programs_are_built() {
    let world = TestWorld::with_gtest("kinds");
    write_waiting_build(&world);
    let mut server = served(&world, &[]);
    let client = json!({ "name": "test", "version": "1" });
    let initialize = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let answer = server.request(json!(1), "initialize", initialize);
    assert_eq!(answer["result"]["serverInfo"]["name"], "heeler", "{answer}");
    let tools = server.request(json!(2), "tools/list", json!({}));
    assert!(tools["result"]["tools"].as_array().is_some_and(|tools| tools.len() > 3), "{tools}");
    assert!(!world.path("begun").exists(), "a build is for a call that needs it");
    // While a call waits for the build, the client gets progress notifications, and the server answers other
    // requests.
    let params = json!({ "name": "list_tests", "_meta": { "progressToken": "p" } });
    server.send(&json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params }));
    let progress: Value = serde_json::from_str(&server.next_line().unwrap()).unwrap();
    assert_eq!(progress["params"]["progressToken"], "p", "{progress}");
    wait_until("the build begins", || world.path("begun").exists());
    assert_eq!(server.request(json!(4), "ping", json!({}))["result"], json!({}));
    world.write("built", "");
    let listed = server.response(&json!(3));
    assert!(
        listed["result"]["structuredContent"]["total"].as_u64().is_some_and(|total| total > 0),
        "{listed}"
    );
    assert_eq!(server.end().0.code(), Some(0));
    world.check_tidy();
}

#[test]
fn progress_comes_while_programs_are_built_and_while_a_test_runs() {
    let world = TestWorld::with_gtest("kinds");
    write_waiting_build(&world);
    let mut server = served(&world, &[]);
    let params = json!({ "name": "run_tests", "arguments": { "filter": "test(Hang.Forever)" }, "_meta": { "progressToken": 1 } });
    server.send(&json!({ "jsonrpc": "2.0", "id": "run", "method": "tools/call", "params": params }));
    let mut last = 0.0;
    let mut next = || {
        let message: Value = serde_json::from_str(&server.next_line().unwrap()).unwrap();
        let progress = message["params"]["progress"].as_f64().unwrap_or_else(|| panic!("{message}"));
        assert!(progress > last, "{message}");
        last = progress;
        message["params"]["message"].as_str().unwrap().to_owned()
    };
    for _ in 0..2 {
        let message = next();
        assert!(message.starts_with("building and listing tests; "), "{message}");
    }
    world.write("built", "");
    let mut messages: Vec<String> = std::iter::repeat_with(&mut next).take(4).collect();
    messages.retain(|message| message.starts_with("run "));
    assert!(messages.iter().any(|message| message.contains("0 of 1 tests, 0 failed; ")), "{messages:?}");
    server.close_stdin();
    assert_eq!(server.end().0.code(), Some(0));
    world.check_tidy();
}

#[test]
fn large_output_is_read_in_pieces() {
    let world = TestWorld::with_gtest("loud");
    world.env("HEELER_FIXTURE_CASES", "2");
    world.env("HEELER_FIXTURE_KIB", "100");
    let mut server = served(&world, &["loud"]);
    let run = server.call(1, "run_tests", json!({}));
    assert_eq!(run["failures"].as_array().unwrap().len(), 2);
    assert!(run["failures"][0]["message"].as_str().unwrap().ends_with(" more bytes)"), "{run}");
    let (mut text, mut from) = (String::new(), json!(0));
    for id in 2.. {
        let arguments = json!({ "run": run["run"], "test": "N/Loud.Case/1", "from": from });
        let call = json!({ "name": "get_output", "arguments": arguments });
        let answer = server.request(json!(id), "tools/call", call);
        check_size(&answer);
        let piece: Value =
            serde_json::from_str(answer["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(piece["from"], from);
        text += piece["text"].as_str().unwrap();
        from = piece["next"].clone();
        if from.is_null() {
            assert_eq!(piece["total"], text.len());
            break;
        }
    }
    for part in ["output of case 1", "errors of case 1", "message of case 1"] {
        assert!(text.matches(part).count() > 100, "{part}");
    }
    assert_eq!(server.end().0.code(), Some(0));
}

#[test]
fn program_that_cannot_be_listed_is_a_failure_with_its_reason() {
    let world = TestWorld::new();
    world.write_program("broken", "#!/bin/bash\necho no tests here; exit 1\n");
    let mut server = served(&world, &["broken"]);
    let listed = server.call(1, "list_tests", json!({}));
    assert_eq!(listed["tests"][0]["test"], "broken");
    assert!(listed["tests"][0]["error"].is_string(), "{listed}");
    let run = server.call(2, "run_tests", json!({}));
    assert_eq!((&run["totalFailures"], &run["failures"][0]["test"]), (&json!(1), &json!("broken")), "{run}");
    assert!(run["failures"][0]["message"].is_string(), "{run}");
    assert_eq!(server.end().0.code(), Some(0));
}

/// Starts a run that never ends; returns its id.
fn begin_endless_run(server: &mut LineProcess) -> String {
    let call = json!({
        "name": "run_tests",
        "arguments": { "filter": "test(Hang.Forever)" },
        "_meta": { "progressToken": "p" },
    });
    server.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call }));
    loop {
        let progress: Value = serde_json::from_str(&server.next_line().unwrap()).unwrap();
        assert_eq!(progress["params"]["progressToken"], "p");
        // A slow listing sends progress before the run has an id.
        if let Some(run) = progress["params"]["message"].as_str().unwrap().strip_prefix("run ") {
            return run.split(':').next().unwrap().to_owned();
        }
    }
}

#[test]
fn closed_input_ends_a_run_and_everything_below_it() {
    let world = TestWorld::with_gtest("kinds");
    world.note_starts();
    let mut server = served(&world, &["kinds"]);
    let run = begin_endless_run(&mut server);
    wait_until("the test has started", || !world.starts().is_empty());
    let failures = server.call(2, "get_failures", json!({ "run": run }));
    assert_eq!((&failures["state"], &failures["totalFailures"]), (&json!("running"), &json!(0)));
    let (status, lines, _) = server.end();
    assert_eq!((status.code(), lines), (Some(0), vec![]));
    wait_until("the test is gone", || {
        world.starts().iter().all(|start| crate::support::process::state(start.pid).is_none())
    });
    world.check_tidy();
}

#[test]
fn signal_cancels_the_runs_which_are_answered() {
    let world = TestWorld::with_gtest("kinds");
    world.write("heeler.toml", "[profile.default]\ngrace-period = \"200ms\"\n");
    let mut server = served(&world, &["kinds"]);
    let run = begin_endless_run(&mut server);
    signal(server.child.id(), "TERM");
    let answer = server.response(&json!(1));
    let answer: Value =
        serde_json::from_str(answer["result"]["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!((&answer["run"], &answer["state"]), (&json!(run), &json!("cancelled")));
    let (status, _, _) = server.end_with_open_stdin();
    assert_eq!(status.code(), Some(0));
    world.check_tidy();
}

#[test]
fn cancelled_call_gets_no_answer() {
    let world = TestWorld::with_gtest("kinds");
    world.write("heeler.toml", "[profile.default]\ngrace-period = \"200ms\"\n");
    let mut server = served(&world, &["kinds"]);
    let run = begin_endless_run(&mut server);
    server.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } }),
    );
    // The cancellation arrives before the programs are listed, so no test has started.
    let call =
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "run_tests" } });
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 2 } });
    server.write(format!("{call}\n{cancel}\n").as_bytes());
    for id in 3.. {
        let state = server.call(id, "get_failures", json!({ "run": run }))["state"].clone();
        if state == "cancelled" {
            break;
        }
        assert_eq!(state, "running");
    }
    let (status, lines, _) = server.end();
    assert_eq!((status.code(), lines), (Some(0), vec![]));
    let runs = world.run(&["runs", "--format", "names"]);
    assert_eq!(runs.stdout.lines().count(), 1, "{runs}");
}

#[test]
fn run_of_the_command_line_is_read_and_rerun() {
    let world = TestWorld::with_gtest("kinds");
    world.run(&["run", "kinds", "-E", "Math"]).assert_code(2);
    let mut server = served(&world, &["kinds"]);
    let failures = server.call(1, "get_failures", json!({ "run": "latest" }));
    assert_eq!(failures["totalFailures"], 2);
    let again = server.call(2, "run_tests", json!({ "rerun": "failed", "filter": "test(Math.Fail)" }));
    assert_eq!(
        (&again["counts"]["selected"], &again["failures"][0]["test"]),
        (&json!(1), &json!("kinds::Math.Fail"))
    );
    // A later rerun still includes the tests that the filter excluded.
    let rest = server.call(3, "run_tests", json!({ "rerun": again["run"] }));
    assert_eq!(rest["counts"]["selected"], 2);
    let state = server.call(4, "list_tests", json!({ "filter": "state(failed)" }));
    assert_eq!(state["total"], 2);
    assert_eq!(server.end().0.code(), Some(0));
}
