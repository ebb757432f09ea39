//! Commands that users of cargo and cargo-nextest type in their projects.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use crate::support::{
    fixtures,
    world::{TestWorld, copy_program, run},
};

/// Returns a world with `cargo-heeler` in `PATH`, as after `cargo install`.
fn world_with_cargo_heeler() -> TestWorld {
    let world = TestWorld::with_libtest();
    fs::create_dir(world.path("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_cargo-heeler"), world.path("bin/cargo-heeler")).unwrap();
    add_to_path(&world);
    world
}

fn add_to_path(world: &TestWorld) {
    let path = std::env::var("PATH").unwrap();
    world.env("PATH", &format!("{}:{path}", world.path("bin").display()));
}

#[test]
fn no_run_builds_and_lists_tests_and_starts_none() {
    let world = TestWorld::with_libtest();
    world.gtest("kinds");
    world.note_starts();
    let ran = world.run(&["run", "libtest", "kinds", "--no-run", "-E", "a_adds", "-E", "Math.*"]);
    let ran = ran.assert_code(0);
    ran.line_with(&["program", "libtest", "1 test", "  libtest"]);
    ran.line_with(&["No run", " in 2 programs, built and listed but not run (", "filtered out)"]);
    assert!(world.starts().is_empty(), "{:?}", world.starts());
    let runs = world.run(&["runs", "--format", "names"]);
    assert!(runs.stdout.is_empty(), "{runs}");
    world.write_program("broken", "#!/bin/sh\nexit 3\n");
    let words = ["run", "libtest", "broken", "--framework", "libtest", "--no-run"];
    world.run(&words).assert_code(4).line_with(&["error", "broken"]);
    // Cargo builds the package and prints its progress.
    world.env("CARGO_TARGET_DIR", env!("CARGO_TARGET_TMPDIR"));
    let package = fixtures::libtest_crate();
    let ran = world.run(&["run", "--cargo", package.to_str().unwrap(), "--no-run"]).assert_code(0);
    ran.line_with(&["program", "/deps/"]);
}

#[test]
fn cargo_starts_heeler_as_its_subcommand() {
    let world = world_with_cargo_heeler();
    let cargo = |words: &[&str]| run(world.command(Command::new(env!("CARGO")), words));
    cargo(&["heeler", "--version"])
        .assert_code(0)
        .assert_stdout(concat!("heeler ", env!("CARGO_PKG_VERSION")));
    let ran = cargo(&["heeler", "run", "libtest", "-E", "a_adds", "-E", "c_fails"]).assert_code(2);
    ran.line_with(&["PASS", "a_adds"]);
    ran.line_with(&["FAIL", "c_fails"]);
    // `cargo-heeler` also works when started directly with the arguments that Cargo passes.
    let words = ["heeler", "run", "libtest", "-E", "a_adds"];
    let direct = world.command(Command::new(world.path("bin/cargo-heeler")), &words);
    run(direct).assert_code(0).line_with(&["PASS", "a_adds"]);
    world.check_tidy();
}

#[test]
fn cargo_subcommand_without_its_program_says_so() {
    let world = TestWorld::new();
    fs::create_dir(world.path("bin")).unwrap();
    copy_program(Path::new(env!("CARGO_BIN_EXE_cargo-heeler")), &world.path("bin/cargo-heeler"));
    add_to_path(&world);
    let ran = run(world.command(Command::new(env!("CARGO")), &["heeler", "run"]));
    ran.assert_code(4).assert_stderr("cargo-heeler needs the program heeler in the same directory");
}

const MANIFEST: &str = "[workspace]\n[package]\nname = \"documented\"\nversion = \"0.1.0\"\nedition = ";
const DOCUMENTED: &str = r#"/// One.
///
/// ```
/// println!("said by a doctest");
/// assert_eq!(documented::one(), 1);
/// ```
///
/// ```
/// println!("said before it fails");
/// assert_eq!(documented::one(), 2, "one is not two");
/// ```
///
/// ```ignore
/// nothing
/// ```
///
/// ```no_run
/// loop {}
/// ```
///
/// ```compile_fail
/// let number: u8 = "a";
/// ```
///
/// ```compile_fail
/// let text = "a";
/// ```
///
/// ```should_panic
/// panic!("wanted");
/// ```
///
/// ```standalone_crate
/// std::process::abort();
/// ```
pub fn one() -> u8 {
    1
}

