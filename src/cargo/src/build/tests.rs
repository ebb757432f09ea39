//! Tests with recorded cargo messages, and with cargo itself.

use std::{collections::HashMap, os::fd::AsFd as _, path::Path};

use heeler_sys::process::Signal;

use super::*;
use crate::{tool_process::OutputTail, tools::run_build_command};

const BUILD: &str = include_str!("../testdata/build.jsonl");
const METADATA: &str = include_str!("../testdata/metadata.json");

fn read(messages: &str, surroundings: &CargoEnvironmentInputs) -> Vec<CargoProgram> {
    let mut read = CargoMessages::default();
    messages.lines().for_each(|line| read.record_line(line.as_bytes()));
    read.into_programs(surroundings)
}

fn artifact(package_id: &str, kind: &str, target: &str) -> String {
    serde_json::json!({
        "reason": "compiler-artifact", "package_id": package_id, "manifest_path": "/w/p/Cargo.toml",
        "target": {"kind": [kind], "name": target, "src_path": "/w/p/src/x.rs"},
        "profile": {"opt_level": "0", "debug_assertions": true, "overflow_checks": true, "test": true},
        "features": [], "filenames": [], "executable": format!("/w/target/debug/deps/{target}-1"), "fresh": true,
    })
    .to_string()
}

fn variables(program: &CargoProgram) -> HashMap<&str, &str> {
    program.env.iter().map(|(name, value)| (name.to_str().unwrap(), value.to_str().unwrap())).collect()
}

#[test]
fn test_programs_are_named_by_package_and_target() {
    let programs = read(BUILD, &CargoEnvironmentInputs::default());
    let names: Vec<&str> = programs.iter().map(|program| program.suite.as_str()).collect();
    assert_eq!(names, ["probe-pkg", "probe-pkg::bin/tool", "probe-pkg::it"]);
    assert_eq!(programs[2].path, Path::new("/home/me/probe/target/debug/deps/it-f856b63e95043302"));
    assert!(programs.iter().all(|program| program.cwd == Path::new("/home/me/probe")));
}

#[test]
fn suite_name_follows_each_package_id_form() {
    for (id, kind, name) in [
        ("path+file:///w/kennel#0.1.0", "lib", "kennel"),
        ("path+file:///w/dir#kennel@0.1.0", "proc-macro", "kennel"),
        ("path+file:///w/dir#kennel@0.1.0-a+b", "test", "kennel::x"),
        ("git+https://host/r/kennel.git?rev=1#kennel@0.1.0", "bench", "kennel::bench/x"),
        ("registry+https://host/index#kennel@0.1.0", "example", "kennel::example/x"),
        ("git+https://host/r/kennel?branch=a/b#0.1.0", "rlib", "kennel"),
    ] {
        assert_eq!(read(&artifact(id, kind, "x"), &CargoEnvironmentInputs::default())[0].suite, name, "{id}");
    }
}

#[test]
fn package_versions_get_distinct_suite_names() {
    let both =
        ["path+file:///a/x#1.0.0", "path+file:///b/x#2.0.0"].map(|id| artifact(id, "lib", "x")).join("\n");
    let names: Vec<String> =
        read(&both, &CargoEnvironmentInputs::default()).into_iter().map(|one| one.suite).collect();
    assert_eq!(names, ["x@1.0.0", "x@2.0.0"]);
}

#[test]
fn irrelevant_lines_are_ignored() {
    for line in [
        "",
        "warning: x",
        "[1]",
        "{}",
        "{\"reason\":\"compiler-artifact\"}",
        "{\"reason\":\"new\",\"package_id\":1}",
    ] {
        assert_eq!(read(line, &CargoEnvironmentInputs::default()), []);
    }
}

#[test]
fn unreadable_message_about_a_test_program_is_an_error() {
    let mut messages = CargoMessages::default();
    let whole = artifact("path+file:///w/kennel#0.1.0", "test", "x");
    messages.record_line(whole.replace("\"fresh\":true", "\"fresh\":7").as_bytes());
    assert!(messages.take_error().is_some_and(|error| error.is_data()));
    messages.record_line(whole.as_bytes());
    assert!(messages.take_error().is_none());
}

