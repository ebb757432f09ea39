//! Report files: formats, options that request them, and runs in editors.

use quick_xml::events::Event;
use serde_json::{Value, json};

use crate::{
    expected::GTEST,
    support::{
        process::signal,
        recorder::RecordedEvent,
        requirement,
        schema::check_ctrf,
        server::{ServerTransport, TestServer},
        uids,
        world::{TestWorld, run},
    },
};

const SHORT: &str = "[profile.default]\ntimeout = \"1s\"\ngrace-period = \"200ms\"\nslow-timeout = \"50s\"\n";

/// Returns the name of each GoogleTest test in a JUnit report, with its inner element.
fn junit(text: &str) -> Vec<(String, String)> {
    let mut reader = quick_xml::Reader::from_str(text);
    let mut cases: Vec<(String, String)> = Vec::new();
    loop {
        match reader.read_event().unwrap() {
            Event::Start(tag) | Event::Empty(tag) => {
                let element = tag.name().as_ref().to_owned();
                let value = |name: &str| {
                    let value = tag.try_get_attribute(name).unwrap().unwrap().value;
                    quick_xml::escape::unescape(&value).unwrap().into_owned()
                };
                if element == "testcase" {
                    cases.push((format!("{}.{}", value("classname"), value("name")), "passed".to_owned()));
                } else if ["failure", "error", "skipped"].contains(&element.as_str()) {
                    cases.last_mut().unwrap().1 = element;
                }
            }
            Event::Eof => return cases,
            _ => {}
        }
    }
}

#[test]
fn junit_report_has_every_outcome() {
    let world = TestWorld::with_gtest("kinds");
    world.write("heeler.toml", SHORT);
    world.run(&["run", "kinds", "--junit", "out/junit.xml"]).assert_code(2).assert_stdout("out/junit.xml");
    let cases = junit(&world.read("out/junit.xml"));
    assert_eq!(cases.len(), GTEST.len());
    for one in GTEST {
        let (_, element) = cases
            .iter()
            .find(|(name, _)| name == one.name || name.starts_with(&format!("{} (", one.name)))
            .unwrap_or_else(|| panic!("{} is missing: {cases:?}", one.name));
        let wanted: &[&str] = match one.state {
            "passed" => &["passed"],
            "skipped" => &["skipped"],
            "failed" => &["failure"],
            _ => &["error", "failure"],
        };
        assert!(wanted.contains(&element.as_str()), "{}: {element}", one.name);
    }
}

#[test]
fn places_in_reports_are_relative_to_the_checkout() {
    let world = TestWorld::with_gtest("deaths");
    let sources = crate::support::fixtures::fixtures();
    let words = ["run", "deaths", "-E", "First.*", "--report", "junit=a.xml", "--report", "ctrf=a.json"];
    let places = |checkout: Option<&str>| {
        let mut command = world.heeler(&words);
        command.envs(checkout.map(|dir| ("CI_PROJECT_DIR", dir)));
        run(command);
        let report: Value = serde_json::from_str(&world.read("a.json")).unwrap();
        let tests = report["results"]["tests"].as_array().unwrap().clone();
        let of_passed = tests.iter().find(|test| test["status"] == "passed").expect("one of them passes");
        assert!(of_passed["line"].is_u64(), "{of_passed:#}");
        (of_passed["filePath"].as_str().unwrap().to_owned(), world.read("a.xml"))
    };
    let (path, junit) = places(sources.to_str());
    assert_eq!(path, "gtest/deaths.cc");
    let cases: Vec<_> = junit.lines().filter(|line| line.contains("<testcase ")).collect();
    assert!(!cases.is_empty());
    for case in cases {
        assert!(case.contains(" file=\"gtest/deaths.cc\""), "{case}");
    }
    // The fixtures' sources are outside of the world.
    let (path, _) = places(None);
    assert_eq!(path, sources.join("gtest/deaths.cc").to_str().unwrap());
}

