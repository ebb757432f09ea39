//! Recorded runs: their state after the death of any process, reports from journals, and reruns.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    process::{Child, Stdio},
};

use serde_json::Value;

use crate::support::{
    process::{ProcessRole, processes_of_role, signal, wait_until},
    world::{FinishedCommand, TestWorld},
};

const SHORT: &str = "[profile.default]\ntimeout = \"1s\"\ngrace-period = \"200ms\"\nslow-timeout = \"50s\"\n";

/// Returns a world whose tests wait for a command.
fn world_with_waiting_tests() -> TestWorld {
    let world = TestWorld::with_gtest("meet");
    world.env("HEELER_FIXTURE_CASES", "6");
    world
}

/// Runs `heeler` during another run, or after that run was killed. Tests do not wait for commands.
fn run_heeler_beside(world: &TestWorld, words: &[&str]) -> FinishedCommand {
    let mut command = world.heeler(words);
    command.env_remove("HEELER_FIXTURE_MEET");
    crate::support::world::run(command)
}

/// Returns the entries of `heeler runs` for all runs, oldest first.
fn runs(world: &TestWorld) -> Vec<Value> {
    let ran = run_heeler_beside(world, &["runs", "--format", "json"]).assert_code(0);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}\n{ran}"))
}

fn latest(world: &TestWorld) -> Value {
    runs(world).pop().expect("there is a run")
}

fn dir_of(run: &Value) -> PathBuf {
    run["directory"].as_str().unwrap().into()
}

/// Removes the run's times from a JUnit document: on the command line they include the listing.
fn without_times(junit: &str) -> String {
    let (first, rest) = junit.split_once("<testsuite ").unwrap_or((junit, ""));
    let words = first.split(' ').filter(|word| !word.starts_with("timestamp=") && !word.starts_with("time="));
    format!("{} {rest}", words.collect::<Vec<_>>().join(" "))
}

#[track_caller]
fn check_same_report(world: &TestWorld) {
    world.run(&["report", "latest", "--junit", "again.xml"]).assert_code(0);
    let (live, again) = (world.read("live.xml"), world.read("again.xml"));
    assert_eq!(without_times(&live), without_times(&again));
    assert!(live.contains("<testcase"), "{live}");
}

#[test]
fn report_from_journals_equals_report_of_run() {
    for program in ["kinds", "libtest"] {
        let world =
            if program == "kinds" { TestWorld::with_gtest(program) } else { TestWorld::with_libtest() };
        world.write("heeler.toml", SHORT);
        // One slot keeps the order of tests fixed. The options cover crashes, hangs, retries, and outputs of
        // passed tests, which are displayed but are not in report files.
        for more in [
            &["-j1"][..],
            &["-j1", "--retries", "1"],
            &["-j1", "--max-fail", "2", "--isolate"],
            &["-j1", "--success-output", "final"],
        ] {
            let ran = world.run(&[&["run", program, "--junit", "live.xml"], more].concat());
            check_same_report(&world);
            let report = world.run(&["report"]).assert_code(0);
            assert_eq!(report.line_with(&["Summary"]), ran.line_with(&["Summary"]), "{more:?}");
            // `heeler runs` agrees with the report.
            let run = latest(&world);
            let junit = world.read("live.xml");
            for (kind, label) in
                [("crashed", " crashed"), ("timed-out", " timed out"), ("not-run", " not run")]
            {
                let number = run["counts"][kind].as_u64().unwrap();
                let is_said = report.line_with(&["Summary"]).contains(&format!(" {number}{label}"));
                assert_eq!(is_said, number > 0, "{kind}: {run:#}\n{report}\n{junit}");
            }
        }
    }
}

#[test]
fn report_repeats_program_failures_and_leaks() {
    for (program, code) in [("deaths", 2), ("leaks", 0), ("strays", 2)] {
        let world = TestWorld::with_gtest(program);
        world.write("heeler.toml", SHORT);
        world.env("HEELER_FIXTURE_DIE_AT", "exit");
        let ran = world.run(&["run", program, "-j1", "--junit", "live.xml"]);
        assert!(ran.code == Some(code) || ran.code == Some(2) || ran.code == Some(0), "{ran}");
        check_same_report(&world);
    }
}

