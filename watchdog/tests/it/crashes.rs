//! The guard as a tracer, with programs that end in every way. Checks which crashes are reported, which ends
//! are not, and that tracing changes none of them.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::Read,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::OnceLock,
    time::{Duration, Instant},
};

use heeler_protocol::control::{
    CrashReport, DumpKinds, FromGuard, ProcessExit, TestCommand, ToGuard, TraceMode, TracePlan,
};
use heeler_sys::{
    process::{Pid, Signal, kill_group},
    spawn::{ChildStdio, SpawnOptions, spawn},
};

use crate::{
    NamedTest,
    support::{GuardedTest, shell_command, state_of, wait_until},
    tests,
};

pub(crate) const TESTS: &[NamedTest] = tests![
    fatal_signal_is_reported_with_stack_and_dump,
    non_crash_exits_are_not_reported_as_crashes,
    traced_program_ends_like_untraced_one,
    thread_crash_blames_that_thread,
    program_that_maps_itself_is_unwound,
    simultaneous_thread_crashes_give_one_dump,
    crash_after_main_thread_exit_is_reported,
    unstoppable_thread_prevents_only_the_dump,
    reraising_handler_shows_the_faulting_line,
    exiting_handler_keeps_the_fault_stack,
    aborting_handler_reports_fault_as_cause,
    recovered_fault_is_not_blamed_later,
    death_tests_are_not_reported,
    program_started_by_shell_is_traced,
    child_crash_is_reported_only_if_test_fails,
    traced_test_can_stop_and_continue,
    traced_tree_can_be_paused_and_resumed,
    rust_overflows_are_crashes_and_panics_are_not,
    disabled_dumps_keep_the_stack,
    sample_reports_process_activity,
    hung_tree_is_dumped_and_continues,
    crashes_under_load_are_all_reported,
];

/// Outcome of a program under a guard.
pub(crate) struct GuardedOutcome {
    pub(crate) untraced: Vec<String>,
    pub(crate) crashes: Vec<CrashReport>,
    pub(crate) end: ProcessExit,
    pub(crate) output: String,
    _directory: tempfile::TempDir,
}

impl GuardedOutcome {
    pub(crate) fn crash(&self) -> &CrashReport {
        assert_eq!(self.crashes.len(), 1, "{:?} {:?}", self.crashes, self.untraced);
        &self.crashes[0]
    }

    pub(crate) fn ending(&self) -> (Option<i32>, Option<i32>) {
        (self.end.code, self.end.signal)
    }
}

/// Compiles a fixture program, unless it was already compiled from this source.
pub(crate) fn compile(name: &str, flags: &[&str]) -> PathBuf {
    let directory = std::env::current_exe().unwrap().parent().unwrap().join("fixtures");
    std::fs::create_dir_all(&directory).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let mut hasher = DefaultHasher::new();
    std::fs::read(&source).unwrap().hash(&mut hasher);
    let flags_in_name = flags.concat().replace(['/', ' '], "_");
    let program = directory.join(format!("{name}{flags_in_name}-{:016x}", hasher.finish()));
    if program.exists() {
        return program;
    }
    let part = program.with_extension("part");
    let compiler = if name.ends_with(".rs") { "rustc" } else { "g++" };
    let mut args: Vec<std::ffi::OsString> = flags.iter().map(Into::into).collect();
    args.extend([source.into(), "-o".into(), part.clone().into()]);
    let mut find = vec![std::ffi::OsString::from(compiler)];
    find.append(&mut args);
    let mut child =
        spawn(SpawnOptions { args: find, stdout: ChildStdio::Inherit, ..SpawnOptions::new("/usr/bin/env") })
            .unwrap();
    assert_eq!(child.wait().unwrap().code, Some(0), "compile {name}");
    std::fs::rename(part, &program).unwrap();
    program
}

pub(crate) fn crash_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("crash.cpp", &["-g", "-O1", "-pthread"]))
}

