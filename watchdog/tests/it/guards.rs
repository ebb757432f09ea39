//! The guard: one test process, its process tree, its exit.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use heeler_protocol::control::{FromGuard, TestCommand, ToGuard, TracePlan};
use heeler_sys::{
    cgroup::CgroupParent,
    process::{Pid, Signal, command_line, kill_group},
    spawn::{ChildStdio, SpawnOptions, spawn},
};

use crate::{
    NamedTest,
    support::{GuardedTest, is_gone, shell_command, state_of, wait_until},
    tests,
};

pub(crate) const TESTS: &[NamedTest] = tests![
    exit_code_is_reported_with_usage,
    fatal_signal_is_reported,
    output_bypasses_guard_and_ends_with_test,
    unstartable_program_is_reported_with_reason,
    test_inherits_no_guard_descriptors,
    daemon_is_killed_and_reported_as_leaked,
    daemon_child_is_reported_with_daemon_start_time,
    memory_limit_is_enforced_by_own_cgroup,
    cgroups_of_killed_guards_are_removed,
    helper_gets_100_ms_to_exit,
    test_ignoring_term_is_killed_after_grace,
    test_obeying_term_ends_before_grace,
    paused_test_receives_term,
    kill_ends_whole_tree_without_leaks,
    closed_control_connection_ends_guard_and_tree,
    test_dies_with_its_killed_guard,
    pause_stops_whole_tree_until_resume,
    self_stopped_process_stays_stopped_after_resume,
    orphans_are_reaped_while_the_test_runs,
    endless_fork_chains_are_killed,
];

fn exit_code_is_reported_with_usage() {
    let mut guarded = GuardedTest::shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 7");
    let _pid = guarded.expect_started();
    let end = guarded.expect_ended();
    assert_eq!((end.code, end.signal, end.has_core), (Some(7), None, false));
    assert!(end.leaked.is_empty());
    assert!(end.cpu_us > 1000 && end.peak_kib > 500 && end.wall_us > 1000, "{end:?}");
}

fn fatal_signal_is_reported() {
    let mut guarded = GuardedTest::shell("ulimit -c 0; kill -SEGV $$");
    let _pid = guarded.expect_started();
    let end = guarded.expect_ended();
    assert_eq!((end.code, end.signal), (None, Some(Signal::SEGV.0)));
}

fn output_bypasses_guard_and_ends_with_test() {
    let mut guarded = GuardedTest::shell("echo out; echo err >&2; exec sleep 1000");
    let pid = guarded.expect_started();
    guarded.output.wait_for("out\nerr\n");
    // The guard is still running, but has closed the pipe.
    guarded.send(&ToGuard::Pause);
    assert_eq!(guarded.next_message(), Some(FromGuard::Paused));
    let links: Vec<_> = (0..3)
        .map(|fd| std::fs::read_link(format!("/proc/{}/fd/{fd}", guarded.guard.pid())).unwrap())
        .collect();
    assert!(links[0].to_str().unwrap().starts_with("socket:"), "{links:?}");
    assert_eq!(links[1..], ["/dev/null", "/dev/null"].map(std::path::PathBuf::from));
    kill_group(Pid(pid.cast_signed()), Signal::KILL).unwrap();
    assert_eq!(guarded.output.wait_for_end(), "out\nerr\n");
    assert_eq!(guarded.expect_ended().signal, Some(Signal::KILL.0));
}

fn unstartable_program_is_reported_with_reason() {
    let mut guarded = GuardedTest::start();
    guarded.send(&ToGuard::Exec(TestCommand { program: "/no/such/test".into(), ..shell_command("") }));
    let error = "execute /no/such/test: No such file or directory (os error 2)".to_owned();
    assert_eq!(guarded.next_message(), Some(FromGuard::StartFailed { error }));
    assert_eq!(guarded.next_message(), None);
    assert_eq!(guarded.guard.wait().unwrap().code, Some(0));

    let mut guarded = GuardedTest::start();
    guarded.send(&ToGuard::Exec(TestCommand { cwd: "/no/such/place".into(), ..shell_command("") }));
    match guarded.next_message() {
        Some(FromGuard::StartFailed { error }) => assert!(error.contains("/no/such/place"), "{error}"),
        other => panic!("{other:?}"),
    }
}