#[test]
fn junit_reruns_have_message_type_time_and_output() {
    let world = TestWorld::with_gtest("deaths");
    world.env("HEELER_FIXTURE_FLAKY", world.path("flaky").to_str().unwrap());
    let words = ["run", "deaths", "-E", "Third.Flaky", "--retries", "1", "--junit", "live.xml"];
    world.run(&words).assert_code(0);
    world.run(&["report", "latest", "--junit", "files.xml"]).assert_code(0);
    for name in ["live.xml", "files.xml"] {
        let report = world.read(name);
        let (_, rerun) = report.split_once("<flakyFailure ").unwrap_or_else(|| panic!("{report}"));
        let (rerun, _) = rerun.split_once("</flakyFailure>").unwrap();
        assert!(rerun.contains("type=\"failure\"") && rerun.contains("time=\""), "{rerun}");
        assert!(rerun.contains("the first time it fails"), "{rerun}");
        assert!(rerun.contains("<system-out>"), "{rerun}");
    }
}

#[test]
fn flaky_crash_is_a_flaky_error_in_junit() {
    let world = TestWorld::with_gtest("deaths");
    world.env("HEELER_FIXTURE_DIE_AT", "first attempt");
    world.env("HEELER_FIXTURE_FLAKY", world.path("flaky").to_str().unwrap());
    let words = ["run", "deaths", "-E", "Third.Flaky", "--isolate", "--retries", "1", "--junit", "live.xml"];
    world.run(&words).assert_code(0).line_with(&["FLAKY 2", "Third.Flaky"]);
    let report = world.read("live.xml");
    let (_, rerun) = report.split_once("<flakyError ").unwrap_or_else(|| panic!("{report}"));
    assert!(rerun.contains("type=\"SIGABRT\"") && rerun.contains("crashed with SIGABRT"), "{rerun}");
}

#[test]
fn test_killed_at_its_memory_limit_is_out_of_memory() {
    let world = TestWorld::with_gtest("evidence");
    let words = ["run", "evidence", "-E", "Memory.Greedy", "--max-memory", "100MiB", "--junit", "live.xml"];
    let ran = world.run(&words).assert_code(2);
    ran.line_with(&["MEMORY", "Memory.Greedy"]);
    ran.assert_stdout("1 out of memory");
    assert!(!ran.stdout.contains("SIGKILL") && !ran.stdout.contains("crashed"), "{ran}");
    world.run(&["report", "latest", "--junit", "files.xml"]).assert_code(0);
    for name in ["live.xml", "files.xml"] {
        let report = world.read(name);
        assert!(report.contains("type=\"out-of-memory\""), "{report}");
    }
}

/// Validates a CTRF report; returns how each test ended, named like the elements of a JUnit report.
fn ctrf(text: &str) -> Vec<(String, String)> {
    let report: Value = serde_json::from_str(text).unwrap();
    check_ctrf(&report);
    let tests = report["results"]["tests"].as_array().unwrap();
    let element = |test: &Value| match test["rawStatus"].as_str().unwrap() {
        "passed" | "flaky" => "passed",
        "skipped" => "skipped",
        "failed" => "failure",
        _ => "error",
    };
    tests.iter().map(|test| (test["name"].as_str().unwrap().to_owned(), element(test).to_owned())).collect()
}

#[test]
fn every_report_format_has_the_same_results() {
    let world = TestWorld::with_gtest("kinds");
    world.write("heeler.toml", SHORT);
    let ran = world.run(&["run", "kinds", "--report", "junit=a.xml", "--report", "ctrf=out/{run}.json"]);
    ran.assert_stdout("JUnit report: a.xml").assert_stdout("CTRF report: out/");
    let name = std::fs::read_dir(world.path("out")).unwrap().next().unwrap().unwrap().file_name();
    let live = ctrf(&world.read(&format!("out/{}", name.to_str().unwrap())));
    assert_eq!(live, junit(&world.read("a.xml")));
    assert_eq!(live.len(), GTEST.len());
    world.run(&["report", "latest", "--report", "ctrf"]).assert_code(0).assert_stderr("ctrf-report.json");
    let sorted = |mut all: Vec<(String, String)>| {
        all.sort();
        all
    };
    assert_eq!(sorted(ctrf(&world.read("ctrf-report.json"))), sorted(live));
}

#[test]
fn unknown_report_format_names_the_nearest() {
    let world = TestWorld::new();
    let ran = world.run(&["run", "--report", "crtf=x.json"]).assert_code(5);
    ran.assert_stderr("unknown report format \"crtf\"; did you mean \"ctrf\"?");
    world.write("heeler.toml", "[profile.default]\nreports = [\"junit\", \"junti=a.xml\"]\n");
    let ran = world.run(&["list"]).assert_code(5);
    ran.assert_stderr("2:21").assert_stderr("unknown report format \"junti\"; did you mean \"junit\"?");
}

