//! Servers of the Model Context Protocol: a hostile server for both protocol eras, and servers built on real
//! libraries.

use std::{collections::BTreeMap, path::Path, process::Command};

use serde_json::Value;

use crate::mcp::official_clients::rmcp_peer;
use crate::support::{
    fixtures::{mcp as fixture, mcp_server},
    http_peer::HttpServer,
    world::{FinishedCommand, TestWorld},
};

const SETTINGS: &str = "[profile.default]\ngrace-period = \"400ms\"\ndumps = \"off\"\n";

/// Returns the command of the hand-written server.
pub(super) fn server(words: &str) -> String {
    format!("python3 {} {words}", mcp_server().display())
}

/// A finished run of MCP servers.
struct ServerRun {
    command: FinishedCommand,
    /// Uids of the tests, sorted by the end of the test.
    order: Vec<String>,
    /// Last event of each test, by its uid.
    ends: BTreeMap<String, Value>,
}

impl ServerRun {
    fn read(command: FinishedCommand) -> Self {
        let (mut order, mut ends) = (Vec::new(), BTreeMap::new());
        for line in command.stdout.lines().filter(|line| line.starts_with('{')) {
            let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if event["type"] == "test" && event["outcome"].is_string() {
                let uid = event["uid"].as_str().unwrap().to_owned();
                order.push(uid.clone());
                ends.insert(uid, event);
            }
        }
        Self { command, order, ends }
    }

    #[track_caller]
    fn end(&self, name: &str) -> &Value {
        let end = self.ends.get(&format!("server::mcp.test.{name}"));
        end.unwrap_or_else(|| panic!("no end of {name}\n{}", self.command))
    }

    #[track_caller]
    fn assert_outcome(&self, name: &str, outcome: &str, message: &str) {
        let end = self.end(name);
        assert_eq!(end["outcome"], outcome, "{end:#}");
        let said = end["message"].as_str().unwrap_or_default();
        assert!(said.contains(message), "{message:?} is not in {said:?} of {name}");
    }
}

fn run_in(world: &TestWorld, command: &str, more: &[&str]) -> ServerRun {
    let words = [&["run", "--format", "json", "--mcp", command], more].concat();
    ServerRun::read(world.run(&words))
}

pub(super) fn world() -> TestWorld {
    let world = TestWorld::new();
    world.write("heeler.toml", SETTINGS);
    world
}

#[test]
fn every_answer_has_its_outcome_in_both_eras() {
    for era in ["modern", "legacy"] {
        let run = run_in(&world(), &server(&format!("outcomes {era} pages")), &[]);
        for (name, outcome, message) in [
            ("capabilities", "passed", ""),
            ("protocol.basic", "passed", ""),
            ("result.passed", "passed", ""),
            ("result.lying", "failed", "success is true, but 2 assertions failed: b; c"),
            ("result.failed", "failed", "expected 2 templates, got 1"),
            ("result.failed-by-assertions", "failed", "x is 1"),
            ("result.skipped", "skipped", "skipped all of its assertions: no network"),
            ("result.text", "passed", ""),
            ("result.error", "failed", "answered with an error: it broke"),
            ("result.error-without-text", "failed", "answered with an error without text"),
            ("result.none", "failed", "answered with no test result: hello"),
            ("result.rpc-error", "failed", "answered with error -32000: out of order"),
            ("result.input", "skipped", "needs input: your name?"),
            ("arguments.default", "passed", ""),
            ("arguments.missing", "skipped", "needs an argument: echo"),
        ] {
            run.assert_outcome(name, outcome, message);
        }
        let output = run.end("protocol.basic")["stdout"].as_str().unwrap();
        let expected = "all fine\npassed: reads\npassed: writes\nskipped: deletes\n3 assertions, 0 failed, 1 skipped\n\
                        duration reported by the server: 12 ms\n";
        assert_eq!(output, expected);
        run.command.assert_code(2);
    }
}