pub(crate) fn trace_plan(directory: &Path, mode: TraceMode) -> TracePlan {
    TracePlan {
        mode,
        dumps: DumpKinds { crash: true, hang: true },
        dir: directory.into(),
        name: "test".to_owned(),
        limit_bytes: 64 << 20,
        keeps_environment: false,
        expected_crash_markers: Vec::new(),
        is_tracer_read_by_framework: false,
        run_mark: None,
    }
}

pub(crate) fn command(program: &Path, args: &[&str]) -> TestCommand {
    TestCommand {
        program: program.into(),
        args: args.iter().map(|arg| (*arg).into()).collect(),
        ..shell_command("")
    }
}

/// Starts a command under a guard with this trace mode.
pub(crate) fn start_traced(command: TestCommand, mode: TraceMode) -> (GuardedTest, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let mut guarded = GuardedTest::start();
    let trace = Some(trace_plan(directory.path(), mode));
    guarded.send(&ToGuard::Exec(TestCommand { trace, ..command }));
    (guarded, directory)
}

pub(crate) fn run_traced(command: TestCommand, mode: TraceMode) -> GuardedOutcome {
    let (guarded, directory) = start_traced(command, mode);
    collect_outcome(guarded, directory)
}

pub(crate) fn collect_outcome(mut guarded: GuardedTest, directory: tempfile::TempDir) -> GuardedOutcome {
    let (mut untraced, mut crashes) = (Vec::new(), Vec::new());
    let end = loop {
        match guarded.next_message() {
            Some(FromGuard::Started { .. }) => {}
            Some(FromGuard::Untraced { reason }) => untraced.push(reason),
            Some(FromGuard::Crashed(report)) => crashes.push(report),
            Some(FromGuard::Ended(end)) => break end,
            other => panic!("{other:?}"),
        }
    };
    let output = guarded.output.wait_for_end().to_owned();
    guarded.guard.wait().unwrap();
    GuardedOutcome { untraced, crashes, end, output, _directory: directory }
}

/// Prints a guard's reports for any program: `cargo test -p heeler-watchdog --test it -- watch root PROGRAM
/// ARGS`.
pub(crate) fn print_reports(line: &[String]) -> ExitCode {
    let mode = if line[0] == "tree" { TraceMode::Tree } else { TraceMode::Root };
    let args: Vec<&str> = line[2..].iter().map(String::as_str).collect();
    let outcome = run_traced(command(Path::new(&line[1]), &args), mode);
    println!("{}\n{:?} untraced {:?}", outcome.output, outcome.ending(), outcome.untraced);
    for report in outcome.crashes {
        println!("{:#?}\n{}", CrashReport { stack: String::new(), ..report.clone() }, report.stack);
    }
    ExitCode::SUCCESS
}

pub(crate) fn run_crasher(mode: &str) -> GuardedOutcome {
    run_traced(command(crash_program(), &[mode]), TraceMode::Root)
}

/// Asserts that the dump is readable and agrees with the report.
fn assert_dump(report: &CrashReport) {
    let path = report.dump.as_ref().unwrap_or_else(|| panic!("{report:?}"));
    let summary = heeler_crash::dump::read(path.as_path()).unwrap();
    assert!(!summary.threads.is_empty(), "{summary:?}");
    let text = std::fs::read_to_string(report.stacks_file.as_ref().unwrap().as_path()).unwrap();
    assert!(text.contains(&Signal(report.signal).name()), "{text}");
}

