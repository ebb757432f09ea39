//! Programs that the guard must not trace, and guards with unusual privileges. Everything must run anyway.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use heeler_protocol::control::{TestCommand, ToGuard, TraceMode};
use heeler_sys::process::Signal;

use crate::{
    NamedTest,
    crashes::{collect_outcome, command, compile, crash_program, run_crasher, run_traced, trace_plan},
    support::GuardedTest,
    tests,
};

pub(crate) const TESTS: &[NamedTest] = tests![
    program_with_leak_sanitizer_runs_untraced,
    programs_run_untraced_without_ptrace,
    program_traced_by_another_process_runs_untraced,
    setuid_program_keeps_its_privileges,
    privileged_program_executed_by_traced_one_keeps_its_privileges,
    unprivileged_guard_reports_the_same,
    test_can_trace_its_own_child,
];

/// Returns a command line that runs a program without privileges.
fn unprivileged_wrapper(more: &[&str]) -> Vec<std::ffi::OsString> {
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

/// Returns a world-writable directory with a guard, and with a program that has this mode.
fn world_writable_copies(mode: u32) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let copy = |from: &Path, mode| {
        let copy = directory.path().join(from.file_name().unwrap());
        std::fs::copy(from, &copy).unwrap();
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(mode)).unwrap();
        copy
    };
    let (guard, program) = (copy(&std::env::current_exe().unwrap(), 0o755), copy(crash_program(), mode));
    (directory, guard, program)
}

fn program_with_leak_sanitizer_runs_untraced() {
    for flags in [&["-g", "-fsanitize=address"][..], &["-g", "-fsanitize=address", "-static-libasan", "-s"]] {
        let program = compile("leak.cpp", flags);
        let outcome = run_traced(command(&program, &["leak"]), TraceMode::Root);
        assert_eq!(outcome.untraced.len(), 1, "{flags:?}");
        assert!(outcome.output.contains("detected memory leaks"), "{}", outcome.output);
        let outcome = run_traced(command(&program, &[]), TraceMode::Root);
        assert_eq!(outcome.ending(), (Some(0), None), "{}", outcome.output);
    }
}

fn programs_run_untraced_without_ptrace() {
    for (mode, ending) in [("segv", (None, Some(Signal::SEGV.0))), ("exit1", (Some(1), None))] {
        let directory = tempfile::tempdir().unwrap();
        let wrapper = [crash_program().as_os_str(), "noptrace".as_ref()].map(Into::into);
        let mut guarded = GuardedTest::start_under(&wrapper);
        let trace = Some(trace_plan(directory.path(), TraceMode::Root));
        guarded.send(&ToGuard::Exec(TestCommand { trace, ..command(crash_program(), &[mode]) }));
        let outcome = collect_outcome(guarded, directory);
        assert_eq!((outcome.ending(), outcome.crashes.len()), (ending, 0));
        assert_eq!(outcome.untraced.len(), 1);
        assert!(outcome.untraced[0].contains("not permitted"), "{:?}", outcome.untraced);
    }
}

fn program_traced_by_another_process_runs_untraced() {
    let directory = tempfile::tempdir().unwrap();
    let wrapper = [crash_program().as_os_str(), "traces".as_ref()].map(Into::into);
    let mut guarded = GuardedTest::start_under(&wrapper);
    let tracer = guarded.guard.pid();
    let trace = Some(trace_plan(directory.path(), TraceMode::Root));
    guarded.send(&ToGuard::Exec(TestCommand { trace, ..command(crash_program(), &["segv"]) }));
    let outcome = collect_outcome(guarded, directory);
    assert_eq!((outcome.ending(), outcome.crashes.len()), ((None, Some(Signal::SEGV.0)), 0));
    let reason = format!("traced by process {tracer}");
    assert!(outcome.untraced.len() == 1 && outcome.untraced[0].contains(&reason), "{:?}", outcome.untraced);
}

fn setuid_program_keeps_its_privileges() {
    if heeler_sys::process::effective_uid() != 0 {
        // Only root can grant these privileges.
        return;
    }
    let (directory, guard, program) = world_writable_copies(0o4755);
    let run = |mode| {
        let mut guarded = GuardedTest::start_as(&unprivileged_wrapper(&[]), &guard);
        let trace = Some(trace_plan(directory.path(), mode));
        guarded.send(&ToGuard::Exec(TestCommand { trace, ..command(&program, &["whoami"]) }));
        collect_outcome(guarded, tempfile::tempdir().unwrap())
    };
    // A file system may be mounted so that no program gains privileges there.
    let (bare, traced) = (run(TraceMode::Off), run(TraceMode::Root));
    assert_eq!((bare.ending(), bare.untraced.len()), (traced.ending(), 0), "{}", traced.output);
    assert!(traced.untraced.len() == 1 && traced.untraced[0].contains("setuid"), "{:?}", traced.untraced);
}

fn privileged_program_executed_by_traced_one_keeps_its_privileges() {
    if heeler_sys::process::effective_uid() != 0 {
        return;
    }
    for (mode, reason) in [(0o4755, "is setuid or has capabilities"), (0o4711, "its user may not read")] {
        let (directory, guard, program) = world_writable_copies(mode);
        let traced_program = directory.path().join("traced");
        std::fs::copy(crash_program(), &traced_program).unwrap();
        std::fs::set_permissions(&traced_program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let run = |mode| {
            let mut guarded = GuardedTest::start_as(&unprivileged_wrapper(&[]), &guard);
            let trace = Some(trace_plan(directory.path(), mode));
            let args = ["exec", program.to_str().unwrap(), "whoami"];
            guarded.send(&ToGuard::Exec(TestCommand { trace, ..command(&traced_program, &args) }));
            collect_outcome(guarded, tempfile::tempdir().unwrap())
        };
        let bare = run(TraceMode::Off);
        for mode_of_trace in [TraceMode::Root, TraceMode::Tree] {
            let traced = run(mode_of_trace);
            assert!(
                traced.untraced.len() == 1 && traced.untraced[0].contains(reason),
                "{:?}",
                traced.untraced
            );
            // The kernel denies all access to a program whose file the user may not read.
            let expected = if mode == 0o4711 { (Some(1), None) } else { bare.ending() };
            assert_eq!(traced.ending(), expected, "{mode:o} {}", traced.output);
        }
    }
}

fn unprivileged_guard_reports_the_same() {
    if heeler_sys::process::effective_uid() != 0 {
        // Without root, all other tests already check this.
        return;
    }
    let (directory, guard, program) = world_writable_copies(0o755);
    for mode in ["segv", "thread", "abort", "nodump", "hexit"] {
        let mut guarded = GuardedTest::start_as(&unprivileged_wrapper(&["--no-new-privs"]), &guard);
        let trace = Some(trace_plan(directory.path(), TraceMode::Root));
        guarded.send(&ToGuard::Exec(TestCommand { trace, ..command(&program, &[mode]) }));
        let outcome = collect_outcome(guarded, tempfile::tempdir().unwrap());
        let report = outcome.crash();
        assert!(report.thread.id != 0 && report.signal != 0, "{report:?}");
        if mode == "nodump" {
            // The program has forbidden access by unprivileged processes.
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

fn test_can_trace_its_own_child() {
    for mode in ["traceme", "ptraces"] {
        let outcome = run_crasher(mode);
        assert_eq!((outcome.ending(), outcome.crashes.len()), ((Some(0), None), 0), "{mode}");
    }
}