#[test]
fn tool_that_ends_badly_costs_itself_alone() {
    let world = world();
    let run = run_in(&world, &server("hostile"), &["--junit", "junit.xml"]);
    for (name, outcome, message) in [
        ("a-first", "passed", ""),
        ("b-crash", "crashed", "SIGSEGV"),
        ("c-passes", "passed", ""),
        ("d-abort", "crashed", "SIGABRT"),
        ("e-exit", "exited-early", "exited with code 0 before the test ended"),
        ("f-hang", "timed-out", "timed out after 0.4 s"),
        ("g-late", "timed-out", "timed out after 0.3 s"),
        ("h-garbage", "failed", "wrote non-MCP output to standard output: \"this is no message\""),
        ("i-unended", "failed", "wrote non-MCP output to standard output: \"no newline here\""),
        ("j-closes", "timed-out", "timed out after 0.4 s"),
        ("k-wrong-id", "timed-out", "timed out after 0.4 s"),
        ("l-twice", "passed", ""),
        ("m-last", "passed", ""),
    ] {
        run.assert_outcome(&format!("hostile.{name}"), outcome, message);
    }
    let crash = run.end("hostile.b-crash");
    assert!(crash["stderr"].as_str().unwrap().contains("about to crash"), "{crash:#}");
    assert!(crash.to_string().contains("string_at"), "its stack is there: {crash:#}");
    let wrong_id = run.end("hostile.k-wrong-id")["stdout"].as_str().unwrap();
    assert!(wrong_id.contains("unexpected response to request \"2\""), "{wrong_id}");
    let junit = world.read("junit.xml");
    // The server's second listing contradicts its first, which is a failure of the server.
    assert_eq!(junit.matches("<testcase").count(), 16, "{junit}");
    run.command.assert_code(2);

    // Results are in the history. A rerun runs the failed tests on the same server.
    let rerun = ServerRun::read(world.run(&["run", "--rerun", "failed", "--format", "json"]).assert_code(2));
    let failed: Vec<_> = run.ends.values().filter(|end| end["outcome"] != "passed").collect();
    assert_eq!((rerun.ends.len(), failed.len()), (9, 9), "{}", rerun.command);
    let history = run_in(&world, &server("hostile"), &["-E", "state(crashed)"]);
    assert_eq!(history.ends.len(), 3, "{}", history.command);
}