#[test]
fn report_covers_run_with_several_workers() {
    let world = TestWorld::with_gtest("kinds");
    world.write("heeler.toml", SHORT);
    world.run(&["run", "kinds", "-j3", "--junit", "live.xml"]).assert_code(2);
    world.run(&["report", "latest", "--junit", "again.xml"]).assert_code(0);
    let cases = |name: &str| {
        let text = world.read(name);
        text.split("<testcase ").skip(1).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let ends = |all: BTreeSet<String>| -> BTreeSet<String> {
        // Cut off the end of the document, which follows the last test case.
        all.iter().filter_map(|one| Some(one.rsplit_once("</testcase>")?.0.to_owned())).collect()
    };
    assert_eq!(ends(cases("live.xml")), ends(cases("again.xml")));
}

/// Returns a run that was killed when its first test had passed, its second had failed and its third was
/// running.
fn killed_run(world: &TestWorld) -> Value {
    let rendezvous = world.open_rendezvous();
    let mut child = start(world, &["run", "meet", "-j1", "-E", "N/Meet.Case/*"]);
    rendezvous.next_test().release();
    rendezvous.next_test().send_command(b'f');
    let third = rendezvous.next_test();
    wait_until("the results are journalled", || latest(world)["results"] == 2);
    kill_all(&mut child);
    third.wait_gone();
    let mut found = Value::Null;
    wait_until("the run is interrupted", || {
        found = latest(world);
        found["state"] == "interrupted"
    });
    found
}

fn start(world: &TestWorld, words: &[&str]) -> Child {
    let mut command = world.heeler(words);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Kills the command line, which is the coordinator. Its watchdog and workers are stopped first so that they
/// cannot react.
fn kill_all(child: &mut Child) {
    let coordinator = child.id();
    let all: Vec<u32> =
        [ProcessRole::Watchdog, ProcessRole::Worker, ProcessRole::ForkServer, ProcessRole::Guard]
            .into_iter()
            .flat_map(|role| processes_of_role(coordinator, role))
            .collect();
    assert!(all.len() >= 4, "{all:?}");
    for pid in std::iter::once(&coordinator).chain(&all) {
        signal(*pid, "STOP");
    }
    child.kill().unwrap();
    for pid in all {
        // The process may have exited with its parent.
        drop(std::process::Command::new("kill").arg("-KILL").arg(pid.to_string()).output());
    }
    child.wait().unwrap();
}

fn junit_case<'t>(junit: &'t str, name: &str) -> &'t str {
    let (class, case) = name.split_once('.').unwrap();
    let head = format!("name=\"{case}\" classname=\"{class}\"");
    let case = junit.split("<testcase ").find(|case| case.starts_with(&head));
    case.unwrap_or_else(|| panic!("no case {name}\n{junit}"))
}

#[test]
fn completely_killed_run_is_listed_and_rerun() {
    let world = world_with_waiting_tests();
    let run = killed_run(&world);
    assert_eq!((&run["tests"], &run["results"]), (&6.into(), &2.into()), "{run:#}");
    run_heeler_beside(&world, &["runs"])
        .assert_code(0)
        .line_with(&["interrupted: 2 of 6 tests have results"]);

    run_heeler_beside(&world, &["report", "latest", "--junit", "r.xml"]).assert_code(0);
    let junit = world.read("r.xml");
    assert!(junit.contains("tests=\"6\"") && junit.contains("failures=\"1\" errors=\"4\""), "{junit}");
    let running = junit_case(&junit, "N/Meet.Case/2");
    assert!(running.contains("the test was running when the run was interrupted"), "{running}");
    // The test was running, so it has no result, and `--rerun not-run` selects it below.
    assert!(running.contains("type=\"interrupted\""), "{running}");
    let waiting = junit_case(&junit, "N/Meet.Case/5");
    assert!(waiting.contains("type=\"not-run\"") && waiting.contains("not run: the run was interrupted"));
    let report = run_heeler_beside(&world, &["report"]).assert_code(0);
    report.line_with(&["Results", "6 tests", "interrupted"]);
    report.line_with(&["FAIL", "N/Meet.Case/1"]);

    // Rerun all tests without a result except one. The excluded test and the failed test stay in the rerun
    // set.
    let ran = run_heeler_beside(
        &world,
        &["run", "--rerun", "not-run", "-E", "!test(Case/5)", "--status-level", "all"],
    )
    .assert_code(0);
    assert_eq!(
        labelled_tests(&ran, "PASS"),
        ["N/Meet.Case/2", "N/Meet.Case/3", "N/Meet.Case/4"].map(str::to_owned).into()
    );
    assert_eq!(latest(&world)["continues"], run["run"]);
    let ran =
        run_heeler_beside(&world, &["run", "--rerun", "failed", "--status-level", "all"]).assert_code(0);
    assert_eq!(labelled_tests(&ran, "PASS"), ["N/Meet.Case/1".to_owned()].into());
    let ran = run_heeler_beside(&world, &["run", "--rerun", "failed"]).assert_code(8);
    ran.assert_stderr("no test failed in run").assert_stderr("1 without a result: use --rerun not-run");
    let ran =
        run_heeler_beside(&world, &["run", "--rerun", "latest", "--status-level", "all"]).assert_code(0);
    assert_eq!(labelled_tests(&ran, "PASS"), ["N/Meet.Case/5".to_owned()].into());
    run_heeler_beside(&world, &["run", "--rerun", "latest"])
        .assert_code(8)
        .assert_stderr("every test of run");
    // The first run is unchanged.
    let id = &run["run"].as_str().unwrap()[..8];
    let ran = run_heeler_beside(&world, &["run", "--rerun", id, "--status-level", "all"]).assert_code(0);
    assert_eq!(labelled_tests(&ran, "PASS").len(), 5, "{ran}");
}