#[test]
fn report_in_an_unwritable_place_fails_after_the_others() {
    let world = TestWorld::with_gtest("deaths");
    world.write("file", "");
    let words =
        ["run", "deaths", "-E", "First.One", "--report", "junit=file/a.xml", "--report", "ctrf=b.json"];
    world.run(&words).assert_code(4).assert_stderr("file/a.xml").assert_stdout("CTRF report: b.json");
    assert_eq!(ctrf(&world.read("b.json")).len(), 1);
}

/// Runs two tests as an editor does, with a configuration that requests reports; returns the run id.
fn serve_run(world: &TestWorld, reports: &str, transport: ServerTransport) -> String {
    world.write("heeler.toml", &format!("[profile.default]\nreports = {reports}\n"));
    let mut server = TestServer::start_over(transport, world, &["deaths"]);
    server.initialize(json!({"testing": {"debuggerProvider": false}}));
    let run = server.run(Some(&["deaths::First.One", "deaths::Second.Two"]));
    server.finish(&run, &uids("deaths", ["First.One", "Second.Two"])).assert_all("passed");
    server.notify("exit", json!({}));
    server.wait_closed();
    if transport == ServerTransport::Listen {
        signal(server.pid(), "TERM");
    }
    server.wait_gone();
    run.run_id
}

#[test]
fn runs_of_editors_write_their_reports() {
    for transport in [ServerTransport::Dial, ServerTransport::Stdio, ServerTransport::Listen] {
        let world = TestWorld::with_gtest("deaths");
        let id = serve_run(&world, "[\"ctrf=reports/{run}.json\", \"junit=reports/all.xml\"]", transport);
        let mut ended = ctrf(&world.read(&format!("reports/{id}.json")));
        // The tests may run at the same time.
        ended.sort_unstable();
        assert_eq!(
            ended,
            [("First.One".to_owned(), "passed".to_owned()), ("Second.Two".to_owned(), "passed".to_owned())]
        );
        let mut cases = junit(&world.read("reports/all.xml"));
        cases.sort_unstable();
        assert_eq!(cases, ended);
    }
}

#[test]
fn failed_report_of_an_editors_run_is_logged_to_its_client() {
    let world = TestWorld::with_gtest("deaths");
    world.write("file", "");
    let mut server = TestServer::start_with(
        ServerTransport::Stdio,
        &world,
        &["deaths"],
        &["--report", "ctrf=file/a.json"],
    );
    server.initialize(json!({"testing": {"debuggerProvider": false}}));
    let run = server.run(Some(&["deaths::First.One"]));
    server.finish(&run, &uids("deaths", ["First.One"])).assert_all("passed");
    server.recorder.wait("a warning about the report", |events| {
        let logged = |event: &RecordedEvent| {
            event.params("client/log").is_some_and(|log| log.to_string().contains("file/a.json"))
        };
        events.iter().any(logged).then_some(())
    });
    assert_eq!(server.exit(), Some(0));
}

#[test]
fn report_that_finds_no_room_is_an_error() {
    // Heeler writes to a device directly; `/dev/full` fails every write.
    let world = TestWorld::with_gtest("big");
    world.env("HEELER_FIXTURE_CASES", "100");
    let full = ["run", "big", "--junit", "/dev/full", "--report", "ctrf=/dev/full"];
    let ran = world.run(&full).assert_code(4);
    ran.assert_stderr("write the CTRF report /dev/full").assert_stdout("write the JUnit report /dev/full");
    // On a full disk, Heeler leaves neither a partial nor an empty report and keeps an old report.
    let user = if heeler_sys::process::effective_uid() == 0 { "-m" } else { "-rm" };
    let script = format!(
        "mkdir out; mount -t tmpfs -o size=8k none out || exit 77; echo old > out/a.xml; \
         {} run big --junit out/a.xml; code=$?; cat out/a.xml > kept; ls -A out > left; exit $code",
        env!("CARGO_BIN_EXE_heeler")
    );
    let ran = run(world.shell(&format!("unshare {user} sh -c '{script}'")));
    if ran.code == Some(77) || ran.stderr.contains("unshare") {
        requirement::leave_out("a mount namespace", "this user may not mount anything");
        return;
    }
    ran.assert_code(4).assert_stderr("write the JUnit report out/a.xml: ");
    assert_eq!((world.read("kept").as_str(), world.read("left").as_str()), ("old\n", "a.xml\n"));
}
