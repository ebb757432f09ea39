//! Earlier runs: their state after any process death, their report from the journals, and reruns.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    process::{Child, Stdio},
};

use serde_json::Value;

use crate::support::{
    process::{Role, of_role, signal, wait_until},
    world::{Ran, World},
};

const SHORT: &str = "[profile.default]\ntimeout = \"1s\"\ngrace-period = \"200ms\"\nslow-timeout = \"50s\"\n";

/// Returns a world whose tests wait for a command.
fn waiting() -> World {
    let world = World::with_gtest("meet");
    world.env("HEELER_FIXTURE_CASES", "6");
    world
}

/// Runs `heeler` beside one that is running or was killed, so that its socket may remain; tests do not wait
/// for commands.
fn beside(world: &World, words: &[&str]) -> Ran {
    let mut command = world.heeler(words);
    command.env_remove("HEELER_FIXTURE_MEET");
    crate::support::world::run(command)
}

/// Returns the entries of `heeler runs` for all runs, oldest first.
fn runs(world: &World) -> Vec<Value> {
    let ran = beside(world, &["runs", "--format", "json"]).code(0);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}\n{ran}"))
}

fn latest(world: &World) -> Value {
    runs(world).pop().expect("there is a run")
}

fn dir_of(run: &Value) -> PathBuf {
    run["directory"].as_str().unwrap().into()
}

/// Returns a document without the run's own times: the command line measures its beginning and duration
/// including the listing.
fn without_times(junit: &str) -> String {
    let (first, rest) = junit.split_once("<testsuite ").unwrap_or((junit, ""));
    let words = first.split(' ').filter(|word| !word.starts_with("timestamp=") && !word.starts_with("time="));
    format!("{} {rest}", words.collect::<Vec<_>>().join(" "))
}

#[track_caller]
fn check_same_report(world: &World) {
    world.run(&["report", "latest", "--junit", "again.xml"]).code(0);
    let (live, again) = (world.read("live.xml"), world.read("again.xml"));
    assert_eq!(without_times(&live), without_times(&again));
    assert!(live.contains("<testcase"), "{live}");
}

#[test]
fn a_report_from_the_journals_is_the_report_of_the_run() {
    for program in ["kinds", "libtest"] {
        let world = if program == "kinds" { World::with_gtest(program) } else { World::with_libtest() };
        world.write("heeler.toml", SHORT);
        // One slot, so that there is one order; with crashes, hangs and retries.
        for more in [&["-j1"][..], &["-j1", "--retries", "1"], &["-j1", "--max-fail", "2", "--isolate"]] {
            let ran = world.run(&[&["run", program, "--junit", "live.xml"], more].concat());
            check_same_report(&world);
            let told = world.run(&["report"]).code(0);
            assert_eq!(told.line(&["Summary"]), ran.line(&["Summary"]), "{more:?}");
            // The table agrees with it.
            let run = latest(&world);
            let junit = world.read("live.xml");
            for (kind, label) in
                [("crashed", " crashed"), ("timed-out", " timed out"), ("not-run", " not run")]
            {
                let number = run["counts"][kind].as_u64().unwrap();
                let is_said = told.line(&["Summary"]).contains(&format!(" {number}{label}"));
                assert_eq!(is_said, number > 0, "{kind}: {run:#}\n{told}\n{junit}");
            }
        }
    }
}

#[test]
fn a_program_with_trouble_of_its_own_and_processes_left_behind_are_reported_again() {
    for (program, code) in [("deaths", 2), ("leaks", 0), ("strays", 2)] {
        let world = World::with_gtest(program);
        world.write("heeler.toml", SHORT);
        world.env("HEELER_FIXTURE_DIE_AT", "exit");
        let ran = world.run(&["run", program, "-j1", "--junit", "live.xml"]);
        assert!(ran.code == Some(code) || ran.code == Some(2) || ran.code == Some(0), "{ran}");
        check_same_report(&world);
    }
}

