//! Programs that report as JSON lines and run several batches in one process. The fake simulates them, on a
//! separate channel and on standard input and output.

use std::collections::{HashMap, HashSet};

use serde_json::json;

use crate::support::{
    checked_run::CheckedRun,
    server::TestServer,
    uids,
    world::{FinishedCommand, TestWorld},
};

fn all_names() -> Vec<String> {
    (0..64).map(|number| format!("t{number:02}")).collect()
}

struct FakeRun {
    checked_run: CheckedRun,
    /// Ids of the processes that ran tests.
    pids: HashSet<u32>,
    log: Vec<String>,
}

/// Runs all tests of a fake with these test names and these settings of the default profile.
fn run_named(role: &str, settings: &str, names: &[String]) -> FakeRun {
    let world = TestWorld::new();
    world.note_starts();
    world.fake(role);
    let framework = if role.starts_with("json-lines-stdio") { "json-lines-stdio" } else { "json-lines" };
    world.write(
        "heeler.toml",
        &format!(
            "[profile.default]\n{settings}\n[[suite]]\nname = \"fake\"\nprograms = [\"{role}\"]\nframework = \"{framework}\"\n"
        ),
    );
    let mut server = TestServer::initialized(&world, &[]);
    let run = server.run(None);
    let checked_run = server.finish(&run, &uids("fake", names.iter().map(String::as_str)));
    let log = server.recorder.events();
    let log = log.iter().filter_map(|event| event.params("client/log"));
    let log = log.filter_map(|line| line["message"].as_str().map(str::to_owned)).collect();
    assert_eq!(server.exit(), Some(0));
    // The first process only lists the tests.
    let pids = world.starts().iter().skip(1).map(|start| start.pid).collect();
    FakeRun { checked_run, pids, log }
}

fn run_fake(role: &str) -> FakeRun {
    run_named(role, "", &all_names())
}

/// Returns the batch number and the process id that each test reported.
fn batches(run: &FakeRun) -> HashMap<String, (u32, u32)> {
    let read = |name: String| {
        let part =
            run.checked_run.test(&format!("fake::{name}"))["heeler.parts"][0]["name"].as_str()?.to_owned();
        let words: Vec<_> = part.split(' ').collect();
        Some((name, (words[1].parse().unwrap(), words[4].parse().unwrap())))
    };
    all_names().into_iter().filter_map(read).collect()
}

fn assert_states(run: &FakeRun, of_t20: &str) {
    for name in all_names() {
        let uid = format!("fake::{name}");
        let expected = match name.as_str() {
            "t05" => "failed",
            "t20" => of_t20,
            _ => "passed",
        };
        assert_eq!(run.checked_run.state(&uid), expected, "{:#}", run.checked_run.test(&uid));
    }
}

#[test]
fn one_process_runs_several_requested_batches() {
    for role in ["json-lines", "json-lines-stdio"] {
        // With one worker, each process gets many tests even on a busy machine.
        let run = run_named(role, "jobs = 1", &all_names());
        assert_states(&run, "passed");
        let batches = batches(&run);
        assert_eq!(batches.len(), 64);
        let processes: HashSet<u32> = batches.values().map(|(_, pid)| *pid).collect();
        let requests: HashSet<_> = batches.values().collect();
        assert!(batches.values().any(|(batch, _)| *batch > 1), "{role}: {batches:?}");
        assert!(processes.len() < requests.len(), "{role}: {batches:?}");
        assert_eq!(run.pids, processes, "{role}");
        let failed = run.checked_run.test("fake::t05");
        let values = (&failed["assert.actual"], &failed["assert.expected"]);
        assert_eq!(values, (&"1".into(), &"2".into()), "{failed:#}");
        assert_eq!(run.checked_run.message("fake::t05"), "row 2: odd\nrows.rs:3: row 3: odd too");
        assert_eq!(failed["heeler.parts"][1], json!({"name": "row 1", "state": "passed"}));
        assert_eq!(failed["heeler.parts"][2], json!({"name": "row 2", "state": "failed", "message": "odd"}));
        let output = failed["standardOutput"].as_str().unwrap();
        assert!(output.contains("out of t05"), "{role}: {output:?}");
        run.checked_run.assert_no_program_failures();
    }
}

