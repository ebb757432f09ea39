//! Files that tests attach, in every framework that supports attachments. The attachments stream, the nodes,
//! the response and every report name each file once, with its test, whichever process sent it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use quick_xml::{Reader, events::Event};
use serde_json::{Value, json};

use crate::support::{
    callback_listener::ListenerBehaviour,
    checked_run::CheckedRun,
    fixtures::fixtures,
    has_long_forms,
    process::signal,
    recorder::RecordedEvent,
    requirement,
    server::{RequestedRun, TestServer},
    uids,
    world::{FinishedCommand, TestWorld},
};

const STREAM: &str = "testing/testUpdates/attachments";
const UPDATES: &str = "testing/testUpdates/tests";

/// Paths of each test's files, by test name. Tests without files are absent.
type FilesByTest = BTreeMap<String, Vec<PathBuf>>;

fn path_of(uri: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = uri.strip_prefix("file://").expect("it is the URI of a file").bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next().unwrap(), rest.next().unwrap()];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
        } else {
            bytes.push(byte);
        }
    }
    PathBuf::from(String::from_utf8(bytes).unwrap())
}

fn without_suite(uid: &str) -> String {
    uid.split_once("::").map_or(uid, |(_, name)| name).to_owned()
}

/// Returns the files named in the nodes of tests. Each file must have a description.
fn of_nodes(checked_run: &CheckedRun) -> FilesByTest {
    let mut files = FilesByTest::new();
    for (uid, node) in &checked_run.tests {
        let member = |number: usize, name: &str| node.get(format!("attachments.{number}.{name}")).cloned();
        let paths: Vec<_> = (0..)
            .map_while(|number| {
                let uri = member(number, "uri")?;
                assert!(member(number, "description").is_some_and(|text| text != ""), "{node:#}");
                Some(path_of(uri.as_str().unwrap()))
            })
            .collect();
        if !paths.is_empty() {
            files.insert(without_suite(uid), paths);
        }
    }
    files
}

fn of_list(list: &Value) -> Vec<PathBuf> {
    let uris = list.as_array().into_iter().flatten().map(|file| file["uri"].as_str().unwrap());
    uris.map(path_of).collect()
}

/// Returns the files in a run's attachments stream, in order.
fn of_stream(events: &[RecordedEvent], run: &RequestedRun) -> Vec<PathBuf> {
    let params = events.iter().filter_map(|event| event.params(STREAM));
    params
        .filter(|params| params["runId"] == run.run_id.as_str())
        .flat_map(|params| of_list(&params["attachments"]))
        .collect()
}

/// Panics if a file occurs twice; returns the files sorted by name.
#[track_caller]
fn each_once(mut files: Vec<PathBuf>) -> Vec<PathBuf> {
    files.sort();
    let twice = files.windows(2).find(|pair| pair[0] == pair[1]);
    assert!(twice.is_none(), "named twice: {twice:?}");
    files
}

#[track_caller]
fn all_of(files: &FilesByTest) -> Vec<PathBuf> {
    each_once(files.values().flatten().cloned().collect())
}

/// Returns the files named in a run's events.
fn of_json(output: &FinishedCommand) -> FilesByTest {
    let mut files = FilesByTest::new();
    for line in output.stdout.lines().filter(|line| line.starts_with('{')) {
        let event: Value = serde_json::from_str(line).unwrap();
        let paths: Vec<_> = event["attachments"].as_array().into_iter().flatten().map(path_in).collect();
        if !paths.is_empty() {
            files.insert(without_suite(event["uid"].as_str().unwrap()), paths);
        }
    }
    files
}

fn path_in(file: &Value) -> PathBuf {
    PathBuf::from(file["path"].as_str().unwrap())
}

/// Returns the files named in a CTRF report. Their paths are relative to the world.
fn of_ctrf(world: &TestWorld, text: &str) -> FilesByTest {
    let report: Value = serde_json::from_str(text).unwrap();
    let mut files = FilesByTest::new();
    for test in report["results"]["tests"].as_array().unwrap() {
        let named = test["attachments"].as_array().into_iter().flatten();
        let paths: Vec<_> = named.map(|file| world.path(file["path"].as_str().unwrap())).collect();
        let attempts = test["retryAttempts"].as_array().into_iter().flatten();
        assert!(
            attempts.clone().all(|attempt| attempt.get("attachments").is_none()),
            "named twice: {test:#}"
        );
        if !paths.is_empty() {
            files.insert(without_suite(test["testId"].as_str().unwrap()), paths);
        }
    }
    files
}