fn fatal_signal_is_reported_with_stack_and_dump() {
    let cases = [
        ("segv", "SIGSEGV", "deref"),
        ("nullcall", "SIGSEGV", "main"),
        ("bus", "SIGBUS", "main"),
        ("ill", "SIGILL", "main"),
        ("fpe", "SIGFPE", "main"),
        ("abort", "SIGABRT", "main"),
        ("assert", "SIGABRT", "main"),
        ("terminate", "SIGABRT", "main"),
        ("trap", "SIGTRAP", "main"),
        ("sys", "SIGSYS", "main"),
        ("stackoverflow", "SIGSEGV", "overflow"),
        ("killsegv", "SIGSEGV", "main"),
        ("raisefpe", "SIGFPE", "main"),
        ("execself", "SIGSEGV", "deref"),
        ("threadexec", "SIGSEGV", "deref"),
        ("nodump", "SIGSEGV", "deref"),
        ("hreset", "SIGSEGV", "deref"),
    ];
    for (mode, signal, function) in cases {
        let outcome = run_crasher(mode);
        let report = outcome.crash();
        assert_eq!(Signal(report.signal).name(), signal, "{mode}");
        assert_eq!(outcome.ending(), (None, Some(report.signal)), "{mode}");
        assert!(report.stack.contains(function), "{mode}: {report:?}");
        assert!(report.is_root && !report.is_handled, "{mode}: {report:?}");
        assert_eq!(report.thread.id, report.pid, "{mode}");
        assert_dump(report);
    }
    let outcome = run_crasher("segv");
    let top = outcome.crash().stack.lines().next().unwrap().to_owned();
    assert!(top.contains("deref") && top.contains("crash.cpp:"), "{top}");
    assert_eq!(outcome.crash().address, Some(0));
}

fn non_crash_exits_are_not_reported_as_crashes() {
    for mode in
        ["ok", "exit1", "_exit1", "kill9", "term", "ignored", "hrecover", "hdivert", "hdivertfail", "syskill"]
    {
        let outcome = run_crasher(mode);
        assert_eq!((&outcome.crashes, &outcome.untraced), (&vec![], &vec![]), "{mode}");
        assert_ne!(outcome.end.code, Some(99), "{mode}");
    }
}

