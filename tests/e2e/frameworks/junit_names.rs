//! Classes and names in Heeler's JUnit reports equal those in the frameworks' own reports.

use std::{collections::BTreeSet, os::unix::fs::symlink, path::Path, process::Command};

use quick_xml::{Reader, events::Event};

use super::pytest::python;
use crate::support::{
    fixtures::{self, Catch2Version},
    world::TestWorld,
};

/// Class and name of each case in a report.
type CaseNames = BTreeSet<(String, String)>;

fn case_names(report: &str) -> CaseNames {
    let mut names = CaseNames::new();
    let mut reader = Reader::from_str(report);
    loop {
        match reader.read_event().unwrap_or_else(|error| panic!("{error}: {report}")) {
            Event::Eof => return names,
            Event::Start(tag) | Event::Empty(tag) if tag.name().as_ref() == "testcase" => {
                let value = |name: &str| {
                    let attribute = tag.try_get_attribute(name).unwrap();
                    let text = attribute.map(|one| one.value.into_owned()).unwrap_or_default();
                    quick_xml::escape::unescape(&text).unwrap().into_owned()
                };
                names.insert((value("classname"), value("name")));
            }
            _ => {}
        }
    }
}

/// Returns the names in the report of the framework's own tool, whose exit code is ignored.
#[track_caller]
fn names_of_tool(world: &TestWorld, program: &Path, words: &[&str]) -> CaseNames {
    let ran = world.command(Command::new(program), words).output().unwrap();
    let text = std::fs::read_to_string(world.path("theirs.xml"));
    case_names(&text.unwrap_or_else(|error| panic!("{error}: {ran:?}")))
}

/// Returns the names in Heeler's report, after checking that the live report and the recorded run's report
/// agree.
#[track_caller]
fn names_of_heeler(world: &TestWorld, format: &str, words: &[&str]) -> CaseNames {
    let report = format!("{format}=ours.xml");
    let ran = world.run(&[&["run", "--report", &report], words].concat());
    assert!(world.path("ours.xml").exists(), "{ran}");
    let live = case_names(&world.read("ours.xml"));
    world.run(&["report", "--report", &report]);
    assert_eq!(case_names(&world.read("ours.xml")), live, "from the record");
    live
}

fn program_world(program: &Path) -> TestWorld {
    let world = TestWorld::new();
    symlink(program, world.path("reports")).unwrap();
    world
}

#[test]
fn googletest_cases_have_its_names() {
    let world = program_world(&fixtures::gtest("reports"));
    let theirs = names_of_tool(&world, &world.path("reports"), &["--gtest_output=xml:theirs.xml"]);
    assert_eq!(names_of_heeler(&world, "junit", &["reports"]), theirs);
    assert_eq!(theirs.len(), 9, "{theirs:?}");
}

#[test]
fn boost_cases_have_its_names() {
    let world = program_world(&fixtures::boost("reports"));
    let words = ["--log_format=JUNIT", "--log_sink=theirs.xml", "--log_level=all"];
    let theirs = names_of_tool(&world, &world.path("reports"), &words);
    assert_eq!(names_of_heeler(&world, "junit", &["reports"]), theirs);
    assert_eq!(theirs.len(), 6, "{theirs:?}");
}

#[test]
fn doctest_cases_have_its_names() {
    let world = program_world(&fixtures::doctest("reports"));
    let theirs = names_of_tool(&world, &world.path("reports"), &["--reporters=junit", "--out=theirs.xml"]);
    check_with_parts(&world, &theirs);
}

#[test]
fn catch2_cases_have_its_names() {
    for version in [Catch2Version::Two, Catch2Version::Three] {
        let Some(program) = fixtures::catch2("reports", version) else { continue };
        let world = program_world(&program);
        let words = ["--reporter", "junit", "--out", "theirs.xml"];
        let theirs = names_of_tool(&world, &world.path("reports"), &words);
        check_with_parts(&world, &theirs);
    }
}

/// Checks a framework whose report lists a test's parts instead of the test.
#[track_caller]
fn check_with_parts(world: &TestWorld, theirs: &CaseNames) {
    let ours = names_of_heeler(world, "junit", &["reports"]);
    let plain: CaseNames = theirs.iter().filter(|(_, name)| !name.contains('/')).cloned().collect();
    assert!(plain.is_subset(&ours), "{ours:#?}\n{theirs:#?}");
    let all = names_of_heeler(world, "junit-subtests", &["reports"]);
    assert!(theirs.is_subset(&all), "{all:#?}\n{theirs:#?}");
    assert!(plain.len() < theirs.len() && ours.len() < all.len(), "parts have cases: {all:#?}");
}

#[test]
fn ctest_cases_have_its_names() {
    let world = TestWorld::new();
    symlink(fixtures::gtest("reports"), world.path("unit")).unwrap();
    let unit = world.path("unit");
    let test = |name: &str, command: &str| format!("add_test({name} {command})\n");
    let tests = [
        test("script", "\"/bin/sh\" \"-c\" \"true\""),
        test("\"a failing one\"", "\"/bin/sh\" \"-c\" \"exit 1\""),
        test("Unit.Plain.Passes", &format!("\"{}\" \"--gtest_filter=Plain.Passes\"", unit.display())),
    ];
    world.write("CTestTestfile.cmake", &tests.concat());
    let theirs = names_of_tool(&world, Path::new("ctest"), &["--output-junit", "theirs.xml"]);
    assert_eq!(names_of_heeler(&world, "junit", &["--ctest", "."]), theirs);
    assert_eq!(theirs.len(), 3, "{theirs:?}");
}

#[test]
fn pytest_cases_have_its_names() {
    let Some(python) = python() else { return };
    let world = TestWorld::new();
    world.env("PYTHONDONTWRITEBYTECODE", "1");
    for directory in ["net", "net/v1.2"] {
        std::fs::create_dir(world.path(directory)).unwrap();
    }
    world.write("pytest.ini", "[pytest]\naddopts = --doctest-modules\n");
    world.write("code.py", "def f():\n    \"\"\"\n    >>> 1 + 1\n    2\n    \"\"\"\n");
    world.write("test_top.py", "def test_passes(): pass\ndef test_fails(): assert 1 == 2\n");
    world.write(
        "net/v1.2/test_tcp.py",
        "import pytest, unittest\n\
         class TestDial:\n    \
             @pytest.mark.parametrize('x', ['a::b/c', '[1]', 'é\\n', ''])\n    \
             def test_dials(self, x): pass\n    \
             class TestInner:\n        def test_deep(self): pass\n\
         class Case(unittest.TestCase):\n    def test_of_unittest(self): self.skipTest('no')\n",
    );
    let words = ["-m", "pytest", "-p", "no:cacheprovider", "--junitxml=theirs.xml", "."];
    let theirs = names_of_tool(&world, &python, &words);
    let words = ["--pytest", ".", "--python", python.to_str().unwrap()];
    assert_eq!(names_of_heeler(&world, "junit", &words), theirs);
    assert_eq!(theirs.len(), 9, "{theirs:?}");
}