fn test_inherits_no_guard_descriptors() {
    let mut guarded = GuardedTest::shell("readlink /proc/self/fd/0; ls /proc/self/fd | tr '\\n' ' '; cat");
    let _pid = guarded.expect_started();
    // `ls` itself has the directory open as 3.
    assert_eq!(guarded.output.wait_for_end(), "/dev/null\n0 1 2 3 ");
    assert_eq!(guarded.expect_ended().code, Some(0));
}

fn daemon_is_killed_and_reported_as_leaked() {
    let before = heeler_sys::process::time_since_boot();
    let script = "setsid sh -c 'sh -c \"sleep 1009 & echo daemon: \\$!\" &' & wait; exit 0";
    let mut guarded = GuardedTest::shell(script);
    let _pid = guarded.expect_started();
    let end = guarded.expect_ended();
    let daemon = guarded.output.number("daemon: ");
    assert_eq!(end.code, Some(0));
    let leaked = end.leaked.iter().find(|leaked| leaked.pid == daemon);
    assert_eq!(leaked.map(|leaked| leaked.command.as_str()), Some("sleep 1009"), "{:?}", end.leaked);
    let facts = leaked.and_then(|leaked| leaked.facts.as_ref()).expect("the system describes it");
    assert!(facts.name == "sleep" && facts.age_s < 60 && facts.memory_kib > 0, "{facts:?}");
    let started = leaked.and_then(|leaked| leaked.started_ms).map(Duration::from_millis);
    let started = started.expect("the system tells when it was started");
    assert!(
        before <= started + heeler_sys::process::start_time_resolution()
            && started <= heeler_sys::process::time_since_boot()
    );
    assert!(is_gone(daemon));
    guarded.output.wait_for_end();
}

fn daemon_child_is_reported_with_daemon_start_time() {
    let directory = tempfile::tempdir().unwrap();
    let script =
        "mkfifo \"$0\"; setsid sh -c 'sleep 0.05; sleep 1021 & echo >\"$0\"; wait' \"$0\" & cat <\"$0\"";
    let mut command = shell_command(script);
    command.args.push(directory.path().join("fifo").as_path().into());
    let mut guarded = GuardedTest::start();
    guarded.send(&ToGuard::Exec(command));
    let _pid = guarded.expect_started();
    let end = guarded.expect_ended();
    let started = |command: &str| {
        let found = end.leaked.iter().find(|leaked| leaked.command.starts_with(command));
        found.unwrap_or_else(|| panic!("{command}: {:?}", end.leaked)).started_ms
    };
    assert!(started("sleep 1021").is_some());
    assert_eq!(started("sleep 1021"), started("sh -c"), "{:?}", end.leaked);
}

fn helper_gets_100_ms_to_exit() {
    // The helper notices the test's exit as the end of a pipe.
    let directory = tempfile::tempdir().unwrap();
    let mut command = shell_command("mkfifo \"$0\"; cat < \"$0\" & exec 9> \"$0\"; exit 4");
    command.args.push(directory.path().join("fifo").as_path().into());
    let mut guarded = GuardedTest::start();
    let started = Instant::now();
    guarded.send(&ToGuard::Exec(command));
    let _pid = guarded.expect_started();
    let end = guarded.expect_ended();
    let after = started.elapsed().saturating_sub(Duration::from_micros(end.wall_us));
    assert_eq!(end.code, Some(4));
    // On a busy machine, the helper may not get to exit in time.
    assert!(end.leaked.is_empty() || after >= Duration::from_millis(100), "{after:?} {end:?}");
}