/// Returns the test names on lines with this label.
fn labelled_tests(ran: &FinishedCommand, label: &str) -> BTreeSet<String> {
    let lines = ran.stdout.lines().filter(|line| line.trim_start().starts_with(label));
    let name = |line: &str| {
        line.split_whitespace().find(|word| word.contains('/') && word.contains('.')).map(str::to_owned)
    };
    lines.filter_map(name).collect()
}

#[test]
fn running_run_is_listed_as_running() {
    let world = world_with_waiting_tests();
    world.write("heeler.toml", "[profile.default]\nkeep-runs = 1\n");
    let rendezvous = world.open_rendezvous();
    let mut child = start(&world, &["run", "meet", "-j1", "-E", "N/Meet.Case/*"]);
    rendezvous.next_test().release();
    let second = rendezvous.next_test();
    wait_until("the result is journalled", || latest(&world)["results"] == 1);
    let run = latest(&world);
    assert_eq!((&run["state"], &run["tests"]), (&"running".into(), &6.into()), "{run:#}");
    let ran = run_heeler_beside(&world, &["runs", "--prune"]).assert_code(0);
    ran.line_with(&["running", &format!("(pid {})", child.id()), "1 of 6 tests have results"]);
    for words in [&["report"][..], &["run", "--rerun", "latest"]] {
        let ran = run_heeler_beside(&world, words).assert_code(4);
        ran.assert_stderr("is still in progress").assert_stderr(&format!("(pid {})", child.id()));
    }
    assert_eq!(latest(&world)["state"], "running");
    child.kill().unwrap();
    child.wait().unwrap();
    second.wait_gone();
    wait_until("the watchdog is gone", || latest(&world)["state"] == "interrupted");
}

