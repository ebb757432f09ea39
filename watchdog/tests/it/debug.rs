//! Tests stopped before their first instruction: what a real debugger can do with them, and how they run
//! without one.

use std::{ffi::OsString, path::Path};

use heeler_protocol::control::{FromGuard, TestCommand, ToGuard, TraceMode};
use heeler_sys::{
    process::{Pid, Signal},
    spawn::{ChildStdio, SpawnOptions, SpawnedChild, spawn},
    trace::tracer_of,
};

use crate::{
    NamedTest,
    crashes::{collect_outcome, command, crash_program, start_traced, trace_plan},
    support::{GuardedTest, HeldPipe, state_of, wait_until},
    tests,
};

pub(crate) const TESTS: &[NamedTest] = tests![
    held_test_stops_untraced_before_first_instruction,
    debugger_hits_breakpoint_and_sees_no_guard_signal,
    taken_back_test_is_traced_as_usual,
    handed_over_test_without_debugger_continues,
    held_test_without_ptrace_stops_before_exec,
    held_test_ends_at_first_terminate,
    held_test_dies_with_its_worker,
    missing_held_program_is_reported,
    test_continues_after_debugger_is_killed,
    test_left_stopped_by_debugger_is_resumed,
];

fn held_command(args: &[&str]) -> TestCommand {
    TestCommand { is_stopped_at_start: true, ..command(crash_program(), args) }
}

fn start_held(args: &[&str]) -> (GuardedTest, tempfile::TempDir, u32) {
    let (mut guarded, directory) = start_traced(held_command(args), TraceMode::Root);
    let pid = guarded.expect_started();
    assert_eq!(guarded.next_message(), Some(FromGuard::StoppedAtStart { is_program: true }));
    (guarded, directory, pid)
}

/// A debugger that has attached, and executes `then` when allowed to.
struct GdbSession {
    child: SpawnedChild,
    output: HeldPipe,
    proceed_file: std::path::PathBuf,
}

impl GdbSession {
    fn attach(pid: u32, directory: &Path, then: &[&str]) -> Self {
        let proceed_file = directory.join("go");
        let wait = format!(
            "shell echo attached; while [ ! -e {} -a -d {} ]; do sleep 0.01; done",
            proceed_file.display(),
            directory.display()
        );
        let mut args: Vec<OsString> = ["gdb", "-q", "-batch", "-nx", "-p"].map(Into::into).into();
        args.extend([pid.to_string().into(), "-ex".into(), wait.into()]);
        args.extend(then.iter().flat_map(|line| ["-ex".into(), OsString::from(line)]));
        let (mut output, writer) = HeldPipe::new();
        let errors = writer.try_clone().unwrap();
        let start = SpawnOptions {
            args,
            stdout: ChildStdio::Fd(writer),
            stderr: ChildStdio::Fd(errors),
            ..SpawnOptions::new("/usr/bin/env")
        };
        let child = spawn(start).unwrap();
        output.wait_for("attached\n");
        assert_eq!(tracer_of(Pid(pid.cast_signed())), Some(child.pid()));
        Self { child, output, proceed_file }
    }

    fn proceed(&self) {
        std::fs::write(&self.proceed_file, "").unwrap();
    }

    fn wait_for_exit(mut self) -> String {
        let text = self.output.wait_for_end().to_owned();
        self.child.wait().unwrap();
        text
    }
}

fn held_test_stops_untraced_before_first_instruction() {
    let (mut guarded, directory, pid) = start_held(&["exit1"]);
    assert_eq!((state_of(pid), tracer_of(Pid(pid.cast_signed()))), (Some('T'), None));
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_eq!(program, crash_program().canonicalize().unwrap());
    // The dynamic loader has not run, so the C library is not mapped.
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    assert!(!maps.contains("libc.so"), "{maps}");
    guarded.send(&ToGuard::ContinueUntraced);
    assert_eq!(collect_outcome(guarded, directory).ending(), (Some(1), None));
}

fn debugger_hits_breakpoint_and_sees_no_guard_signal() {
    let (mut guarded, directory, pid) = start_held(&["segv"]);
    let debugger = GdbSession::attach(pid, directory.path(), &["break level2", "continue", "bt 3", "kill"]);
    guarded.send(&ToGuard::ContinueUntraced);
    // A response to a later message proves that the guard has handled this one.
    guarded.send(&ToGuard::Pause);
    assert_eq!(guarded.next_message(), Some(FromGuard::Paused));
    guarded.send(&ToGuard::Resume);
    debugger.proceed();
    let text = debugger.wait_for_exit();
    assert!(text.contains("Breakpoint 1, level2") && text.contains("in level1"), "{text}");
    assert!(!text.contains("received signal"), "{text}");
    let outcome = collect_outcome(guarded, directory);
    assert_eq!((outcome.ending(), outcome.crashes.len()), ((None, Some(Signal::KILL.0)), 0));
}

