//! Runs that were copied, unpacked or edited: Heeler reads them, but never starts a program that only they
//! name.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::support::world::TestWorld;

/// Returns the directory of the newest run.
fn newest_run(world: &TestWorld) -> PathBuf {
    let listed = world.run(&["runs", "--format", "json"]).assert_code(0);
    let all: Value = serde_json::from_str(&listed.stdout).unwrap();
    all.as_array().unwrap().last().unwrap()["directory"].as_str().unwrap().into()
}

fn name_of(run: &Path) -> String {
    run.file_name().unwrap().to_str().unwrap().to_owned()
}

fn copy_all(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}

/// Edits the origin in a run's manifest.
fn edit_origin(run: &Path, edit: impl FnOnce(&mut Value)) {
    let path = run.join("manifest.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let (head, plan) = text.split_once('\n').unwrap();
    let mut head: Value = serde_json::from_str(head).unwrap();
    edit(&mut head["origin"]);
    // Heeler writes the `format` member first.
    let mut members = head.as_object().unwrap().clone();
    members.remove("format");
    let rest = serde_json::to_string(&members).unwrap();
    fs::write(&path, format!("{{\"format\":\"heeler-manifest\",{}\n{plan}", &rest[1..])).unwrap();
}

/// Returns a world that contains a run copied from another machine, and the run's path.
fn world_with_copy() -> (TestWorld, PathBuf) {
    let other = TestWorld::with_gtest("kinds");
    other.run(&["run", "kinds", "-E", "Math.*"]).assert_code(2);
    let world = TestWorld::new();
    copy_all(&other.path(".heeler"), &world.path(".heeler"));
    let run = newest_run(&world);
    assert!(run.starts_with(world.dir()));
    (world, run)
}

/// Writes a project of Cargo, of Go and of pytest below a directory of the world.
fn write_projects(world: &TestWorld, directory: &str) {
    fs::create_dir_all(world.path(&format!("{directory}/crate/src"))).unwrap();
    let write = |name: &str, text: &str| world.write(&format!("{directory}/{name}"), text);
    write("crate/Cargo.toml", "[package]\nname = \"innocent\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    write("crate/src/lib.rs", "#[test]\nfn passes() {}\n");
    write("go.mod", "module example.com/innocent\n\ngo 1.19\n");
    write("a_test.go", "package a\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {}\n");
    write("test_a.py", "def test_a(): pass\n");
}

/// Returns a source of each kind that would execute a program. The program leaves a file behind. The projects
/// are too deep to be found by a `heeler run` that names none.
fn hostile_sources(world: &TestWorld) -> Vec<(&'static str, Value)> {
    world.write_program("evil", "#!/bin/sh\ntouch \"$(dirname \"$0\")/executed\"\nexit 0\n");
    write_projects(world, "a/b/c");
    let (here, evil) = (world.path("a/b/c"), world.path("evil"));
    let (here, evil) = (here.to_str().unwrap(), evil.to_str().unwrap());
    let package = format!("{here}/crate");
    let wrapper = format!("build.rustc-wrapper={evil:?}");
    let source = |name: &str, arguments: &[&str]| json!({ "source": name, "arguments": arguments });
    vec![
        ("programs", source("programs", &[evil])),
        ("cargo", source("cargo", &[&package, "--config", &wrapper, "--no-doc"])),
        ("mcp", source("mcp", &[here, evil])),
        ("mtp", source("mtp", &[here, evil])),
        ("pytest", source("pytest", &[here, "test_a.py", evil])),
        ("go", source("go", &[here, "./...", "--", &format!("-toolexec={evil}")])),
        ("command", source("command", &[here, evil])),
    ]
}

#[test]
fn copied_run_decides_nothing_that_is_executed() {
    let (world, run) = world_with_copy();
    let name = name_of(&run);
    let sources = hostile_sources(&world);
    let executed = || world.path("executed").exists();
    for (kind, source) in &sources {
        edit_origin(&run, |origin| {
            origin["sources"] = json!([source]);
            origin["framework"] = if *kind == "programs" { json!("command") } else { Value::Null };
        });
        for word in ["failed", "not-run", "latest"] {
            let ran = world.run(&["run", "--rerun", word]).assert_code(4);
            ran.assert_stderr("was recorded by this user on this machine").assert_stderr(&name);
            assert!(!executed(), "{kind}: {word}");
        }
        let ran = world.run(&["run", "--rerun", &name]).assert_code(4);
        ran.assert_stderr("are not started, because the run was copied here").assert_stderr(&name);
        assert!(!executed(), "{kind}");
    }
    // The program leaves its file if the user names it, so the check above works.
    world.run(&["run", "--framework", "command", "evil"]).assert_code(0);
    assert!(executed());
}

#[test]
fn copied_run_selects_tests_of_the_projects_found_here() {
    let (world, run) = world_with_copy();
    hostile_sources(&world);
    let evil = world.path("evil");
    edit_origin(&run, |origin| {
        origin["sources"] = json!([{ "source": "programs", "arguments": [evil] }]);
        origin["framework"] = json!("command");
    });
    write_projects(&world, ".");
    let ran = world.run(&["run", "--rerun", &name_of(&run)]).assert_code(8);
    ran.assert_stdout("Found pytest").assert_stdout("the 2 remaining tests of that run no longer exist");
    assert!(!world.path("executed").exists());
}

#[test]
fn copied_run_selects_tests_by_name_and_passes_no_arguments() {
    let (world, run) = world_with_copy();
    world.gtest("kinds");
    edit_origin(&run, |origin| {
        origin["program-args"] = json!(["--gtest_output=xml:written.xml"]);
        origin["framework"] = json!("command");
    });
    let ran = world.run(&["run", "kinds", "--rerun", &name_of(&run)]).assert_code(2);
    ran.assert_stdout("(a copy: only its test names are used)").assert_stdout("2 tests");
    assert!(!world.path("written.xml").exists());
    // The rerun is this user's own run with the copied run's tests. `failed` and `latest` refer to it.
    let again = world.run(&["run", "--rerun", "failed"]).assert_code(2);
    again.line_with(&["FAIL", "Math.Fail"]);

    // Programs in the user's own configuration do not have to be named.
    world.write("heeler.toml", "[[suite]]\nname = \"kinds\"\nprograms = [\"kinds\"]\n");
    world.run(&["run", "--rerun", &name_of(&run)]).assert_code(2).assert_stdout("2 tests");
}

#[test]
fn latest_is_never_a_copy() {
    let (world, run) = world_with_copy();
    world.gtest("kinds");
    world.run(&["run", "kinds", "-E", "Math.Add"]).assert_code(0);
    let own = newest_run(&world);
    // One copy is named like the newest run; the other is unchanged.
    let late = run.with_file_name("29991231T235959999Z-ffffffffffff");
    copy_all(&run, &late);
    let listed = world.run(&["runs"]).assert_code(0);
    listed.line_with(&["copied", "--rerun does not start its programs"]);
    world.run(&["report", "latest"]).assert_code(0).assert_stdout(&name_of(&own)).assert_stdout("PASSED");
    world.run(&["run", "--rerun", "latest"]).assert_code(8).assert_stderr("passed or was skipped");
    world.run(&["report", &name_of(&late)]).assert_code(0).assert_stdout("FAILED");
    // Copies count separately for `keep-runs` and never displace the user's own runs.
    world.write("heeler.toml", "[profile.default]\nkeep-runs = 1\n");
    world.run(&["runs", "--prune"]).assert_code(0);
    assert!(own.exists() && late.exists() && !run.exists());
}

#[test]
fn mark_is_valid_for_its_manifest_and_place_only() {
    // Two runs of this user: neither is a copy.
    let world = TestWorld::with_gtest("kinds");
    world.run(&["run", "kinds", "-E", "Math.*"]).assert_code(2);
    let own = newest_run(&world);
    world.run(&["run", "--rerun", "failed", "-E", "Math.Fail"]).assert_code(2);
    let other = newest_run(&world);
    let is_copy = |run: &Path| {
        let ran = world.run(&["run", "--rerun", &name_of(run), "--no-run"]);
        match ran.code {
            Some(0) => false,
            Some(4) => {
                ran.assert_stderr("are not started");
                true
            }
            _ => panic!("{ran}"),
        }
    };
    assert!(!is_copy(&own) && !is_copy(&other));
    let manifest = fs::read(own.join("manifest.jsonl")).unwrap();
    // Change a byte of the plan, change a member of the head, use another run's mark, and remove the mark.
    let text = String::from_utf8(manifest.clone()).unwrap();
    fs::write(own.join("manifest.jsonl"), text.replace("Math.Fail", "Math.Fall")).unwrap();
    assert!(is_copy(&own));
    fs::write(own.join("manifest.jsonl"), &manifest).unwrap();
    assert!(!is_copy(&own));
    edit_origin(&own, |origin| origin["program-args"] = json!(["--x"]));
    assert!(is_copy(&own));
    fs::copy(other.join("manifest.mark"), own.join("manifest.mark")).unwrap();
    assert!(is_copy(&own));
    fs::write(own.join("manifest.jsonl"), &manifest).unwrap();
    assert!(is_copy(&own));
    fs::remove_file(own.join("manifest.mark")).unwrap();
    assert!(is_copy(&own));
    // Copy the run into another directory of the same user.
    fs::create_dir(world.path("elsewhere")).unwrap();
    copy_all(&world.path(".heeler"), &world.path("elsewhere/.heeler"));
    symlink(world.path("kinds"), world.path("elsewhere/kinds")).unwrap();
    let mut command = world.heeler(&["run", "--rerun", "failed"]);
    command.current_dir(world.path("elsewhere"));
    crate::support::world::run(command).assert_code(4).assert_stderr("was recorded by this user");
}

#[test]
fn key_is_private_and_outside_of_the_workspace_state() {
    let world = TestWorld::with_gtest("kinds");
    world.run(&["run", "kinds", "-E", "Math.*"]).assert_code(2);
    let key = world.path("home/.local/state/heeler/key");
    let found = fs::metadata(&key).unwrap();
    assert_eq!(
        (std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o777, found.len()),
        (0o600, 32)
    );
    // If the home directory is unusable, the key is in the private temporary directory.
    fs::remove_file(&key).unwrap();
    fs::remove_dir(key.parent().unwrap()).unwrap();
    fs::write(key.parent().unwrap(), "a file").unwrap();
    fs::create_dir(world.path("aside")).unwrap();
    let run_aside = |words: &[&str]| {
        let mut command = world.heeler(words);
        command.env("TMPDIR", world.path("aside"));
        crate::support::world::run(command)
    };
    run_aside(&["run", "--rerun", "latest"]).assert_code(4).assert_stderr("by this user on this machine");
    run_aside(&["run", "kinds", "-E", "Math.*"]).assert_code(2);
    run_aside(&["run", "--rerun", "latest"]).assert_code(2);
    let mut below = fs::read_dir(world.path("aside")).unwrap().map(|entry| entry.unwrap().path());
    assert!(below.any(|dir| fs::metadata(dir.join("key")).is_ok_and(|key| key.len() == 32)));
}

#[test]
fn special_files_in_a_copied_run_neither_block_nor_lead_elsewhere() {
    let (world, run) = world_with_copy();
    let kept = world.path("kept");
    copy_all(&run, &kept);
    for name in ["manifest.jsonl", "manifest.mark", "worker-1.journal", "finish.journal", "coordinator.lock"]
    {
        for special in ["pipe", "endless", "huge", "directory"] {
            fs::remove_dir_all(&run).unwrap();
            copy_all(&kept, &run);
            let path = run.join(name);
            let _missing = fs::remove_file(&path);
            match special {
                "pipe" => assert!(Command::new("mkfifo").arg(&path).status().unwrap().success()),
                "endless" => symlink("/dev/zero", &path).unwrap(),
                "huge" => fs::File::create(&path).unwrap().set_len(1 << 40).unwrap(),
                _ => fs::create_dir(&path).unwrap(),
            }
            world.run(&["runs"]).assert_code(0);
            let report = world.run(&["report", &name_of(&run)]);
            assert!(matches!(report.code, Some(0 | 4)), "{name}, {special}: {report}");
            world.run(&["run", "--rerun", &name_of(&run)]).assert_code(4);
        }
    }
}

#[test]
fn state_directory_of_a_repository_leads_to_no_other_file() {
    let world = TestWorld::with_gtest("kinds");
    // The history is a link to another database of the user, as a hostile repository might contain.
    fs::create_dir(world.path(".heeler")).unwrap();
    let other = world.path("other.sqlite");
    let database = rusqlite::Connection::open(&other).unwrap();
    database.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE mine (a);").unwrap();
    drop(database);
    let before = fs::read(&other).unwrap();
    symlink(&other, world.path(".heeler/history.sqlite")).unwrap();
    world.run(&["run", "kinds", "-E", "Math.Add"]).assert_code(0);
    assert_eq!(fs::read(&other).unwrap(), before);
    let exported = world.run(&["history", "export", "own.sqlite"]).assert_code(4);
    exported.assert_stderr("it is a symbolic link");
}