#[test]
fn unit() {}
"#;

/// Returns a world with a package `documented`.
fn documented(edition: &str) -> TestWorld {
    let world = TestWorld::new();
    fs::create_dir_all(world.path("documented/src")).unwrap();
    world.write("documented/Cargo.toml", &format!("{MANIFEST}\"{edition}\"\n"));
    world.write("documented/src/lib.rs", DOCUMENTED);
    world
}

#[test]
fn doctests_of_a_package_are_tests() {
    // rustdoc compiles doctests of edition 2024 together, others one by one.
    for edition in ["2024", "2021"] {
        let world = documented(edition);
        let ran = world.run(&["run", "--cargo", "documented", "-j", "1"]).assert_code(2);
        for line in [3, 17, 21, 29] {
            ran.line_with(&["PASS", &format!("src/lib.rs - one (line {line})")]);
        }
        ran.line_with(&["FAIL", "src/lib.rs - one (line 8)"]);
        ran.assert_stdout("one is not two").assert_stdout("said before it fails");
        ran.assert_stdout("marked `compile_fail`").assert_stdout("signal: 6 (SIGABRT)");
        ran.line_with(&["PASS", "unit"]);
        ran.line_with(&["Summary", "5 passed, 3 failed, 1 skipped"]);
        let ran = world.run(&["run", "--cargo", "documented", "--run-ignored", "only"]);
        // rustdoc decides the result: with edition 2024, the test passes uncompiled.
        let (label, code) = if edition == "2024" { ("PASS", 0) } else { ("FAIL", 2) };
        ran.line_with(&[label, "1/1", "src/lib.rs - one (line 13)"]);
        ran.assert_code(code);
        // Another test's line number also ends in 3: the filter must not match it.
        let words = ["run", "--cargo", "documented", "-E", r"test(=src/lib.rs - one \(line 3\))"];
        world.run(&words).assert_code(0).assert_stdout("1 passed");
        let ran =
            world.run(&["run", "--cargo", "documented", "--doc", "-E", r"test(line 8\))"]).assert_code(2);
        ran.assert_stdout("1 failed");
    }
}

#[test]
fn short_library_costs_one_listing_and_one_rustdoc() {
    for edition in ["2024", "2021"] {
        let world = documented(edition);
        let tests: String = (0..3)
            .map(|number| {
                format!("/// ```\n/// assert_eq!({number}, {number});\n/// ```\npub fn f{number}() {{}}\n")
            })
            .collect();
        world.write("documented/src/lib.rs", &tests);
        let script = "#!/bin/sh\ncase \" $* \" in *' --test '*) echo \"$*\" >> \"$STARTS\";; esac\nexec rustdoc \"$@\"\n";
        world.write_program("counted-rustdoc", script);
        world.env("STARTS", world.path("rustdocs").to_str().unwrap());
        world.env("RUSTDOC", world.path("counted-rustdoc").to_str().unwrap());
        world.run(&["run", "--cargo", "documented", "--doc", "-j4"]).assert_code(0).assert_stdout("3 passed");
        let starts = world.read("rustdocs");
        assert_eq!(starts.lines().count(), 2, "{starts}");
        assert!(starts.lines().next().unwrap().contains("--merge-doctests no"), "{starts}");
    }
}

#[test]
fn doctests_without_capture_show_nothing_of_their_harness() {
    let world = documented("2024");
    let words = ["run", "--cargo", "documented", "--doc", "--no-capture", "-E", r"test(line 3\))"];
    let ran = world.run_with_separate_outputs(&words).assert_code(0);
    ran.assert_stderr("START").assert_stderr("(line 3)");
    for own in ["running 1 test", "test result", "all doctests ran"] {
        assert!(!ran.stdout.contains(own), "{ran}");
    }
}