fn test_ignoring_term_is_killed_after_grace() {
    let mut guarded = GuardedTest::shell("trap '' TERM; echo deaf; while :; do sleep 1000; done");
    let _pid = guarded.expect_started();
    guarded.output.wait_for("deaf");
    let terminated_at = Instant::now();
    guarded.send(&ToGuard::Terminate { grace_ms: 50 });
    let end = guarded.expect_ended();
    assert!(terminated_at.elapsed() >= Duration::from_millis(50));
    assert_eq!((end.code, end.signal), (None, Some(Signal::KILL.0)));
    guarded.output.wait_for_end();
}

fn test_obeying_term_ends_before_grace() {
    let mut guarded =
        GuardedTest::shell("trap 'exit 9' TERM; echo ready; while :; do sleep 1000 & wait; done");
    let _pid = guarded.expect_started();
    guarded.output.wait_for("ready");
    guarded.send(&ToGuard::Terminate { grace_ms: 60_000 });
    assert_eq!(guarded.expect_ended().code, Some(9));
}

fn paused_test_receives_term() {
    let mut guarded =
        GuardedTest::shell("trap 'exit 9' TERM; echo ready; while :; do sleep 1000 & wait; done");
    let _pid = guarded.expect_started();
    guarded.output.wait_for("ready");
    guarded.send(&ToGuard::Pause);
    assert_eq!(guarded.next_message(), Some(FromGuard::Paused));
    guarded.send(&ToGuard::Terminate { grace_ms: 60_000 });
    assert_eq!(guarded.expect_ended().code, Some(9));
}

fn kill_ends_whole_tree_without_leaks() {
    let mut guarded = GuardedTest::shell("setsid sleep 1001 & echo hidden: $!; sleep 1002");
    let _pid = guarded.expect_started();
    let hidden = guarded.output.number("hidden: ");
    guarded.send(&ToGuard::Kill);
    let end = guarded.expect_ended();
    assert_eq!((end.signal, end.leaked), (Some(Signal::KILL.0), Vec::new()));
    assert!(is_gone(hidden));
    guarded.output.wait_for_end();
}

fn closed_control_connection_ends_guard_and_tree() {
    let mut guarded = GuardedTest::shell("setsid sleep 1001 & echo hidden: $!; sleep 1002");
    let pid = guarded.expect_started();
    let hidden = guarded.output.number("hidden: ");
    drop(guarded.control.take());
    guarded.output.wait_for_end();
    assert_eq!(guarded.guard.wait().unwrap().code, Some(1));
    assert!(is_gone(pid) && is_gone(hidden));
}

fn test_dies_with_its_killed_guard() {
    let mut guarded = GuardedTest::shell("echo ready; exec sleep 1000");
    let _pid = guarded.expect_started();
    guarded.output.wait_for("ready");
    guarded.guard.signal(Signal::KILL).unwrap();
    guarded.output.wait_for_end();
    assert_eq!(guarded.next_message(), None);
    guarded.guard.wait().unwrap();
}

fn pause_stops_whole_tree_until_resume() {
    let script = "setsid sleep 1001 & echo hidden: $!; sleep 1002 & echo near: $!; exec sleep 1003";
    let mut guarded = GuardedTest::shell(script);
    let pid = guarded.expect_started();
    let family = [pid, guarded.output.number("hidden: "), guarded.output.number("near: ")];
    let lines = || family.map(|pid| command_line(Pid(pid.cast_signed())));
    wait_until("all run", lines, |lines| *lines == ["sleep 1003", "sleep 1001", "sleep 1002"]);
    guarded.send(&ToGuard::Pause);
    assert_eq!(guarded.next_message(), Some(FromGuard::Paused));
    assert_eq!(family.map(state_of), [Some('T'); 3]);
    guarded.send(&ToGuard::Resume);
    wait_until(
        "all run on",
        || family.map(state_of),
        |states| states.iter().all(|state| *state == Some('S')),
    );
    guarded.send(&ToGuard::Kill);
    assert_eq!(guarded.expect_ended().signal, Some(Signal::KILL.0));
}