#[test]
fn tools_run_in_one_process_by_priority_and_name_unless_isolated() {
    let world = world();
    let notes = world.path("notes");
    let command = server(&format!("outcomes notes={}", notes.display()));
    let run = run_in(&world, &command, &["-E", "not test(~error)"]);
    let called: Vec<_> = run.order.iter().filter(|uid| !uid.contains("arguments.")).collect();
    let names =
        ["capabilities", "protocol.basic", "result.passed", "result.failed", "result.failed-by-assertions"];
    let expected: Vec<_> = names.iter().map(|name| format!("server::mcp.test.{name}")).collect();
    assert_eq!(called.iter().take(5).copied().collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>());
    let pids = |text: &str| {
        let calls = text.lines().filter(|line| line.contains("tools/call"));
        calls.map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut one = pids(&world.read("notes"));
    let calls = one.len();
    one.dedup();
    assert_eq!((calls, one.len()), (11, 1), "all calls are of one process");
    std::fs::remove_file(&notes).unwrap();
    run_in(&world, &command, &["--isolate", "-E", "test(/result.(passed|text)/)"]).command.assert_code(0);
    assert_eq!(pids(&world.read("notes")).len(), 2);
    assert_ne!(pids(&world.read("notes"))[0], pids(&world.read("notes"))[1]);
}

#[test]
fn tool_that_times_out_is_cancelled_and_its_answer_dropped() {
    let world = world();
    let notes = world.path("notes");
    let command = server(&format!("hostile legacy notes={}", notes.display()));
    // The grace period is longer than the tool needs to finish.
    world.write("heeler.toml", "[profile.default]\ngrace-period = \"10s\"\ncrash-capture = \"off\"\n");
    let run = run_in(&world, &command, &["-E", "test(/g-late|m-last/)"]);
    run.assert_outcome("hostile.g-late", "timed-out", "timed out after 0.3 s");
    run.assert_outcome("hostile.m-last", "passed", "");
    let notes = world.read("notes");
    let cancelled: Vec<_> = notes.lines().filter(|line| line.contains("notifications/cancelled")).collect();
    assert_eq!(cancelled.len(), 1, "{notes}");
    assert!(cancelled[0].contains("\"requestId\":2"), "{}", cancelled[0]);
    let pid = cancelled[0].split(' ').next().unwrap();
    assert!(notes.lines().any(|line| line == format!("{pid} end of input")), "it exits by itself: {notes}");
}

#[test]
fn progress_is_output_and_a_sign_of_life() {
    let world = world();
    world.write("heeler.toml", &format!("{SETTINGS}idle-timeout = \"700ms\"\n"));
    let run = run_in(&world, &server("progress"), &[]);
    let output = run.end("custom.progress")["stdout"].as_str().unwrap();
    assert!(output.contains("progress: 1 of 5: step 1\n"), "{output}");
    run.command.assert_code(0);
}

#[test]
fn odd_servers_are_listed_and_their_faults_are_warnings_or_one_error() {
    let said = |words: &str| {
        let world = world();
        world.run(&["run", "--mcp", &server(words)])
    };
    for words in ["well stays", "well asks legacy", "well answers-all legacy", "well pages modern"] {
        said(words).assert_code(0).assert_stdout("3 passed");
    }
    for (words, warning) in [
        ("well chatty", "server writes non-MCP output to standard output: \"Server listening"),
        ("well no-newline", "server writes non-MCP output to standard output: \"Starting... \""),
        ("bare", "server does not list the required test mcp.test.capabilities"),
        ("bare", "mcp.test.custom.only: testMetadata.priority is not a number: \"high\""),
        ("bare", "testMetadata.timeout is 9000000 ms; using 600000 ms"),
    ] {
        said(words).assert_code(0).assert_stdout(warning);
    }
    for (words, code, error) in [
        ("none", 8, "the programs have no tests"),
        ("well no-tools", 8, "the programs have no tests"),
        ("well twins", 4, "duplicate tool name \"mcp.test.capabilities\""),
        ("well refuses", 4, "initialize failed: error -32603: not today"),
        ("well dies-listing", 4, "it exited with code 3; its output:"),
        ("none loops", 4, "returned the cursor \"again\" twice"),
        ("well no-calls", 2, "the server does not support tools/call"),
    ] {
        let ran = said(words);
        ran.assert_stdout(error);
        assert_eq!(ran.code, Some(code), "{words}: {ran}");
    }
}

#[test]
fn server_that_leaves_discover_unanswered_is_opened_with_a_handshake() {
    let world = world();
    world
        .run(&["run", "--mcp", &server("well legacy silent-discover")])
        .assert_code(0)
        .assert_stdout("3 passed");
    world.write("heeler.toml", "[profile.default]\nlist-timeout = \"1s\"\n");
    let late = world.run(&["run", "--mcp", &server("well legacy silent-discover")]);
    late.assert_stdout("timed out after 1 s: no answer to server/discover");
}

#[test]
fn suite_of_the_configuration_gives_arguments() {
    let world = world();
    let server = server("outcomes");
    let suite = format!(
        "{SETTINGS}[[suite]]\nname = \"server\"\nmcp = '{server}'\n[suite.arguments]\n\
         \"mcp.test.arguments.given\" = {{ echo = \"hi\" }}\n\"mcp.test.arguments.missing\" = {{ echo = \"no\" }}\n"
    );
    world.write("heeler.toml", &suite);
    let run = ServerRun::read(world.run(&["run", "--format", "json", "-E", "tag(category=arguments)"]));
    run.assert_outcome("arguments.given", "passed", "");
    run.assert_outcome("arguments.missing", "failed", "echo is 'no'");
    assert_eq!(run.ends.len(), 3, "{}", run.command);
    // Configure the same server as a program with arguments.
    let words = server.split(' ').collect::<Vec<_>>();
    let python = world.run_with_separate_outputs(&["list", "--format", "names"]);
    assert!(python.stdout.contains("server::mcp.test.arguments.given"), "{python}");
    world.write_program("start", "#!/bin/sh\nexec python3 \"$@\"\n");
    let suite = format!(
        "{SETTINGS}[[suite]]\nname = \"server\"\nprograms = [\"start\"]\nframework = \"mcp\"\nargs = {:?}\n",
        &words[1..]
    );
    world.write("heeler.toml", &suite);
    let run = ServerRun::read(world.run(&["run", "--format", "json", "-E", "capabilities"]).assert_code(0));
    run.assert_outcome("capabilities", "passed", "");
}

#[test]
fn command_of_a_server_that_can_not_be_started_is_one_error() {
    let world = world();
    let missing = world.run(&["run", "--mcp", "no-such-server --x"]).assert_code(4);
    missing.assert_stdout("start the MCP server \"no-such-server --x\": no-such-server not found");
    let open = world.run(&["run", "--mcp", "'x"]).assert_code(4);
    open.assert_stdout("the command is empty or has an unclosed quote");
}

#[test]
fn several_servers_are_several_suites() {
    let world = world();
    let ran = world.run(&["run", "--mcp", &server("well"), "--mcp", &server("bare")]).assert_code(0);
    ran.assert_stdout("4 passed");
    let listed =
        world.run(&["list", "--mcp", &server("well"), "--mcp", &server("bare"), "--format", "names"]);
    assert!(listed.stdout.contains("server#2::mcp.test.custom.only"), "{listed}");
}

/// Runs a server built on a library. All these servers have the same tools.
#[track_caller]
fn check_library(command: &str, suite: &str, throws: &str) {
    let world = world();
    let words = ["run", "--format", "json", "--mcp", command];
    let mut run = ServerRun::read(world.run(&words));
    run.ends = run.ends.into_iter().map(|(uid, end)| (uid.replacen(suite, "server", 1), end)).collect();
    for (name, outcome, message) in [
        ("capabilities", "passed", ""),
        ("protocol.basic", "passed", ""),
        ("tools.fails", "failed", "expected 2 templates, got 1"),
        ("tools.throws", "failed", throws),
        ("custom.aborts", "crashed", "SIGABRT"),
        ("custom.hangs", "timed-out", "timed out after 1.5 s"),
        ("custom.last", "passed", ""),
    ] {
        run.assert_outcome(name, outcome, message);
    }
    assert_eq!(run.ends.len(), 7, "{}", run.command);
    let tags = world.run(&[
        "list",
        "--mcp",
        command,
        "-E",
        "tag(priority=1) & tag(category=tools)",
        "--format",
        "names",
    ]);
    assert_eq!(tags.stdout.lines().count(), 2, "{tags}");
}

#[track_caller]
fn node(script: &str) -> String {
    assert!(
        fixture("node_modules").is_dir(),
        "the servers' libraries are missing; scripts/test installs them"
    );
    format!("node {}", fixture(script).display())
}

#[track_caller]
fn python(generation: u32, script: &str) -> String {
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mcp-python-{generation}"));
    let python = environment.join("bin/python");
    assert!(python.exists(), "{} is missing; scripts/test installs it", python.display());
    format!("{} {}", python.display(), fixture(script).display())
}

#[test]
fn server_of_the_first_typescript_library() {
    check_library(&node("sdk1.mjs"), "sdk1", "answered with error -32603: a bug");
}

#[test]
fn server_of_the_second_typescript_library() {
    check_library(&node("sdk2.mjs"), "sdk2", "answered with an error: a bug");
}

#[test]
fn server_of_the_first_python_library() {
    check_library(&python(1, "sdk1.py"), "sdk1", "answered with an error: integer division");
}

#[test]
fn server_of_the_second_python_library() {
    check_library(&python(2, "sdk2.py"), "sdk2", "answered with an error: Error executing tool");
}

#[test]
#[ignore = "a peer: scripts/test --peers"]
fn server_of_the_rust_library() {
    let command = format!("{} server stdio", rmcp_peer().display());
    check_library(&command, "heeler-rmcp-peer", "answered with error -32603: a bug");
}

/// Runs the tests of an HTTP server, directly and through the filter.
#[track_caller]
fn check_library_over_http(command: &str, throws: &str) {
    let world = world();
    let words: Vec<&str> = command.split(' ').chain(["http", "harmless"]).collect();
    let server = HttpServer::start(world.command(Command::new(words[0]), &words[1..]));
    let ServerRun { command, order, ends } = run_in(&world, &server.url, &[]);
    let suite = format!("127.0.0.1-{}", server.port());
    let expected = [
        ("capabilities", "passed", ""),
        ("protocol.basic", "passed", ""),
        ("tools.fails", "failed", "expected 2 templates, got 1"),
        ("tools.throws", "failed", throws),
        ("custom.last", "passed", ""),
    ];
    assert_eq!(order, expected.map(|(name, ..)| format!("{suite}::mcp.test.{name}")), "{command}");
    for (name, outcome, message) in expected {
        let end = &ends[&format!("{suite}::mcp.test.{name}")];
        let said = end["message"].as_str().unwrap_or_default();
        assert!(end["outcome"] == outcome && said.contains(message), "{end:#}");
    }
    let filter = HttpServer::start(world.heeler(&["mcp", "filter", "--port", "0", &server.url]));
    run_in(&world, &filter.url, &[]).command.assert_code(8).assert_stdout("the programs have no tests");
}

#[test]
fn servers_of_the_typescript_libraries_over_http() {
    check_library_over_http(&node("sdk1.mjs"), "answered with error -32603: a bug");
    check_library_over_http(&node("sdk2.mjs"), "answered with an error: a bug");
}

#[test]
fn servers_of_the_python_libraries_over_http() {
    check_library_over_http(&python(1, "sdk1.py"), "answered with an error: integer division");
    check_library_over_http(&python(2, "sdk2.py"), "answered with an error: Error executing tool");
}

#[test]
#[ignore = "a peer: scripts/test --peers"]
fn server_of_the_rust_library_over_http() {
    check_library_over_http(
        &format!("{} server", rmcp_peer().display()),
        "answered with error -32603: a bug",
    );
}

#[test]
fn server_over_http_that_is_killed_fails_its_tool_and_those_after_it() {
    // Any of these errors may occur, depending on whether the client had received the response's head.
    let broken =
        ["connection closed before message completed", "the event stream failed", "Connection reset"];
    for (generation, script) in [(1, "sdk1.py"), (2, "sdk2.py")] {
        let world = world();
        let command = python(generation, script);
        let words: Vec<&str> = command.split(' ').chain(["http", "is-killed"]).collect();
        let server = HttpServer::start(world.command(Command::new(words[0]), &words[1..]));
        let run = run_in(&world, &server.url, &[]);
        let suite = format!("127.0.0.1-{}", server.port());
        let expected = [
            ("capabilities", "passed", ""),
            ("protocol.basic", "passed", ""),
            ("tools.fails", "failed", "expected 2 templates, got 1"),
            ("tools.throws", "failed", "answered with an error"),
            ("custom.aborts", "failed", ""),
            // While the killed process exits, connections may be reset instead of refused.
            ("custom.hangs", "failed", "Connection re"),
            ("custom.last", "failed", "Connection re"),
        ];
        assert_eq!(
            run.order,
            expected.map(|(name, ..)| format!("{suite}::mcp.test.{name}")),
            "{}",
            run.command
        );
        for (name, outcome, message) in expected {
            let end = &run.ends[&format!("{suite}::mcp.test.{name}")];
            let said = end["message"].as_str().unwrap_or_default();
            assert!(end["outcome"] == outcome && said.contains(message), "{end:#}");
            if name == "custom.aborts" {
                assert!(broken.iter().any(|text| said.contains(text)), "{end:#}");
            }
        }
        run.command.assert_code(2);
    }
}

#[test]
fn server_without_test_tools_has_no_tests() {
    let command = node("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    world().run(&["run", "--mcp", &command]).assert_code(8).assert_stdout("the programs have no tests");
}

#[test]
fn tests_of_our_own_server_pass_and_the_filter_hides_them() {
    let world = TestWorld::with_gtest("resources");
    let heeler = crate::support::heeler();
    let server = format!("{} serve mcp resources", heeler.display());
    let ServerRun { command, ends, .. } = run_in(&world, &server, &[]);
    command.assert_code(0);
    let passed = ends.iter().filter(|(_, end)| end["outcome"] == "passed");
    let passed: Vec<_> = passed.map(|(uid, _)| uid.as_str()).collect();
    assert_eq!(passed, ["heeler::mcp.test.capabilities", "heeler::mcp.test.protocol"]);
    let filtered = format!("{} mcp filter -- {server}", heeler.display());
    run_in(&world, &filtered, &[]).command.assert_code(8);
}
