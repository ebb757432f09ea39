//! Crash and hang diagnostics: stacks, dumps and outputs in the display, in JUnit and for clients; the limits
//! on all of it; and the commands that read it.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::support::{
    books::Books,
    fixtures,
    listener::Behaviour,
    recorder::Event,
    server::{Run, Server},
    uids,
    world::{Ran, World, run},
};

const PROGRAM: &str = "evidence";
const CRASHES: [&str; 3] = ["Crash.One", "Crash.Two", "Crash.Three"];

/// The uid of the account `nobody`, on every Linux that has one.
const NOBODY: u32 = 65_534;

/// Returns a world with the fixture and these lines in the profile.
fn world(profile: &str) -> World {
    let world = World::with_gtest(PROGRAM);
    configure(&world, profile);
    world
}

fn configure(world: &World, profile: &str) {
    world.write("heeler.toml", &format!("[profile.default]\ngrace-period = \"200ms\"\n{profile}"));
}

/// Runs the tests of these patterns over the command line.
fn run_these(world: &World, patterns: &[&str]) -> Ran {
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

/// Returns the diagnostic files of all runs, by file name suffix.
fn evidence(world: &World, ending: &str) -> Vec<PathBuf> {
    let runs = files(&world.path(".heeler/runs"));
    let is_wanted = |path: &PathBuf| {
        path.parent().unwrap().ends_with("evidence") && path.to_str().unwrap().ends_with(ending)
    };
    runs.into_iter().filter(is_wanted).collect()
}

/// Panics unless there is exactly one such file; returns it.
#[track_caller]
fn the_one(world: &World, ending: &str) -> PathBuf {
    let found = evidence(world, ending);
    assert_eq!(found.len(), 1, "{ending}: {found:?} of {:?}", evidence(world, ""));
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

/// Returns the attachment files of a node.
fn attachments_of(node: &Value) -> BTreeSet<PathBuf> {
    (0..).map_while(|n| node.get(format!("attachments.{n}.uri"))).map(file_of).collect()
}

/// Returns the files of a list of attachments.
fn attachments_in(list: &Value) -> BTreeSet<PathBuf> {
    list.as_array().into_iter().flatten().map(|one| file_of(&one["uri"])).collect()
}

/// Runs tests for a listening client; returns its record and the checked results.
fn serve(world: &World, names: &[&str]) -> (Vec<Event>, Run, Books) {
    let mut server = Server::with_callback(world, &[PROGRAM], |_| Behaviour::Normal);
    let selected = uids(PROGRAM, names.iter().copied());
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    let books = server.finish(&run, &selected);
    let events = server.recorder.events();
    assert_eq!(server.exit(), Some(0));
    (events, run, books)
}

#[test]
fn a_crash_comes_with_its_stack_on_the_terminal_and_in_junit() {
    let world = world("");
    let ran = run_these(&world, &["Crash.One"]).code(2);
    let frames = ["#0 ", "write_to", "#1 ", "follow_a_wild_pointer", "#2 ", "Crash_One_Test::TestBody()"];
    check_order(&ran.stdout, &frames);
    ran.line(&["SIGSEGV", "Crash.One"]);
    let report = world.read("junit.xml");
    check_order(&report, &frames);
    for ending in ["evidence.Crash.One.dmp", "evidence.Crash.One.stacks.txt", "evidence.Crash.One.stdout.txt"]
    {
        let file = the_one(&world, ending);
        assert_eq!(mode(&file), 0o600, "{}", file.display());
        assert_eq!(mode(file.parent().unwrap()), 0o700, "{}", file.display());
        ran.says(file.strip_prefix(world.dir()).unwrap().to_str().unwrap());
        assert!(report.contains(&format!("[[ATTACHMENT|{}]]", file.display())), "{ending}\n{report}");
    }
    let stacks = fs::read_to_string(the_one(&world, "evidence.Crash.One.stacks.txt")).unwrap();
    check_order(&stacks, &frames);
    let output = fs::read_to_string(the_one(&world, "evidence.Crash.One.stdout.txt")).unwrap();
    assert!(output.contains("said by One"), "{output}");
}

#[test]
fn node_stream_and_answer_name_the_same_files_and_the_stream_ends_before_the_completion() {
    let world = world("jobs = 2\n");
    let (events, run, books) = serve(&world, &["Crash.One", "Crash.Two", "Z.IsLast"]);
    let node = books.test("evidence::Crash.One");
    check_order(
        node["error.stacktrace"].as_str().unwrap(),
        &["#0 ", "write_to", "#1 ", "follow_a_wild_pointer", "#2 ", "Crash_One_Test::TestBody()"],
    );
    let of_nodes: BTreeSet<_> = books.tests.values().flat_map(attachments_of).collect();
    let of_answer = attachments_in(&books.answer["result"]["attachments"]);
    let is_of_run = |params: &&Value| params["runId"] == run.run_id.as_str();
    let told: Vec<_> = events
        .iter()
        .filter_map(|event| event.params("testing/testUpdates/attachments"))
        .filter(is_of_run)
        .collect();
    let of_stream: BTreeSet<_> =
        told.iter().flat_map(|params| attachments_in(&params["attachments"])).collect();
    assert_eq!(of_stream, of_answer);
    assert!(of_nodes.is_subset(&of_answer), "{of_nodes:#?}\n{of_answer:#?}");
    for name in ["Crash.One", "Crash.Two"] {
        let own = attachments_of(books.test(&format!("evidence::{name}")));
        for ending in [".dmp", ".stacks.txt"] {
            let wanted = format!("evidence.{name}{ending}");
            assert!(own.iter().any(|file| file.ends_with(&wanted) && file.exists()), "{wanted}: {own:#?}");
        }
    }
    let ends = |method: &str, member: &str| {
        let is_end = |event: &Event| {
            event.params(method).is_some_and(|params| is_of_run(&params) && params[member].is_null())
        };
        events.iter().position(is_end)
    };
    let end = ends("testing/testUpdates/attachments", "attachments").expect("the stream has its end");
    let completion = ends("testing/testUpdates/tests", "changes").expect("there is a completion");
    assert!(end < completion, "{end} and {completion}");
}

#[test]
fn a_crash_is_a_crash_though_its_limit_passes_while_its_dump_is_written() {
    let world = world("timeout = \"5ms\"\njobs = 1\n");
    let (_, _, books) = serve(&world, &["Crash.One", "Crash.Two"]);
    for (name, signal) in [("Crash.One", "SIGSEGV"), ("Crash.Two", "SIGABRT")] {
        let node = books.test(&format!("evidence::{name}"));
        assert_eq!(node["execution-state"], "error", "{node:#}");
        assert_eq!(node["heeler.signal"], signal, "{node:#}");
    }
}

#[test]
fn a_hung_test_is_told_with_what_it_was_doing_and_the_next_tests_go_on() {
    let world = world("timeout = \"1s\"\njobs = 1\n");
    let (_, _, books) = serve(&world, &["Hang.Waits", "Memory.Modest", "Z.IsLast"]);
    let node = books.test("evidence::Hang.Waits");
    assert_eq!(node["execution-state"], "timed-out", "{node:#}");
    let told = node["error.stacktrace"].as_str().unwrap_or_else(|| panic!("{node:#}"));
    check_order(told, &["BLOCKED", "Hang_Waits_Test::TestBody()"]);
    let own = attachments_of(node);
    for ending in [".dmp", ".stacks.txt"] {
        assert!(own.iter().any(|file| file.to_str().unwrap().ends_with(ending) && file.exists()), "{own:#?}");
    }
    for name in ["Memory.Modest", "Z.IsLast"] {
        assert_eq!(books.state(&format!("evidence::{name}")), "passed");
    }
}

#[test]
fn of_a_hung_tree_every_process_is_told_and_dumped() {
    let world = world("timeout = \"1s\"\n");
    let (_, _, books) = serve(&world, &["Hang.WaitsForAChild"]);
    let node = books.test("evidence::Hang.WaitsForAChild");
    let told = node["error.stacktrace"].as_str().unwrap_or_else(|| panic!("{node:#}"));
    check_order(told, &["BLOCKED", "BLOCKED", "Hang_WaitsForAChild_Test::TestBody()", "wait_in_the_child"]);
    let own = attachments_of(node);
    for ending in [".dmp", ".stacks.txt"] {
        let of_kind = own.iter().filter(|file| file.to_str().unwrap().ends_with(ending));
        assert_eq!(of_kind.filter(|file| file.exists()).count(), 2, "{own:#?}");
    }
}

#[test]
fn a_silent_test_is_ended_and_one_that_prints_now_and_then_is_not() {
    let world = world("silence-timeout = \"1s\"\n");
    let ran = run_these(&world, &["Quiet.*", "Z.*"]).code(2);
    ran.line(&["TIMEOUT", "Quiet.SaysNothing"]);
    ran.line(&["PASS", "Quiet.SaysSomething"]);
    ran.line(&["PASS", "Z.IsLast"]);
    check_order(&ran.stdout, &["BLOCKED", "Quiet_SaysNothing_Test::TestBody()"]);
    the_one(&world, "evidence.Quiet.SaysNothing.stacks.txt");
}

#[test]
fn a_run_that_reaches_its_limit_accounts_for_every_test() {
    let world = world("run-timeout = \"1s\"\njobs = 1\n");
    let (_, _, books) = serve(&world, &["Hang.Waits", "Memory.Modest", "Z.IsLast"]);
    assert_eq!(books.state("evidence::Hang.Waits"), "cancelled", "{books:#?}");
    for name in ["Memory.Modest", "Z.IsLast"] {
        let uid = format!("evidence::{name}");
        assert_eq!(books.test(&uid)["outcome-kind"], "not-run", "{books:#?}");
        assert!(books.message(&uid).contains("run-timeout"), "{books:#?}");
    }
}

#[test]
fn only_the_greedy_test_is_killed_and_it_says_why() {
    let world = world("max-memory = \"100MiB\"\ntimeout = \"30s\"\njobs = 1\n");
    let (_, _, books) = serve(&world, &["Memory.Greedy", "Memory.Modest", "Z.IsLast"]);
    let node = books.test("evidence::Memory.Greedy");
    assert_eq!(
        (&node["execution-state"], &node["outcome-kind"]),
        (&"error".into(), &"out-of-memory".into()),
        "{node:#}"
    );
    let message = books.message("evidence::Memory.Greedy");
    assert!(message.contains("memory") && message.contains("100 MiB"), "{message}");
    for name in ["Memory.Modest", "Z.IsLast"] {
        assert_eq!(books.state(&format!("evidence::{name}")), "passed");
    }
}

#[test]
fn without_the_watch_the_states_are_the_same_and_nothing_is_kept() {
    let names = ["Crash.Two", "Crash.Three", "Hang.Waits", "Z.IsLast"];
    let states = |profile: &str| {
        let world = world(&format!("timeout = \"1s\"\n{profile}"));
        let (_, _, books) = serve(&world, &names);
        let facts = |node: &Value| (node["execution-state"].clone(), node["heeler.signal"].clone());
        let states: Vec<_> = books.tests.values().map(facts).collect();
        let runs = fs::read_dir(world.path(".heeler/runs")).unwrap();
        (states, runs.filter(|run| run.as_ref().unwrap().path().join("evidence").exists()).count())
    };
    let (watched, directories) = states("");
    let (unwatched, none) = states("watch = \"off\"\n");
    assert_eq!(watched, unwatched);
    assert_eq!((directories, none), (1, 0));
}

#[test]
fn without_dumps_the_stacks_are_still_there() {
    let world = world("dumps = \"off\"\n");
    let ran = run_these(&world, &["Crash.*"]).code(2);
    check_order(&ran.stdout, &["Crash.One", "write_to", "follow_a_wild_pointer"]);
    for name in CRASHES {
        the_one(&world, &format!("evidence.{name}.stacks.txt"));
    }
    assert_eq!(evidence(&world, ".dmp"), Vec::<PathBuf>::new());
}

#[test]
fn of_three_crashes_one_dump_is_left_where_one_is_allowed() {
    // With more slots, a test that already runs may still be dumped.
    let world = world("dumps-per-run = 1\njobs = 1\n");
    run_these(&world, &["Crash.*"]).code(2);
    the_one(&world, ".dmp");
    for name in CRASHES {
        the_one(&world, &format!("evidence.{name}.stacks.txt"));
    }
}

#[test]
fn a_dump_above_its_limit_is_left_out_and_the_stack_stays() {
    let world = world("dump-limit = \"1KiB\"\n");
    let ran = run_these(&world, &["Crash.One"]).code(2);
    check_order(&ran.stdout, &["#0 ", "write_to", "#1 ", "follow_a_wild_pointer"]);
    the_one(&world, "evidence.Crash.One.stacks.txt");
    assert_eq!(evidence(&world, ".dmp"), Vec::<PathBuf>::new());
    assert_eq!(evidence(&world, ".part"), Vec::<PathBuf>::new());
}

#[test]
fn no_dump_follows_one_that_reached_the_total() {
    let world = world("dumps-total = \"1KiB\"\njobs = 1\n");
    run_these(&world, &["Crash.*"]).code(2);
    the_one(&world, ".dmp");
}

/// Returns the files of the run's directory that contain the secret.
fn with_secret(world: &World, secret: &str) -> Vec<PathBuf> {
    let holds = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap();
        bytes.windows(secret.len()).any(|window| window == secret.as_bytes())
    };
    files(&world.path(".heeler")).into_iter().filter(holds).collect()
}

#[test]
fn a_secret_of_the_environment_is_in_the_dump_only_where_that_is_asked_for() {
    let secret = "hunter2-0a1b2c3d4e5f";
    let world = world("timeout = \"1s\"\n");
    world.env("SERVICE_PASSWORD", secret);
    run_these(&world, &["Crash.*", "Hang.*"]).code(2);
    assert_eq!(evidence(&world, ".dmp").len(), 6, "{:?}", evidence(&world, ""));
    assert_eq!(with_secret(&world, secret), Vec::<PathBuf>::new());
    fs::remove_dir_all(world.path(".heeler")).unwrap();
    configure(&world, "dump-environment = true\n");
    run_these(&world, &["Crash.One"]).code(2);
    assert_eq!(with_secret(&world, secret), [the_one(&world, "evidence.Crash.One.dmp")]);
}

#[test]
fn a_dump_is_printed_for_people() {
    let world = world("");
    run_these(&world, &["Crash.One"]).code(2);
    let dump = the_one(&world, "evidence.Crash.One.dmp");
    let ran = world.run(&["dump", dump.to_str().unwrap()]).code(0);
    ran.line(&["SIGSEGV", "address 0x8", "thread"]);
    check_order(&ran.stdout, &["thread", "write_to", "follow_a_wild_pointer", "Crash_One_Test::TestBody()"]);
    ran.line(&[fixtures::gtest(PROGRAM).file_name().unwrap().to_str().unwrap(), "0x"]);
}

#[test]
fn a_file_that_is_no_dump_is_one_clear_error() {
    let world = World::new();
    world.write("notes.txt", "This is a text, and has been one for long.\n".repeat(100).as_str());
    for name in ["notes.txt", "gone.dmp"] {
        let ran = world.run(&["dump", name]).code(4);
        assert_eq!(ran.stderr.lines().count(), 1, "{ran}");
        ran.complains(name);
        assert_eq!(ran.stdout, "");
    }
}

#[test]
fn the_doctor_has_a_line_about_crash_capture() {
    World::new().run(&["doctor"]).line(&["crash capture"]);
}

#[test]
fn a_rust_test_that_overflows_its_stack_names_the_function() {
    let world = World::with_libtest();
    let ran = world.run(&["run", "libtest", "-E", "k_overflows_its_stack"]).code(2);
    check_order(&ran.stdout, &["SIGABRT", "k_overflows_its_stack", "stack", "k_overflows_its_stack::deeper"]);
    let stacks = fs::read_to_string(the_one(&world, "k_overflows_its_stack.stacks.txt")).unwrap();
    assert!(stacks.contains("k_overflows_its_stack::deeper"), "{stacks}");
}

#[test]
fn a_handler_that_exits_hides_neither_the_signal_nor_the_stack() {
    let world = world("");
    let ran = run_these(&world, &["Handled.Exits", "Z.IsLast"]).code(2);
    let words = ["exit code 3", "SIGSEGV at address 0x8", "handled by the program itself", "alone as well"];
    ran.line(&words);
    check_order(&ran.stdout, &["#0 ", "write_to", "#1 ", "follow_a_wild_pointer", "Handled_Exits_Test"]);
    the_one(&world, "evidence.Handled.Exits.stacks.txt");
}

#[test]
fn a_crash_behind_a_program_that_is_no_shell_is_found_by_the_lone_run() {
    let world = world("jobs = 1\n");
    // It starts another program, and exits with 128 plus the signal as shells do.
    let suite = "[[suite]]\nname = \"behind\"\nprograms = [\"/usr/bin/flock\"]\nargs = [\"lock\", \"./evidence\"]\nframework = \"gtest\"\n";
    world.write("heeler.toml", &format!("[profile.default]\n{suite}"));
    let ran = world.run(&["run", "-E", "Crash.One", "-E", "Z.IsLast"]).code(2);
    ran.line(&["exit code 139", "SIGSEGV at address 0x8", "in its child", "alone as well"]);
    check_order(&ran.stdout, &["#0 ", "write_to", "#1 ", "follow_a_wild_pointer", "Crash_One_Test"]);
    the_one(&world, "behind.Crash.One-alone.dmp");
}

#[test]
fn death_tests_leave_no_evidence() {
    for watch in ["root", "tree"] {
        let world = world(&format!("watch = \"{watch}\"\n"));
        run_these(&world, &["QuickDeathTest.*"]).code(0).line(&["PASSED", "2 tests"]);
        assert_eq!(evidence(&world, ""), Vec::<PathBuf>::new(), "{watch}");
    }
}

/// Changes the owner of a world and everything in it to `nobody`.
fn give_away(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| give_away(&entry.unwrap().path()));
    }
}

#[test]
fn a_user_without_privileges_gets_the_same_evidence() {
    let world = World::new();
    configure(&world, "");
    // Copies: `nobody` may not have access to the directories of the originals.
    fs::copy(env!("CARGO_BIN_EXE_heeler"), world.path("heeler")).unwrap();
    fs::copy(fixtures::gtest(PROGRAM), world.path(PROGRAM)).unwrap();
    let mut line = "./heeler run ./evidence -E Crash.One".to_owned();
    if host::process::effective_uid() == 0 {
        give_away(world.dir());
        let drop = format!("setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups -- ");
        if run(world.shell(&format!("{drop} test -x ./heeler"))).code != Some(0) {
            eprintln!("skipped: setpriv can't become nobody here");
            return;
        }
        line = format!("{drop}{line}");
    }
    let ran = run(world.shell(&line)).code(2);
    check_order(
        &ran.stdout,
        &["SIGSEGV", "#0 ", "write_to", "follow_a_wild_pointer", "Crash_One_Test::TestBody()"],
    );
    for ending in ["evidence.Crash.One.dmp", "evidence.Crash.One.stacks.txt"] {
        assert_eq!(mode(&the_one(&world, ending)), 0o600);
    }
    world.check_tidy();
}
