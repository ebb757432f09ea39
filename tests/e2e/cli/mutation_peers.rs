//! Clients built on third-party libraries (`tests/clients`) against `heeler serve mutation`, `stdio` and
//! `socket`, with a Rust package and a C project: what the clients receive, and what is left after one side
//! is killed.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use heeler_sys::process::{Pid, descendants, start_time_since_boot};
use serde_json::Value;

use crate::support::{
    node::client,
    process::{signal, state, wait_until},
    world::{FinishedCommand, TestWorld, run_with_separate_outputs},
};

const MANIFEST: &str =
    "[workspace]\n[package]\nname = \"package\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
const SOURCE: &str = "pub fn low(a: u8) -> bool {\n    a < 2\n}\n\npub fn weak(a: u8) -> bool {\n    a > 7\n}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn checks() {\n        assert!(super::low(1) && !super::low(2));\n        super::weak(1);\n    }\n}\n";
/// A function whose mutants keep a test busy for seconds, until it times out.
const SLOW: &str = "pub fn is_open(gate: u8) -> bool {\n    gate == 1\n}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn waits() {\n        while !super::is_open(1) {\n            std::thread::park_timeout(std::time::Duration::from_millis(20));\n        }\n    }\n}\n";

const MAKEFILE: &str =
    "calc_test: calc_test.c calc.o\n\t$(CC) -o $@ $^\ncalc.o: calc.c\n\t$(CC) -c -o $@ $<\n";
const C_SOURCE: &str =
    "int add(int a, int b) {\n    return a + b;\n}\nint is_small(int a) {\n    return a < 10;\n}\n";
/// A test that does not end if `<` becomes `>=`.
const C_TEST: &str = "#include <unistd.h>\nint add(int a, int b);\nint is_small(int a);\nint main(void) {\n    while (!is_small(3)) usleep(20000);\n    return add(2, 3) == 5 ? 0 : 1;\n}\n";

/// How a client reaches the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// `heeler serve mutation`, version 0.0.1-alpha.1.
    Alpha,
    /// `heeler serve stdio`, which the client starts.
    Stdio,
    /// `heeler serve socket`.
    Socket,
}

const PEERS: [Peer; 3] = [Peer::Alpha, Peer::Stdio, Peer::Socket];

impl Peer {
    fn version(self) -> &'static str {
        if self == Self::Alpha { "alpha" } else { "0.4" }
    }

    fn transport(self) -> &'static str {
        match self {
            Self::Alpha => "mutation",
            Self::Stdio => "stdio",
            Self::Socket => "socket",
        }
    }
}

/// A project in the directory `project` of a world.
pub(super) struct Project {
    pub(super) world: TestWorld,
    /// Command-line options of the server.
    pub(super) words: &'static [&'static str],
    /// A source whose mutants are tested early.
    pub(super) quick_source: &'static str,
}

impl Project {
    pub(super) fn in_rust() -> Self {
        let project = Self { world: TestWorld::new(), words: &[], quick_source: "src/lib.rs" };
        fs::create_dir_all(project.path("src")).unwrap();
        fs::write(project.path("Cargo.toml"), MANIFEST).unwrap();
        fs::write(project.path("src/lib.rs"), SOURCE).unwrap();
        project
    }

    fn in_slow_rust() -> Self {
        let project = Self::in_rust();
        fs::write(project.path("src/lib.rs"), format!("pub mod slow;\n{SOURCE}")).unwrap();
        fs::write(project.path("src/slow.rs"), SLOW).unwrap();
        project
    }

    fn in_c() -> Self {
        let words = &["--build", "make", "--test", "calc_test"];
        let project = Self { world: TestWorld::new(), words, quick_source: "calc.c" };
        fs::create_dir_all(project.path("")).unwrap();
        for (name, text) in [("Makefile", MAKEFILE), ("calc.c", C_SOURCE), ("calc_test.c", C_TEST)] {
            fs::write(project.path(name), text).unwrap();
        }
        project
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.world.path("project").join(name)
    }

    fn server_words(&self, peer: Peer) -> Vec<&str> {
        [&["serve", peer.transport(), "-j2"], self.words].concat()
    }

    /// Starts a server on a port; returns the process and the port.
    pub(super) fn start_on_port(&self, peer: Peer) -> (Child, u16) {
        self.start_with(&self.server_words(peer))
    }

    fn start_with(&self, words: &[&str]) -> (Child, u16) {
        let mut command = self.world.heeler(words);
        command.current_dir(self.path("")).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("Server is listening on port: ").expect("it prints its port");
        (child, port.parse().unwrap())
    }

    /// Returns a client's command for a server on a port. Without a port, the client starts the server
    /// itself.
    fn client(&self, peer: Peer, scenario: &str, port: Option<u16>) -> Command {
        let target: Vec<String> = match port {
            Some(port) => vec!["port".to_owned(), port.to_string()],
            None => {
                let words = self.server_words(peer).into_iter().map(str::to_owned);
                ["start", env!("CARGO_BIN_EXE_heeler")].map(str::to_owned).into_iter().chain(words).collect()
            }
        };
        self.client_of(peer.version(), scenario, &target)
    }