#[test]
fn a_run_of_several_workers_is_reported_again_test_by_test() {
    let world = World::with_gtest("kinds");
    world.write("heeler.toml", SHORT);
    world.run(&["run", "kinds", "-j3", "--junit", "live.xml"]).code(2);
    world.run(&["report", "latest", "--junit", "again.xml"]).code(0);
    let cases = |name: &str| {
        let text = world.read(name);
        text.split("<testcase ").skip(1).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let ends = |all: BTreeSet<String>| -> BTreeSet<String> {
        // The last element includes the end of the document.
        all.iter().filter_map(|one| Some(one.rsplit_once("</testcase>")?.0.to_owned())).collect()
    };
    assert_eq!(ends(cases("live.xml")), ends(cases("again.xml")));
}

/// Returns a run whose first test passed, whose second failed, and whose third was running when everything
/// was killed.
fn killed(world: &World) -> Value {
    let meet = world.meet();
    let mut child = start(world, &["run", "meet", "-j1", "-E", "N/Meet.Case/*"]);
    meet.next().let_go();
    meet.next().say(b'f');
    let third = meet.next();
    wait_until("the results are journalled", || latest(world)["results"] == 2);
    kill_all(&mut child);
    third.wait_gone();
    let mut found = Value::Null;
    wait_until("the run is left alone", || {
        found = latest(world);
        found["state"] == "interrupted"
    });
    found
}

fn start(world: &World, words: &[&str]) -> Child {
    let mut command = world.heeler(words);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Kills the command line, which is the coordinator, after its watchdog and workers were stopped, so that
/// none of them can react.
fn kill_all(child: &mut Child) {
    let coordinator = child.id();
    let all: Vec<u32> = [Role::Watchdog, Role::Worker, Role::Nursery, Role::Guard]
        .into_iter()
        .flat_map(|role| of_role(coordinator, role))
        .collect();
    assert!(all.len() >= 4, "{all:?}");
    for pid in std::iter::once(&coordinator).chain(&all) {
        signal(*pid, "STOP");
    }
    child.kill().unwrap();
    for pid in all {
        // The process may have died with its parent already.
        drop(std::process::Command::new("kill").arg("-KILL").arg(pid.to_string()).output());
    }
    child.wait().unwrap();
}

fn junit_case<'t>(junit: &'t str, name: &str) -> &'t str {
    let case = junit.split("<testcase ").find(|case| case.starts_with(&format!("name=\"{name}\"")));
    case.unwrap_or_else(|| panic!("no case {name}\n{junit}"))
}

#[test]
fn a_run_that_was_killed_with_all_its_processes_is_told_and_gone_on_with() {
    let world = waiting();
    let run = killed(&world);
    assert_eq!((&run["tests"], &run["results"]), (&6.into(), &2.into()), "{run:#}");
    beside(&world, &["runs"]).code(0).line(&["interrupted: 2 of 6 tests have results"]);

    beside(&world, &["report", "latest", "--junit", "r.xml"]).code(0);
    let junit = world.read("r.xml");
    assert!(junit.contains("tests=\"6\"") && junit.contains("failures=\"1\" errors=\"4\""), "{junit}");
    let running = junit_case(&junit, "N/Meet.Case/2");
    assert!(running.contains("it was running when the run was interrupted"), "{running}");
    let waiting = junit_case(&junit, "N/Meet.Case/5");
    assert!(waiting.contains("type=\"not-run\"") && waiting.contains("not run: the run was interrupted"));
    let told = beside(&world, &["report"]).code(0);
    told.line(&["Running", "6 tests", "interrupted before its end"]);
    told.line(&["FAIL", "N/Meet.Case/1"]);

    // The tests without a result, except one: that remains in the rerun set, and so do the failed ones.
    let ran = beside(&world, &["run", "--rerun", "not-run", "-E", "!test(Case/5)", "--status-level", "all"])
        .code(0);
    assert_eq!(
        tests(&ran, "PASS"),
        ["N/Meet.Case/2", "N/Meet.Case/3", "N/Meet.Case/4"].map(str::to_owned).into()
    );
    assert_eq!(latest(&world)["continues"], run["run"]);
    let ran = beside(&world, &["run", "--rerun", "failed", "--status-level", "all"]).code(0);
    assert_eq!(tests(&ran, "PASS"), ["N/Meet.Case/1".to_owned()].into());
    let ran = beside(&world, &["run", "--rerun", "failed"]).code(8);
    ran.complains("no test failed in run").complains("1 got no result: --rerun not-run");
    let ran = beside(&world, &["run", "--rerun", "latest", "--status-level", "all"]).code(0);
    assert_eq!(tests(&ran, "PASS"), ["N/Meet.Case/5".to_owned()].into());
    beside(&world, &["run", "--rerun", "latest"]).code(8).complains("every test of run");
    // The first one is unchanged.
    let id = &run["run"].as_str().unwrap()[..8];
    let ran = beside(&world, &["run", "--rerun", id, "--status-level", "all"]).code(0);
    assert_eq!(tests(&ran, "PASS").len(), 5, "{ran}");
}

/// Returns the test names on the lines with a label.
fn tests(ran: &Ran, label: &str) -> BTreeSet<String> {
    let lines = ran.stdout.lines().filter(|line| line.trim_start().starts_with(label));
    let name = |line: &str| {
        line.split_whitespace().find(|word| word.contains('/') && word.contains('.')).map(str::to_owned)
    };
    lines.filter_map(name).collect()
}

