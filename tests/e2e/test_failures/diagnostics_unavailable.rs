//! Crash diagnostics when something is denied, disabled or full: tracing, symbol names, dumps or the disk.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::{
    callback_listener::ListenerBehaviour,
    fixtures, requirement,
    server::TestServer,
    uids,
    world::{FinishedCommand, TestWorld, run},
};

/// Returns the names of the diagnostic files with this suffix in all runs.
pub(super) fn diagnostic_file_names(world: &TestWorld, ending: &str) -> Vec<String> {
    let Ok(runs) = fs::read_dir(world.path(".heeler/runs")) else { return Vec::new() };
    let of_run = |run: PathBuf| fs::read_dir(run.join("evidence")).into_iter().flatten();
    let files = runs.flat_map(|run| of_run(run.unwrap().path())).map(|file| file.unwrap().file_name());
    let mut names: Vec<_> = files.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(ending));
    names.sort();
    names
}

#[test]
fn stripped_program_stack_has_offsets_and_build_id() {
    let world = TestWorld::new();
    let mut strip = Command::new("strip");
    strip.arg("-s").arg("-o").arg(world.path("stripped")).arg(fixtures::gtest("evidence"));
    assert!(strip.status().unwrap().success());
    let mut server = TestServer::with_callback(&world, &["stripped"], |_| ListenerBehaviour::Normal);
    let run = server.run(Some(&["stripped::Crash.One"]));
    let checked_run = server.finish(&run, &uids("stripped", ["Crash.One"]));
    assert_eq!(server.exit(), Some(0));
    let stack = checked_run.test("stripped::Crash.One")["error.stacktrace"].as_str().unwrap().to_owned();
    let top = stack.lines().next().unwrap();
    let (_, build_id) = top.split_once("?? in stripped+0x").unwrap().1.split_once(" (build id ").unwrap();
    let build_id = build_id.trim_end_matches(')');
    assert!(build_id.len() == 40 && build_id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{top}");
    let runs = fs::read_dir(world.path(".heeler/runs")).unwrap().next().unwrap().unwrap();
    let dump = runs.path().join("evidence/stripped.Crash.One.dmp");
    let printed = world.run(&["dump", dump.to_str().unwrap()]).assert_code(0);
    printed.line_with(&["#0", "stripped+0x", build_id]);
    printed.line_with(&[build_id, "/stripped"]);
}

#[test]
fn crash_of_damaged_program_is_reported_with_signal_and_address() {
    let world = TestWorld::new();
    let mut bytes = fs::read(fixtures::gtest("evidence")).unwrap();
    // Overwrite the offset of the section headers, which neither the kernel nor the dynamic loader reads.
    bytes[40..48].fill(0xff);
    fs::write(world.path("damaged"), bytes).unwrap();
    fs::set_permissions(world.path("damaged"), fs::Permissions::from_mode(0o700)).unwrap();
    let ran = world.run(&["run", "damaged", "-E", "Crash.One", "-E", "Z.IsLast"]).assert_code(2);
    ran.line_with(&["crashed with SIGSEGV (at address 0x8)"]);
    ran.line_with(&["#0", "damaged+0x"]);
    ran.line_with(&["cannot read the unwind tables of", "damaged"]);
    assert_eq!(diagnostic_file_names(&world, "Crash.One.dmp").len(), 1);
}

#[test]
fn second_tracer_is_refused_and_run_continues() {
    let world = TestWorld::with_gtest("meet");
    let rendezvous = world.open_rendezvous();
    let mut server = TestServer::with_callback(&world, &["meet"], |_| ListenerBehaviour::Normal);
    let run = server.run(Some(&["meet::N/Meet.Case/0"]));
    let connected = rendezvous.next_test();
    let pid = heeler_sys::process::Pid(i32::try_from(connected.pid).unwrap());
    assert!(heeler_sys::trace::tracer_of(pid).is_some());
    let refused = heeler_sys::trace::seize(pid, heeler_sys::trace::TraceOptions::VISIT).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    connected.release();
    server.finish(&run, &uids("meet", ["N/Meet.Case/0"])).assert_all("passed").assert_no_program_failures();
    assert_eq!(server.exit(), Some(0));
}

/// Runs `heeler` with ptrace denied.
fn run_untraced(world: &TestWorld, words: &[&str]) -> FinishedCommand {
    let heeler = env!("CARGO_BIN_EXE_heeler");
    let ran = run(world.command(Command::new(fixtures::gtest("noptrace")), &[&[heeler], words].concat()));
    world.check_tidy();
    ran
}

#[test]
fn denied_ptrace_keeps_signal_and_hang_state() {
    let world = TestWorld::with_gtest("evidence");
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
    .assert_code(2);
    ran.line_with(&["SIGABRT", "Crash.Two"]);
    ran.line_with(&["TIMEOUT", "Hang.Waits"]);
    ran.line_with(&["PASS", "Z.IsLast"]);
    // Heeler can read a process's state without tracing it.
    ran.assert_stdout("BLOCKED in pause");
    assert_eq!(diagnostic_file_names(&world, ".dmp"), Vec::<String>::new());
    run_untraced(&world, &["doctor"]).line_with(&["crash capture"]);
}

#[test]
fn denied_ptrace_attaches_system_core_file() {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if pattern.starts_with(['|', '/']) {
        requirement::leave_out("core files", &format!("kernel.core_pattern sends them elsewhere: {pattern}"));
        return;
    }
    let world = TestWorld::with_gtest("evidence");
    let (filter, heeler) = (fixtures::gtest("noptrace"), env!("CARGO_BIN_EXE_heeler"));
    let ran = |limit: &str| {
        let line = format!("ulimit -c {limit}; exec {} {heeler} run evidence -E Crash.Two", filter.display());
        let ran = run(world.shell(&line)).assert_code(2);
        ran.line_with(&["SIGABRT", "Crash.Two"]);
        ran
    };
    assert!(!ran("0").stdout.contains("(core file)"));
    ran("unlimited").line_with(&["file", "core", "(core file)"]);
}

#[test]
fn crash_and_hang_dumps_are_configured_separately() {
    for (choice, expected) in
        [("crash", "evidence.Crash.Two.dmp"), ("hang", "evidence.Quiet.SaysNothing.dmp")]
    {
        let world = TestWorld::with_gtest("evidence");
        let settings = format!("dumps = \"{choice}\"\ntimeout = \"1s\"\ngrace-period = \"200ms\"\n");
        world.write("heeler.toml", &format!("[profile.default]\n{settings}"));
        world.run(&["run", "evidence", "-E", "Crash.Two", "-E", "Quiet.SaysNothing"]).assert_code(2);
        let mut dumps = diagnostic_file_names(&world, ".dmp");
        dumps.retain(|name| !name.contains("-isolated"));
        assert_eq!(dumps, [expected]);
        for name in ["Crash.Two", "Quiet.SaysNothing"] {
            assert_eq!(
                diagnostic_file_names(&world, &format!("{name}.stacks.txt")).len(),
                1,
                "{choice}: {name}"
            );
        }
    }
}

#[test]
fn suites_configure_dumps_separately() {
    let world = TestWorld::with_gtest("evidence");
    std::os::unix::fs::symlink(fixtures::gtest("evidence"), world.path("other")).unwrap();
    let suite = |name: &str, program: &str, more: &str| {
        format!("[[suite]]\nname = \"{name}\"\nprograms = [\"{program}\"]\n{more}")
    };
    let suites = suite("quiet", "evidence", "dumps = \"off\"\n") + &suite("loud", "other", "");
    world.write("heeler.toml", &suites);
    world.run(&["run", "-E", "Crash.Two"]).assert_code(2);
    let dumps = diagnostic_file_names(&world, ".dmp");
    assert!(!dumps.is_empty() && dumps.iter().all(|name| name.starts_with("loud.")), "{dumps:?}");
    assert_eq!(diagnostic_file_names(&world, "quiet.Crash.Two.stacks.txt").len(), 1);
}

/// Panics unless the crashes were reported completely, without a dump or a partial file.
#[track_caller]
fn check_without_dump(ran: &FinishedCommand, files: &[String]) {
    for name in ["Crash.One", "Speaks.Crashes"] {
        ran.line_with(&["SIGSEGV", name]);
    }
    for function in ["write_to", "follow_a_wild_pointer"] {
        ran.assert_stdout(function);
    }
    ran.line_with(&["PASS", "Z.IsLast"]);
    ran.line_with(&["warning", "some crash evidence could not be kept", ".dmp"]);
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
fn file_size_limit_loses_dumps_but_no_results() {
    let world = TestWorld::with_gtest("evidence");
    let line = format!("ulimit -f 16; exec {} {}", env!("CARGO_BIN_EXE_heeler"), FULL.join(" "));
    let ran = run(world.shell(&line)).assert_code(2);
    world.check_tidy();
    check_without_dump(&ran, &diagnostic_file_names(&world, ""));
    assert_eq!(diagnostic_file_names(&world, "Crash.One.stacks.txt").len(), 1);
}

/// Returns whether this user may mount a private file system.
fn can_mount(world: &TestWorld, user: &str) -> bool {
    let line = format!("unshare {user} sh -c 'mount -t tmpfs -o size=64k none tmp'");
    run(world.shell(&line)).code == Some(0)
}

#[test]
fn full_disk_loses_dumps_but_no_results() {
    let world = TestWorld::with_gtest("evidence");
    let user = if heeler_sys::process::effective_uid() == 0 { "-m" } else { "-rm" };
    if !can_mount(&world, user) {
        requirement::leave_out("a mount namespace", "this user may not mount anything");
        return;
    }
    fs::create_dir_all(world.path(".heeler/runs")).unwrap();
    let script = format!(
        "mount -t tmpfs -o mode=700,size=28k none .heeler; {} {}; code=$?; find .heeler -type f -size 0 ! -path \"*.lock\" > empty; \
         find .heeler -path '*evidence*' -type f > files; exit $code",
        env!("CARGO_BIN_EXE_heeler"),
        FULL.join(" ")
    );
    let ran =
        run(world.shell(&format!("unshare {user} sh -c '{}'", script.replace('\'', "\"")))).assert_code(2);
    world.check_tidy();
    let files: Vec<String> = world.read("files").lines().map(str::to_owned).collect();
    check_without_dump(&ran, &files);
    assert_eq!(world.read("empty"), "", "files that could not be written are left");
    assert!(files.iter().all(|file| Path::new(file).is_relative()), "{files:?}");
}