/// The expected values are those set by cargo 1.95 for this test program, without cargo's own settings and
/// rustup's.
#[test]
fn test_environment_equals_that_of_cargo_test() {
    let surroundings = CargoEnvironmentInputs {
        metadata: serde_json::from_str(METADATA).unwrap(),
        libdir: Some("/rust/lib".into()),
        library_path: Some("/own:/rust/lib".into()),
        cargo: Some("/rust/bin/cargo".into()),
    };
    let programs = read(BUILD, &surroundings);
    let out = "/home/me/probe/target/debug/build/probe-pkg-7529069043a46c8b/out";
    let libraries =
        format!("{out}:/home/me/probe/target/debug:/home/me/probe/target/debug/deps:/rust/lib:/own");
    let expected = HashMap::from([
        ("CARGO", "/rust/bin/cargo"),
        ("CARGO_BIN_EXE_tool", "/home/me/probe/target/debug/tool"),
        ("CARGO_MANIFEST_DIR", "/home/me/probe"),
        ("CARGO_MANIFEST_PATH", "/home/me/probe/Cargo.toml"),
        ("CARGO_PKG_AUTHORS", "A <a@b>:C"),
        ("CARGO_PKG_DESCRIPTION", "two\nlines"),
        ("CARGO_PKG_HOMEPAGE", ""),
        ("CARGO_PKG_LICENSE", "MIT"),
        ("CARGO_PKG_LICENSE_FILE", ""),
        ("CARGO_PKG_NAME", "probe-pkg"),
        ("CARGO_PKG_README", ""),
        ("CARGO_PKG_REPOSITORY", "https://x"),
        ("CARGO_PKG_RUST_VERSION", "1.90"),
        ("CARGO_PKG_VERSION", "1.2.3-beta.4"),
        ("CARGO_PKG_VERSION_MAJOR", "1"),
        ("CARGO_PKG_VERSION_MINOR", "2"),
        ("CARGO_PKG_VERSION_PATCH", "3"),
        ("CARGO_PKG_VERSION_PRE", "beta.4"),
        ("FROM_BUILD", "yes"),
        ("LD_LIBRARY_PATH", libraries.as_str()),
        ("OUT_DIR", out),
    ]);
    assert_eq!(variables(&programs[2]), expected);
    assert!(
        !variables(&programs[0]).contains_key("CARGO_BIN_EXE_tool"),
        "a library's tests have no programs"
    );
}

/// Creates a package in a directory outside this package's workspace.
fn package_with(test: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let manifest = "[workspace]\n[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    std::fs::write(dir.path().join("Cargo.toml"), manifest).unwrap();
    std::fs::create_dir(dir.path().join("src")).unwrap();
    std::fs::write(dir.path().join("src/lib.rs"), test).unwrap();
    dir
}

#[test]
fn sample_package_is_built_and_its_programs_found() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples").canonicalize().unwrap();
    let programs = CargoBuild::start(&samples, &["--quiet".to_owned()], BuildSupervision::default())
        .unwrap()
        .finish()
        .unwrap()
        .programs;
    let names: Vec<&str> = programs.iter().map(|program| program.suite.as_str()).collect();
    assert_eq!(names, ["kennel", "kennel::night_watch", "kennel::roll_call"]);
    for program in &programs {
        assert!(program.path.is_file());
        assert_eq!(program.cwd, samples);
        let variables = variables(program);
        assert_eq!(variables["CARGO_PKG_DESCRIPTION"], "Sheep, dogs and what they eat");
        assert!(variables["LD_LIBRARY_PATH"].contains("/rustlib/"), "{}", variables["LD_LIBRARY_PATH"]);
    }
}

#[test]
fn compile_error_names_the_command() {
    let dir = package_with("fn broken( {");
    let error = CargoBuild::start(dir.path(), &["--quiet".to_owned()], BuildSupervision::default())
        .unwrap()
        .finish()
        .unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with("`cargo test --no-run --message-format"), "{message}");
    assert!(message.ends_with(" (exit code 101)"), "{message}");
}

