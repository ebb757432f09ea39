//! A repository with projects of seven frameworks: found without a configuration, run by the configured
//! suites, and one suite at a time. The frameworks' own runners count the same numbers of tests.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use crate::support::{
    fixtures::{catch2_version_2_main, fixtures, succeed},
    requirement,
    world::TestWorld,
};

/// A suite of the configuration.
struct Suite {
    name: &'static str,
    /// Number of its tests, as its framework's own runner counts them.
    tests: usize,
    /// The test that fails, without the suite.
    failing: &'static str,
    /// Place of the failure; a command has none.
    place: Option<&'static str>,
}

const SUITES: [Suite; 7] = [
    Suite {
        name: "core",
        tests: 60,
        failing: "size::tests::nothing_has_a_size",
        place: Some("crates/core/src/size.rs:34"),
    },
    Suite { name: "engine", tests: 80, failing: "Brackets.AreFreed", place: Some("engine/eval_test.cc:23") },
    Suite {
        name: "geometry",
        tests: 22,
        failing: "a box has a diagonal",
        place: Some("engine/geometry_test.cc:44"),
    },
    Suite {
        name: "text",
        tests: 18,
        failing: "a tabulator after a line break begins anew",
        place: Some("engine/text_test.cc:46"),
    },
    Suite { name: "calculator", tests: 12, failing: "calc.power", place: None },
    Suite {
        name: "service",
        tests: 13,
        failing: "TestEmptyVariable",
        place: Some("service/route_test.go:21"),
    },
    Suite {
        name: "tools",
        tests: 41,
        failing: "TestEdges::test_empty_words",
        place: Some("tools/tests/test_wrap.py:32"),
    },
];

/// Copies the files below a directory of the fixtures into the world.
fn copy_files(world: &TestWorld, from: &Path, to: &str) {
    fs::create_dir_all(world.path(to)).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{to}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            copy_files(world, &entry.path(), &name);
        } else {
            fs::copy(entry.path(), world.path(&name)).unwrap();
        }
    }
}

/// Returns a copy of the repository, whose C++ programs are built. `None` if a framework is not installed.
fn repository() -> Option<TestWorld> {
    let python = crate::frameworks::pytest::python()?;
    requirement::directory_of_program("go", "Go 1.20 or newer must be in PATH")?;
    let world = TestWorld::new();
    copy_files(&world, &fixtures().join("mixed"), ".");
    std::os::unix::fs::symlink(python.ancestors().nth(2).unwrap(), world.path("tools/.venv")).unwrap();
    // CMake recognises an object file by its extension.
    fs::copy(catch2_version_2_main(), world.path("catch2-main.o")).unwrap();
    let hint = "are cmake, g++, libgtest-dev, doctest-dev and catch2 there? scripts/test installs them";
    let mut configure = Command::new("cmake");
    configure.args(["-S", "engine", "-B", "engine/build"]).current_dir(world.dir());
    configure.arg(format!("-DCATCH2_MAIN={}", world.path("catch2-main.o").display()));
    succeed(&mut configure, hint);
    let mut build = Command::new("cmake");
    succeed(build.args(["--build", "engine/build", "--parallel", "2"]).current_dir(world.dir()), hint);
    Some(world)
}

/// Returns the JSON of a report of the newest run.
fn newest_ctrf(world: &TestWorld) -> Value {
    world.run(&["report", "latest", "--report", "ctrf=report.json"]);
    serde_json::from_str(&world.read("report.json")).unwrap()
}

#[test]
fn seven_suites_are_found_run_and_selected_by_name() {
    let Some(world) = repository() else { return };
    // Without the configuration, each project is found once.
    fs::rename(world.path("heeler.toml"), world.path("kept")).unwrap();
    let ran = world.run(&["run", "--no-history"]).assert_code(2);
    for found in [
        "Cargo workspace (Cargo.toml)",
        "CTest tests in engine/build",
        "Go module in service",
        "pytest in tools",
    ] {
        ran.line_with(&["Found", found]);
    }
    ran.line_with(&["Skipping", "web/package.json"]);
    ran.assert_stdout("of 126 tests");
    fs::rename(world.path("kept"), world.path("heeler.toml")).unwrap();

    // With it, all suites run, and every failure names the line of the repository.
    let ran = world.run(&["run"]).assert_code(2);
    let total: usize = SUITES.iter().map(|suite| suite.tests).sum();
    assert_eq!(total, 246);
    ran.assert_stdout("7 of 246 tests");
    let report = newest_ctrf(&world);
    let tests = report["results"]["tests"].as_array().unwrap();
    let failed: Vec<&Value> = tests.iter().filter(|test| test["status"] == "failed").collect();
    assert_eq!(failed.len(), SUITES.len());
    for suite in &SUITES {
        let is_own = |test: &&&Value| test["name"].as_str().unwrap().ends_with(suite.failing);
        let test = failed.iter().find(is_own).unwrap_or_else(|| panic!("{}: {failed:?}", suite.name));
        if let Some(place) = suite.place {
            let shown = format!("{}:{}", test["filePath"].as_str().unwrap_or_default(), test["line"]);
            assert!(shown.ends_with(place), "{shown} instead of {place}");
            ran.assert_stdout(place);
        }
    }

    // A suite is selected by its name; no other suite is built or listed.
    for suite in &SUITES {
        let ran = world.run(&["run", "--suite", suite.name]).assert_code(2);
        ran.assert_stdout(&format!("1 of {} tests", suite.tests)).assert_stdout(suite.failing);
        let output = format!("{}{}", ran.stdout, ran.stderr);
        for (other, sign) in [("core", "Finished `test` profile"), ("service", "Building the Go tests")] {
            assert_eq!(output.contains(sign), suite.name == other, "{}: {output}", suite.name);
        }
        let filter = format!("suite({})", suite.name);
        let listed = world.run(&["list", "--format", "json", "-E", &filter]).assert_code(0);
        for other in &SUITES {
            assert_eq!(listed.stdout.contains(other.failing), other.name == suite.name, "{filter}");
        }
    }
    world.run(&["run", "--rerun", "failed"]).assert_code(2).assert_stdout("1 of 1");
}