    /// Returns a client's command for this target.
    pub(super) fn client_of(&self, version: &str, scenario: &str, target: &[String]) -> Command {
        assert!(
            client("node_modules").is_dir(),
            "the clients' libraries are missing; scripts/test installs them"
        );
        let script = client("mutation_peer.mjs");
        let mut words = vec![script.to_str().unwrap(), version, scenario];
        words.extend(target.iter().map(String::as_str));
        let mut command = self.world.command(Command::new("node"), &words);
        command.current_dir(self.path("")).env("HEELER_PLACE", self.quick_source);
        command
    }

    /// Runs a scenario; returns the lines that the client printed.
    pub(super) fn play(&self, peer: Peer, scenario: &str) -> Vec<Value> {
        let server = (peer != Peer::Stdio).then(|| self.start_on_port(peer));
        let port = server.as_ref().map(|(_, port)| *port);
        let ran = run_with_separate_outputs(self.client(peer, scenario, port));
        // Stop the server before checking the client's result: a failed check would leave it running.
        if let Some((mut server, _)) = server {
            signal(server.id(), "TERM");
            wait_until("the server has ended", || server.try_wait().unwrap().is_some());
        }
        lines(&ran.assert_code(0))
    }
}

pub(super) fn lines(ran: &FinishedCommand) -> Vec<Value> {
    let read = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{ran}"));
    let mut lines: Vec<Value> = ran.stdout.lines().map(read).collect();
    assert_eq!(lines.pop(), Some("passed".into()), "{ran}");
    lines
}

pub(super) fn statuses(line: &Value) -> BTreeMap<&str, &str> {
    let statuses = line.as_object().unwrap().iter();
    statuses.map(|(name, status)| (name.as_str(), status.as_str().unwrap())).collect()
}

fn assert_statuses_in_rust(line: &Value) {
    let found = statuses(line);
    assert_eq!(found.len(), 12, "{found:?}");
    for (name, status) in &found {
        let is_weak = name.starts_with("src/lib.rs:5: ") || name.starts_with("src/lib.rs:6: ");
        assert_eq!(*status, if is_weak { "Survived" } else { "Killed" }, "{name}: {found:?}");
    }
}

#[test]
fn peers_test_mutants_of_a_package_and_verdicts_are_kept() {
    for peer in PEERS {
        let lines = Project::in_rust().play(peer, "tests_mutants");
        assert_eq!(lines.len(), 2, "{lines:?}");
        lines.iter().for_each(assert_statuses_in_rust);
    }
}

#[test]
fn peers_test_mutants_of_a_project_in_c_and_verdicts_are_kept() {
    for peer in [Peer::Alpha, Peer::Stdio] {
        let lines = Project::in_c().play(peer, "tests_mutants");
        let expected = BTreeMap::from([
            ("calc.c:2: a - b", "Killed"),
            ("calc.c:5: a <= 10", "Survived"),
            ("calc.c:5: a >= 10", "Timeout"),
        ]);
        for line in &lines {
            let found = statuses(line);
            let known: BTreeMap<_, _> =
                found.into_iter().filter(|(name, _)| expected.contains_key(name)).collect();
            assert_eq!(known, expected, "{peer:?}: {line}");
        }
        assert_eq!(lines.len(), 2, "{lines:?}");
    }
}

#[test]
fn peers_cancel_a_request_that_runs_and_one_that_waits() {
    for peer in PEERS {
        let lines = Project::in_slow_rust().play(peer, "cancels");
        let third = statuses(&lines[0]);
        assert!(third.keys().all(|name| name.starts_with("src/lib.rs:")), "{third:?}");
        assert!(third.values().any(|status| *status == "Killed"), "{third:?}");
    }
}

#[test]
fn peers_see_every_code_of_errors() {
    let invalid = [-32700, -32600, -32601, -32602, -32602, -32603];
    for peer in PEERS {
        let project = Project::in_rust();
        let red = SOURCE.replace("super::low(1) &&", "super::low(9) &&");
        fs::write(project.path("src/lib.rs"), red).unwrap();
        let lines = project.play(peer, "errors");
        let before: &[i64] = if peer == Peer::Alpha { &[-32001, -5000] } else { &[] };
        assert_eq!(lines[1], serde_json::json!([before, &invalid].concat()), "{peer:?}");
        let message = lines[0].as_str().unwrap();
        assert!(message.starts_with("failed to test mutants: tests fail without a mutant"), "{message}");
    }
}

/// A process with its start time, which distinguishes it from a later process with the same id.
pub(super) type StartedProcess = (Pid, Option<Duration>);

pub(super) fn below(root: u32) -> Vec<StartedProcess> {
    let below = descendants(Pid(i32::try_from(root).unwrap()));
    below.into_iter().map(|pid| (pid, start_time_since_boot(pid))).collect()
}

fn is_over((pid, started): &StartedProcess) -> bool {
    let state = state(u32::try_from(pid.0).unwrap());
    matches!(state, None | Some('Z')) || start_time_since_boot(*pid) != *started
}