/// Returns the files named in a JUnit report, by class and name of the test case. Their paths are relative to
/// the world.
fn of_junit(world: &TestWorld, text: &str) -> FilesByTest {
    let mut files = FilesByTest::new();
    let mut reader = Reader::from_str(text);
    let mut name = String::new();
    loop {
        match reader.read_event().unwrap() {
            Event::Eof => return files,
            Event::Start(tag) | Event::Empty(tag) if tag.name().as_ref() == "testcase" => {
                let value = |name: &str| {
                    let value = tag.try_get_attribute(name).unwrap().unwrap().value;
                    quick_xml::escape::unescape(&value).unwrap().into_owned()
                };
                name = format!("{}.{}", value("classname"), value("name"));
            }
            Event::Text(text) => {
                for file in (*text).split("[[ATTACHMENT|").skip(1) {
                    let path = world.path(file.split_once("]]").unwrap().0);
                    files.entry(name.clone()).or_default().push(path);
                }
            }
            _ => {}
        }
    }
}

const REPORTS: [&str; 4] = ["--report", "junit=junit.xml", "--report", "ctrf=ctrf.json"];

/// Returns the files named in each kind of report. `words` selects the run.
fn of_reports(world: &TestWorld, words: &[&str]) -> Vec<(&'static str, FilesByTest)> {
    let words = [words, &["--format", "json"], &REPORTS].concat();
    let output = world.run_with_separate_outputs(&words);
    let (junit, ctrf) = (world.read("junit.xml"), world.read("ctrf.json"));
    vec![("json", of_json(&output)), ("junit", of_junit(world, &junit)), ("ctrf", of_ctrf(world, &ctrf))]
}

/// Returns the contents of a test's files, in order.
#[track_caller]
fn contents(files: &FilesByTest, test: &str) -> Vec<String> {
    let paths = files.get(test).unwrap_or_else(|| panic!("no files of {test}: {files:#?}"));
    paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect()
}

/// A program whose tests attach files.
struct AttachingProgram {
    world: TestWorld,
    /// Expected file contents of each test that must have files.
    expected: Vec<(&'static str, Vec<&'static str>)>,
}

fn json_lines() -> AttachingProgram {
    let world = TestWorld::new();
    fs::create_dir(world.path("files")).unwrap();
    world.env("ATTACHING_DIRECTORY", world.path("files").to_str().unwrap());
    world.write(
        "heeler.toml",
        "[profile.default]\nretries = 1\n[[suite]]\nname = \"adapter\"\nprograms = [\"adapter.py\"]\n\
         framework = \"json-lines\"\n",
    );
    std::os::unix::fs::symlink(fixtures().join("json-lines/attaching.py"), world.path("adapter.py")).unwrap();
    let expected = vec![
        ("passes", vec!["passes"]),
        ("fails", vec!["fails", "fails"]),
        ("skips", vec!["skips"]),
        ("flaky", vec!["flaky passed", "flaky failed"]),
        ("many", vec!["content 0", "content 1", "content 2", "many"]),
        ("odd", vec!["odd", "odd"]),
        ("gone", vec!["gone"]),
        ("waits", vec!["waits"]),
    ];
    AttachingProgram { world, expected }
}

fn mtp() -> AttachingProgram {
    let world = TestWorld::new();
    let command = format!("python3 {} attaches", fixtures().join("mtp/application.py").display());
    world.write("heeler.toml", &format!("[[suite]]\nname = \"app\"\nmtp = \"{command}\"\n"));
    let expected = vec![
        ("Space.Class.t0", vec!["attached by t0"]),
        ("Space.Class.t1", vec!["attached by t1"]),
        ("Space.Class.t5", vec!["attached by t5"]),
    ];
    AttachingProgram { world, expected }
}

