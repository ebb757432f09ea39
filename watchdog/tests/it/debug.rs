//! Tests stopped before their first instruction: what a real debugger can do with them, and how those run
//! that no debugger takes.

use std::{ffi::OsString, path::Path};

use host::{
    process::{Pid, Signal},
    spawn::{Child, Spawn, Stream, spawn},
    trace::tracer_of,
};
use wire::control::{Command, FromGuard, ToGuard, TraceMode};

use crate::{
    Test,
    crashes::{begin, command, crasher, finish, plan},
    support::{Feet, Guarded, state_of, until},
    tests,
};

pub(crate) const TESTS: &[Test] = tests![
    a_held_test_stands_before_its_first_instruction_and_belongs_to_nobody,
    a_debugger_finds_its_breakpoint_and_sees_no_signal_of_ours,
    a_test_that_no_debugger_takes_is_watched_as_any_other,
    a_test_that_nobody_attached_to_runs_on,
    where_tracing_is_forbidden_a_held_test_stands_before_its_program,
    a_held_test_ends_by_the_first_wish,
    a_held_test_is_gone_with_its_worker,
    a_held_program_that_is_not_there_is_told,
    a_test_whose_debugger_is_killed_runs_on,
    a_test_that_its_debugger_left_standing_runs_on,
];

fn held(args: &[&str]) -> Command {
    Command { is_held: true, ..command(crasher(), args) }
}

fn begin_held(args: &[&str]) -> (Guarded, tempfile::TempDir, u32) {
    let (mut guarded, directory) = begin(held(args), TraceMode::Root);
    let pid = guarded.started();
    assert_eq!(guarded.next(), Some(FromGuard::Standing { is_program: true }));
    (guarded, directory, pid)
}

/// A debugger that has attached, and executes `then` when it may.
struct Debugger {
    child: Child,
    output: Feet,
    go: std::path::PathBuf,
}

impl Debugger {
    fn attach(pid: u32, directory: &Path, then: &[&str]) -> Self {
        let go = directory.join("go");
        let wait = format!(
            "shell echo attached; while [ ! -e {} -a -d {} ]; do sleep 0.01; done",
            go.display(),
            directory.display()
        );
        let mut args: Vec<OsString> = ["gdb", "-q", "-batch", "-nx", "-p"].map(Into::into).into();
        args.extend([pid.to_string().into(), "-ex".into(), wait.into()]);
        args.extend(then.iter().flat_map(|line| ["-ex".into(), OsString::from(line)]));
        let (mut output, writer) = Feet::new();
        let errors = writer.try_clone().unwrap();
        let start = Spawn {
            args,
            stdout: Stream::Fd(writer),
            stderr: Stream::Fd(errors),
            ..Spawn::new("/usr/bin/env")
        };
        let child = spawn(start).unwrap();
        output.wait_for("attached\n");
        assert_eq!(tracer_of(Pid(pid.cast_signed())), Some(child.pid()));
        Self { child, output, go }
    }

    fn go_on(&self) {
        std::fs::write(&self.go, "").unwrap();
    }

    fn end(mut self) -> String {
        let text = self.output.wait_for_end().to_owned();
        self.child.wait().unwrap();
        text
    }
}

fn a_held_test_stands_before_its_first_instruction_and_belongs_to_nobody() {
    let (mut guarded, directory, pid) = begin_held(&["exit1"]);
    assert_eq!((state_of(pid), tracer_of(Pid(pid.cast_signed()))), (Some('T'), None));
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_eq!(program, crasher().canonicalize().unwrap());
    // The dynamic loader has not run: the C library is not mapped.
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    assert!(!maps.contains("libc.so"), "{maps}");
    guarded.send(&ToGuard::HandOver);
    assert_eq!(finish(guarded, directory).ending(), (Some(1), None));
}

fn a_debugger_finds_its_breakpoint_and_sees_no_signal_of_ours() {
    let (mut guarded, directory, pid) = begin_held(&["segv"]);
    let debugger = Debugger::attach(pid, directory.path(), &["break level2", "continue", "bt 3", "kill"]);
    guarded.send(&ToGuard::HandOver);
    // A response to a later message proves that the guard has handled this one.
    guarded.send(&ToGuard::Pause);
    assert_eq!(guarded.next(), Some(FromGuard::Paused));
    guarded.send(&ToGuard::Resume);
    debugger.go_on();
    let text = debugger.end();
    assert!(text.contains("Breakpoint 1, level2") && text.contains("in level1"), "{text}");
    assert!(!text.contains("received signal"), "{text}");
    let outcome = finish(guarded, directory);
    assert_eq!((outcome.ending(), outcome.crashes.len()), ((None, Some(Signal::KILL.0)), 0));
}

