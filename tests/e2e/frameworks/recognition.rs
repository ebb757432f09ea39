//! Heeler recognises a program's framework without starting programs that are not test programs. The programs
//! are linked in different ways and have the marks of no, one, two or all frameworks.

use std::{
    env,
    ffi::OsString,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::support::{
    fixtures::{Catch2Version, boost, built, catch2, doctest, fixtures, gtest, succeed},
    world::{TestWorld, copy_program},
};

const HINT: &str =
    "is g++ there, with libgtest-dev, libboost-test-dev and doctest-dev? scripts/test installs them";

fn source(name: &str) -> PathBuf {
    fixtures().join("recognition").join(name)
}

/// Compiles a source file of the fixture.
fn object(name: &str) -> PathBuf {
    let source = source(name);
    built(&format!("recognition-{name}.o"), &[&source], |target| {
        let mut compiler = Command::new("g++");
        compiler.args(["-std=c++17", "-O0", "-fPIC", "-c", "-o"]).arg(target).arg(&source);
        succeed(&mut compiler, HINT);
    })
}

/// Links objects and libraries into a program in the world.
fn link(world: &TestWorld, name: &str, words: &[&dyn AsRef<std::ffi::OsStr>]) {
    let words: Vec<OsString> = words.iter().map(|word| word.as_ref().to_owned()).collect();
    let mut linker = Command::new("g++");
    linker.arg("-o").arg(world.path(name)).args(words).current_dir(world.dir());
    succeed(&mut linker, HINT);
}

/// Returns the frameworks of the listed tests.
#[track_caller]
fn frameworks(world: &TestWorld, words: &[&str]) -> Vec<String> {
    let head = ["list", "--format", "json"];
    let ran = world.run_with_separate_outputs(&[&head[..], words].concat()).assert_code(0);
    let nodes: Vec<Value> =
        serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran}"));
    let mut found: Vec<_> =
        nodes.iter().map(|node| node["heeler.framework"].as_str().unwrap().to_owned()).collect();
    found.sort();
    found.dedup();
    found
}

#[test]
fn recognition_finds_googletest_however_it_is_linked() {
    let world = TestWorld::new();
    let object = object("gtest.cc");
    let both: [&dyn AsRef<std::ffi::OsStr>; 3] = [&"-lgtest_main", &"-lgtest", &"-lpthread"];
    let variants: [(&str, &[&str]); 5] = [
        ("pie", &["-pie"]),
        ("no-pie", &["-no-pie"]),
        ("stripped", &["-s"]),
        ("static", &["-static"]),
        ("static-stripped", &["-static", "-s"]),
    ];
    // Link the program with the static library in each of these ways.
    for (name, flags) in variants {
        let flags = flags.iter().map(|flag| flag as &dyn AsRef<std::ffi::OsStr>);
        let words: Vec<_> =
            [&object as &dyn AsRef<std::ffi::OsStr>].into_iter().chain(both).chain(flags).collect();
        link(&world, name, &words);
    }
    // Link the program with a shared library.
    let library = built("recognition-libgtest.so", &[&object], |target| {
        let mut compiler = Command::new("g++");
        compiler.args([
            "-std=c++17",
            "-O0",
            "-fPIC",
            "-shared",
            "-Wl,-soname,libgtest.so",
            "-I/usr/src/googletest/googletest",
            "-o",
        ]);
        let sources = ["gtest-all.cc", "gtest_main.cc"];
        compiler.arg(target).args(sources.map(|name| format!("/usr/src/googletest/googletest/src/{name}")));
        succeed(&mut compiler, HINT);
    });
    fs::copy(library, world.path("libgtest.so")).unwrap();
    let rpath = format!("-Wl,-rpath,{}", world.dir().display());
    link(&world, "shared", &[&object, &"./libgtest.so", &rpath]);
    link(&world, "shared-stripped", &[&object, &"./libgtest.so", &rpath, &"-s"]);
    symlink(world.path("pie"), world.path("link")).unwrap();
    let programs =
        ["pie", "no-pie", "stripped", "static", "static-stripped", "shared", "shared-stripped", "link"];
    for program in programs {
        assert_eq!(frameworks(&world, &[program]), ["gtest"], "{program}");
    }
    // A directory search finds these programs and skips the library.
    assert_eq!(frameworks(&world, &["."]), ["gtest"]);
}