/// Waits until all processes have ended; prints how long this took.
pub(super) fn wait_for_ends(what: &str, processes: &[StartedProcess], since: Instant) {
    wait_until(what, || processes.iter().all(is_over));
    eprintln!("{what}: after {} ms", since.elapsed().as_millis());
}

/// Starts a client and waits for its first results.
pub(super) fn start_client(project: &Project, peer: Peer, port: Option<u16>) -> Child {
    let mut command = project.client(peer, "waits_to_be_killed", port);
    let mut client = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(client.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "\"running\"\n", "{peer:?}");
    client
}

/// Kills a client in the middle of a run and waits until everything it started has ended. The server then
/// serves the next client.
pub(super) fn kill_client(project: &Project, peer: Peer) {
    let mut server = (peer != Peer::Stdio).then(|| project.start_on_port(peer));
    let port = server.as_ref().map(|(_, port)| *port);
    let mut client = start_client(project, peer, port);
    let root = server.as_ref().map_or(client.id(), |(server, _)| server.id());
    let running = below(root);
    assert!(running.len() > 2, "{running:?}");
    let killed = Instant::now();
    signal(client.id(), "KILL");
    client.wait().unwrap();
    wait_for_ends(&format!("{peer:?}: nothing runs after the client's death"), &running, killed);
    let Some((server, port)) = &mut server else { return };
    wait_until("the server has no children", || below(server.id()).is_empty());
    let ran = run_with_separate_outputs(project.client(peer, "cancels", Some(*port))).assert_code(0);
    assert_eq!(lines(&ran).len(), 1);
    signal(server.id(), "TERM");
    wait_until("the server has ended", || server.try_wait().unwrap().is_some());
}

#[test]
fn killed_client_ends_everything_that_it_started() {
    for peer in PEERS {
        kill_client(&Project::in_slow_rust(), peer);
    }
    kill_client(&Project::in_c(), Peer::Alpha);
}

#[test]
fn killed_server_leaves_nothing_and_invents_no_verdict() {
    let project = Project::in_slow_rust();
    let (mut server, port) = project.start_on_port(Peer::Socket);
    let mut client = start_client(&project, Peer::Socket, Some(port));
    let running = below(server.id());
    assert!(running.len() > 2, "{running:?}");
    let killed = Instant::now();
    signal(server.id(), "KILL");
    server.wait().unwrap();
    wait_for_ends("nothing runs after the server's death", &running, killed);
    signal(client.id(), "KILL");
    client.wait().unwrap();
    let report = |name: &str, state: &str| {
        let words = ["mutate", "-j2", "--json", name, "--state-dir", state];
        let mut command = project.world.heeler(&words);
        command.current_dir(project.path(""));
        run_with_separate_outputs(command).assert_code(0);
        let report: Value = serde_json::from_str(&fs::read_to_string(project.path(name)).unwrap()).unwrap();
        let files = report["files"].as_object().unwrap().clone();
        let mutants = files.into_iter().flat_map(|(_, file)| file["mutants"].as_array().unwrap().clone());
        mutants
            .map(|mutant| (mutant["id"].to_string(), mutant["status"].to_string()))
            .collect::<BTreeMap<_, _>>()
    };
    // A run that resumes from the killed server's state equals a run from scratch.
    assert_eq!(report("after.json", ".heeler"), report("anew.json", "../other-state"));
}

/// Waits until a build that never ends is running; returns the processes below the server.
fn wait_for_build(project: &Project, root: u32) -> Vec<StartedProcess> {
    let mut running = Vec::new();
    wait_until("the build runs", || {
        running = below(root);
        project.path("../building").exists() && running.len() > 2
    });
    running
}

#[test]
fn build_ends_with_its_client_its_server_and_its_command() {
    // The shell waits for a process in another process group.
    let build = |project: &Project| {
        format!("touch {}; setsid sleep 3600 & wait", project.path("../building").display())
    };
    let server_words =
        |build: &str| ["serve", "socket", "--build", build, "--test", "calc_test"].map(str::to_owned);
    for is_client in [true, false] {
        let project = Project::in_c();
        let words = server_words(&build(&project));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (mut server, port) = project.start_with(&words);
        let mut client = project.client(Peer::Socket, "waits_to_be_killed", Some(port));
        let mut client = client.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let running = wait_for_build(&project, server.id());
        let killed = Instant::now();
        signal(if is_client { client.id() } else { server.id() }, "KILL");
        let what = if is_client { "client" } else { "server" };
        wait_for_ends(&format!("nothing is built after the death of the {what}"), &running, killed);
        signal(if is_client { server.id() } else { client.id() }, "KILL");
        client.wait().unwrap();
        server.wait().unwrap();
    }
    for name in ["INT", "KILL"] {
        let project = Project::in_c();
        let build = build(&project);
        let mut command = project.world.heeler(&["mutate", "--build", &build, "--test", "calc_test"]);
        let mut command = command.current_dir(project.path("")).stderr(Stdio::null()).spawn().unwrap();
        let running = wait_for_build(&project, command.id());
        let ended = Instant::now();
        signal(command.id(), name);
        wait_for_ends(&format!("nothing is built after SIG{name}"), &running, ended);
        command.wait().unwrap();
    }
}
