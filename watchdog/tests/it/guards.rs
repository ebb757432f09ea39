//! The guard: one test process, its process tree, its exit.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use host::{
    cgroup::Place,
    process::{Pid, Signal, command_line, kill_group},
    spawn::{Spawn, Stream, spawn},
};
use wire::control::{Command, FromGuard, ToGuard, TracePlan};

use crate::{
    Test,
    support::{Guarded, is_gone, shell, state_of, until},
    tests,
};

pub(crate) const TESTS: &[Test] = tests![
    an_exit_code_is_told_with_cost_and_no_leak,
    a_fatal_signal_is_told,
    output_goes_straight_to_the_worker_and_ends_with_the_test,
    a_program_that_cannot_run_is_named_with_the_reason,
    input_is_empty_and_nothing_of_the_guard_is_inherited,
    a_daemon_of_the_test_is_killed_and_named_as_leaked,
    what_a_daemon_started_later_is_told_with_the_daemons_own_start,
    a_memory_limit_is_held_in_a_group_of_its_own_where_this_machine_lets_us,
    groups_of_killed_guards_are_swept,
    a_helper_gets_a_tenth_of_a_second_to_leave_by_itself,
    a_test_that_ignores_term_is_killed_after_the_grace,
    a_test_that_obeys_term_ends_before_the_grace,
    a_paused_test_hears_term,
    a_kill_takes_the_whole_family_and_names_no_leak,
    a_closed_control_connection_takes_guard_and_family,
    a_guard_that_is_killed_takes_its_test_with_it,
    a_pause_stops_the_whole_family_until_resume,
    what_had_stopped_itself_stays_stopped_after_a_resume,
    orphans_are_reaped_while_the_test_runs,
    families_that_fork_and_leave_for_ever_are_caught,
];

fn an_exit_code_is_told_with_cost_and_no_leak() {
    let mut guarded = Guarded::shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 7");
    let _pid = guarded.started();
    let end = guarded.ended();
    assert_eq!((end.code, end.signal, end.has_core), (Some(7), None, false));
    assert!(end.leaked.is_empty());
    assert!(end.cpu_us > 1000 && end.peak_kib > 500 && end.wall_us > 1000, "{end:?}");
}

fn a_fatal_signal_is_told() {
    let mut guarded = Guarded::shell("ulimit -c 0; kill -SEGV $$");
    let _pid = guarded.started();
    let end = guarded.ended();
    assert_eq!((end.code, end.signal), (None, Some(Signal::SEGV.0)));
}

fn output_goes_straight_to_the_worker_and_ends_with_the_test() {
    let mut guarded = Guarded::shell("echo out; echo err >&2; exec sleep 1000");
    let pid = guarded.started();
    guarded.output.wait_for("out\nerr\n");
    // The guard is still running, but has closed the pipe.
    guarded.send(&ToGuard::Pause);
    assert_eq!(guarded.next(), Some(FromGuard::Paused));
    let links: Vec<_> = (0..3)
        .map(|fd| std::fs::read_link(format!("/proc/{}/fd/{fd}", guarded.guard.pid())).unwrap())
        .collect();
    assert!(links[0].to_str().unwrap().starts_with("socket:"), "{links:?}");
    assert_eq!(links[1..], ["/dev/null", "/dev/null"].map(std::path::PathBuf::from));
    kill_group(Pid(pid.cast_signed()), Signal::KILL).unwrap();
    assert_eq!(guarded.output.wait_for_end(), "out\nerr\n");
    assert_eq!(guarded.ended().signal, Some(Signal::KILL.0));
}

fn a_program_that_cannot_run_is_named_with_the_reason() {
    let mut guarded = Guarded::start();
    guarded.send(&ToGuard::Exec(Command { program: "/no/such/test".into(), ..shell("") }));
    let error = "execute /no/such/test: No such file or directory (os error 2)".to_owned();
    assert_eq!(guarded.next(), Some(FromGuard::Failed { error }));
    assert_eq!(guarded.next(), None);
    assert_eq!(guarded.guard.wait().unwrap().code, Some(0));

    let mut guarded = Guarded::start();
    guarded.send(&ToGuard::Exec(Command { cwd: "/no/such/place".into(), ..shell("") }));
    match guarded.next() {
        Some(FromGuard::Failed { error }) => assert!(error.contains("/no/such/place"), "{error}"),
        other => panic!("{other:?}"),
    }
}

