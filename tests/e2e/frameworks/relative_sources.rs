//! Programs compiled with a relative source path, as by hand or with a makefile. Their reports contain the
//! relative path, and Heeler's tests have the absolute path. All tests of a program pass in one process.

use std::{collections::BTreeSet, fs, os::unix::fs::symlink, path::Path, process::Command};

use crate::support::{fixtures, server::TestServer, world::TestWorld};

/// Each test case appends its process id to the file named in this variable.
const NOTE: &str = "#include <cstdio>\n#include <cstdlib>\n#include <unistd.h>\nstatic void note() {\n  \
    FILE *file = fopen(getenv(\"PIDS\"), \"a\");\n  fprintf(file, \"%d\\n\", (int)getpid());\n  fclose(file);\n}\n";

#[track_caller]
fn check(name: &str, head: &str, case: impl Fn(usize) -> String, arguments: &[&Path]) {
    let world = TestWorld::new();
    let cases: String = (0..30).map(case).collect();
    let source = world.path("relative.cc");
    fs::write(&source, format!("{head}\n{NOTE}{cases}")).unwrap();
    let program = fixtures::built(&format!("relative-{name}"), &[&source], |target| {
        // The source must stay where it was compiled.
        let directory = target.with_extension("source");
        fs::create_dir_all(&directory).unwrap();
        fs::copy(&source, directory.join("relative.cc")).unwrap();
        let mut compiler = Command::new("g++");
        compiler.args(["-std=c++17", "-O0", "-g", "relative.cc", "-o"]).arg(target).args(arguments);
        fixtures::succeed(compiler.current_dir(directory), "scripts/test installs the frameworks");
    });
    symlink(program, world.path("relative")).unwrap();
    let pids = world.path("pids");
    let mut command = world.heeler(&["run", "relative", "-j1", "--status-level", "pass"]);
    command.env("PIDS", &pids);
    let ran = crate::support::world::run(command).assert_code(0);
    assert!(ran.stdout.contains("PASSED 30 tests"), "{ran}");
    let pids = fs::read_to_string(&pids).unwrap();
    assert_eq!(pids.lines().count(), 30, "each test runs once");
    assert_eq!(pids.lines().collect::<BTreeSet<_>>().len(), 1, "all tests run in one process");
}

#[test]
fn doctest_program_of_a_relative_source_runs_in_one_process() {
    let head = "#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN\n#include <doctest/doctest.h>";
    check(
        "doctest",
        head,
        |number| format!("TEST_CASE(\"case {number}\") {{ note(); CHECK(1 == 1); }}\n"),
        &[],
    );
}

#[test]
fn boost_program_of_a_relative_source_runs_in_one_process() {
    let head = "#define BOOST_TEST_MODULE relative\n#include <boost/test/included/unit_test.hpp>";
    check(
        "boost",
        head,
        |number| format!("BOOST_AUTO_TEST_CASE(case{number}) {{ note(); BOOST_TEST(1 == 1); }}\n"),
        &[],
    );
}

#[test]
fn catch2_2_program_of_a_relative_source_runs_in_one_process() {
    let main = fixtures::catch2_version_2_main();
    let case = |number| format!("TEST_CASE(\"case {number}\") {{ note(); REQUIRE(1 == 1); }}\n");
    check("catch2-v2", "#include <catch2/catch.hpp>", case, &[&main]);
}

#[test]
fn googletest_program_of_a_relative_source_runs_in_one_process() {
    let case = |number| format!("TEST(Suite, Case{number}) {{ note(); EXPECT_EQ(1, 1); }}\n");
    let libraries = ["-lgtest_main", "-lgtest", "-lpthread"].map(Path::new);
    check("gtest", "#include <gtest/gtest.h>", case, &libraries);
}

#[test]
fn catch2_3_program_of_a_relative_source_runs_in_one_process() {
    let Some(library) = fixtures::catch2_version_3() else { return };
    let include = format!("-I{}", library.display());
    let object = library.join("catch_amalgamated.o");
    let case = |number| format!("TEST_CASE(\"case {number}\") {{ note(); REQUIRE(1 == 1); }}\n");
    check("catch2-v3", "#include <catch_amalgamated.hpp>", case, &[Path::new(&include), &object]);
}

#[test]
fn places_of_all_failures_are_as_absolute_as_that_of_their_test() {
    let world = TestWorld::new();
    let source = "#include <gtest/gtest.h>\nTEST(Suite, Case) {\n  ADD_FAILURE() << \"first\";\n  EXPECT_EQ(1, 2);\n}\n";
    world.write("relative.cc", source);
    let mut compiler = Command::new("g++");
    compiler.args(["-std=c++17", "-O0", "-g", "relative.cc", "-o", "relative"]);
    compiler.args(["-lgtest_main", "-lgtest", "-lpthread"]).current_dir(world.path(""));
    assert!(compiler.status().unwrap().success(), "scripts/test installs the frameworks");
    let mut server = TestServer::initialized(&world, &["relative"]);
    let run = server.run(None);
    let checked_run = server.finish(&run, &["relative::Suite.Case".to_owned()]);
    let node = checked_run.test("relative::Suite.Case");
    let file = node["location.file"].as_str().unwrap();
    assert_eq!(Path::new(file), world.path("relative.cc"), "{node:#}");
    let failures = node["heeler.failures"].as_array().unwrap();
    let files: Vec<_> = failures.iter().map(|failure| failure["file"].as_str().unwrap()).collect();
    assert_eq!(files, [file; 2], "{node:#}");
    assert_eq!(node["error.stacktrace"], format!("{file}:3\n{file}:4"));
    // The first failure is not a comparison.
    assert!(node.get("assert.actual").is_none() && node.get("assert.expected").is_none(), "{node:#}");
    assert_eq!(server.exit(), Some(0));
}