#[test]
fn a_run_that_goes_on_is_told_as_such_and_left_alone() {
    let world = waiting();
    world.write("heeler.toml", "[profile.default]\nkeep-runs = 1\n");
    let meet = world.meet();
    let mut child = start(&world, &["run", "meet", "-j1", "-E", "N/Meet.Case/*"]);
    meet.next().let_go();
    let second = meet.next();
    wait_until("the result is journalled", || latest(&world)["results"] == 1);
    let run = latest(&world);
    assert_eq!((&run["state"], &run["tests"]), (&"running".into(), &6.into()), "{run:#}");
    let ran = beside(&world, &["runs", "--prune"]).code(0);
    ran.line(&["running", &format!("in process {}", child.id()), "1 of 6 tests have results"]);
    for words in [&["report"][..], &["run", "--rerun", "latest"]] {
        let ran = beside(&world, words).code(4);
        ran.complains("still goes on").complains(&format!("process {}", child.id()));
    }
    assert_eq!(latest(&world)["state"], "running");
    child.kill().unwrap();
    child.wait().unwrap();
    second.wait_gone();
    wait_until("the watchdog is gone", || latest(&world)["state"] == "interrupted");
}

#[test]
fn a_run_that_lost_only_its_command_line_is_told_as_interrupted_with_what_came() {
    let world = waiting();
    let meet = world.meet();
    let mut child = start(&world, &["run", "meet", "-j1", "-E", "N/Meet.Case/*"]);
    meet.next().let_go();
    let second = meet.next();
    wait_until("the result is journalled", || latest(&world)["results"] == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    second.wait_gone();
    wait_until("the watchdog is gone", || latest(&world)["state"] != "ending");
    let run = latest(&world);
    assert_eq!((&run["state"], &run["results"]), (&"interrupted".into(), &1.into()), "{run:#}");
    beside(&world, &["report", "--junit", "r.xml"]).code(0);
    assert!(world.read("r.xml").contains("tests=\"6\""));
}

#[test]
fn a_run_that_was_cancelled_is_told_as_cancelled_and_its_rest_is_gone_on_with() {
    let world = waiting();
    let meet = world.meet();
    let mut child = start(&world, &["run", "meet", "-j1", "-E", "N/Meet.Case/*", "--junit", "live.xml"]);
    meet.next().let_go();
    let second = meet.next();
    wait_until("the result is journalled", || latest(&world)["results"] == 1);
    signal(child.id(), "INT");
    second.wait_gone();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let run = latest(&world);
    assert_eq!((&run["state"], &run["result"]), (&"stopped".into(), &"cancelled".into()), "{run:#}");
    check_same_report(&world);
    let ran = beside(&world, &["run", "--rerun", "not-run", "--status-level", "all"]).code(0);
    assert_eq!(tests(&ran, "PASS").len(), 5, "{ran}");
    beside(&world, &["runs"]).code(0).line(&["cancelled", "1 passed"]);
}

#[test]
fn runs_that_are_not_there_are_refused_by_name() {
    let world = World::with_gtest("kinds");
    world.run(&["runs"]).code(0).line(&["no runs in"]);
    assert_eq!(runs(&world), Vec::<Value>::new());
    world.run(&["report"]).code(4).complains("there is no earlier run here");
    world.run(&["run", "--rerun", "failed"]).code(4).complains("there is no earlier run here");
    world.run(&["run", "kinds", "-E", "Math.Add"]).code(0);
    world.run(&["run", "kinds", "-E", "Math.Fail*"]).code(2);
    world.run(&["report", "nothing"]).code(5).complains("no run has an id that begins with \"nothing\"");
    world.run(&["run", "--rerun", "nothing"]).code(5).complains("heeler runs lists them");
    // Directories begin with the time, and ids are random.
    let all = runs(&world);
    let ids: Vec<_> = all.iter().map(|run| run["run"].as_str().unwrap()).collect();
    let names = world.run(&["runs", "--format", "names"]).code(0).stdout;
    assert_eq!(names.lines().collect::<Vec<_>>(), ids);
    world.run(&["report", &ids[0][..8]]).code(0).line(&["PASSED", "1 test"]);
    world.run(&["run", "--rerun", &ids[0][..8]]).code(8).complains("passed or was skipped");
    // Two runs with one id, which a client may request.
    let (one, other) = (dir_of(&all[0]), dir_of(&all[1]));
    fs::copy(one.join("manifest.jsonl"), other.join("manifest.jsonl")).unwrap();
    let ran = world.run(&["report", &ids[0][..8]]).code(5);
    ran.complains("the ids of 2 runs begin with").complains(one.file_name().unwrap().to_str().unwrap());
    world.run(&["report", one.file_name().unwrap().to_str().unwrap()]).code(0);
}

#[test]
fn tests_that_are_gone_are_named_and_the_rest_runs() {
    let world = World::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "4");
    world.run(&["run", "big", "-j1"]).code(0);
    // As if tests that no longer exist had failed before.
    let manifest = dir_of(&latest(&world)).join("manifest.jsonl");
    let text = fs::read_to_string(&manifest).unwrap();
    let left = |uids: &str| {
        text.replace("\"left-before\":{\"failed\":[]", &format!("\"left-before\":{{\"failed\":[{uids}]"))
    };
    assert_ne!(left("\"x\""), text);
    fs::write(&manifest, left("\"big::Gone.Test\"")).unwrap();
    let ran = world.run(&["run", "--rerun", "failed"]).code(8);
    ran.says("the test that is left of that run exists no more: big::Gone.Test");
    let failed = "\"big::Gone.Test\",\"big::N/Big.Case/9\"";
    fs::write(&manifest, left(failed)).unwrap();
    world.env("HEELER_FIXTURE_CASES", "10");
    let ran = world.run(&["run", "--rerun", "failed", "--status-level", "all"]).code(0);
    ran.says("a test of that run exists no more and is left out: big::Gone.Test");
    assert_eq!(tests(&ran, "PASS"), ["N/Big.Case/9".to_owned()].into());
}