fn input_is_empty_and_nothing_of_the_guard_is_inherited() {
    let mut guarded = Guarded::shell("readlink /proc/self/fd/0; ls /proc/self/fd | tr '\\n' ' '; cat");
    let _pid = guarded.started();
    // `ls` itself has the directory open as 3.
    assert_eq!(guarded.output.wait_for_end(), "/dev/null\n0 1 2 3 ");
    assert_eq!(guarded.ended().code, Some(0));
}

fn a_daemon_of_the_test_is_killed_and_named_as_leaked() {
    let before = host::process::since_boot();
    let script = "setsid sh -c 'sh -c \"sleep 1009 & echo daemon: \\$!\" &' & wait; exit 0";
    let mut guarded = Guarded::shell(script);
    let _pid = guarded.started();
    let end = guarded.ended();
    let daemon = guarded.output.number("daemon: ");
    assert_eq!(end.code, Some(0));
    let leaked = end.leaked.iter().find(|leaked| leaked.pid == daemon);
    assert_eq!(leaked.map(|leaked| leaked.command.as_str()), Some("sleep 1009"), "{:?}", end.leaked);
    let started = leaked.and_then(|leaked| leaked.started_ms).map(Duration::from_millis);
    let started = started.expect("the system tells when it was started");
    assert!(before <= started + host::process::start_tick() && started <= host::process::since_boot());
    assert!(is_gone(daemon));
    guarded.output.wait_for_end();
}

fn what_a_daemon_started_later_is_told_with_the_daemons_own_start() {
    let directory = tempfile::tempdir().unwrap();
    let script =
        "mkfifo \"$0\"; setsid sh -c 'sleep 0.05; sleep 1021 & echo >\"$0\"; wait' \"$0\" & cat <\"$0\"";
    let mut command = shell(script);
    command.args.push(directory.path().join("fifo").as_path().into());
    let mut guarded = Guarded::start();
    guarded.send(&ToGuard::Exec(command));
    let _pid = guarded.started();
    let end = guarded.ended();
    let started = |command: &str| {
        let found = end.leaked.iter().find(|leaked| leaked.command.starts_with(command));
        found.unwrap_or_else(|| panic!("{command}: {:?}", end.leaked)).started_ms
    };
    assert!(started("sleep 1021").is_some());
    assert_eq!(started("sleep 1021"), started("sh -c"), "{:?}", end.leaked);
}

fn a_helper_gets_a_tenth_of_a_second_to_leave_by_itself() {
    // It notices the test's exit by the end of a pipe.
    let directory = tempfile::tempdir().unwrap();
    let mut command = shell("mkfifo \"$0\"; cat < \"$0\" & exec 9> \"$0\"; exit 4");
    command.args.push(directory.path().join("fifo").as_path().into());
    let mut guarded = Guarded::start();
    let started = Instant::now();
    guarded.send(&ToGuard::Exec(command));
    let _pid = guarded.started();
    let end = guarded.ended();
    let after = started.elapsed().saturating_sub(Duration::from_micros(end.wall_us));
    assert_eq!(end.code, Some(4));
    // On a busy machine it may not get to exit in time.
    assert!(end.leaked.is_empty() || after >= Duration::from_millis(100), "{after:?} {end:?}");
}

fn a_test_that_ignores_term_is_killed_after_the_grace() {
    let mut guarded = Guarded::shell("trap '' TERM; echo deaf; while :; do sleep 1000; done");
    let _pid = guarded.started();
    guarded.output.wait_for("deaf");
    let told = Instant::now();
    guarded.send(&ToGuard::Terminate { grace_ms: 50 });
    let end = guarded.ended();
    assert!(told.elapsed() >= Duration::from_millis(50));
    assert_eq!((end.code, end.signal), (None, Some(Signal::KILL.0)));
    guarded.output.wait_for_end();
}

fn a_test_that_obeys_term_ends_before_the_grace() {
    let mut guarded = Guarded::shell("trap 'exit 9' TERM; echo ready; while :; do sleep 1000 & wait; done");
    let _pid = guarded.started();
    guarded.output.wait_for("ready");
    guarded.send(&ToGuard::Terminate { grace_ms: 60_000 });
    assert_eq!(guarded.ended().code, Some(9));
}

fn a_paused_test_hears_term() {
    let mut guarded = Guarded::shell("trap 'exit 9' TERM; echo ready; while :; do sleep 1000 & wait; done");
    let _pid = guarded.started();
    guarded.output.wait_for("ready");
    guarded.send(&ToGuard::Pause);
    assert_eq!(guarded.next(), Some(FromGuard::Paused));
    guarded.send(&ToGuard::Terminate { grace_ms: 60_000 });
    assert_eq!(guarded.ended().code, Some(9));
}