fn a_test_that_no_debugger_takes_is_watched_as_any_other() {
    let (mut guarded, directory, _) = begin_held(&["segv"]);
    guarded.send(&ToGuard::TakeBack);
    let outcome = finish(guarded, directory);
    assert_eq!(outcome.ending(), (None, Some(Signal::SEGV.0)));
    assert!(outcome.crash().stack.contains("deref"), "{}", outcome.crash().stack);
    assert!(outcome.crash().dump.is_some() && outcome.untraced.is_empty());
}

fn a_test_that_nobody_attached_to_runs_on() {
    let (mut guarded, directory, _) = begin_held(&["segv"]);
    guarded.send(&ToGuard::HandOver);
    let outcome = finish(guarded, directory);
    assert_eq!((outcome.ending(), outcome.crashes.len()), ((None, Some(Signal::SEGV.0)), 0));
    assert!(outcome.untraced.is_empty(), "{:?}", outcome.untraced);
}

fn where_tracing_is_forbidden_a_held_test_stands_before_its_program() {
    for decision in [ToGuard::HandOver, ToGuard::TakeBack] {
        let directory = tempfile::tempdir().unwrap();
        let wrapper = [crasher().as_os_str(), "noptrace".as_ref()].map(Into::into);
        let mut guarded = Guarded::start_behind(&wrapper);
        let trace = Some(plan(directory.path(), TraceMode::Root));
        guarded.send(&ToGuard::Exec(Command { trace, ..held(&["exit1"]) }));
        let pid = guarded.started();
        assert_eq!(guarded.next(), Some(FromGuard::Standing { is_program: false }));
        assert_eq!(state_of(pid), Some('T'));
        guarded.send(&decision);
        let outcome = finish(guarded, directory);
        assert_eq!(outcome.ending(), (Some(1), None));
        let is_told = decision == ToGuard::TakeBack;
        assert_eq!(outcome.untraced.len(), usize::from(is_told), "{:?}", outcome.untraced);
    }
}

fn a_held_test_ends_by_the_first_wish() {
    let (mut guarded, directory, _) = begin_held(&["exit1"]);
    guarded.send(&ToGuard::Terminate { grace_ms: 60_000 });
    assert_eq!(finish(guarded, directory).ending(), (None, Some(Signal::TERM.0)));
}

fn a_held_test_is_gone_with_its_worker() {
    let (mut guarded, _directory, pid) = begin_held(&["exit1"]);
    guarded.control = None;
    guarded.output.wait_for_end();
    assert_eq!(guarded.guard.wait().unwrap().code, Some(1));
    assert_eq!(state_of(pid), None);
}

fn a_held_program_that_is_not_there_is_told() {
    for wrapper in [&[][..], &[crasher().as_os_str().to_owned(), "noptrace".into()]] {
        let mut guarded = Guarded::start_behind(wrapper);
        let command = Command { is_held: true, ..command(Path::new("/no/such/program"), &[]) };
        guarded.send(&ToGuard::Exec(command));
        let error = loop {
            match guarded.next() {
                Some(FromGuard::Started { .. }) => {}
                Some(FromGuard::Standing { .. }) => guarded.send(&ToGuard::HandOver),
                Some(FromGuard::Failed { error }) => break error,
                other => panic!("{other:?}"),
            }
        };
        assert!(error.contains("/no/such/program"), "{error}");
        assert_eq!(guarded.next(), None);
        guarded.guard.wait().unwrap();
    }
}

fn a_test_whose_debugger_is_killed_runs_on() {
    let (mut guarded, directory, pid) = begin_held(&["exit1"]);
    let debugger = Debugger::attach(pid, directory.path(), &[]);
    guarded.send(&ToGuard::HandOver);
    debugger.child.signal(Signal::KILL).unwrap();
    assert_eq!(finish(guarded, directory).ending(), (Some(1), None));
}

fn a_test_that_its_debugger_left_standing_runs_on() {
    let (mut guarded, directory, pid) = begin_held(&["exit1"]);
    let stop = format!("shell kill -STOP {pid}");
    let debugger = Debugger::attach(pid, directory.path(), &["break main", "continue", &stop, "detach"]);
    guarded.send(&ToGuard::HandOver);
    guarded.send(&ToGuard::Pause);
    assert_eq!(guarded.next(), Some(FromGuard::Paused));
    guarded.send(&ToGuard::Resume);
    debugger.go_on();
    debugger.end();
    until("the test stands", || state_of(pid), |state| *state == Some('T'));
    assert_eq!(guarded.next(), Some(FromGuard::Deserted));
    assert_eq!(finish(guarded, directory).ending(), (Some(1), None));
}