#[test]
fn journals_of_a_power_cut_are_read_and_damaged_ones_name_file_and_place_and_what_is_missing() {
    let world = World::with_gtest("kinds");
    let words = ["run", "kinds", "-j1", "--isolate", "-E", "Math.*", "-E", "Noise.N*"];
    world.run(&words).code(2);
    let run = latest(&world);
    let tests = run["tests"].as_u64().unwrap();
    let dir = dir_of(&run);
    let journal = dir.join("worker-1.journal");
    let whole = fs::read(&journal).unwrap();

    // Torn: the last bytes never reached the disk, nor did the end.
    fs::remove_file(dir.join("finish.journal")).unwrap();
    let cut = whole.len() - 5;
    fs::write(&journal, [&whole[..cut], &[0; 300]].concat()).unwrap();
    let listed = world.run(&["runs"]).code(0);
    listed.line(&["interrupted", &format!("{} of {tests} tests have results", tests - 1)]);
    listed.line(&["worker-1.journal: torn at byte "]);
    world.run(&["report", "--junit", "torn.xml"]).code(0);
    assert!(world.read("torn.xml").contains(&format!("tests=\"{tests}\"")));

    // Damaged in the middle.
    let mut bytes = whole.clone();
    let middle = whole.len() / 2;
    bytes[middle] ^= 0x55;
    fs::write(&journal, &bytes).unwrap();
    let ran = world.run(&["report", "--junit", "damaged.xml"]).code(4);
    ran.complains("worker-1.journal: damaged record at byte ").complains("expected ");
    let junit = world.read("damaged.xml");
    assert!(junit.contains(&format!("tests=\"{tests}\"")), "{junit}");
    assert!(junit.contains("its result is not known: the journals of its run are damaged"), "{junit}");
    world.run(&["report"]).code(4).says("damaged record at byte");

    // Of another version.
    fs::write(&journal, b"heeler-journal 99\nand so on").unwrap();
    let ran = world.run(&["report"]).code(4);
    ran.complains("worker-1.journal").complains("version 99").complains("reads version 2");
    let manifest = dir.join("manifest.jsonl");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"version\":3", "\"version\":4")).unwrap();
    let ran = world.run(&["run", "--rerun", "latest"]).code(4);
    ran.complains("manifest.jsonl").complains("version 4").complains("reads version 3");
    world.run(&["runs"]).code(0).line(&["can't be read"]);

    // Cut off at any place, the manifest is refused with the place.
    fs::write(&manifest, &text[..text.len() - 20]).unwrap();
    world.run(&["report"]).code(4).complains("damaged at byte ").complains("a line with the run's tests");
}

#[test]
fn the_oldest_runs_go_by_the_rule_of_keep_runs() {
    let world = World::with_gtest("kinds");
    world.write("heeler.toml", "[profile.default]\nkeep-runs = 3\n");
    let mut began = Vec::new();
    for _ in 0..5 {
        world.run(&["run", "kinds", "-E", "Math.Add"]).code(0);
        began.push(latest(&world)["run"].clone());
    }
    let ids = |world: &World| runs(world).into_iter().map(|run| run["run"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&world), began[2..]);
    world.run(&["runs"]).code(0).line(&["3 runs", "the newest 3 are kept"]);
    world.run(&["runs", "--prune"]).code(0).complains("nothing to remove");
    world.write("heeler.toml", "[profile.default]\nkeep-runs = 1\n");
    // Foreign directories among the runs are not removed.
    fs::create_dir(world.path(".heeler/runs/mine")).unwrap();
    world.run(&["runs", "--prune"]).code(0).complains("removed 2");
    assert_eq!(ids(&world), began[4..]);
    assert!(world.path(".heeler/runs/mine").exists());
}
