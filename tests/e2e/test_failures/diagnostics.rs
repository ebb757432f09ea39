//! Crash and hang diagnostics: stack traces, dumps and outputs in the display, in JUnit reports and for
//! clients; their limits; and the commands that read them.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::support::{
    callback_listener::ListenerBehaviour,
    checked_run::CheckedRun,
    fixtures,
    recorder::RecordedEvent,
    requirement,
    server::{RequestedRun, TestServer},
    uids,
    world::{FinishedCommand, TestWorld, run},
};

const PROGRAM: &str = "evidence";
const CRASHES: [&str; 3] = ["Crash.One", "Crash.Two", "Crash.Three"];

/// The uid of `nobody`.
const NOBODY: u32 = 65_534;

/// Returns a world with the test program and these lines in its profile.
fn world(profile: &str) -> TestWorld {
    let world = TestWorld::with_gtest(PROGRAM);
    configure(&world, profile);
    world
}

fn configure(world: &TestWorld, profile: &str) {
    world.write("heeler.toml", &format!("[profile.default]\ngrace-period = \"200ms\"\n{profile}"));
}

/// Runs the tests that match these patterns on the command line.
fn run_these(world: &TestWorld, patterns: &[&str]) -> FinishedCommand {
    let mut words = vec!["run", PROGRAM, "--status-level", "all", "--junit", "junit.xml"];
    for pattern in patterns {
        words.extend(["-E", pattern]);
    }
    world.run(&words)
}

/// Returns every file below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let of = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(|entry| of(entry.unwrap().path())).collect()
}

/// Returns the diagnostic files with this suffix in all runs.
fn diagnostic_files(world: &TestWorld, ending: &str) -> Vec<PathBuf> {
    let runs = files(&world.path(".heeler/runs"));
    let is_wanted = |path: &PathBuf| {
        path.parent().unwrap().ends_with("evidence") && path.to_str().unwrap().ends_with(ending)
    };
    runs.into_iter().filter(is_wanted).collect()
}

/// Returns the only such file; panics if there is not exactly one.
#[track_caller]
fn single_file(world: &TestWorld, ending: &str) -> PathBuf {
    let found = diagnostic_files(world, ending);
    assert_eq!(found.len(), 1, "{ending}: {found:?} of {:?}", diagnostic_files(world, ""));
    found.into_iter().next().expect("there is one")
}