#[test]
fn output_on_standard_output_is_that_of_its_test_exactly() {
    let run = run_fake("json-lines-stdio");
    for name in all_names() {
        let output =
            run.checked_run.test(&format!("fake::{name}"))["standardOutput"].as_str().unwrap().to_owned();
        let lines: Vec<_> = output.lines().collect();
        assert!(
            lines[0].starts_with("{\"k\":\"end\",\"i\":") && lines[0].ends_with("\"failed\"}"),
            "{output:?}"
        );
        assert_eq!(lines[1..], [format!("out of {name}")]);
    }
}

#[test]
fn death_in_a_dialogue_is_named_and_the_rest_runs_on() {
    for role in ["json-lines-dies", "json-lines-stdio-dies"] {
        let run = run_fake(role);
        assert_states(&run, "error");
        let crashed = run.checked_run.test("fake::t20");
        assert_eq!(crashed["heeler.signal"], "SIGABRT", "{crashed:#}");
        let batches = batches(&run);
        // Later tests of the same batch ran in another process.
        assert_ne!(batches["t19"].1, batches["t21"].1, "{batches:?}");
        run.checked_run.assert_no_program_failures();
    }
}

#[test]
fn exit_0_in_a_batch_is_no_success() {
    let run = run_fake("json-lines-stdio-leaves");
    assert_states(&run, "error");
    assert!(
        run.checked_run.message("fake::t20").contains("exited with code 0"),
        "{:#}",
        run.checked_run.test("fake::t20")
    );
    run.checked_run.assert_no_program_failures();
}

#[test]
fn hang_in_a_batch_is_that_of_one_test() {
    let run = run_named("json-lines-stdio-hangs", "timeout = \"1s\"\ngrace-period = \"100ms\"", &all_names());
    assert_states(&run, "timed-out");
    run.checked_run.assert_no_program_failures();
}

#[test]
fn garbage_between_reports_is_output_and_a_wrong_report_fails_the_program() {
    let run = run_fake("json-lines-stdio-garbage");
    assert_states(&run, "passed");
    let output = run.checked_run.test("fake::t20")["standardOutput"].as_str().unwrap().to_owned();
    assert!(output.ends_with("\u{1e}garbage\n\u{1e}\u{1e}[1]\n"), "{output:?}");
    let message = run.checked_run.programs["fake"]["error.message"].as_str().unwrap().to_owned();
    assert!(message.contains("invalid report: \"end\" of \"t21\" at the wrong time"), "{message}");
}

#[test]
fn process_that_closes_its_input_is_replaced() {
    let run = run_fake("json-lines-stdio-closes-input");
    assert_states(&run, "passed");
    // A process of this program runs only one batch.
    let batches = batches(&run);
    assert!(batches.values().all(|(batch, _)| *batch == 1) && run.pids.len() >= 4, "{batches:?}");
}

#[test]
fn process_that_closes_its_output_in_a_test_is_ended() {
    let settings = "startup-timeout = \"1s\"\ngrace-period = \"100ms\"";
    let run = run_named("json-lines-stdio-closes-output", settings, &all_names());
    assert_states(&run, "timed-out");
    let said = "the process closed its report channel but did not exit within ";
    assert!(run.log.iter().any(|line| line.contains(said)), "{:#?}", run.log);
}