fn taken_back_test_is_traced_as_usual() {
    let (mut guarded, directory, _) = start_held(&["segv"]);
    guarded.send(&ToGuard::ContinueTraced);
    let outcome = collect_outcome(guarded, directory);
    assert_eq!(outcome.ending(), (None, Some(Signal::SEGV.0)));
    assert!(outcome.crash().stack.contains("deref"), "{}", outcome.crash().stack);
    assert!(outcome.crash().dump.is_some() && outcome.untraced.is_empty());
}

fn handed_over_test_without_debugger_continues() {
    let (mut guarded, directory, _) = start_held(&["segv"]);
    guarded.send(&ToGuard::ContinueUntraced);
    let outcome = collect_outcome(guarded, directory);
    assert_eq!((outcome.ending(), outcome.crashes.len()), ((None, Some(Signal::SEGV.0)), 0));
    assert!(outcome.untraced.is_empty(), "{:?}", outcome.untraced);
}

fn held_test_without_ptrace_stops_before_exec() {
    for decision in [ToGuard::ContinueUntraced, ToGuard::ContinueTraced] {
        let directory = tempfile::tempdir().unwrap();
        let wrapper = [crash_program().as_os_str(), "noptrace".as_ref()].map(Into::into);
        let mut guarded = GuardedTest::start_under(&wrapper);
        let trace = Some(trace_plan(directory.path(), TraceMode::Root));
        guarded.send(&ToGuard::Exec(TestCommand { trace, ..held_command(&["exit1"]) }));
        let pid = guarded.expect_started();
        assert_eq!(guarded.next_message(), Some(FromGuard::StoppedAtStart { is_program: false }));
        assert_eq!(state_of(pid), Some('T'));
        guarded.send(&decision);
        let outcome = collect_outcome(guarded, directory);
        assert_eq!(outcome.ending(), (Some(1), None));
        let is_reported = decision == ToGuard::ContinueTraced;
        assert_eq!(outcome.untraced.len(), usize::from(is_reported), "{:?}", outcome.untraced);
    }
}

fn held_test_ends_at_first_terminate() {
    let (mut guarded, directory, _) = start_held(&["exit1"]);
    guarded.send(&ToGuard::Terminate { grace_ms: 60_000 });
    assert_eq!(collect_outcome(guarded, directory).ending(), (None, Some(Signal::TERM.0)));
}

fn held_test_dies_with_its_worker() {
    let (mut guarded, _directory, pid) = start_held(&["exit1"]);
    guarded.control = None;
    guarded.output.wait_for_end();
    assert_eq!(guarded.guard.wait().unwrap().code, Some(1));
    assert_eq!(state_of(pid), None);
}

fn missing_held_program_is_reported() {
    for wrapper in [&[][..], &[crash_program().as_os_str().to_owned(), "noptrace".into()]] {
        let mut guarded = GuardedTest::start_under(wrapper);
        let command =
            TestCommand { is_stopped_at_start: true, ..command(Path::new("/no/such/program"), &[]) };
        guarded.send(&ToGuard::Exec(command));
        let error = loop {
            match guarded.next_message() {
                Some(FromGuard::Started { .. }) => {}
                Some(FromGuard::StoppedAtStart { .. }) => guarded.send(&ToGuard::ContinueUntraced),
                Some(FromGuard::StartFailed { error }) => break error,
                other => panic!("{other:?}"),
            }
        };
        assert!(error.contains("/no/such/program"), "{error}");
        assert_eq!(guarded.next_message(), None);
        guarded.guard.wait().unwrap();
    }
}

fn test_continues_after_debugger_is_killed() {
    let (mut guarded, directory, pid) = start_held(&["exit1"]);
    let debugger = GdbSession::attach(pid, directory.path(), &[]);
    guarded.send(&ToGuard::ContinueUntraced);
    debugger.child.signal(Signal::KILL).unwrap();
    assert_eq!(collect_outcome(guarded, directory).ending(), (Some(1), None));
}

fn test_left_stopped_by_debugger_is_resumed() {
    let (mut guarded, directory, pid) = start_held(&["exit1"]);
    let stop = format!("shell kill -STOP {pid}");
    let debugger = GdbSession::attach(pid, directory.path(), &["break main", "continue", &stop, "detach"]);
    guarded.send(&ToGuard::ContinueUntraced);
    guarded.send(&ToGuard::Pause);
    assert_eq!(guarded.next_message(), Some(FromGuard::Paused));
    guarded.send(&ToGuard::Resume);
    debugger.proceed();
    debugger.wait_for_exit();
    wait_until("the test stands", || state_of(pid), |state| *state == Some('T'));
    assert_eq!(guarded.next_message(), Some(FromGuard::DebuggerExited));
    assert_eq!(collect_outcome(guarded, directory).ending(), (Some(1), None));
}
