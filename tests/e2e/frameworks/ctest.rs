//! A CMake project whose tests run under both CTest and Heeler.

use std::collections::BTreeMap;

use quick_xml::{Reader, events::Event};
use serde_json::Value;

use crate::support::{
    fixtures::{self, succeed},
    world::TestWorld,
};

/// Results that both CTest and Heeler report, under the same names: `passed`, `failed` or `skipped`.
type Results = BTreeMap<String, String>;

/// Intended differences: the test's name and Heeler's result.
const DIFFERENT: [(&str, &str); 0] = [];

fn of_ctest(world: &TestWorld, folder: &str) -> Results {
    let report = world.path("ctest.xml");
    let report = report.to_str().unwrap();
    let words = ["--test-dir", folder, "-j4", "--output-junit", report];
    // CTest's exit code says only whether tests failed; the report has the details.
    let ran = world.command(std::process::Command::new("ctest"), &words).output().unwrap();
    let text = std::fs::read_to_string(report).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    let mut reader = Reader::from_str(&text);
    let mut results = Results::new();
    let mut test = (String::new(), String::new());
    loop {
        match reader.read_event().unwrap() {
            Event::Eof => return results,
            Event::Start(tag) | Event::Empty(tag) => {
                let value = |name: &str| {
                    let attribute = tag.try_get_attribute(name).unwrap();
                    let text = attribute.map(|one| one.value.into_owned()).unwrap_or_default();
                    quick_xml::escape::unescape(&text).unwrap().into_owned()
                };
                match tag.name().as_ref() {
                    "testcase" => {
                        test = (value("name"), value("status"));
                        let result = match test.1.as_str() {
                            "run" => "passed",
                            "disabled" => "skipped",
                            _ => "failed",
                        };
                        results.insert(test.0.clone(), result.to_owned());
                    }
                    // CTest counts a test that it could not run as failed, but reports it as skipped.
                    "skipped" if test.1 == "notrun" && value("message").starts_with("SKIP_") => {
                        results.insert(test.0.clone(), "skipped".to_owned());
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

/// Returns the listed tests of a directory, by uid.
fn listed(world: &TestWorld, words: &[&str]) -> BTreeMap<String, Value> {
    let ran = world.run_with_separate_outputs(&[&["list"], words, &["--format", "json"]].concat());
    let nodes: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap();
    nodes.into_iter().map(|node| (node["uid"].as_str().unwrap().to_owned(), node)).collect()
}

/// Returns a listed test's name in CTest: the `ctest` trait if the test belongs to a program, else its own
/// name.
fn name_in_ctest(node: &Value) -> String {
    let traits = node["traits"].as_array().into_iter().flatten();
    let of_program = traits.filter_map(|one| one["ctest"].as_str()).next();
    of_program.or(node["display-name"].as_str()).unwrap().to_owned()
}

/// Returns each test's last event, by uid.
fn ends(world: &TestWorld, words: &[&str]) -> BTreeMap<String, Value> {
    let ran = world.run_with_separate_outputs(&[&["run"], words, &["--format", "json"]].concat());
    let events = ran.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let ends = events.filter(|event| event["type"] == "test" && event["event"] != "started");
    ends.map(|event| (event["uid"].as_str().unwrap().to_owned(), event)).collect()
}

#[test]
fn heeler_reports_of_each_entry_what_ctest_reports() {
    let world = TestWorld::new();
    let folder = fixtures::ctest_project();
    let folder = folder.to_str().unwrap();
    let mut expected = of_ctest(&world, folder);
    assert!(expected.len() > 60, "{expected:#?}");
    expected.extend(DIFFERENT.map(|(name, result)| (name.to_owned(), result.to_owned())));
    // Heeler's results must equal CTest's.
    let nodes = listed(&world, &["--ctest", folder]);
    let ends = ends(&world, &["--ctest", folder]);
    let results: Results = ends
        .iter()
        .map(|(uid, end)| {
            let name = name_in_ctest(nodes.get(uid).unwrap_or_else(|| panic!("{uid} is not listed")));
            let result = match end["event"].as_str().unwrap() {
                "ok" => "passed",
                "ignored" => "skipped",
                _ => "failed",
            };
            (name, result.to_owned())
        })
        .collect();
    assert_eq!(results.len(), ends.len(), "two tests have one name");
    let differing: Vec<_> =
        expected.iter().filter(|(name, result)| results.get(*name) != Some(result)).collect();
    assert!(differing.is_empty() && results.len() == expected.len(), "{differing:#?}\nof {ends:#?}");
    // Listings have locations and labels.
    assert!(nodes["unit::Math.Adds"]["location.file"].as_str().unwrap().ends_with("unit.cc"), "{nodes:#?}");
    let labels: Vec<_> = nodes["ctest::labels"]["traits"].as_array().unwrap().iter().collect();
    assert_eq!(labels.len(), 2, "{labels:?}");
    let of = |uid: &str| ends[uid].to_string();
    // Messages name the reason of each failure.
    for (uid, text) in [
        ("ctest::fails", "exited with code 3"),
        ("ctest::required_file_missing", "no such file"),
        ("ctest::working_directory_missing", "working directory"),
        ("ctest::never_built_NOT_BUILT", "is it built?"),
        ("ctest::fail_expression", "FAIL_REGULAR_EXPRESSION"),
        ("ctest::times_out_after_match", "timed out after"),
        ("ctest::user_of_broken", "the set-up ctest::broken_set_up, which it needs, failed"),
        ("unit#3::Math.Adds", "the set-up ctest::broken_set_up, which it needs, failed"),
        ("ctest::user_of_nested", "the set-up ctest::broken_set_up, which it needs, failed"),
        ("unit::Crash.Dies", "SIGABRT"),
        ("catches_v2::dies", "SIGABRT"),
        ("cases::fails", "is NOT correct!"),
    ] {
        assert!(of(uid).contains(text), "{}", of(uid));
    }
    // Tests of one framework share a process. A CTest argument that selects two tests makes each a separate
    // command.
    let folded = ["unit::Math.Adds", "cases::adds", "cases::adds, twice", "catches_v2::a, b and c"];
    for uid in folded {
        assert!(nodes[uid]["location.file"].as_str().unwrap().ends_with(".cc"), "{:#}", nodes[uid]);
    }
    for uid in ["ctest::v2:Either", "ctest::v2:either", "ctest::cases: both", "ctest::cases:Either"] {
        assert!(nodes.contains_key(uid), "{nodes:#?}");
    }
    if nodes.contains_key("catches_v3::adds") {
        assert!(of("catches_v3::skips").contains("no SKIP_RETURN_CODE"), "{}", of("catches_v3::skips"));
        assert_eq!(ends["catches_v3::hidden"]["event"], "failed", "{}", of("catches_v3::hidden"));
        let coded = nodes.keys().find(|uid| uid.ends_with("::skips with a code")).unwrap();
        assert_eq!(ends[coded]["event"], "ignored", "{}", of(coded));
    }
    // Attached files are reported; `ATTACHED_FILES_ON_FAIL` only if the test fails.
    let attached = ["attached", "attached_on_fail"].map(|name| of(&format!("ctest::{name}")));
    assert!(attached[0].contains("attached.txt") && attached[1].contains("of_failure.txt"), "{attached:?}");
    assert!(!of("ctest::attached_on_fail_passes").contains("CMakeCache.txt"));
}

#[test]
fn build_folder_among_the_programs_is_found_and_what_is_not_applied_is_told() {
    let world = TestWorld::new();
    let folder = fixtures::ctest_project();
    let ran = world.run(&["run", folder.to_str().unwrap(), "-E", "tag(slow)"]).assert_code(0);
    ran.assert_stdout("the unsupported CTest property MEASUREMENT of measured");
    ran.assert_stdout("1 passed");
    let ran = world.run(&["run", "--ctest", "."]).assert_code(4);
    ran.assert_stdout("no CTestTestfile.cmake in ");
}

#[test]
fn test_that_the_program_has_no_more_is_an_error() {
    let world = TestWorld::new();
    world.gtest("kinds");
    let program = world.path("kinds");
    let entry = |name: &str| {
        format!("add_test(\"{name}\" \"{}\" \"--gtest_filter=Math.{name}\")\n", program.display())
    };
    world.write("CTestTestfile.cmake", &[entry("Add"), entry("Gone")].concat());
    let ends = ends(&world, &["."]);
    assert_eq!(ends["kinds::Math.Add"]["event"], "ok", "{ends:#?}");
    assert_eq!(ends["kinds::Math.Gone"]["event"], "not_run", "{ends:#?}");
    assert!(ends["kinds::Math.Gone"].to_string().contains("no longer contains this test"), "{ends:#?}");
    assert_eq!(ends.len(), 2, "tests without an entry are not run: {ends:#?}");
    // Heeler names the programs that no CTest test runs.
    std::fs::copy(&program, world.path("unknown")).unwrap();
    let ran = world.run(&["run", ".", "-E", "Math.Add"]).assert_code(0);
    ran.line_with(&["Skipping", "1 test program that no CTest test runs (name it to run it): unknown"]);
    // CTest itself passes the test whose filter matches nothing.
    let ctest = succeed(&mut world.command(std::process::Command::new("ctest"), &[]), "ctest");
    assert!(String::from_utf8_lossy(&ctest).contains("100% tests passed"));
}

/// A project in which `user` needs a directory and a file in it, and passes only if `repaired` exists.
const FIXTURES: &str = r#"
add_test(make_root "sh" "-c" "mkdir root")
set_tests_properties(make_root PROPERTIES FIXTURES_SETUP "root")
add_test(drop_root "sh" "-c" "rm -r root")
set_tests_properties(drop_root PROPERTIES FIXTURES_CLEANUP "root")
add_test(make_db "sh" "-c" "echo 1 > root/db")
set_tests_properties(make_db PROPERTIES FIXTURES_SETUP "db" FIXTURES_REQUIRED "root")
add_test(user "sh" "-c" "grep 1 root/db && test -e repaired")
set_tests_properties(user PROPERTIES FIXTURES_REQUIRED "db;root")
add_test(second "sh" "-c" "grep 1 root/db")
set_tests_properties(second PROPERTIES FIXTURES_REQUIRED "db;root")
add_test(plain "true")
"#;

fn names(ends: &BTreeMap<String, Value>) -> Vec<&str> {
    ends.keys().map(|uid| uid.strip_prefix("ctest::").unwrap()).collect()
}

#[test]
fn selection_takes_fixtures_along_as_ctest_does() {
    let world = TestWorld::new();
    world.write("CTestTestfile.cmake", FIXTURES);
    for test in ["user", "make_db", "make_root", "drop_root", "plain"] {
        let words = ["-N", "-R", &format!("^{test}$")];
        let text = succeed(&mut world.command(std::process::Command::new("ctest"), &words), "ctest");
        let text = String::from_utf8(text).unwrap();
        let of_ctest = text.lines().filter_map(|line| Some(line.split_once("#")?.1.split_once(": ")?.1));
        let mut of_ctest: Vec<_> = of_ctest.map(str::to_owned).collect();
        of_ctest.sort_unstable();
        let nodes = listed(&world, &[".", "-E", &format!("test(={test})")]);
        assert_eq!(names(&nodes), of_ctest, "{test}: {text}");
    }
}

#[test]
fn rerun_of_a_repaired_test_sets_up_its_fixtures() {
    let world = TestWorld::new();
    world.write("CTestTestfile.cmake", FIXTURES);
    let ran = world.run(&["run", "."]).assert_code(2);
    ran.assert_stdout("5 passed, 1 failed");
    world.write("repaired", "");
    let ran = world.run(&["run", ".", "--rerun", "failed"]).assert_code(0);
    ran.assert_stdout("4 passed");
    ran.assert_stdout("3 of them for fixtures");
    assert!(!world.path("root").exists(), "the clean-up ran: {ran}");
}

#[test]
fn each_partition_runs_the_fixtures_that_it_needs() {
    let world = TestWorld::new();
    world.write("CTestTestfile.cmake", FIXTURES);
    world.write("repaired", "");
    let mut users = 0;
    for partition in ["slice:1/3", "slice:2/3", "slice:3/3"] {
        let words = [".", "--partition", partition, "-E", "test(=user) or test(=second) or test(=plain)"];
        let ends = ends(&world, &words);
        assert!(ends.values().all(|end| end["event"] == "ok"), "{ends:#?}");
        let names = names(&ends);
        if !names.contains(&"plain") {
            users += 1;
            assert_eq!(names.len(), 4, "{names:?}");
            assert!(["make_root", "make_db", "drop_root"].iter().all(|name| names.contains(name)));
        }
    }
    assert_eq!(users, 2);
}