fn a_kill_takes_the_whole_family_and_names_no_leak() {
    let mut guarded = Guarded::shell("setsid sleep 1001 & echo hidden: $!; sleep 1002");
    let _pid = guarded.started();
    let hidden = guarded.output.number("hidden: ");
    guarded.send(&ToGuard::Kill);
    let end = guarded.ended();
    assert_eq!((end.signal, end.leaked), (Some(Signal::KILL.0), Vec::new()));
    assert!(is_gone(hidden));
    guarded.output.wait_for_end();
}

fn a_closed_control_connection_takes_guard_and_family() {
    let mut guarded = Guarded::shell("setsid sleep 1001 & echo hidden: $!; sleep 1002");
    let pid = guarded.started();
    let hidden = guarded.output.number("hidden: ");
    drop(guarded.control.take());
    guarded.output.wait_for_end();
    assert_eq!(guarded.guard.wait().unwrap().code, Some(1));
    assert!(is_gone(pid) && is_gone(hidden));
}

fn a_guard_that_is_killed_takes_its_test_with_it() {
    let mut guarded = Guarded::shell("echo ready; exec sleep 1000");
    let _pid = guarded.started();
    guarded.output.wait_for("ready");
    guarded.guard.signal(Signal::KILL).unwrap();
    guarded.output.wait_for_end();
    assert_eq!(guarded.next(), None);
    guarded.guard.wait().unwrap();
}

fn a_pause_stops_the_whole_family_until_resume() {
    let script = "setsid sleep 1001 & echo hidden: $!; sleep 1002 & echo near: $!; exec sleep 1003";
    let mut guarded = Guarded::shell(script);
    let pid = guarded.started();
    let family = [pid, guarded.output.number("hidden: "), guarded.output.number("near: ")];
    let lines = || family.map(|pid| command_line(Pid(pid.cast_signed())));
    until("all run", lines, |lines| *lines == ["sleep 1003", "sleep 1001", "sleep 1002"]);
    guarded.send(&ToGuard::Pause);
    assert_eq!(guarded.next(), Some(FromGuard::Paused));
    assert_eq!(family.map(state_of), [Some('T'); 3]);
    guarded.send(&ToGuard::Resume);
    until("all run on", || family.map(state_of), |states| states.iter().all(|state| *state == Some('S')));
    guarded.send(&ToGuard::Kill);
    assert_eq!(guarded.ended().signal, Some(Signal::KILL.0));
}

fn what_had_stopped_itself_stays_stopped_after_a_resume() {
    let mut guarded = Guarded::shell("sh -c 'echo self: $$; kill -STOP $$' & exec sleep 1002");
    let pid = guarded.started();
    // Until then a shell may be blocked in vfork, which is a stop of another kind.
    until("the test runs", || command_line(Pid(pid.cast_signed())), |line| line == "sleep 1002");
    let stopped = guarded.output.number("self: ");
    until("it has stopped itself", || state_of(stopped), |state| *state == Some('T'));
    guarded.send(&ToGuard::Pause);
    assert_eq!(guarded.next(), Some(FromGuard::Paused));
    assert_eq!(state_of(pid), Some('T'));
    guarded.send(&ToGuard::Resume);
    until("the test runs on", || state_of(pid), |state| *state == Some('S'));
    assert_eq!(state_of(stopped), Some('T'));
    guarded.send(&ToGuard::Kill);
    guarded.ended();
}

fn orphans_are_reaped_while_the_test_runs() {
    let mut guarded =
        Guarded::shell("i=0; while [ $i -lt 50 ]; do (true &); i=$((i+1)); done; echo done; exec sleep 1000");
    let _pid = guarded.started();
    guarded.output.wait_for("done");
    let guard = guarded.guard.pid();
    until(
        "only the test is left",
        || host::process::children(guard).into_iter().map(command_line).collect::<Vec<_>>(),
        |lines| *lines == ["sleep 1000"],
    );
    guarded.send(&ToGuard::Kill);
    guarded.ended();
}

fn families_that_fork_and_leave_for_ever_are_caught() {
    // Sixteen chains: each process starts its successor in a session of its own, and exits.
    let script = r#"echo 'setsid sh "$0" & exit' > "$0"
i=0; while [ $i -lt 16 ]; do sh "$0" & i=$((i+1)); done; sleep 0.1; exit 0"#;
    let directory = tempfile::tempdir().unwrap();
    let mut command = shell(script);
    command.args.push(directory.path().join("runner").as_path().into());
    let mut guarded = Guarded::start();
    guarded.send(&ToGuard::Exec(command));
    let _pid = guarded.started();
    let end = guarded.ended();
    assert_eq!(end.code, Some(0));
    assert!((1..=32).contains(&end.leaked.len()), "{end:?}");
    guarded.output.wait_for_end();
}