/// Panics unless these texts occur in this order.
#[track_caller]
fn check_order(text: &str, wanted: &[&str]) {
    let mut rest = text;
    for one in wanted {
        let place = rest.find(one).unwrap_or_else(|| panic!("{one:?} is not in its place:\n{text}"));
        rest = &rest[place + one.len()..];
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn file_of(uri: &Value) -> PathBuf {
    PathBuf::from(uri.as_str().and_then(|uri| uri.strip_prefix("file://")).expect("it is the URI of a file"))
}

/// Returns the files attached to a node.
fn attachments_of(node: &Value) -> BTreeSet<PathBuf> {
    (0..).map_while(|n| node.get(format!("attachments.{n}.uri"))).map(file_of).collect()
}

/// Returns the files in a list of attachments.
fn attachments_in(list: &Value) -> BTreeSet<PathBuf> {
    list.as_array().into_iter().flatten().map(|one| file_of(&one["uri"])).collect()
}

/// Runs tests for a client with a callback port; returns the recorded events, the run and the checked
/// results.
fn serve(world: &TestWorld, names: &[&str]) -> (Vec<RecordedEvent>, RequestedRun, CheckedRun) {
    let mut server = TestServer::with_callback(world, &[PROGRAM], |_| ListenerBehaviour::Normal);
    let selected = uids(PROGRAM, names.iter().copied());
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    let checked_run = server.finish(&run, &selected);
    let events = server.recorder.events();
    assert_eq!(server.exit(), Some(0));
    (events, run, checked_run)
}

#[test]
fn crash_stack_is_on_terminal_and_in_junit() {
    let world = world("");
    let ran = run_these(&world, &["Crash.One"]).assert_code(2);
    let frames = ["#0 ", "write_to", "#1 ", "follow_a_wild_pointer", "#2 ", "Crash_One_Test::TestBody()"];
    check_order(&ran.stdout, &frames);
    ran.line_with(&["SIGSEGV", "Crash.One"]);
    let report = world.read("junit.xml");
    check_order(&report, &frames);
    for ending in ["evidence.Crash.One.dmp", "evidence.Crash.One.stacks.txt", "evidence.Crash.One.stdout.txt"]
    {
        let file = single_file(&world, ending);
        assert_eq!(mode(&file), 0o600, "{}", file.display());
        assert_eq!(mode(file.parent().unwrap()), 0o700, "{}", file.display());
        let relative = file.strip_prefix(world.dir()).unwrap().display();
        assert!(report.contains(&format!("[[ATTACHMENT|{relative}]]")), "{ending}\n{report}");
    }
    // CI services show the first file.
    let first = report.split("[[ATTACHMENT|").nth(1).unwrap();
    assert!(first.split_once("]]").unwrap().0.ends_with("evidence.Crash.One.stacks.txt"), "{report}");
    let all = single_file(&world, "evidence.Crash.One.dmp").with_extension("*");
    ran.assert_stdout(all.strip_prefix(world.dir()).unwrap().to_str().unwrap());
    let stacks = fs::read_to_string(single_file(&world, "evidence.Crash.One.stacks.txt")).unwrap();
    check_order(&stacks, &frames);
    let output = fs::read_to_string(single_file(&world, "evidence.Crash.One.stdout.txt")).unwrap();
    assert!(output.contains("said by One"), "{output}");
}

#[test]
fn node_stream_and_response_name_same_files() {
    let world = world("jobs = 2\n");
    let (events, run, checked_run) = serve(&world, &["Crash.One", "Crash.Two", "Z.IsLast"]);
    let node = checked_run.test("evidence::Crash.One");
    check_order(
        node["error.stacktrace"].as_str().unwrap(),
        &["#0 ", "write_to", "#1 ", "follow_a_wild_pointer", "#2 ", "Crash_One_Test::TestBody()"],
    );
    let of_nodes: BTreeSet<_> = checked_run.tests.values().flat_map(attachments_of).collect();
    let of_answer = attachments_in(&checked_run.response["result"]["attachments"]);
    let is_of_run = |params: &&Value| params["runId"] == run.run_id.as_str();
    let attachment_updates: Vec<_> = events
        .iter()
        .filter_map(|event| event.params("testing/testUpdates/attachments"))
        .filter(is_of_run)
        .collect();
    let of_stream: BTreeSet<_> =
        attachment_updates.iter().flat_map(|params| attachments_in(&params["attachments"])).collect();
    assert_eq!(of_stream, of_answer);
    assert!(of_nodes.is_subset(&of_answer), "{of_nodes:#?}\n{of_answer:#?}");
    for name in ["Crash.One", "Crash.Two"] {
        let own = attachments_of(checked_run.test(&format!("evidence::{name}")));
        for ending in [".dmp", ".stacks.txt"] {
            let wanted = format!("evidence.{name}{ending}");
            assert!(own.iter().any(|file| file.ends_with(&wanted) && file.exists()), "{wanted}: {own:#?}");
        }
    }
    let ends = |method: &str, member: &str| {
        let is_end = |event: &RecordedEvent| {
            event.params(method).is_some_and(|params| is_of_run(&params) && params[member].is_null())
        };
        events.iter().position(is_end)
    };
    let end = ends("testing/testUpdates/attachments", "attachments").expect("the stream has its end");
    let completion = ends("testing/testUpdates/tests", "changes").expect("there is a completion");
    assert!(end < completion, "{end} and {completion}");
}

#[test]
fn crash_stays_crash_when_dump_exceeds_timeout() {
    let world = world("timeout = \"5ms\"\njobs = 1\n");
    let (_, _, checked_run) = serve(&world, &["Crash.One", "Crash.Two"]);
    for (name, signal) in [("Crash.One", "SIGSEGV"), ("Crash.Two", "SIGABRT")] {
        let node = checked_run.test(&format!("evidence::{name}"));
        assert_eq!(node["execution-state"], "error", "{node:#}");
        assert_eq!(node["heeler.signal"], signal, "{node:#}");
    }
}

#[test]
fn hung_test_has_stack_and_run_continues() {
    let world = world("timeout = \"1s\"\njobs = 1\n");
    let (_, _, checked_run) = serve(&world, &["Hang.Waits", "Memory.Modest", "Z.IsLast"]);
    let node = checked_run.test("evidence::Hang.Waits");
    assert_eq!(node["execution-state"], "timed-out", "{node:#}");
    let stack = node["error.stacktrace"].as_str().unwrap_or_else(|| panic!("{node:#}"));
    check_order(stack, &["BLOCKED", "Hang_Waits_Test::TestBody()"]);
    let own = attachments_of(node);
    for ending in [".dmp", ".stacks.txt"] {
        assert!(own.iter().any(|file| file.to_str().unwrap().ends_with(ending) && file.exists()), "{own:#?}");
    }
    for name in ["Memory.Modest", "Z.IsLast"] {
        assert_eq!(checked_run.state(&format!("evidence::{name}")), "passed");
    }
}

#[test]
fn hung_process_tree_is_dumped_completely() {
    let world = world("timeout = \"1s\"\n");
    let (_, _, checked_run) = serve(&world, &["Hang.WaitsForAChild"]);
    let node = checked_run.test("evidence::Hang.WaitsForAChild");
    let stack = node["error.stacktrace"].as_str().unwrap_or_else(|| panic!("{node:#}"));
    check_order(stack, &["BLOCKED", "BLOCKED", "Hang_WaitsForAChild_Test::TestBody()", "wait_in_the_child"]);
    let own = attachments_of(node);
    for ending in [".dmp", ".stacks.txt"] {
        let of_kind = own.iter().filter(|file| file.to_str().unwrap().ends_with(ending));
        assert_eq!(of_kind.filter(|file| file.exists()).count(), 2, "{own:#?}");
    }
}

#[test]
fn hang_report_names_all_threads_and_describes_process_and_machine() {
    let world = world("timeout = \"1s\"\n");
    let ran = run_these(&world, &["Hang.WaitsInManyThreads"]).assert_code(2);
    ran.line_with(&["pid ", " old, ", "iB (", "BLOCKED in pause (65 threads)"]);
    ran.line_with(&["machine: load ", " core", " memory available"]);
    let file = single_file(&world, "evidence.Hang.WaitsInManyThreads.stacks.txt");
    let stacks = fs::read_to_string(file).unwrap();
    for number in 0..64 {
        assert!(stacks.contains(&format!("wait_in_function<{number}>")), "{number} of {stacks}");
    }
    let heading = stacks.lines().next().unwrap();
    assert!(heading.contains("(pid ") && heading.contains(" old, "), "{heading}");
}

#[test]
fn idle_timeout_ends_only_silent_tests() {
    let world = world("idle-timeout = \"1s\"\n");
    let ran = run_these(&world, &["Quiet.*", "Z.*"]).assert_code(2);
    ran.line_with(&["IDLE", "Quiet.SaysNothing"]);
    ran.line_with(&["PASS", "Quiet.SaysSomething"]);
    ran.line_with(&["PASS", "Z.IsLast"]);
    check_order(&ran.stdout, &["BLOCKED", "Quiet_SaysNothing_Test::TestBody()"]);
    single_file(&world, "evidence.Quiet.SaysNothing.stacks.txt");
}

#[test]
fn run_at_timeout_accounts_for_every_test() {
    let world = world("run-timeout = \"1s\"\njobs = 1\n");
    let (_, _, checked_run) = serve(&world, &["Hang.Waits", "Memory.Modest", "Z.IsLast"]);
    assert_eq!(checked_run.state("evidence::Hang.Waits"), "cancelled", "{checked_run:#?}");
    for name in ["Memory.Modest", "Z.IsLast"] {
        let uid = format!("evidence::{name}");
        assert_eq!(checked_run.test(&uid)["outcome-kind"], "not-run", "{checked_run:#?}");
        assert!(checked_run.message(&uid).contains("run-timeout"), "{checked_run:#?}");
    }
}

#[test]
fn memory_limit_kills_only_exceeding_test() {
    let world = world("max-memory = \"100MiB\"\ntimeout = \"30s\"\njobs = 1\n");
    let (_, _, checked_run) = serve(&world, &["Memory.Greedy", "Memory.Modest", "Z.IsLast"]);
    let node = checked_run.test("evidence::Memory.Greedy");
    assert_eq!(
        (&node["execution-state"], &node["outcome-kind"]),
        (&"error".into(), &"out-of-memory".into()),
        "{node:#}"
    );
    let message = checked_run.message("evidence::Memory.Greedy");
    assert!(message.contains("memory") && message.contains("100 MiB"), "{message}");
    for name in ["Memory.Modest", "Z.IsLast"] {
        assert_eq!(checked_run.state(&format!("evidence::{name}")), "passed");
    }
}

#[test]
fn memory_limit_counts_shared_memory_once() {
    let world = TestWorld::with_gtest("memory");
    world.write(
        "heeler.toml",
        "[profile.default]\nmax-memory = \"150MiB\"\ntimeout = \"60s\"\nisolate = true\n",
    );
    let ran = world.run(&["run", "memory", "--no-history", "--status-level", "all"]).assert_code(2);
    ran.line_with(&["PASS", "Shared.IsCountedOnce"]);
    for name in ["Shared.GreedyInFile", "Shared.GreedyInMapping"] {
        ran.line_with(&["MEMORY", name]);
    }
    ran.line_with(&["killed because it used", "150 MiB"]);
}

#[test]
fn disabled_crash_capture_keeps_states_without_files() {
    let names = ["Crash.Two", "Crash.Three", "Hang.Waits", "Z.IsLast"];
    let states = |profile: &str| {
        let world = world(&format!("timeout = \"1s\"\n{profile}"));
        let (_, _, checked_run) = serve(&world, &names);
        let facts = |node: &Value| (node["execution-state"].clone(), node["heeler.signal"].clone());
        let states: Vec<_> = checked_run.tests.values().map(facts).collect();
        let runs = fs::read_dir(world.path(".heeler/runs")).unwrap();
        (states, runs.filter(|run| run.as_ref().unwrap().path().join("evidence").exists()).count())
    };
    let (watched, directories) = states("");
    let (unwatched, none) = states("crash-capture = \"off\"\n");
    assert_eq!(watched, unwatched);
    assert_eq!((directories, none), (1, 0));
}

#[test]
fn disabled_dumps_keep_stacks() {
    let world = world("dumps = \"off\"\n");
    let ran = run_these(&world, &["Crash.*"]).assert_code(2);
    check_order(&ran.stdout, &["Crash.One", "write_to", "follow_a_wild_pointer"]);
    for name in CRASHES {
        single_file(&world, &format!("evidence.{name}.stacks.txt"));
    }
    assert_eq!(diagnostic_files(&world, ".dmp"), Vec::<PathBuf>::new());
}

#[test]
fn dumps_per_run_limits_number_of_dumps() {
    // With more slots, a test that was already running could be dumped after the limit is reached.
    let world = world("dumps-per-run = 1\njobs = 1\n");
    run_these(&world, &["Crash.*"]).assert_code(2);
    single_file(&world, ".dmp");
    for name in CRASHES {
        single_file(&world, &format!("evidence.{name}.stacks.txt"));
    }
}

#[test]
fn dump_above_size_limit_keeps_only_stack() {
    let world = world("dump-limit = \"1KiB\"\n");
    let ran = run_these(&world, &["Crash.One"]).assert_code(2);
    check_order(&ran.stdout, &["#0 ", "write_to", "#1 ", "follow_a_wild_pointer"]);
    single_file(&world, "evidence.Crash.One.stacks.txt");
    assert_eq!(diagnostic_files(&world, ".dmp"), Vec::<PathBuf>::new());
    assert_eq!(diagnostic_files(&world, ".part"), Vec::<PathBuf>::new());
}

#[test]
fn total_dump_size_limit_stops_further_dumps() {
    let world = world("dumps-total = \"1KiB\"\njobs = 1\n");
    run_these(&world, &["Crash.*"]).assert_code(2);
    single_file(&world, ".dmp");
}

/// Returns the files in the state directory that contain the secret.
fn files_with_secret(world: &TestWorld, secret: &str) -> Vec<PathBuf> {
    let holds = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap();
        bytes.windows(secret.len()).any(|window| window == secret.as_bytes())
    };
    files(&world.path(".heeler")).into_iter().filter(holds).collect()
}

#[test]
fn environment_is_in_dump_only_on_request() {
    let secret = "hunter2-0a1b2c3d4e5f";
    let world = world("timeout = \"1s\"\n");
    world.env("SERVICE_PASSWORD", secret);
    run_these(&world, &["Crash.*", "Hang.*"]).assert_code(2);
    assert_eq!(diagnostic_files(&world, ".dmp").len(), 7, "{:?}", diagnostic_files(&world, ""));
    assert_eq!(files_with_secret(&world, secret), Vec::<PathBuf>::new());
    fs::remove_dir_all(world.path(".heeler")).unwrap();
    configure(&world, "dump-environment = true\n");
    run_these(&world, &["Crash.One"]).assert_code(2);
    assert_eq!(files_with_secret(&world, secret), [single_file(&world, "evidence.Crash.One.dmp")]);
}

#[test]
fn dump_command_prints_summary() {
    let world = world("");
    run_these(&world, &["Crash.One"]).assert_code(2);
    let dump = single_file(&world, "evidence.Crash.One.dmp");
    let ran = world.run(&["dump", dump.to_str().unwrap()]).assert_code(0);
    ran.line_with(&["SIGSEGV", "address 0x8", "thread"]);
    check_order(&ran.stdout, &["thread", "write_to", "follow_a_wild_pointer", "Crash_One_Test::TestBody()"]);
    ran.line_with(&[fixtures::gtest(PROGRAM).file_name().unwrap().to_str().unwrap(), "0x"]);
}

#[test]
fn dump_command_refuses_other_files() {
    let world = TestWorld::new();
    world.write("notes.txt", "This is a text, and has been one for long.\n".repeat(100).as_str());
    for name in ["notes.txt", "gone.dmp"] {
        let ran = world.run(&["dump", name]).assert_code(4);
        assert_eq!(ran.stderr.lines().count(), 1, "{ran}");
        ran.assert_stderr(name);
        assert_eq!(ran.stdout, "");
    }
}

#[test]
fn doctor_reports_crash_capture() {
    TestWorld::new().run(&["doctor"]).line_with(&["crash capture"]);
}

#[test]
fn doctor_describes_machine_and_processes_of_heeler() {
    let world = TestWorld::with_gtest("deaths");
    let server = TestServer::initialized(&world, &["deaths"]);
    let ran = world.run(&["doctor"]);
    ran.line_with(&["processors", "the default number of parallel tests"]);
    ran.line_with(&["memory", " of ", "available"]);
    ran.line_with(&["pressure", " "]);
    ran.line_with(&["load", "in the last minute", "processes of"]);
    let line = ran.line_with(&["heeler", "coordinator", "watchdog", "together, the oldest for "]);
    // Tests that run beside this one have processes too, of which only the oldest are named.
    assert!(line.contains(&server.pid().to_string()) || line.contains(" more)"), "{ran}");
}

#[test]
fn doctor_describes_tools_also_if_they_are_missing_fail_or_hang() {
    let world = TestWorld::new();
    fs::create_dir(world.path("bin")).unwrap();
    world.write_program("bin/go", "#!/bin/sh\necho go version go1.99 linux/amd64\n");
    world.write_program("bin/ctest", "#!/bin/sh\necho broken >&2\nexit 3\n");
    // The shell's child holds the output open, too.
    world.write_program("bin/node", "#!/bin/sh\n/bin/sleep 1000\n");
    world.env("PATH", world.path("bin").to_str().unwrap());
    let ran = world.run(&["doctor"]);
    ran.line_with(&["go ", "go version go1.99 linux/amd64", world.path("bin/go").to_str().unwrap()]);
    ran.line_with(&["ctest ", "failed", "code 3", "needed for --ctest"]);
    ran.line_with(&["node ", "did not end in time", "needed for MCP servers"]);
    for tool in ["python ", "pytest ", "dotnet ", "cargo "] {
        ran.line_with(&[tool, "not found in PATH; needed for "]);
    }
    assert!(!ran.stderr.contains("broken"), "{ran}");
}

#[test]
fn rust_stack_overflow_names_function() {
    let world = TestWorld::with_libtest();
    let ran = world.run(&["run", "libtest", "-E", "k_overflows_its_stack"]).assert_code(2);
    check_order(&ran.stdout, &["SIGABRT", "k_overflows_its_stack", "stack", "k_overflows_its_stack::deeper"]);
    let stacks = fs::read_to_string(single_file(&world, "k_overflows_its_stack.stacks.txt")).unwrap();
    assert!(stacks.contains("k_overflows_its_stack::deeper"), "{stacks}");
}

#[test]
fn exiting_signal_handler_hides_no_crash() {
    let world = world("");
    let ran = run_these(&world, &["Handled.Exits", "Z.IsLast"]).assert_code(2);
    let words = [
        "exited with code 3",
        "SIGSEGV at address 0x8",
        "caught by a signal handler of the program",
        "also in isolation",
    ];
    ran.line_with(&words);
    check_order(&ran.stdout, &["#0 ", "write_to", "#1 ", "follow_a_wild_pointer", "Handled_Exits_Test"]);
    single_file(&world, "evidence.Handled.Exits.stacks.txt");
}

#[test]
fn wrapped_crash_is_found_by_isolated_rerun() {
    let world = world("jobs = 1\n");
    // Like a shell, `flock` starts the program and exits with 128 plus the signal's number.
    let suite = "[[suite]]\nname = \"behind\"\nprograms = [\"/usr/bin/flock\"]\nargs = [\"lock\", \"./evidence\"]\nframework = \"gtest\"\n";
    world.write("heeler.toml", &format!("[profile.default]\n{suite}"));
    let ran = world.run(&["run", "-E", "Crash.One", "-E", "Z.IsLast"]).assert_code(2);
    ran.line_with(&[
        "exited with code 139",
        "SIGSEGV at address 0x8",
        "in child process",
        "also in isolation",
    ]);
    check_order(&ran.stdout, &["#0 ", "write_to", "#1 ", "follow_a_wild_pointer", "Crash_One_Test"]);
    single_file(&world, "behind.Crash.One-isolated.dmp");
}

#[test]
fn death_tests_leave_no_diagnostics() {
    for watch in ["root", "tree"] {
        let world = world(&format!("crash-capture = \"{watch}\"\n"));
        run_these(&world, &["QuickDeathTest.*"]).assert_code(0).line_with(&["PASSED", "2 tests"]);
        assert_eq!(diagnostic_files(&world, ""), Vec::<PathBuf>::new(), "{watch}");
    }
}

/// Makes `nobody` the owner of a directory and everything in it.
fn chown_to_nobody(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| chown_to_nobody(&entry.unwrap().path()));
    }
}

