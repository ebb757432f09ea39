//! Clients that are slow, hostile or one too many, or that disconnect.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Write as _},
    net::Shutdown,
    path::Path,
    time::Duration,
};

use serde_json::json;

use crate::support::{
    process::{children, peak_mib, wait_until},
    rsp_client::RspServer,
    world::TestWorld,
};

/// With this many cases, the output is several times larger than all queues between a test and the client.
const CASES: usize = 5_000;
/// Maximum memory growth of the coordinator (plan and queues) during a run of all cases. The results are 60
/// MiB in total.
const COORDINATOR_MIB: u64 = 50;

/// Returns the total size of all runs' journals.
fn journalled(world: &TestWorld) -> u64 {
    fn below(dir: &Path) -> u64 {
        let Ok(entries) = fs::read_dir(dir) else { return 0 };
        let paths = entries.map(|entry| entry.unwrap().path());
        let size = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
        paths.map(|path| if path.is_dir() { below(&path) } else { size(&path) }).sum()
    }
    below(&world.path(".heeler/runs"))
}

#[test]
fn client_that_does_not_read_pauses_its_run_without_loss() {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", &CASES.to_string());
    world.env("HEELER_FIXTURE_PRINTS", "12288");
    world.write("heeler.toml", "[profile.default]\njobs = 2\nclient-stall-timeout = \"10m\"\n");
    let (mut server, mut client) = RspServer::start_over_pipes(&world, &["big"]);
    // This run lists the programs and executes all code paths once before memory is measured.
    client.start("big", json!({"filter": "test(=N/Big.Case/7)"}));
    client.wait_state("big", 4);
    client.heard.clear();
    let before_mib = peak_mib(server.pid());
    client.start("big", json!({}));
    client.wait_state("big", 2);
    let (mut before, mut looks) = (0, 0);
    wait_until("the run stands still", || {
        std::thread::park_timeout(Duration::from_millis(20));
        let now = journalled(&world);
        looks = if now == before { looks + 1 } else { 0 };
        before = now;
        looks == 50
    });
    client.wait_state("big", 4);
    assert!(journalled(&world) > before, "{before} bytes were all of it");
    let coordinator = peak_mib(server.pid()) - before_mib;
    assert!(coordinator < COORDINATOR_MIB, "the coordinator took {coordinator} MiB beside {before_mib}");
    let output = client.output(2);
    let names: BTreeSet<_> = output.lines().filter_map(|line| line.split_once("  big::")).collect();
    assert_eq!((output.lines().count(), names.len()), (CASES, CASES), "each test has one line");
    assert_eq!(client.job_ends()[0]["message"], format!("big: {CASES} tests: {CASES} passed"));
    client.notify("server/shutdown");
    assert_eq!(server.wait_gone(), Some(0));
}

#[test]
fn client_that_never_reads_is_disconnected_and_the_next_one_served() {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "200");
    world.write("heeler.toml", "[profile.default]\nclient-stall-timeout = \"300ms\"\n");
    let mut server = RspServer::start(&world, &["big"]);
    let mut stream = server.connect_raw();
    // Each response has several kilobytes; their total exceeds all buffers by far.
    let body = json!({"jsonrpc": "2.0", "id": "x".repeat(4096), "method": "server/getJobs"}).to_string();
    let frame = format!("Content-Length: {}\r\n\r\n{body}", body.len());
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut refused = false;
    for _ in 0..20_000 {
        // The server first stops reading, then closes the connection.
        if stream.write_all(frame.as_bytes()).is_err() {
            refused = true;
            break;
        }
    }
    assert!(refused, "a client that does not read is served without end");
    let mut client = server.connect();
    assert_eq!(client.ask("server/getJobs", json!(null)), json!([]));
    assert!(peak_mib(server.pid()) < 200, "{} MiB", peak_mib(server.pid()));
    client.notify("server/shutdown");
    assert_eq!(server.wait_gone(), Some(0));
}

#[test]
fn client_gone_in_mid_run_takes_its_processes_with_it() {
    let world = TestWorld::with_gtest("meet");
    world.write("heeler.toml", "[profile.default]\njobs = 2\ngrace-period = \"10m\"\n");
    let rendezvous = world.open_rendezvous();
    let mut server = RspServer::start(&world, &["meet"]);
    for filter in ["test(Family)", "test(Deaf)", "test(Case)"] {
        let mut client = server.connect();
        client.start("meet", json!({"filter": filter}));
        let connected = rendezvous.next_test();
        client.disconnect();
        connected.wait_gone();
        wait_until("no process is left", || children(server.pid()).is_empty());
    }
    let mut client = server.connect();
    assert_eq!(client.ask("server/getServerState", json!({"id": "meet"}))["state"], 4);
    client.notify("server/shutdown");
    assert_eq!(server.wait_gone(), Some(0));
}

/// The client sends its last message and disconnects while many messages are on their way to it.
#[test]
fn shutdown_in_mid_run_of_a_client_that_does_not_wait_ends_the_server() {
    let world = TestWorld::with_gtest("meet");
    world.gtest("big");
    world.write("heeler.toml", "[profile.default]\njobs = 2\ngrace-period = \"10m\"\n");
    let rendezvous = world.open_rendezvous();
    let mut server = RspServer::start(&world, &["meet", "big"]);
    let mut client = server.connect();
    client.start("meet", json!({"filter": "test(Deaf)"}));
    client.start("big", json!({}));
    let connected = rendezvous.next_test();
    client.notify("server/shutdown");
    client.disconnect();
    connected.wait_gone();
    assert_eq!(server.wait_gone(), Some(0));
}

#[test]
fn hostile_bytes_end_one_connection_and_no_server() {
    let world = TestWorld::with_gtest("deaths");
    let mut server = RspServer::start(&world, &["deaths"]);
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let nested = format!("{{\"id\":1,\"method\":\"server/getJobs\",\"params\":{deep}}}");
    let framed = |body: &str| format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes();
    let long = json!({"id": 1, "method": "server/startServerAsync", "params": {"mode": "run", "params": {
        "id": "deaths", "attributes": {"filter": "(".repeat(100_000)}}}});
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let noise: Vec<u8> = (0..4096).flat_map(|_| random()).collect();
    for bytes in [
        noise,
        framed(&nested),
        framed(&long.to_string()),
        framed(&"\u{0}".repeat(1000)),
        b"Content-Length: 18446744073709551615\r\n\r\n".to_vec(),
        b"Content-Length: 100\r\n\r\n{".to_vec(),
        [&b"Content-Length: 0\r\n\r\n"[..]; 2000].concat(),
        b"\r\n".repeat(6000),
    ] {
        let mut stream = server.connect_raw();
        // The server may close the connection before reading everything.
        stream.write_all(&bytes).ok();
        stream.shutdown(Shutdown::Write).ok();
        let mut answers = Vec::new();
        // If bytes are unread when the server closes the connection, the close is a reset.
        stream.read_to_end(&mut answers).ok();
    }
    // The server still runs tests for the next client.
    let mut client = server.connect();
    client.start("deaths", json!({}));
    client.wait_state("deaths", 4);
    assert_eq!(client.job_ends()[0]["severity"], 0);
    assert!(peak_mib(server.pid()) < 200, "{} MiB", peak_mib(server.pid()));
    client.notify("server/shutdown");
    assert_eq!(server.wait_gone(), Some(0));
}