fn ctest() -> AttachingProgram {
    let world = TestWorld::new();
    let file = |name: &str| world.path(name).display().to_string();
    let test = |name: &str, script: &str, properties: &str| {
        format!(
            "add_test({name} \"/bin/sh\" \"-c\" \"{script}\")\nset_tests_properties({name} PROPERTIES {properties})\n"
        )
    };
    let (passed, failed, hung) = (file("passed.txt"), file("failed.txt"), file("hung.txt"));
    let tests = [
        test(
            "passes",
            &format!("printf content > {passed}"),
            &format!("ATTACHED_FILES \"{passed};{}\"", file("none")),
        ),
        test(
            "fails",
            &format!("printf reason > {failed}; exit 1"),
            &format!("ATTACHED_FILES_ON_FAIL \"{failed}\""),
        ),
        test(
            "hangs",
            &format!("printf late > {hung}; exec sleep 1000"),
            &format!("TIMEOUT 1 ATTACHED_FILES \"{hung}\""),
        ),
    ];
    world.write("CTestTestfile.cmake", &tests.concat());
    world.write(
        "heeler.toml",
        "[profile.default]\ngrace-period = \"100ms\"\ndumps = \"off\"\n[[suite]]\nname = \"project\"\nctest = \".\"\n",
    );
    let expected = vec![("passes", vec!["content"]), ("fails", vec!["reason"])];
    AttachingProgram { world, expected }
}

/// Returns a built application of MSTest, NUnit or xUnit, if it is installed.
fn real_application(name: &str) -> Option<AttachingProgram> {
    let what = "applications of Microsoft Testing Platform";
    let applications = requirement::directory_of("HEELER_MTP_APPLICATIONS", what)?;
    let world = TestWorld::new();
    world.env("DOTNET_ROOT", applications.join("dotnet").to_str().unwrap());
    let program = applications.join("apps").join(name);
    world.write("heeler.toml", &format!("[[suite]]\nname = \"app\"\nmtp = \"{}\"\n", program.display()));
    Some(AttachingProgram { world, expected: vec![("Attach", Vec::new())] })
}

/// Runs all tests for a client; checks that the stream, nodes, response and reports agree.
fn check_client(program: &AttachingProgram, has_callback: bool) -> FilesByTest {
    let mut server = if has_callback {
        TestServer::with_callback(&program.world, &[], |_| ListenerBehaviour::Normal)
    } else {
        let mut server = TestServer::start(&program.world, &[]);
        server.initialize(json!({"testing": {"attachmentsSupport": true}}));
        server
    };
    let listed = server
        .request_and_wait("testing/discoverTests", json!({"runId": "00000000-0000-0000-0000-0000000000ff"}));
    assert!(listed.get("error").is_none(), "{listed:#}");
    let selected = discovered(&server.recorder.events());
    let run = server.run(None);
    let checked_run = server.finish(&run, &selected);
    let events = server.recorder.events();
    let nodes = of_nodes(&checked_run);
    assert_eq!(each_once(of_stream(&events, &run)), all_of(&nodes), "stream and nodes");
    let response = each_once(of_list(&checked_run.response["result"]["attachments"]));
    assert_eq!(response, all_of(&nodes), "response and nodes");
    assert_eq!(server.exit(), Some(0));
    check_reports(&program.world, &nodes);
    nodes
}

/// Checks that each report of the last run names each test's files. JUnit reports spell test names
/// differently, and report files name readable files first.
#[track_caller]
fn check_reports(world: &TestWorld, nodes: &FilesByTest) {
    let sorted = |files: &FilesByTest| {
        files.iter().map(|(test, paths)| (test.clone(), each_once(paths.clone()))).collect::<FilesByTest>()
    };
    for (format, files) in of_reports(world, &["report"]) {
        if format == "junit" {
            let by_test = |files: &FilesByTest| sorted(files).into_values().collect::<BTreeSet<_>>();
            assert_eq!(by_test(&files), by_test(nodes), "{format}");
        } else {
            assert_eq!(sorted(&files), sorted(nodes), "{format}");
        }
    }
}

fn discovered(events: &[RecordedEvent]) -> Vec<String> {
    let params = events.iter().filter_map(|event| event.params(UPDATES));
    let changes = params.flat_map(|params| params["changes"].as_array().into_iter().flatten());
    let nodes = changes.map(|change| &change["node"]);
    let tests = nodes.filter(|node| node["execution-state"] == "discovered");
    tests.map(|node| node["uid"].as_str().unwrap().to_owned()).collect()
}