fn self_stopped_process_stays_stopped_after_resume() {
    let mut guarded = GuardedTest::shell("sh -c 'echo self: $$; kill -STOP $$' & exec sleep 1002");
    let pid = guarded.expect_started();
    // Until then, a shell may be blocked in vfork, which is a different kind of stop.
    wait_until("the test runs", || command_line(Pid(pid.cast_signed())), |line| line == "sleep 1002");
    let stopped = guarded.output.number("self: ");
    wait_until("it has stopped itself", || state_of(stopped), |state| *state == Some('T'));
    guarded.send(&ToGuard::Pause);
    assert_eq!(guarded.next_message(), Some(FromGuard::Paused));
    assert_eq!(state_of(pid), Some('T'));
    guarded.send(&ToGuard::Resume);
    wait_until("the test runs on", || state_of(pid), |state| *state == Some('S'));
    assert_eq!(state_of(stopped), Some('T'));
    guarded.send(&ToGuard::Kill);
    guarded.expect_ended();
}

fn orphans_are_reaped_while_the_test_runs() {
    let mut guarded = GuardedTest::shell(
        "i=0; while [ $i -lt 50 ]; do (true &); i=$((i+1)); done; echo done; exec sleep 1000",
    );
    let _pid = guarded.expect_started();
    guarded.output.wait_for("done");
    let guard = guarded.guard.pid();
    wait_until(
        "only the test is left",
        || heeler_sys::process::children(guard).into_iter().map(command_line).collect::<Vec<_>>(),
        |lines| *lines == ["sleep 1000"],
    );
    guarded.send(&ToGuard::Kill);
    guarded.expect_ended();
}

fn endless_fork_chains_are_killed() {
    // Each process of a chain starts its successor in a new session, and exits. Sixteen chains on a busy
    // machine can take all process ids for a moment, so that tests running at the same time fail.
    let chains = if std::env::var_os("HEELER_LONG_FORMS").is_some() { 16 } else { 4 };
    let script = format!(
        r#"echo 'setsid sh "$0" & exit' > "$0"
i=0; while [ $i -lt {chains} ]; do sh "$0" & i=$((i+1)); done; sleep 0.1; exit 0"#
    );
    let directory = tempfile::tempdir().unwrap();
    let mut command = shell_command(&script);
    command.args.push(directory.path().join("runner").as_path().into());
    let mut guarded = GuardedTest::start();
    guarded.send(&ToGuard::Exec(command));
    let _pid = guarded.expect_started();
    let end = guarded.expect_ended();
    assert_eq!(end.code, Some(0));
    assert!((1..=32).contains(&end.leaked.len()), "{end:?}");
    guarded.output.wait_for_end();
}

/// Prints how long guarded and plain starts take. Run by hand: `cargo test -p heeler-watchdog --release --
/// measure`.
pub(crate) fn measure() -> ExitCode {
    const ROUNDS: u32 = 200;
    let mut bare = Vec::new();
    let mut idle = Vec::new();
    let mut guarded = Vec::new();
    let mut traced = Vec::new();
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let outputs = || ChildStdio::Null;
        spawn(SpawnOptions { stdout: outputs(), stderr: outputs(), ..SpawnOptions::new("/bin/true") })
            .unwrap()
            .wait()
            .unwrap();
        bare.push(started.elapsed());
        let started = Instant::now();
        let mut one = GuardedTest::start();
        drop(one.control.take());
        one.guard.wait().unwrap();
        idle.push(started.elapsed());
        let started = Instant::now();
        let mut one = GuardedTest::start();
        one.send(&ToGuard::Exec(TestCommand {
            program: "/bin/true".into(),
            args: Vec::new(),
            ..shell_command("")
        }));
        let _pid = one.expect_started();
        one.expect_ended();
        guarded.push(started.elapsed());
        let started = Instant::now();
        let mut one = GuardedTest::start();
        let trace = Some(TracePlan::default());
        one.send(&ToGuard::Exec(TestCommand {
            program: "/bin/true".into(),
            args: Vec::new(),
            trace,
            ..shell_command("")
        }));
        let _pid = one.expect_started();
        one.expect_ended();
        traced.push(started.elapsed());
    }
    for (name, mut times) in
        [("bare", bare), ("a guard without work", idle), ("guarded", guarded), ("traced", traced)]
    {
        times.sort();
        let mean = times.iter().sum::<Duration>() / ROUNDS;
        println!(
            "{name}: median {:?}, mean {mean:?}, p90 {:?}",
            times[times.len() / 2],
            times[times.len() * 9 / 10]
        );
    }
    ExitCode::SUCCESS
}