/// Prints the time of a guarded start beside a bare one. Run by hand: `cargo test -p heeler-watchdog
/// --release -- measure`.
pub(crate) fn measure() -> ExitCode {
    const ROUNDS: u32 = 200;
    let mut bare = Vec::new();
    let mut idle = Vec::new();
    let mut guarded = Vec::new();
    let mut traced = Vec::new();
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let outputs = || Stream::Null;
        spawn(Spawn { stdout: outputs(), stderr: outputs(), ..Spawn::new("/bin/true") })
            .unwrap()
            .wait()
            .unwrap();
        bare.push(started.elapsed());
        let started = Instant::now();
        let mut one = Guarded::start();
        drop(one.control.take());
        one.guard.wait().unwrap();
        idle.push(started.elapsed());
        let started = Instant::now();
        let mut one = Guarded::start();
        one.send(&ToGuard::Exec(Command { program: "/bin/true".into(), args: Vec::new(), ..shell("") }));
        let _pid = one.started();
        one.ended();
        guarded.push(started.elapsed());
        let started = Instant::now();
        let mut one = Guarded::start();
        let trace = Some(TracePlan::default());
        one.send(&ToGuard::Exec(Command {
            program: "/bin/true".into(),
            args: Vec::new(),
            trace,
            ..shell("")
        }));
        let _pid = one.started();
        one.ended();
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

fn a_memory_limit_is_held_in_a_group_of_its_own_where_this_machine_lets_us() {
    let place = Place::find();
    let is_limited = place.as_ref().is_ok_and(Place::has_memory);
    println!("control groups here: {place:?}");
    // It allocates without limit, and runs beside a child that it has forgotten.
    let script = "setsid sleep 1031 & until [ -e \"$0\" ]; do sleep 0.01; done; exec tail /dev/zero";
    let directory = tempfile::tempdir().unwrap();
    let word = directory.path().join("word");
    let mut command = shell(script);
    command.args.push(word.as_path().into());
    command.memory_bytes = Some(64 << 20);
    let mut guarded = Guarded::start();
    guarded.send(&ToGuard::Exec(command));
    let Some(FromGuard::Started { pid, is_limited: told }) = guarded.next() else { panic!("not started") };
    assert_eq!(told, is_limited);
    let group = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let leaf = group.lines().find_map(|line| line.strip_prefix("0::")?.rsplit('/').next());
    let leaf = leaf.filter(|name| name.starts_with("heeler-leaf-")).map(str::to_owned);
    assert_eq!(leaf.is_some(), place.is_ok(), "{group}");
    if is_limited {
        std::fs::write(&word, "").unwrap();
        let end = guarded.ended();
        let peak = end.limit_peak_bytes.expect("the kernel has killed it at its limit");
        assert!((32 << 20..=64 << 20).contains(&peak), "{end:?}");
        assert_eq!(end.signal, Some(Signal::KILL.0));
    } else {
        // Without a limit the worker measures the memory and kills it: the whole tree dies.
        guarded.send(&ToGuard::Kill);
        let end = guarded.ended();
        assert_eq!((end.signal, end.limit_peak_bytes), (Some(Signal::KILL.0), None));
    }
    assert!(is_gone(pid));
    if let (Ok(place), Some(leaf)) = (place, leaf) {
        assert!(!place.dir().join(leaf).exists(), "an empty group is removed before the end is told");
    }
}

fn groups_of_killed_guards_are_swept() {
    let Ok(place) = Place::find() else {
        println!("no control groups can be made here");
        return;
    };
    let mut command = shell("echo up; exec sleep 1033");
    command.memory_bytes = Some(64 << 20);
    let mut guarded = Guarded::start();
    guarded.send(&ToGuard::Exec(command));
    let pid = guarded.started();
    let group = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let leaf = group.lines().find_map(|line| line.strip_prefix("0::")?.rsplit('/').next()).unwrap();
    let leaf = place.dir().join(leaf);
    host::cgroup::sweep();
    assert!(leaf.exists(), "the group of a living guard stays: {}", leaf.display());
    guarded.guard.signal(Signal::KILL).unwrap();
    guarded.guard.wait().unwrap();
    guarded.output.wait_for_end();
    let is_there = || {
        host::cgroup::sweep();
        leaf.exists()
    };
    until("the group to be swept", is_there, |is_there| !is_there);
}
