//! Programs that the guard must not trace, and guards with unusual privileges: everything runs all the same.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use host::process::{Pid, Signal};
use wire::control::{Command, FromGuard, ToGuard, TraceMode};

use crate::{
    Test,
    crashes::{begin, command, compile, crash, crasher, finish, plan, run},
    support::Guarded,
    tests,
};

pub(crate) const TESTS: &[Test] = tests![
    a_program_with_a_leak_sanitizer_is_left_alone,
    where_tracing_is_forbidden_all_runs_untraced,
    what_somebody_else_traces_runs_untraced,
    a_program_that_gains_privileges_keeps_them,
    a_let_go_test_can_be_traced_by_others,
    an_unprivileged_guard_sees_as_much,
    a_test_that_traces_its_own_child_is_left_in_peace,
];

/// Returns the command line that runs a program without privileges.
fn as_nobody(more: &[&str]) -> Vec<std::ffi::OsString> {
    let line = [
        "/usr/bin/env",
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--bounding-set=-all",
    ];
    line.iter().chain(more).map(Into::into).collect()
}

/// Returns a world-writable directory that contains a guard, and a program with this mode.
fn open_to_all(mode: u32) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let copy = |from: &Path, mode| {
        let copy = directory.path().join(from.file_name().unwrap());
        std::fs::copy(from, &copy).unwrap();
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(mode)).unwrap();
        copy
    };
    let (guard, program) = (copy(&std::env::current_exe().unwrap(), 0o755), copy(crasher(), mode));
    (directory, guard, program)
}

fn a_program_with_a_leak_sanitizer_is_left_alone() {
    for flags in [&["-g", "-fsanitize=address"][..], &["-g", "-fsanitize=address", "-static-libasan", "-s"]] {
        let program = compile("leak.cpp", flags);
        let outcome = run(command(&program, &["leak"]), TraceMode::Root);
        assert_eq!(outcome.untraced.len(), 1, "{flags:?}");
        assert!(outcome.output.contains("detected memory leaks"), "{}", outcome.output);
        let outcome = run(command(&program, &[]), TraceMode::Root);
        assert_eq!(outcome.ending(), (Some(0), None), "{}", outcome.output);
    }
}

fn where_tracing_is_forbidden_all_runs_untraced() {
    for (mode, ending) in [("segv", (None, Some(Signal::SEGV.0))), ("exit1", (Some(1), None))] {
        let directory = tempfile::tempdir().unwrap();
        let wrapper = [crasher().as_os_str(), "noptrace".as_ref()].map(Into::into);
        let mut guarded = Guarded::start_behind(&wrapper);
        let trace = Some(plan(directory.path(), TraceMode::Root));
        guarded.send(&ToGuard::Exec(Command { trace, ..command(crasher(), &[mode]) }));
        let outcome = finish(guarded, directory);
        assert_eq!((outcome.ending(), outcome.crashes.len()), (ending, 0));
        assert_eq!(outcome.untraced.len(), 1);
        assert!(outcome.untraced[0].contains("not permitted"), "{:?}", outcome.untraced);
    }
}

fn what_somebody_else_traces_runs_untraced() {
    let directory = tempfile::tempdir().unwrap();
    let wrapper = [crasher().as_os_str(), "traces".as_ref()].map(Into::into);
    let mut guarded = Guarded::start_behind(&wrapper);
    let tracer = guarded.guard.pid();
    let trace = Some(plan(directory.path(), TraceMode::Root));
    guarded.send(&ToGuard::Exec(Command { trace, ..command(crasher(), &["segv"]) }));
    let outcome = finish(guarded, directory);
    assert_eq!((outcome.ending(), outcome.crashes.len()), ((None, Some(Signal::SEGV.0)), 0));
    let reason = format!("traced by process {tracer}");
    assert!(outcome.untraced.len() == 1 && outcome.untraced[0].contains(&reason), "{:?}", outcome.untraced);
}

fn a_program_that_gains_privileges_keeps_them() {
    if host::process::effective_uid() != 0 {
        // Only root can grant them.
        return;
    }
    let (directory, guard, program) = open_to_all(0o4755);
    let run = |mode| {
        let mut guarded = Guarded::start_as(&as_nobody(&[]), &guard);
        let trace = Some(plan(directory.path(), mode));
        guarded.send(&ToGuard::Exec(Command { trace, ..command(&program, &["whoami"]) }));
        finish(guarded, tempfile::tempdir().unwrap())
    };
    // A file system may be mounted so that no program gains privileges there.
    let (bare, traced) = (run(TraceMode::Off), run(TraceMode::Root));
    assert_eq!((bare.ending(), bare.untraced.len()), (traced.ending(), 0), "{}", traced.output);
    assert!(traced.untraced.len() == 1 && traced.untraced[0].contains("privileges"), "{:?}", traced.untraced);
}

fn a_let_go_test_can_be_traced_by_others() {
    let (mut guarded, directory) = begin(command(crasher(), &["idle"]), TraceMode::Root);
    let pid = Pid(guarded.started().cast_signed());
    guarded.output.wait_for("ready");
    assert_eq!(host::trace::tracer_of(pid), Some(guarded.guard.pid()));
    guarded.send(&ToGuard::LetGo);
    assert_eq!(guarded.next(), Some(FromGuard::LetGone));
    for tid in host::trace::threads(pid) {
        assert_eq!(host::trace::tracer_of(tid), None);
    }
    guarded.send(&ToGuard::Kill);
    assert_eq!(finish(guarded, directory).ending(), (None, Some(Signal::KILL.0)));
}

fn an_unprivileged_guard_sees_as_much() {
    if host::process::effective_uid() != 0 {
        // Without root all other tests check this already.
        return;
    }
    let (directory, guard, program) = open_to_all(0o755);
    for mode in ["segv", "thread", "abort", "nodump", "hexit"] {
        let mut guarded = Guarded::start_as(&as_nobody(&["--no-new-privs"]), &guard);
        let trace = Some(plan(directory.path(), TraceMode::Root));
        guarded.send(&ToGuard::Exec(Command { trace, ..command(&program, &[mode]) }));
        let outcome = finish(guarded, tempfile::tempdir().unwrap());
        let report = outcome.crash();
        assert!(report.thread.id != 0 && report.signal != 0, "{report:?}");
        if mode == "nodump" {
            // It has forbidden access by processes without privileges.
            assert!(report.dump.is_none() && !report.soft_errors.is_empty(), "{report:?}");
            assert_eq!(outcome.end.signal, Some(Signal::SEGV.0));
        } else {
            assert!(
                report.stack.contains(if mode == "abort" { "main" } else { "deref" }),
                "{mode}: {report:?}"
            );
            assert_eq!(report.dump.is_some(), mode != "hexit", "{mode}: {report:?}");
        }
    }
}

fn a_test_that_traces_its_own_child_is_left_in_peace() {
    for mode in ["traceme", "ptraces"] {
        let outcome = crash(mode);
        assert_eq!((outcome.ending(), outcome.crashes.len()), ((Some(0), None), 0), "{mode}");
    }
}