#[test]
fn killed_build_reports_its_signal() {
    let dir = package_with("");
    std::fs::write(dir.path().join("build.rs"), "fn main() { loop { std::thread::park() } }").unwrap();
    let build = CargoBuild::start(dir.path(), &["--quiet".to_owned()], BuildSupervision::default()).unwrap();
    heeler_sys::process::kill_group(build.cargo.child.pid(), Signal::KILL).unwrap();
    let message = build.finish().unwrap_err().to_string();
    assert!(message.ends_with(" (SIGKILL)"), "{message}");
}

#[test]
fn package_without_tests_has_a_test_program() {
    let dir = package_with("");
    let programs = CargoBuild::start(dir.path(), &["--quiet".to_owned()], BuildSupervision::default())
        .unwrap()
        .finish()
        .unwrap()
        .programs;
    assert_eq!(programs.len(), 1);
}

#[test]
fn build_command_result_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        run_build_command(&words, dir.path(), BuildSupervision::default()).map_err(|error| error.to_string())
    };
    assert_eq!(run(&["touch", "made"]), Ok(()));
    assert!(dir.path().join("made").is_file());
    let failed = format!("`false` failed in {} (exit code 1)", dir.path().display());
    assert_eq!(run(&["false"]), Err(failed));
    assert_eq!(run(&["no-such-tool"]), Err("no-such-tool not found in PATH; is it installed?".to_owned()));
    assert_eq!(run(&["./none.sh"]), Err("can't start `none.sh`".to_owned()));
}

#[test]
fn build_that_leaves_a_process_behind_ends_with_its_own_exit() {
    let dir = tempfile::tempdir().unwrap();
    // The process keeps both outputs open in a session of its own, like a daemon.
    let words = ["sh", "-c", "setsid sleep 1000 & echo $! > pid; echo done"].map(str::to_owned);
    let tail = OutputTail::default();
    let supervision = BuildSupervision { tail: Some(&tail), ..BuildSupervision::default() };
    let built = run_build_command(&words, dir.path(), supervision);
    let pid = std::fs::read_to_string(dir.path().join("pid")).unwrap().trim().parse().unwrap();
    assert!(heeler_sys::process::kill_child(heeler_sys::process::Pid(pid)));
    assert!(built.is_ok(), "{built:?}");
    assert_eq!(tail.text(), "done");
}

#[test]
fn cancelled_build_leaves_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let words = ["sh", "-c", "sleep 1000 & echo $! > part; mv part pid; wait"].map(str::to_owned);
    let (cancelled, running) = heeler_sys::io::pipe().unwrap();
    let pid_file = dir.path().join("pid");
    let canceller = std::thread::spawn(move || {
        while !pid_file.exists() {
            std::thread::yield_now();
        }
        drop(running);
        std::fs::read_to_string(pid_file).unwrap().trim().parse().unwrap()
    });
    let tail = OutputTail::default();
    let supervision = BuildSupervision {
        tail: Some(&tail),
        cancelled: Some(cancelled.as_fd()),
        ..BuildSupervision::default()
    };
    let error = run_build_command(&words, dir.path(), supervision).unwrap_err().to_string();
    assert!(error.starts_with("`sh -c ") && error.ends_with("` was cancelled"), "{error}");
    let pid = heeler_sys::process::Pid(canceller.join().unwrap());
    let is_gone = || heeler_sys::process::stat(pid).is_none_or(|stat| stat.state == 'Z');
    while !is_gone() {
        std::thread::yield_now();
    }
}

#[test]
fn failed_build_keeps_the_end_of_its_output() {
    let dir = tempfile::tempdir().unwrap();
    let script = "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; echo the error >&2; exit 2";
    let words = ["sh", "-c", script].map(str::to_owned);
    let tail = OutputTail::default();
    let supervision = BuildSupervision { tail: Some(&tail), ..BuildSupervision::default() };
    run_build_command(&words, dir.path(), supervision).unwrap_err();
    let text = tail.text();
    assert!(text.len() <= 8 << 10 && text.contains("line 1999") && !text.contains("line 10\n"), "{text}");
    assert!(text.contains("the error"), "{text}");
}
