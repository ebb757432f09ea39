//! Diagnostics of a crash where something is denied, turned off or full: tracing, symbol names, dumps, the
//! disk.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::{
    fixtures,
    listener::Behaviour,
    server::Server,
    uids,
    world::{Ran, World, run},
};

/// Returns the names of the diagnostic files of all runs with this suffix.
fn evidence(world: &World, ending: &str) -> Vec<String> {
    let Ok(runs) = fs::read_dir(world.path(".heeler/runs")) else { return Vec::new() };
    let of_run = |run: PathBuf| fs::read_dir(run.join("evidence")).into_iter().flatten();
    let files = runs.flat_map(|run| of_run(run.unwrap().path())).map(|file| file.unwrap().file_name());
    let mut names: Vec<_> = files.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(ending));
    names.sort();
    names
}

#[test]
fn a_stripped_program_is_told_with_offsets_and_its_build_id() {
    let world = World::new();
    let mut strip = Command::new("strip");
    strip.arg("-s").arg("-o").arg(world.path("stripped")).arg(fixtures::gtest("evidence"));
    assert!(strip.status().unwrap().success());
    let mut server = Server::with_callback(&world, &["stripped"], |_| Behaviour::Normal);
    let run = server.run(Some(&["stripped::Crash.One"]));
    let books = server.finish(&run, &uids("stripped", ["Crash.One"]));
    assert_eq!(server.exit(), Some(0));
    let stack = books.test("stripped::Crash.One")["error.stacktrace"].as_str().unwrap().to_owned();
    let top = stack.lines().next().unwrap();
    let (_, build_id) = top.split_once("?? in stripped+0x").unwrap().1.split_once(" (build id ").unwrap();
    let build_id = build_id.trim_end_matches(')');
    assert!(build_id.len() == 40 && build_id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{top}");
    let runs = fs::read_dir(world.path(".heeler/runs")).unwrap().next().unwrap().unwrap();
    let dump = runs.path().join("evidence/stripped.Crash.One.dmp");
    let printed = world.run(&["dump", dump.to_str().unwrap()]).code(0);
    printed.line(&["#0", "stripped+0x", build_id]);
    printed.line(&[build_id, "/stripped"]);
}

#[test]
fn who_wants_to_trace_a_traced_test_is_refused_and_the_run_goes_on() {
    let world = World::with_gtest("meet");
    let meet = world.meet();
    let mut server = Server::with_callback(&world, &["meet"], |_| Behaviour::Normal);
    let run = server.run(Some(&["meet::N/Meet.Case/0"]));
    let guest = meet.next();
    let pid = host::process::Pid(i32::try_from(guest.pid).unwrap());
    assert!(host::trace::tracer_of(pid).is_some());
    let refused = host::trace::seize(pid, host::trace::Options::VISIT).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    guest.let_go();
    server.finish(&run, &uids("meet", ["N/Meet.Case/0"])).all("passed").no_charges();
    assert_eq!(server.exit(), Some(0));
}

/// Runs `heeler` where ptrace is denied.
fn run_untraced(world: &World, words: &[&str]) -> Ran {
    let heeler = env!("CARGO_BIN_EXE_heeler");
    let ran = run(world.command(Command::new(fixtures::gtest("noptrace")), &[&[heeler], words].concat()));
    world.check_tidy();
    ran
}

#[test]
fn where_tracing_is_forbidden_a_crash_has_its_signal_and_a_hang_its_state() {
    let world = World::with_gtest("evidence");
    world.write("heeler.toml", "[profile.default]\ntimeout = \"1s\"\ngrace-period = \"200ms\"\n");
    let ran = run_untraced(
        &world,
        &[
            "run",
            "evidence",
            "-E",
            "Crash.Two",
            "-E",
            "Hang.Waits",
            "-E",
            "Z.IsLast",
            "--status-level",
            "all",
        ],
    )
    .code(2);
    ran.line(&["SIGABRT", "Crash.Two"]);
    ran.line(&["TIMEOUT", "Hang.Waits"]);
    ran.line(&["PASS", "Z.IsLast"]);
    // The state of a process can be read without tracing it.
    ran.says("BLOCKED in pause");
    assert_eq!(evidence(&world, ".dmp"), Vec::<String>::new());
    run_untraced(&world, &["doctor"]).line(&["crash capture"]);
}

#[test]
fn where_tracing_is_forbidden_a_core_file_is_attached_if_the_system_writes_one() {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if pattern.starts_with(['|', '/']) {
        eprintln!("skipped: core files go elsewhere here: {pattern}");
        return;
    }
    let world = World::with_gtest("evidence");
    let (filter, heeler) = (fixtures::gtest("noptrace"), env!("CARGO_BIN_EXE_heeler"));
    let ran = |limit: &str| {
        let line = format!("ulimit -c {limit}; exec {} {heeler} run evidence -E Crash.Two", filter.display());
        let ran = run(world.shell(&line)).code(2);
        ran.line(&["SIGABRT", "Crash.Two"]);
        ran
    };
    assert!(!ran("0").stdout.contains("(core file)"));
    ran("unlimited").line(&["file", "core", "(core file)"]);
}

#[test]
fn dumps_of_crashes_and_of_hangs_are_chosen_apart() {
    for (choice, expected) in
        [("crash", "evidence.Crash.Two.dmp"), ("hang", "evidence.Quiet.SaysNothing.dmp")]
    {
        let world = World::with_gtest("evidence");
        let settings = format!("dumps = \"{choice}\"\ntimeout = \"1s\"\ngrace-period = \"200ms\"\n");
        world.write("heeler.toml", &format!("[profile.default]\n{settings}"));
        world.run(&["run", "evidence", "-E", "Crash.Two", "-E", "Quiet.SaysNothing"]).code(2);
        let mut dumps = evidence(&world, ".dmp");
        dumps.retain(|name| !name.contains("-alone"));
        assert_eq!(dumps, [expected]);
        for name in ["Crash.Two", "Quiet.SaysNothing"] {
            assert_eq!(evidence(&world, &format!("{name}.stacks.txt")).len(), 1, "{choice}: {name}");
        }
    }
}

#[test]
fn a_suite_may_go_without_dumps_beside_one_that_has_them() {
    let world = World::with_gtest("evidence");
    std::os::unix::fs::symlink(fixtures::gtest("evidence"), world.path("other")).unwrap();
    let suite = |name: &str, program: &str, more: &str| {
        format!("[[suite]]\nname = \"{name}\"\nprograms = [\"{program}\"]\n{more}")
    };
    let suites = suite("quiet", "evidence", "dumps = \"off\"\n") + &suite("loud", "other", "");
    world.write("heeler.toml", &suites);
    world.run(&["run", "-E", "Crash.Two"]).code(2);
    let dumps = evidence(&world, ".dmp");
    assert!(!dumps.is_empty() && dumps.iter().all(|name| name.starts_with("loud.")), "{dumps:?}");
    assert_eq!(evidence(&world, "quiet.Crash.Two.stacks.txt").len(), 1);
}

/// Panics unless crashes without a dump were reported completely, and no partial file was left.
#[track_caller]
fn check_without_dump(ran: &Ran, files: &[String]) {
    for name in ["Crash.One", "Speaks.Crashes"] {
        ran.line(&["SIGSEGV", name]);
    }
    for function in ["write_to", "follow_a_wild_pointer"] {
        ran.says(function);
    }
    ran.line(&["PASS", "Z.IsLast"]);
    ran.line(&["warning", "not all of its evidence could be kept", ".dmp"]);
    let is_whole = |name: &String| !name.ends_with(".dmp") && !name.ends_with(".part");
    assert!(files.iter().all(is_whole), "{files:?}");
}

const FULL: [&str; 10] = [
    "run",
    "evidence",
    "--no-history",
    "--status-level=all",
    "-j1",
    "-E",
    "Crash.One",
    "-E",
    "Speaks.Crashes",
    "-E=Z.IsLast",
];

#[test]
fn files_that_may_not_grow_cost_the_dumps_and_not_the_run() {
    let world = World::with_gtest("evidence");
    let line = format!("ulimit -f 16; exec {} {}", env!("CARGO_BIN_EXE_heeler"), FULL.join(" "));
    let ran = run(world.shell(&line)).code(2);
    world.check_tidy();
    check_without_dump(&ran, &evidence(&world, ""));
    assert_eq!(evidence(&world, "Crash.One.stacks.txt").len(), 1);
}

/// Returns whether this machine lets its user mount a private file system.
fn can_mount(world: &World, user: &str) -> bool {
    let line = format!("unshare {user} sh -c 'mount -t tmpfs -o size=64k none tmp'");
    run(world.shell(&line)).code == Some(0)
}

#[test]
fn a_full_disk_costs_the_dumps_and_not_the_run() {
    let world = World::with_gtest("evidence");
    let user = if host::process::effective_uid() == 0 { "-m" } else { "-rm" };
    if !can_mount(&world, user) {
        eprintln!("skipped: this user may not mount anything here");
        return;
    }
    fs::create_dir_all(world.path(".heeler/runs")).unwrap();
    let script = format!(
        "mount -t tmpfs -o mode=700,size=28k none .heeler; {} {}; code=$?; find .heeler -type f -size 0 ! -path \"*.lock\" > empty; \
         find .heeler -path '*evidence*' -type f > files; exit $code",
        env!("CARGO_BIN_EXE_heeler"),
        FULL.join(" ")
    );
    let ran = run(world.shell(&format!("unshare {user} sh -c '{}'", script.replace('\'', "\"")))).code(2);
    world.check_tidy();
    let files: Vec<String> = world.read("files").lines().map(str::to_owned).collect();
    check_without_dump(&ran, &files);
    assert_eq!(world.read("empty"), "", "files that could not be written are left");
    assert!(files.iter().all(|file| Path::new(file).is_relative()), "{files:?}");
}