#[test]
fn process_that_does_not_read_its_request_is_ended() {
    let names: Vec<_> = all_names().into_iter().map(|name| name + &"x".repeat(16 << 10)).collect();
    // A request for a single test fits into the pipe buffer, so Heeler does not notice that no one reads it.
    let limits = "timeout = \"5s\"\nstartup-timeout = \"1s\"\ngrace-period = \"100ms\"";
    let settings = format!("jobs = 1\n{limits}\nmax-startup-crashes = 100");
    let run = run_named("json-lines-stdio-begins-unread", &settings, &names);
    let said = "the process did not read its next request within ";
    assert!(run.log.iter().any(|line| line.contains(said)), "{:#?}", run.log);
    let states: Vec<_> = names.iter().map(|name| run.checked_run.state(&format!("fake::{name}"))).collect();
    // In each process, exactly one test times out: the test that began before its request was read.
    assert!(states.iter().all(|state| ["passed", "timed-out"].contains(state)), "{states:?}");
    let unread = states.iter().filter(|state| **state == "timed-out").count();
    assert!((1..=4).contains(&unread), "{states:?}");
}

#[test]
fn several_tests_in_flight_get_one_result_each() {
    for role in ["json-lines-parallel", "json-lines-stdio-parallel"] {
        let run = run_fake(role);
        for name in all_names() {
            assert_eq!(run.checked_run.state(&format!("fake::{name}")), "passed");
        }
        run.checked_run.assert_no_program_failures();
    }
}

#[test]
fn of_several_tests_in_flight_at_a_death_only_one_that_dies_in_isolation_is_blamed() {
    for (role, of_t20) in
        [("json-lines-parallel-dies", "error"), ("json-lines-stdio-parallel-dies-together", "passed")]
    {
        let run = run_fake(role);
        for name in all_names() {
            let uid = format!("fake::{name}");
            let expected = if name == "t20" { of_t20 } else { "passed" };
            assert_eq!(run.checked_run.state(&uid), expected, "{:#}", run.checked_run.test(&uid));
        }
        // The death of the process is a program failure, whichever test caused it.
        let message = run.checked_run.programs["fake"]["error.message"].as_str().unwrap();
        assert!(
            message.contains("the process was killed by SIGABRT while ")
                && (message.contains("t20") || message.contains(" more")),
            "{message}"
        );
    }
}

/// Returns a shell program that writes reports to `reports`. Its only test passes if `test` succeeds.
fn shell_adapter(reports: &str, test: &str) -> String {
    format!(
        "#!/bin/sh\nreport() {{ printf '\\036%s\\n' \"$1\"{reports}; }}\n\
         while read -r request; do case $request in\n\
         *list*) report '{{\"k\":\"test\",\"id\":\"a\"}}'; report '{{\"k\":\"listed\"}}' ;;\n\
         *run*) report '{{\"k\":\"begin\",\"i\":0}}'; if {test}; then state=passed; else state=failed; fi\n\
         report \"{{\\\"k\\\":\\\"end\\\",\\\"i\\\":0,\\\"state\\\":\\\"$state\\\"}}\"; report '{{\"k\":\"done\"}}' ;;\n\
         *stop*) exit 0 ;;\nesac; done\n"
    )
}

#[test]
fn standard_output_that_is_opened_by_its_name_has_a_hint() {
    let world = TestWorld::new();
    world.write(
        "heeler.toml",
        "[[suite]]\nname = \"a\"\nprograms = [\"adapter\"]\nframework = \"json-lines-stdio\"\n",
    );
    world.write_program("adapter", &shell_adapter("", "echo by descriptor"));
    world.run(&["run"]).assert_code(0);
    world.write_program("adapter", &shell_adapter("", "(echo by name > /dev/stdout)"));
    let ran = world.run(&["run"]).assert_code(2);
    let says = |ran: &FinishedCommand, text: &str| {
        assert!(format!("{}{}", ran.stdout, ran.stderr).contains(text), "{ran}")
    };
    says(&ran, "standard output is a socket here, so write to file descriptor 1");
    world.write_program("adapter", &shell_adapter(" > /dev/stdout", "true"));
    let refused = world.run(&["run"]);
    assert_ne!(refused.code, Some(0), "{refused}");
    says(&refused, "can't be opened by a name such as /dev/stdout: write to descriptor 1");
    says(&refused, "No such device or address");
}