#[test]
fn recognition_finds_the_other_frameworks_also_in_stripped_programs() {
    let world = TestWorld::new();
    link(&world, "boost-shared", &[&object("boost.cc"), &"-lboost_unit_test_framework"]);
    let programs = [
        ("boost", Some(boost("kinds")), "boost"),
        ("boost-shared", None, "boost"),
        ("doctest", Some(doctest("kinds")), "doctest"),
        ("catch2-v2", catch2("kinds", Catch2Version::Two), "catch2-v2"),
        ("catch2-v3", catch2("kinds", Catch2Version::Three), "catch2"),
        ("libtest", Some(crate::support::fixtures::libtest()), "libtest"),
    ];
    for (name, from, framework) in programs {
        if let Some(from) = from {
            copy_program(&from, &world.path(name));
        } else if !world.path(name).exists() {
            continue;
        }
        assert_eq!(frameworks(&world, &[name]), [framework], "{name}");
        succeed(Command::new("strip").arg(world.path(name)), "strip comes with g++");
        assert_eq!(frameworks(&world, &[name]), [framework], "{name}, stripped");
    }
}

fn place(world: &TestWorld, from: &Path, name: &str) {
    copy_program(from, &world.path(name));
}

fn tool() -> PathBuf {
    let source = source("tool.cc");
    built("recognition-tool", &[&source], |target| {
        succeed(Command::new("g++").arg("-o").arg(target).arg(&source), HINT);
    })
}

#[test]
fn recognition_starts_nothing_that_has_no_mark_of_a_framework() {
    let world = TestWorld::new();
    place(&world, &tool(), "tool");
    let ran = world.run(&["list", "tool"]).assert_code(4);
    ran.assert_stderr("tool contains no known test framework and is not run to detect one");
    ran.assert_stderr("looked for: GoogleTest, Rust test, doctest, Catch2, Catch2 2, Boost.Test, Microsoft Testing Platform");
    ran.assert_stderr("--framework, or framework in heeler.toml: gtest, ");
    // A suite without a framework gets the same error. If the framework is configured, Heeler trusts it.
    world.write("heeler.toml", "[[suite]]\nname = \"tools\"\nprograms = [\"tool\"]\n");
    world.run(&["list"]).assert_code(4).assert_stderr("contains no known test framework");
    assert!(!world.path("started").exists());
    world.write(
        "heeler.toml",
        "[[suite]]\nname = \"tools\"\nprograms = [\"tool\"]\nframework = \"command\"\n",
    );
    assert_eq!(frameworks(&world, &[]), ["command"]);
    assert!(!world.path("started").exists(), "a command is listed without a start");
    world.run(&["run"]).assert_code(0);
    assert!(world.path("started").exists());
}

#[test]
fn recognition_starts_no_script_whatever_it_mentions() {
    let world = TestWorld::new();
    world.write_program(
        "script",
        "#!/bin/sh\ntouch started\nexec ./unit --gtest_list_tests --test-threads --include-ignored\n",
    );
    let ran = world.run(&["list", "script"]).assert_code(4);
    ran.assert_stderr("is a script and is not run to detect its framework; if it runs tests, set");
    world.write_program("empty", "");
    world.run(&["list", "empty"]).assert_code(4).assert_stderr("is an empty file, not a test program");
    world.write("text", "gtest_list_tests");
    world.run(&["list", "text"]).assert_code(4).assert_stderr("text is not executable");
    symlink("nowhere", world.path("dangling")).unwrap();
    let ran = world.run(&["list", "./dangling"]).assert_code(4);
    ran.assert_stderr("it is a broken symbolic link to nowhere");
    let ran = world.run(&["list", "./dangling", "script"]).assert_code(4);
    ran.assert_stderr("dangling is a symbolic link to nowhere, which does not exist");
    place(&world, &gtest("kinds"), "locked");
    fs::set_permissions(world.path("locked"), fs::Permissions::from_mode(0o600)).unwrap();
    world.run(&["list", "locked"]).assert_code(4).assert_stderr("locked is not executable");
    assert!(!world.path("started").exists());
}

#[test]
fn recognition_starts_no_tool_that_knows_all_frameworks() {
    let world = TestWorld::new();
    let heeler = env!("CARGO_BIN_EXE_heeler");
    let ran = world.run(&["list", heeler]).assert_code(4);
    ran.assert_stderr("mentions several test frameworks (GoogleTest, Rust test, doctest, Catch2");
    ran.assert_stderr("as test tools do, and is not run to detect its own");
    fs::create_dir(world.path("build")).unwrap();
    place(&world, Path::new(heeler), "build/heeler");
    let ran = world.run(&["list", "build"]).assert_code(4);
    ran.assert_stderr("no executable there contains a known test framework");
    // Heeler can still be named explicitly as an application.
    place(&world, &gtest("kinds"), "kinds");
    assert_eq!(frameworks(&world, &["--mtp", &format!("{heeler} ./kinds"), "-E", "Math"]), ["mtp"]);
}