#[test]
fn examples_and_benchmarks_are_targets_as_with_cargo() {
    let world = documented("2024");
    for (directory, test) in [("examples", "of_example"), ("benches", "of_benchmark")] {
        fs::create_dir(world.path(&format!("documented/{directory}"))).unwrap();
        let source = format!("fn main() {{}}\n#[test]\nfn {test}() {{}}\n");
        world.write(&format!("documented/{directory}/target.rs"), &source);
    }
    let run = |words: &[&str]| {
        let ran = world.run(&[&["run", "--cargo", "documented"], words].concat()).assert_code(0);
        let names = ["unit", "of_example", "of_benchmark"];
        names.into_iter().filter(|name| ran.stdout.contains(&format!(" {name}\n"))).collect::<Vec<_>>()
    };
    assert_eq!(run(&["--examples"]), ["of_example"]);
    assert_eq!(run(&["--example", "target"]), ["of_example"]);
    assert_eq!(run(&["--bench", "target"]), ["of_benchmark"]);
    assert_eq!(run(&["--all-targets"]), ["unit", "of_example", "of_benchmark"]);
}

#[test]
fn library_whose_manifest_forbids_doctests_has_none_unless_they_are_asked_for() {
    let world = TestWorld::new();
    world.write("Cargo.toml", "[workspace]\nmembers = [\"with\", \"without\"]\nresolver = \"3\"\n");
    for (name, lib) in [("with", ""), ("without", "[lib]\ndoctest = false\n")] {
        let package = format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
        fs::create_dir_all(world.path(&format!("{name}/src"))).unwrap();
        world.write(&format!("{name}/Cargo.toml"), &(package + lib));
        world.write(&format!("{name}/src/lib.rs"), "/// ```\n/// assert!(true);\n/// ```\npub fn one() {}\n");
    }
    let listed = |options: &[&str]| {
        let listing =
            world.run(&[&["list", "--cargo", ".", "--workspace", "--format", "names"], options].concat());
        let mut suites: Vec<_> = listing.stdout.lines().filter_map(|line| line.split(' ').next()).collect();
        suites.sort_unstable();
        suites.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(listed(&[]), ["with::doc/with::with/src/lib.rs"]);
    assert_eq!(
        listed(&["--doc"]),
        ["with::doc/with::with/src/lib.rs", "without::doc/without::without/src/lib.rs"]
    );
}

#[test]
fn test_with_a_main_of_its_own_is_judged_by_its_exit_code() {
    let world = TestWorld::new();
    let target = |name: &str| format!("[[test]]\nname = \"{name}\"\nharness = false\n");
    let manifest = "[workspace]\n[package]\nname = \"own\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    fs::create_dir_all(world.path("src")).unwrap();
    fs::create_dir_all(world.path("tests")).unwrap();
    world.write("Cargo.toml", &format!("{manifest}{}{}", target("good"), target("bad")));
    world.write("src/lib.rs", "#[test]\nfn unit() {}\n");
    // The test leaves a file, so that a start without a run is seen.
    let started = "fn main() { std::fs::write(\"started\", \"\").unwrap(); println!(\"three checks\"); }\n";
    world.write("tests/good.rs", started);
    world.write("tests/bad.rs", "fn main() { panic!(\"two of three\"); }\n");
    let listed = world.run(&["list", "--cargo", "."]).assert_code(0);
    listed.line_with(&["own::good", "1 test, command"]);
    assert!(!world.path("started").exists(), "a listing starts no test: {listed}");
    let ran = world.run(&["run", "--cargo", ".", "--status-level", "all"]).assert_code(2);
    assert!(world.path("started").exists(), "{ran}");
    ran.assert_stdout("2 passed, 1 failed");
    ran.line_with(&["PASS", "own::good good"]);
    ran.line_with(&["FAIL", "own::bad bad"]);
    ran.assert_stdout("two of three");
    let cargo =
        std::process::Command::new(env!("CARGO")).arg("test").current_dir(world.dir()).output().unwrap();
    assert!(!cargo.status.success(), "cargo judges the same");
}

#[test]
fn doctests_are_left_out_on_request() {
    let world = documented("2024");
    let ran = world.run(&["run", "--cargo", "documented", "--no-doc"]).assert_code(0);
    ran.assert_stdout("1 passed");
    ran.line_with(&["Note", "documentation tests were not run (--no-doc)"]);
    // As with Cargo, selecting a target also leaves out the doctests.
    let ran = world.run(&["run", "--cargo", "documented", "--lib"]).assert_code(0);
    ran.assert_stdout("1 passed");
    assert!(!ran.stdout.contains("not run"), "{ran}");
}