#[test]
fn run_without_command_line_is_listed_as_interrupted() {
    let world = world_with_waiting_tests();
    let rendezvous = world.open_rendezvous();
    let mut child = start(&world, &["run", "meet", "-j1", "-E", "N/Meet.Case/*"]);
    rendezvous.next_test().release();
    let second = rendezvous.next_test();
    wait_until("the result is journalled", || latest(&world)["results"] == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    second.wait_gone();
    wait_until("the watchdog is gone", || latest(&world)["state"] != "ending");
    let run = latest(&world);
    assert_eq!((&run["state"], &run["results"]), (&"interrupted".into(), &1.into()), "{run:#}");
    run_heeler_beside(&world, &["report", "--junit", "r.xml"]).assert_code(0);
    assert!(world.read("r.xml").contains("tests=\"6\""));
}

#[test]
fn cancelled_run_is_listed_and_rerun() {
    let world = world_with_waiting_tests();
    let rendezvous = world.open_rendezvous();
    let mut child = start(&world, &["run", "meet", "-j1", "-E", "N/Meet.Case/*", "--junit", "live.xml"]);
    rendezvous.next_test().release();
    let second = rendezvous.next_test();
    wait_until("the result is journalled", || latest(&world)["results"] == 1);
    signal(child.id(), "INT");
    second.wait_gone();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let run = latest(&world);
    assert_eq!((&run["state"], &run["result"]), (&"stopped".into(), &"cancelled".into()), "{run:#}");
    check_same_report(&world);
    let ran =
        run_heeler_beside(&world, &["run", "--rerun", "not-run", "--status-level", "all"]).assert_code(0);
    assert_eq!(labelled_tests(&ran, "PASS").len(), 5, "{ran}");
    run_heeler_beside(&world, &["runs"]).assert_code(0).line_with(&["cancelled", "1 passed"]);
}

#[test]
fn unknown_runs_are_refused_by_name() {
    let world = TestWorld::with_gtest("kinds");
    world.run(&["runs"]).assert_code(0).line_with(&["no runs in"]);
    assert_eq!(runs(&world), Vec::<Value>::new());
    world.run(&["report"]).assert_code(4).assert_stderr("no recorded runs in ");
    world.run(&["run", "--rerun", "failed"]).assert_code(4).assert_stderr("no recorded runs in ");
    world.run(&["run", "kinds", "-E", "Math.Add"]).assert_code(0);
    world.run(&["run", "kinds", "-E", "Math.Fail*"]).assert_code(2);
    world.run(&["report", "nothing"]).assert_code(5).assert_stderr("no run ID starts with \"nothing\"");
    world
        .run(&["run", "--rerun", "nothing"])
        .assert_code(5)
        .assert_stderr("to list the runs, use heeler runs");
    // Directory names begin with the time; ids are random.
    let all = runs(&world);
    let ids: Vec<_> = all.iter().map(|run| run["run"].as_str().unwrap()).collect();
    let names = world.run(&["runs", "--format", "names"]).assert_code(0).stdout;
    assert_eq!(names.lines().collect::<Vec<_>>(), ids);
    world.run(&["report", &ids[0][..8]]).assert_code(0).line_with(&["PASSED", "1 test"]);
    world.run(&["run", "--rerun", &ids[0][..8]]).assert_code(8).assert_stderr("passed or was skipped");
    // Give two runs the same id. Clients choose run ids, so this can happen.
    let (one, other) = (dir_of(&all[0]), dir_of(&all[1]));
    fs::copy(one.join("manifest.jsonl"), other.join("manifest.jsonl")).unwrap();
    let ran = world.run(&["report", &ids[0][..8]]).assert_code(5);
    ran.assert_stderr("2 run IDs start with").assert_stderr(one.file_name().unwrap().to_str().unwrap());
    world.run(&["report", one.file_name().unwrap().to_str().unwrap()]).assert_code(0);
}

#[test]
fn rerun_names_missing_tests_and_runs_rest() {
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "4");
    world.run(&["run", "big", "-j1"]).assert_code(0);
    // Record earlier failures of tests that no longer exist.
    let dir = dir_of(&latest(&world));
    // Editing the manifest turns the run into a copy, which needs an explicit run id and explicit programs.
    let name = dir.file_name().unwrap().to_str().unwrap();
    let manifest = dir.join("manifest.jsonl");
    let text = fs::read_to_string(&manifest).unwrap();
    let left = |uids: &str| {
        text.replace(
            "\"earlier-rerun-set\":{\"failed\":[]",
            &format!("\"earlier-rerun-set\":{{\"failed\":[{uids}]"),
        )
    };
    assert_ne!(left("\"x\""), text);
    fs::write(&manifest, left("\"big::Gone.Test\"")).unwrap();
    let ran = world.run(&["run", "big", "--rerun", name]).assert_code(8);
    ran.assert_stdout("the remaining test of that run no longer exists: big::Gone.Test");
    let failed = "\"big::Gone.Test\",\"big::N/Big.Case/9\"";
    fs::write(&manifest, left(failed)).unwrap();
    world.env("HEELER_FIXTURE_CASES", "10");
    let ran = world.run(&["run", "big", "--rerun", name, "--status-level", "all"]).assert_code(0);
    ran.assert_stdout("skipping a test of that run that no longer exists: big::Gone.Test");
    assert_eq!(labelled_tests(&ran, "PASS"), ["N/Big.Case/9".to_owned()].into());
}