fn memory_limit_is_enforced_by_own_cgroup() {
    let place = CgroupParent::find();
    let is_limited = place.as_ref().is_ok_and(CgroupParent::has_memory);
    println!("control groups here: {place:?}");
    // Allocates without limit, next to a child that it has forgotten.
    let script = "setsid sleep 1031 & until [ -e \"$0\" ]; do sleep 0.01; done; exec tail /dev/zero";
    let directory = tempfile::tempdir().unwrap();
    let word = directory.path().join("word");
    let mut command = shell_command(script);
    command.args.push(word.as_path().into());
    command.memory_bytes = Some(64 << 20);
    let mut guarded = GuardedTest::start();
    guarded.send(&ToGuard::Exec(command));
    let Some(FromGuard::Started { pid, is_limited: reported }) = guarded.next_message() else {
        panic!("not started")
    };
    assert_eq!(reported, is_limited);
    let group = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let leaf = group.lines().find_map(|line| line.strip_prefix("0::")?.rsplit('/').next());
    let leaf = leaf.filter(|name| name.starts_with("heeler-leaf-")).map(str::to_owned);
    assert_eq!(leaf.is_some(), place.is_ok(), "{group}");
    if is_limited {
        std::fs::write(&word, "").unwrap();
        let end = guarded.expect_ended();
        let peak = end.limit_peak_bytes.expect("the kernel has killed it at its limit");
        assert!((32 << 20..=64 << 20).contains(&peak), "{end:?}");
        assert_eq!(end.signal, Some(Signal::KILL.0));
    } else {
        // Without a control group, the worker measures the memory and kills the test: the whole tree dies.
        guarded.send(&ToGuard::Kill);
        let end = guarded.expect_ended();
        assert_eq!((end.signal, end.limit_peak_bytes), (Some(Signal::KILL.0), None));
    }
    assert!(is_gone(pid));
    if let (Ok(place), Some(leaf)) = (place, leaf) {
        assert!(!place.dir().join(leaf).exists(), "an empty group is removed before the exit is reported");
    }
}

fn cgroups_of_killed_guards_are_removed() {
    let Ok(place) = CgroupParent::find() else {
        println!("no control groups can be made here");
        return;
    };
    let mut command = shell_command("echo up; exec sleep 1033");
    command.memory_bytes = Some(64 << 20);
    let mut guarded = GuardedTest::start();
    guarded.send(&ToGuard::Exec(command));
    let pid = guarded.expect_started();
    let group = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let leaf = group.lines().find_map(|line| line.strip_prefix("0::")?.rsplit('/').next()).unwrap();
    let leaf = place.dir().join(leaf);
    heeler_sys::cgroup::remove_stale_leaves();
    assert!(leaf.exists(), "the group of a living guard stays: {}", leaf.display());
    guarded.guard.signal(Signal::KILL).unwrap();
    guarded.guard.wait().unwrap();
    guarded.output.wait_for_end();
    let is_there = || {
        heeler_sys::cgroup::remove_stale_leaves();
        leaf.exists()
    };
    wait_until("the group to be swept", is_there, |is_there| !is_there);
}