#[test]
fn unprivileged_user_gets_same_diagnostics() {
    let world = TestWorld::new();
    configure(&world, "");
    // `nobody` may not have access to the original programs, so they are copied.
    fs::copy(env!("CARGO_BIN_EXE_heeler"), world.path("heeler")).unwrap();
    fs::copy(fixtures::gtest(PROGRAM), world.path(PROGRAM)).unwrap();
    let mut line = "./heeler run ./evidence -E Crash.One".to_owned();
    if heeler_sys::process::effective_uid() == 0 {
        chown_to_nobody(world.dir());
        let drop = format!("setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups -- ");
        if run(world.shell(&format!("{drop} test -x ./heeler"))).code != Some(0) {
            requirement::leave_out("setpriv", "it can't become nobody here");
            return;
        }
        line = format!("{drop}{line}");
    }
    let ran = run(world.shell(&line)).assert_code(2);
    check_order(
        &ran.stdout,
        &["SIGSEGV", "#0 ", "write_to", "follow_a_wild_pointer", "Crash_One_Test::TestBody()"],
    );
    for ending in ["evidence.Crash.One.dmp", "evidence.Crash.One.stacks.txt"] {
        assert_eq!(mode(&single_file(&world, ending)), 0o600);
    }
    world.check_tidy();
}