#[test]
fn torn_journals_are_read_damaged_ones_located() {
    let world = TestWorld::with_gtest("kinds");
    let words = ["run", "kinds", "-j1", "--isolate", "-E", "Math.*", "-E", "Noise.N*"];
    world.run(&words).assert_code(2);
    let run = latest(&world);
    let tests = run["tests"].as_u64().unwrap();
    let dir = dir_of(&run);
    let journal = dir.join("worker-1.journal");
    let whole = fs::read(&journal).unwrap();

    // Truncated journal: the last result is incomplete and the end is missing.
    fs::remove_file(dir.join("finish.journal")).unwrap();
    let cut = whole.windows(9).rposition(|bytes| bytes == b"\"outcome\"").unwrap();
    fs::write(&journal, [&whole[..cut], &[0; 300]].concat()).unwrap();
    let listed = world.run(&["runs"]).assert_code(0);
    listed.line_with(&["interrupted", &format!("{} of {tests} tests have results", tests - 1)]);
    listed.line_with(&["worker-1.journal: incomplete after byte "]);
    world.run(&["report", "--junit", "torn.xml"]).assert_code(0);
    assert!(world.read("torn.xml").contains(&format!("tests=\"{tests}\"")));

    // Damage in the middle of the journal.
    let mut bytes = whole.clone();
    let middle = whole.len() / 2;
    bytes[middle] ^= 0x55;
    fs::write(&journal, &bytes).unwrap();
    let ran = world.run(&["report", "--junit", "damaged.xml"]).assert_code(4);
    ran.assert_stderr("worker-1.journal: damaged record at byte ").assert_stderr("expected ");
    let junit = world.read("damaged.xml");
    assert!(junit.contains(&format!("tests=\"{tests}\"")), "{junit}");
    assert!(junit.contains("result unknown: the journals of the run are damaged"), "{junit}");
    world.run(&["report"]).assert_code(4).assert_stdout("damaged record at byte");

    // Journal of another version.
    fs::write(&journal, b"heeler-journal 99\nand so on").unwrap();
    let ran = world.run(&["report"]).assert_code(4);
    ran.assert_stderr("worker-1.journal").assert_stderr("version 99").assert_stderr("reads version 5");
    let manifest = dir.join("manifest.jsonl");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"version\":5", "\"version\":6")).unwrap();
    let ran = world.run(&["run", "--rerun", dir.file_name().unwrap().to_str().unwrap()]).assert_code(4);
    ran.assert_stderr("manifest.jsonl").assert_stderr("version 6").assert_stderr("reads version 5");
    world.run(&["runs"]).assert_code(0).line_with(&["unreadable"]);

    // A truncated manifest is rejected, and the error names the position.
    fs::write(&manifest, &text[..text.len() - 20]).unwrap();
    world
        .run(&["report"])
        .assert_code(4)
        .assert_stderr("damaged at byte ")
        .assert_stderr("a line of JSON with the run's tests");
}

#[test]
fn keep_runs_removes_oldest_runs() {
    let world = TestWorld::with_gtest("kinds");
    world.write("heeler.toml", "[profile.default]\nkeep-runs = 3\n");
    let mut began = Vec::new();
    for _ in 0..5 {
        world.run(&["run", "kinds", "-E", "Math.Add"]).assert_code(0);
        began.push(latest(&world)["run"].clone());
    }
    let ids = |world: &TestWorld| runs(world).into_iter().map(|run| run["run"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&world), began[2..]);
    world.run(&["runs"]).assert_code(0).line_with(&["3 runs", "the newest 3 are kept"]);
    world.run(&["runs", "--prune"]).assert_code(0).assert_stderr("nothing to remove");
    world.write("heeler.toml", "[profile.default]\nkeep-runs = 1\n");
    // Directories that Heeler did not create are kept.
    fs::create_dir(world.path(".heeler/runs/mine")).unwrap();
    world.run(&["runs", "--prune"]).assert_code(0).assert_stderr("removed 2");
    assert_eq!(ids(&world), began[4..]);
    assert!(world.path(".heeler/runs/mine").exists());
}

#[test]
fn rerun_of_a_chosen_suite_builds_and_runs_no_other() {
    let world = TestWorld::new();
    world.write_program("fails.sh", "#!/bin/sh\nexit 1\n");
    let suite =
        |name: &str, keys: &str| format!("[[suite]]\nname = \"{name}\"\npattern = [\"*.sh\"]\n{keys}\n");
    let other = suite("b", "build = [\"touch\", \"built\"]");
    world.write("heeler.toml", &format!("{}{other}", suite("a", "args = [\"x\"]")));
    world.run(&["run", "--suite", "a"]).assert_code(2).line_with(&["again $ ./fails.sh x"]);
    // A rerun of a rerun knows the suite, too.
    for rerun in ["latest", "failed", "latest"] {
        let ran = world.run(&["run", "--rerun", rerun]).assert_code(2);
        ran.assert_stdout("FAILED 1 of 1 test");
        assert!(!world.path("built").exists(), "{ran}");
    }
    // The command line decides, if it names a suite or other tests.
    let ran = world.run(&["run", "--rerun", "latest", "--suite", "b"]).assert_code(8);
    ran.assert_stdout("the remaining test of that run no longer exists: a::fails.sh");
    assert!(world.path("built").exists(), "{ran}");
    world.run(&["run"]).assert_code(2).assert_stdout("FAILED 2 of 2 tests");
    world.run(&["run", "--rerun", "latest"]).assert_code(2).assert_stdout("FAILED 2 of 2 tests");
    // A suite that no longer exists is named.
    world.run(&["run", "--suite", "a"]).assert_code(2);
    world.write("heeler.toml", &other);
    world.run(&["run", "--rerun", "latest"]).assert_code(5).assert_stdout("unknown suite \"a\"");
}