/// Runs all tests once for each client (`true`: with a callback port), and once on the command line.
fn check_program(program: &AttachingProgram, clients: &[bool]) {
    let mut checked = Vec::new();
    for has_callback in clients {
        let _again = fs::remove_file(program.world.path("files/has failed once"));
        checked.push(check_client(program, *has_callback));
    }
    let _again = fs::remove_file(program.world.path("files/has failed once"));
    let live = of_reports(&program.world, &["run"]);
    let recorded = of_reports(&program.world, &["report"]);
    assert_eq!(live, recorded, "live and from the record");
    checked.extend(live.into_iter().map(|(_, files)| files));
    for (test, expected) in &program.expected {
        for files in &checked {
            let named = files.keys().find(|name| name.contains(test));
            let named = named.unwrap_or_else(|| panic!("no files of {test}: {files:#?}"));
            let found = contents(files, named);
            assert!(expected.is_empty() || found == *expected, "{test}: {found:?}, {files:#?}");
        }
    }
}

#[test]
fn attached_files_of_json_lines_are_named_by_stream_nodes_response_and_reports() {
    check_program(&json_lines(), &[true, false]);
}

#[test]
fn attached_files_of_mtp_are_named_by_stream_nodes_response_and_reports() {
    check_program(&mtp(), &[true, false]);
}

#[test]
fn attached_files_of_ctest_are_named_by_stream_nodes_response_and_reports() {
    check_program(&ctest(), &[true, false]);
}

/// Checks a built application. The gate checks it only on the command line: for clients, it does not differ
/// from other applications.
fn check_real_application(name: &str) {
    let Some(program) = real_application(name) else { return };
    check_program(&program, if has_long_forms() { &[true, false] } else { &[] });
}

#[test]
fn attached_files_of_mstest_are_named_by_reports() {
    check_real_application("ms-suite/MsSuite");
}

#[test]
fn attached_files_of_nunit_are_named_by_reports() {
    check_real_application("nu-suite/NuSuite");
}

#[test]
fn attached_files_of_xunit_are_named_by_reports() {
    check_real_application("xu-suite/XuSuite");
}

#[test]
fn file_of_a_test_that_dies_or_hangs_is_named() {
    let program = json_lines();
    let files = check_client(&program, true);
    // The crash adds its own files.
    assert!(contents(&files, "dies").contains(&"dies".to_owned()), "{files:#?}");
    let program = ctest();
    let files = check_client(&program, true);
    assert!(contents(&files, "hangs").contains(&"late".to_owned()), "{files:#?}");
}

#[test]
fn lost_file_is_a_warning_with_file_and_test() {
    let program = json_lines();
    let ran = program.world.run(&["run"]);
    ran.assert_code(2);
    let ran = program.world.run(&["run"]);
    ran.line_with(&["gone", "never written.txt", "could not keep", "No such file"]);
    ran.line_with(&["odd", "files", "could not keep", "not a regular file"]);
}

#[test]
fn attached_files_are_announced_after_the_death_of_the_coordinator() {
    let program = json_lines();
    program.world.env("ATTACHING_WAITS", "1");
    program.world.write(
        "heeler.toml",
        "[profile.default]\njobs = 1\n[[suite]]\nname = \"adapter\"\nprograms = [\"adapter.py\"]\n\
         framework = \"json-lines\"\n",
    );
    let mut server = TestServer::with_callback(&program.world, &[], |_| ListenerBehaviour::Normal);
    let names = ["passes", "fails", "skips", "many", "odd", "gone", "waits"];
    let selected = uids("adapter", names);
    let run = server.run(Some(&selected.iter().map(String::as_str).collect::<Vec<_>>()));
    server.wait_state("adapter::waits", "in-progress");
    signal(server.pid(), "KILL");
    server.wait_gone();
    let checked_run = server.finish_orphaned(&run, &selected);
    let nodes = of_nodes(&checked_run);
    assert_eq!(each_once(of_stream(&server.recorder.events(), &run)), all_of(&nodes));
    for name in &names[..6] {
        assert!(nodes.contains_key(*name), "{name}: {nodes:#?}");
    }
    assert_eq!(contents(&nodes, "fails"), ["fails"]);
    check_reports(&program.world, &nodes);
}

#[test]
fn attached_files_survive_the_death_of_their_guard_and_worker() {
    for fault in ["worker.journal.after:2:kill", "worker.sent:2:kill", "worker.drain:1:kill"] {
        let program = json_lines();
        fs::create_dir(program.world.path("points")).unwrap();
        program.world.env("HEELER_FAIL_ONCE", program.world.path("points").to_str().unwrap());
        program.world.env("HEELER_FAIL", fault);
        let nodes = check_client(&program, true);
        assert!(nodes.len() >= 8, "{fault}: {nodes:#?}");
        assert!(all_of(&nodes).iter().all(|path| Path::exists(path)), "{fault}: {nodes:#?}");
    }
}