fn traced_program_ends_like_untraced_one() {
    let modes = "ok exit1 _exit1 segv nullcall bus ill fpe abort assert terminate trap sys syskill stackoverflow \
                 kill9 killsegv raisefpe term thread manythreads leaderexit forkchild spawnchild vforkchild \
                 execself threadexec hexit hexitalt hexitwell hreraise hreraisealt hreset habort hoverflow \
                 hrecover hrecoverfail hdivert hdivertfail hdivertabort ignored nodump traceme ptraces";
    let mut differences = BTreeMap::new();
    for mode in modes.split_ascii_whitespace() {
        let mut guarded = GuardedTest::start();
        guarded.send(&ToGuard::Exec(command(crash_program(), &[mode])));
        let bare = collect_outcome(guarded, tempfile::tempdir().unwrap());
        let traced = run_crasher(mode);
        if (bare.ending(), &bare.output) != (traced.ending(), &traced.output) || bare.end.code == Some(99) {
            differences.insert(mode, (bare.end, bare.output, traced.end, traced.output));
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

fn thread_crash_blames_that_thread() {
    let outcome = run_crasher("thread");
    let report = outcome.crash();
    assert_eq!(report.thread.name, "worker-5");
    assert_ne!(report.thread.id, report.pid);
    assert!(report.stack.contains("deref"), "{}", report.stack);
    let summary = heeler_crash::dump::read(report.dump.as_ref().unwrap().as_path()).unwrap();
    assert_eq!(summary.threads.len(), 9);
    let text = std::fs::read_to_string(report.stacks_file.as_ref().unwrap().as_path()).unwrap();
    assert!((0..8).all(|worker| text.contains(&format!("worker-{worker}"))), "{text}");
}

fn program_that_maps_itself_is_unwound() {
    let report = run_crasher("mapsself").crash().stack.clone();
    assert!(report.contains("abort") && report.contains("main at"), "{report}");
}

fn simultaneous_thread_crashes_give_one_dump() {
    for _ in 0..10 {
        let outcome = run_crasher("manythreads");
        assert_eq!(outcome.end.signal, Some(Signal::SEGV.0));
        assert_dump(outcome.crash());
    }
}

fn crash_after_main_thread_exit_is_reported() {
    let outcome = run_crasher("leaderexit");
    let report = outcome.crash();
    assert!(report.stack.contains("deref"), "{report:?}");
    assert_eq!(outcome.end.signal, Some(Signal::SEGV.0));
}

fn unstoppable_thread_prevents_only_the_dump() {
    let started = Instant::now();
    let outcome = run_crasher("vforkcrash");
    let report = outcome.crash();
    assert!(report.dump.is_none() && report.soft_errors.len() == 1, "{report:?}");
    assert!(report.stack.contains("deref"), "{report:?}");
    assert_eq!(outcome.end.signal, Some(Signal::SEGV.0));
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
}

fn reraising_handler_shows_the_faulting_line() {
    for (mode, function) in [("hreraise", "deref"), ("hreraisealt", "deref"), ("hoverflow", "overflow")] {
        let outcome = run_crasher(mode);
        let report = outcome.crash();
        let top = report.stack.lines().next().unwrap();
        assert!(top.contains(function), "{mode}: {}", report.stack);
        assert!(report.code > 0 && report.cause.is_none(), "{report:?}");
        assert_eq!(outcome.end.signal, Some(Signal::SEGV.0));
        assert_dump(report);
    }
}

fn exiting_handler_keeps_the_fault_stack() {
    for (mode, code) in [("hexit", 3), ("hexitalt", 3), ("hexitwell", 0)] {
        let outcome = run_crasher(mode);
        let report = outcome.crash();
        assert!(report.is_handled && report.stack.contains("deref"), "{mode}: {report:?}");
        assert_eq!((report.signal, report.address), (Signal::SEGV.0, Some(0)));
        assert_eq!(outcome.ending(), (Some(code), None));
    }
}

fn aborting_handler_reports_fault_as_cause() {
    let outcome = run_crasher("habort");
    let report = outcome.crash();
    assert_eq!(report.signal, Signal::ABRT.0);
    assert_eq!(report.cause.map(|cause| cause.signal), Some(Signal::SEGV.0));
    let mut lines = report.stack.lines();
    assert!(lines.next().unwrap().contains("frames of the signal handler"), "{}", report.stack);
    assert!(lines.next().unwrap().contains("deref"), "{}", report.stack);
    let text = std::fs::read_to_string(report.stacks_file.as_ref().unwrap().as_path()).unwrap();
    assert!(text.contains("aborts"), "{text}");
}

fn recovered_fault_is_not_blamed_later() {
    for (mode, code) in [("hrecoverfail", 1), ("hdivertfail", 2)] {
        let outcome = run_crasher(mode);
        assert_eq!(
            (outcome.ending(), outcome.crashes.len()),
            ((Some(code), None), 0),
            "{:?}",
            outcome.crashes
        );
    }
    let outcome = run_crasher("hdivertabort");
    assert_eq!((outcome.crash().signal, &outcome.crash().cause), (Signal::ABRT.0, &None));
}

fn death_tests_are_not_reported() {
    for mode in ["forkchild", "vforkchild", "spawnchild"] {
        let outcome = run_crasher(mode);
        assert!(outcome.crashes.is_empty(), "{mode}: {:?}", outcome.crashes);
        assert!(outcome.output.contains("child signal 11"), "{mode}: {}", outcome.output);
    }
    let outcome = run_traced(command(crash_program(), &["forkchild"]), TraceMode::Tree);
    assert!(outcome.crashes.is_empty(), "{:?}", outcome.crashes);
}

fn program_started_by_shell_is_traced() {
    let script = format!("{} segv; exit $?", crash_program().display());
    let outcome = run_traced(shell_command(&script), TraceMode::Root);
    let report = outcome.crash();
    assert_eq!((report.is_root, outcome.ending()), (false, (Some(139), None)));
    assert!(report.stack.contains("deref"), "{report:?}");
    assert_dump(report);
    // The shell makes no difference: the program is traced, and its children are not.
    let script = format!("{} spawnchild; exit $?", crash_program().display());
    assert!(run_traced(shell_command(&script), TraceMode::Root).crashes.is_empty());
    let script = format!("{} traceme; exit $?", crash_program().display());
    assert_eq!(run_traced(shell_command(&script), TraceMode::Root).ending(), (Some(0), None));
    // A shell that executes the program in its place.
    let script = format!("exec {} segv", crash_program().display());
    assert!(run_traced(shell_command(&script), TraceMode::Root).crash().is_root);
}

fn child_crash_is_reported_only_if_test_fails() {
    let outcome = run_traced(command(crash_program(), &["spawnchild"]), TraceMode::Tree);
    assert_eq!(outcome.ending(), (Some(1), None));
    assert!(!outcome.crash().is_root);
    let outcome = run_traced(command(crash_program(), &["vforkchild"]), TraceMode::Tree);
    assert_eq!((outcome.ending(), outcome.crashes.len()), ((Some(0), None), 0));
    assert_eq!(std::fs::read_dir(outcome._directory.path()).unwrap().count(), 0);
}

fn traced_test_can_stop_and_continue() {
    let (mut guarded, directory) = start_traced(command(crash_program(), &["stopcont"]), TraceMode::Root);
    let pid = guarded.expect_started();
    guarded.output.wait_for("stops\n");
    // A group-stop observed by the tracer looks like a tracing stop.
    wait_until("it has stopped", || state_of(pid), |state| *state == Some('t'));
    kill_group(Pid(pid.cast_signed()), Signal::CONT).unwrap();
    let outcome = collect_outcome(guarded, directory);
    assert_eq!((outcome.ending(), outcome.output.as_str()), ((Some(0), None), "stops\ncontinued\n"));
}

/// Waits until all five threads of the idle program are blocked.
fn await_idle(pid: Pid) {
    let calls = || {
        let threads = heeler_sys::trace::threads(pid).into_iter();
        threads.filter_map(|tid| heeler_sys::trace::read_syscall_state(tid)?.syscall).collect::<Vec<_>>()
    };
    wait_until("all threads pause", calls, |calls| {
        calls.len() == 5 && calls.iter().all(|call| call == "pause")
    });
}

fn traced_tree_can_be_paused_and_resumed() {
    let (mut guarded, directory) = start_traced(command(crash_program(), &["busy"]), TraceMode::Root);
    let pid = guarded.expect_started();
    guarded.output.wait_for("ready");
    guarded.send(&ToGuard::Pause);
    assert_eq!(guarded.next_message(), Some(FromGuard::Paused));
    assert_eq!(state_of(pid), Some('t'));
    guarded.send(&ToGuard::Resume);
    wait_until("it runs on", || state_of(pid), |state| *state == Some('R'));
    guarded.send(&ToGuard::Terminate { grace_ms: 60_000 });
    assert_eq!(collect_outcome(guarded, directory).ending(), (None, Some(Signal::TERM.0)));
}

fn rust_overflows_are_crashes_and_panics_are_not() {
    let program = compile("ends.rs", &["-g", "--edition=2024", "-Aunconditional_recursion"]);
    for mode in ["panic", "caught"] {
        let outcome = run_traced(command(&program, &[mode]), TraceMode::Root);
        assert_eq!(outcome.crashes, [], "{mode}");
        assert_eq!(outcome.end.code, Some(if mode == "panic" { 101 } else { 0 }));
    }
    let outcome = run_traced(command(&program, &["overflow"]), TraceMode::Root);
    let report = outcome.crash();
    assert_eq!((report.signal, outcome.end.signal), (Signal::ABRT.0, Some(Signal::ABRT.0)));
    assert_eq!(report.cause.map(|cause| cause.signal), Some(Signal::SEGV.0));
    assert!(report.stack.lines().nth(1).unwrap().contains("ends::deeper"), "{}", report.stack);
    assert_dump(report);
    let outcome = run_traced(command(&program, &["wild"]), TraceMode::Root);
    assert_eq!((outcome.crash().signal, outcome.crash().address), (Signal::SEGV.0, Some(8)));
    assert!(outcome.crash().stack.contains("ends::wild"), "{}", outcome.crash().stack);
}

fn disabled_dumps_keep_the_stack() {
    for mode in ["thread", "abort", "stackoverflow", "manythreads"] {
        let directory = tempfile::tempdir().unwrap();
        let dumps = DumpKinds::default();
        let trace = Some(TracePlan { dumps, ..trace_plan(directory.path(), TraceMode::Root) });
        let mut guarded = GuardedTest::start();
        guarded.send(&ToGuard::Exec(TestCommand { trace, ..command(crash_program(), &[mode]) }));
        let outcome = collect_outcome(guarded, directory);
        let report = outcome.crash();
        assert!(report.dump.is_none() && !report.stack.is_empty(), "{mode}: {report:?}");
        assert_eq!(outcome.end.signal, Some(report.signal));
    }
}

fn sample_reports_process_activity() {
    for (mode, state) in [("idle", "BLOCKED in pause (5 threads)"), ("busy", "BUSY"), ("polling", "POLLING")]
    {
        let (mut guarded, directory) = start_traced(command(crash_program(), &[mode]), TraceMode::Root);
        let pid = guarded.expect_started();
        guarded.output.wait_for("ready");
        if mode == "idle" {
            await_idle(Pid(pid.cast_signed()));
        }
        let asked = Instant::now();
        guarded.send(&ToGuard::Sample);
        let Some(FromGuard::Sampled(sample)) = guarded.next_message() else { panic!("no sample") };
        assert!(asked.elapsed() >= Duration::from_millis(400));
        assert_eq!(sample.processes.len(), 1, "{sample:?}");
        assert_eq!(sample.processes[0].pid, pid);
        // On a busy machine, even a process that needs little CPU time may be starved.
        let is_starved = mode != "idle" && sample.processes[0].state == "STARVED";
        assert!(sample.processes[0].state == state || is_starved, "{sample:?}");
        assert_eq!(sample.processes[0].is_working, mode == "busy" || is_starved, "{sample:?}");
        guarded.send(&ToGuard::Pause);
        assert_eq!(guarded.next_message(), Some(FromGuard::Paused));
        guarded.send(&ToGuard::Sample);
        let Some(FromGuard::Sampled(sample)) = guarded.next_message() else { panic!("no sample") };
        assert_eq!(sample.processes[0].state, "STOPPED");
        assert!(!sample.processes[0].is_working);
        guarded.send(&ToGuard::Kill);
        collect_outcome(guarded, directory);
    }
}

fn hung_tree_is_dumped_and_continues() {
    let script = format!("{0} idle & {0} busy & wait", crash_program().display());
    for mode in [TraceMode::Off, TraceMode::Root, TraceMode::Tree] {
        let (mut guarded, directory) = start_traced(shell_command(&script), mode);
        let pid = guarded.expect_started();
        guarded.output.wait_for("ready\nready\n");
        let below = heeler_sys::process::descendants(Pid(pid.cast_signed()));
        await_idle(
            *below.iter().find(|pid| heeler_sys::process::command_line(**pid).ends_with("idle")).unwrap(),
        );
        for _ in 0..2 {
            guarded.send(&ToGuard::Dump);
            let Some(FromGuard::Dumped(report)) = guarded.next_message() else { panic!("no dumps") };
            assert_eq!(report.processes.len(), 3, "{report:?}");
            assert_eq!(report.processes[0].pid, pid);
            let machine = report.machine.as_ref().expect("the system reports load and memory");
            assert!(machine.cores > 0 && machine.available_kib < machine.total_kib, "{machine:?}");
            for process in &report.processes {
                let facts = process.facts.as_ref().unwrap_or_else(|| panic!("{report:?}"));
                assert!(!facts.name.is_empty() && facts.memory_kib > 0 && facts.age_s < 600, "{facts:?}");
                let dump = process.dump.as_ref().unwrap_or_else(|| panic!("{mode:?} {report:?}"));
                assert!(!heeler_crash::dump::read(dump.as_path()).unwrap().threads.is_empty());
            }
            let idle = report.processes.iter().find(|process| process.command.ends_with("idle")).unwrap();
            assert!(idle.stack.contains("main at"), "{idle:?}");
            assert_eq!(idle.state, "BLOCKED in pause (5 threads)");
        }
        // The process is still running and traced as before.
        guarded.send(&ToGuard::Pause);
        assert_eq!(guarded.next_message(), Some(FromGuard::Paused));
        guarded.send(&ToGuard::Dump);
        let Some(FromGuard::Dumped(report)) = guarded.next_message() else { panic!("no dumps") };
        assert!(report.processes.iter().all(|process| process.state == "STOPPED"), "{report:?}");
        wait_until("it stands again", || state_of(pid), |state| matches!(state, Some('T' | 't')));
        guarded.send(&ToGuard::Resume);
        wait_until("it runs on", || state_of(pid), |state| *state == Some('S'));
        guarded.send(&ToGuard::Kill);
        let outcome = collect_outcome(guarded, directory);
        assert!(outcome.crashes.is_empty());
    }
}

fn crashes_under_load_are_all_reported() {
    const AT_A_TIME: usize = 8;
    let wanted = if std::env::var_os("HEELER_LONG_FORMS").is_some() { 500 } else { 108 };
    // Used alternately: one is linked dynamically, the other statically.
    let programs = [crash_program(), &compile("crash.cpp", &["-g", "-O1", "-pthread", "-static"])];
    // Each mode with the signal that kills it, and a function in its stack trace.
    let modes = [
        ("segv", Signal::SEGV, "deref"),
        ("abort", Signal::ABRT, "main"),
        ("thread", Signal::SEGV, "deref"),
        ("manythreads", Signal::SEGV, "deref"),
        ("hreraise", Signal::SEGV, "deref"),
        ("trap", Signal::TRAP, "main"),
        ("stackoverflow", Signal::SEGV, "overflow"),
        ("sys", Signal::SYS, "main"),
        ("killsegv", Signal::SEGV, "main"),
    ];
    let started = Instant::now();
    let mut running = std::collections::VecDeque::new();
    let mut crashes = 0;
    for (index, mode) in modes.iter().cycle().take(wanted).enumerate() {
        running.push_back((
            index,
            mode,
            start_traced(command(programs[index % 2], &[mode.0]), TraceMode::Root),
        ));
        let is_last = index + 1 == wanted;
        while running.len() == AT_A_TIME || is_last && !running.is_empty() {
            let (index, (mode, signal, function), (mut guarded, directory)) = running.pop_front().unwrap();
            let pid = guarded.expect_started();
            let outcome = collect_outcome(guarded, directory);
            let report = outcome.crash();
            assert_eq!((report.pid, report.is_root, report.signal), (pid, true, signal.0), "{index} {mode}");
            assert_eq!(outcome.ending(), (None, Some(signal.0)), "{index} {mode}");
            assert!(report.stack.contains(function), "{index} {mode}: {report:?}");
            let dump = report.dump.as_ref().unwrap_or_else(|| panic!("{index} {mode}: {report:?}"));
            let mut head = [0; 4];
            std::fs::File::open(dump.as_path()).and_then(|mut file| file.read_exact(&mut head)).unwrap();
            assert_eq!(&head, b"MDMP", "{index} {mode}");
            // Reading a dump takes longer than everything else. Each kind of crash is read at least once.
            if index % 13 == 0 {
                assert_dump(report);
            }
            crashes += 1;
        }
    }
    assert_eq!(crashes, wanted);
    println!("{crashes} crashes in {:.1?}", started.elapsed());
}