#[test]
fn recognition_tells_tests_of_a_tool_from_the_tool_by_their_functions() {
    let world = TestWorld::new();
    // This test binary mentions all frameworks, but contains the functions of only one.
    let own = env::current_exe().unwrap();
    let ran = world.run(&["list", own.to_str().unwrap()]).assert_code(0);
    ran.line_with(&["e2e", "tests, libtest"]);
    ran.assert_stdout("recognition_tells_tests_of_a_tool_from_the_tool_by_their_functions");
}

#[test]
fn recognition_of_two_frameworks_in_one_program_is_told_and_can_be_overridden() {
    let world = TestWorld::new();
    let objects = [object("gtest.cc"), object("doctest.cc")];
    link(&world, "both", &[&objects[0], &objects[1], &"-lgtest_main", &"-lgtest", &"-lpthread"]);
    let ran = world.run(&["list", "both"]).assert_code(0);
    let all = format!("{}{}", ran.stdout, ran.stderr);
    let told = "both contains GoogleTest and doctest, using GoogleTest; to choose another, set --framework";
    assert!(all.contains(told), "{ran}");
    ran.line_with(&["both", "1 test, gtest"]);
    // With `--framework`, Heeler tries only that framework and does not report the ambiguity.
    let ran = world.run(&["list", "both", "--framework", "gtest"]).assert_code(0);
    assert!(!format!("{}{}", ran.stdout, ran.stderr).contains("contains GoogleTest"), "{ran}");
}

#[test]
fn recognition_contradicts_a_wrong_framework_and_names_the_right_one() {
    let world = TestWorld::new();
    place(&world, &gtest("kinds"), "kinds");
    place(&world, &doctest("kinds"), "cases");
    for (program, wrong, right) in [
        ("kinds", "boost", "gtest"),
        ("kinds", "libtest", "gtest"),
        ("kinds", "json-lines", "gtest"),
        ("cases", "catch2", "doctest"),
        ("cases", "gtest", "doctest"),
    ] {
        let ran = world.run(&["list", program, "--framework", wrong]).assert_code(4);
        let note = format!(
            "the framework is set to {wrong}, but the program contains {right}: set the right one, or remove the setting"
        );
        ran.assert_stderr(&note);
    }
    place(&world, &tool(), "tool");
    let ran = world.run(&["list", "tool", "--framework", "json-lines"]).assert_code(4);
    ran.assert_stderr("it wrote nothing to its report channel");
    ran.assert_stderr("no known test framework in this program");
    let ran = world.run(&["list", "tool", "--framework", "unittest"]).assert_code(4);
    ran.assert_stderr("unknown framework \"unittest\" (available: gtest, ");
}

#[test]
fn list_shows_frameworks_places_tags_and_that_parts_are_unknown() {
    let world = TestWorld::new();
    let Some(program) = catch2("kinds", Catch2Version::Two) else { return };
    place(&world, &program, "cases");
    place(&world, &gtest("kinds"), "kinds");
    let ran = world.run_with_separate_outputs(&["list", "cases", "kinds"]).assert_code(0);
    ran.line_with(&["cases", "catch2-v2, subtests are listed after a run"]);
    let line = ran.line_with(&["kinds", "tests, gtest"]);
    assert!(!line.contains("parts"), "{line}");
    let ran = world.run_with_separate_outputs(&["list", "cases", "kinds", "--format", "json"]).assert_code(0);
    let nodes: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap();
    for node in &nodes {
        let framework = node["heeler.framework"].as_str().unwrap();
        let is_catch2 = node["heeler.suite"] == "cases";
        assert_eq!(framework, if is_catch2 { "catch2-v2" } else { "gtest" }, "{node:#}");
        assert_eq!(node["heeler.may-have-parts"], is_catch2, "{node:#}");
        assert!(node["location.file"].is_string() || !is_catch2 || node["location.file"].is_null());
    }
    let example = |name: &str| format!("{}/examples/json-lines/{name}", env!("CARGO_MANIFEST_DIR"));
    let words =
        ["list", &example("adapter.sh"), "--framework", "json-lines", "--", &example("shell_tests.sh")];
    let ran = world.run(&words).assert_code(0);
    ran.line_with(&["adapter", "5 tests, json-lines, subtests are listed after a run"]);
    let fixture = fixtures().join("json-lines/broken.py");
    let toml = format!(
        "[[suite]]\nname = \"lines\"\nprograms = [\"/usr/bin/env\"]\nargs = [\"python3\", \"-S\", {fixture:?}, \"none\"]\nframework = \"json-lines\"\n"
    );
    world.write("heeler.toml", &toml);
    world.run(&["list"]).assert_code(0).line_with(&["test 0", "[quick]"]);
}
