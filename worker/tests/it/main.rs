//! Tests with a real worker process, real guards and real test programs; each test plays the coordinator.
#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod harness;

use std::{
    fs::File,
    io::Read as _,
    sync::Arc,
    time::{Duration, Instant},
};

use harness::{WorkerHarness, lease};
use heeler_core::{GuardLoss, LeaseId, RunRecord, TestId};
use heeler_protocol::{
    control::{ClientId, FromWorker, LeaseEnd, LeaseEvent, ProofLevel, RunKey, ToWorker, WorkerLease},
    journal::{self, JournalContent, JournalRecord},
    mtp::ExecutionState,
};
use heeler_sys::spawn::ChildStdio;
use tokio::task::spawn_blocking;

#[tokio::test]
async fn lease_is_run_journalled_sent_and_reported() {
    let mut bench = WorkerHarness::new().await;
    let script = bench
        .script("begin t0; echo hello; ok t0; begin t1; echo oops >&2; bad t1; begin t2; ok t2; last 2 1");
    let seen = bench.run(lease(&script, 3)).await;
    assert_eq!(seen.end, LeaseEnd::Complete);
    assert_eq!(seen.states(), ["A.t0 passed", "A.t1 failed", "A.t2 passed"]);
    assert_eq!(seen.nodes[&"A.t0".to_owned()].standard_output.as_deref(), Some("hello\n"));
    assert!(seen.nodes["A.t1"].standard_error.as_deref().unwrap().ends_with("oops\n"));
    assert!(seen.start_us.unwrap() > 0);
    let JournalContent { records, damage, .. } =
        journal::read(&std::fs::read(bench.path("worker-1.journal")).unwrap());
    // Records of three tests and of their process.
    assert_eq!((records.len(), damage), (8, None));
    let (Some(JournalRecord::Event(first)), Some(JournalRecord::Event(last))) =
        (records.first(), records.last())
    else {
        panic!("{records:?}")
    };
    let (RunRecord::ProcessStarted(start), RunRecord::ProcessEnded(end)) = (first, last) else {
        panic!("{records:?}")
    };
    assert_eq!((start.pid, start.lease, start.tests), (end.pid, LeaseId(3), 3));
    let times = [Some(start.started_ms), end.first_test_ms, end.last_test_ms, Some(end.ended_ms)];
    assert!(times.iter().all(Option::is_some) && times.is_sorted(), "{records:?}");
    assert!(end.usage.is_some(), "{end:?}");
    assert_eq!(end.exit.as_ref().and_then(|exit| exit.code), Some(1), "a test has failed");
    // A second lease continues the same journal. The order on the single connection proves all results.
    let script = bench.script("begin t0; ok t0; last 1 0");
    let seen = bench.run(lease(&script, 1)).await;
    let is_fourth = |report: &LeaseEvent| matches!(report, LeaseEvent::Settled { position: 4, .. });
    assert!(seen.reports.iter().any(is_fourth), "{:?}", seen.reports);
    bench.send(&ToWorker::Drain { run: RunKey::new(ClientId(1), "run") }).await;
    let FromWorker::Drained { proof, position, .. } = bench.receive().await else { panic!() };
    assert_eq!((proof, position), (ProofLevel::Ordered, 4));
}

#[tokio::test]
async fn journal_of_drained_run_is_closed() {
    let mut bench = WorkerHarness::new().await;
    let script = bench.script("begin t0; ok t0; last 1 0");
    for number in 0..100 {
        let run = RunKey::new(ClientId(1), format!("run {number}"));
        bench.run(WorkerLease { run: run.clone(), ..lease(&script, 1) }).await;
        bench.send(&ToWorker::Drain { run }).await;
        assert!(matches!(bench.receive().await, FromWorker::Drained { position: 1, .. }));
    }
    // A worker finishes all earlier leases before it lists a program.
    bench.discover(&script, 20_000).await.unwrap_err();
    assert_eq!(bench.open_journals(), 0);
}

#[tokio::test]
async fn crash_of_running_test_awaits_isolated_rerun() {
    let mut bench = WorkerHarness::new().await;
    let script = bench.script("begin t0; ok t0; begin t1; echo last words >&2; kill -SEGV $$");
    let seen = bench.run(lease(&script, 3)).await;
    let LeaseEnd::DiedInTest { end } = &seen.end else { panic!("{:?}", seen.end) };
    assert_eq!(end.signal, Some(11));
    assert_eq!(seen.states(), ["A.t0 passed"]);
    let [.., LeaseEvent::CrashedProvisionally { attempt, .. }, LeaseEvent::ProcessEnded { .. }] =
        &seen.reports[..]
    else {
        panic!("{:?}", seen.reports)
    };
    assert_eq!(attempt.message, "crashed with SIGSEGV");
    assert!(attempt.stderr.ends_with("last words\n"), "{attempt:?}");
    let JournalContent { records, .. } =
        journal::read(&std::fs::read(bench.path("worker-1.journal")).unwrap());
    let [.., JournalRecord::Event(RunRecord::Provisional { .. }), JournalRecord::Event(last)] = &records[..]
    else {
        panic!("{records:?}")
    };
    let RunRecord::ProcessEnded(end) = last else { panic!("{last:?}") };
    assert_eq!(end.last_test_ms, Some(end.ended_ms), "it died in a test");
    assert_eq!(end.exit.as_ref().and_then(|exit| exit.signal.as_deref()), Some("SIGSEGV"));
    // The isolated rerun crashes in the same way, so the result is final.
    let mut isolated = lease(&script, 3);
    isolated.tests = vec![isolated.tests[1].clone()];
    Arc::make_mut(&mut isolated.tests[0]).crashed_attempt = Some(attempt.as_ref().clone());
    isolated.is_isolated = true;
    let script = bench.script("begin t1; kill -SEGV $$");
    Arc::make_mut(&mut isolated.program).path = script.path();
    let seen = bench.run(isolated).await;
    assert_eq!(seen.states(), ["A.t1 error"]);
    let message = seen.nodes["A.t1"].error_message.as_deref();
    assert_eq!(message, Some("crashed with SIGSEGV; also crashes in isolation"));
}

#[tokio::test]
async fn exit_code_zero_during_test_is_no_pass() {
    let mut bench = WorkerHarness::new().await;
    let script = bench.script("begin t0; exit 0");
    let mut isolated = lease(&script, 1);
    isolated.is_isolated = true;
    let seen = bench.run(isolated).await;
    assert!(matches!(seen.end, LeaseEnd::DiedInTest { .. }));
    let node = &seen.nodes["A.t0"];
    assert_eq!(node.state, Some(ExecutionState::Error));
    let expected = "the process exited with code 0 before the test ended";
    assert_eq!(node.error_message.as_deref(), Some(expected));
}

#[tokio::test]
async fn hanging_test_times_out_within_limit_and_grace() {
    let mut bench = WorkerHarness::new().await;
    let script = bench.script("begin t0; ok t0; begin t1; trap '' TERM; while :; do :; done");
    let mut hanging = lease(&script, 3);
    hanging.limits.timeout_ms = Some(300);
    let started = Instant::now();
    let seen = bench.run(hanging).await;
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(matches!(seen.end, LeaseEnd::DiedInTest { .. }), "{:?}", seen.end);
    assert_eq!(seen.states(), ["A.t0 passed", "A.t1 timed-out"]);
    assert_eq!(seen.nodes["A.t1"].error_message.as_deref(), Some("timed out after 0.3 s"));
}

#[tokio::test]
async fn test_that_never_stops_writing_times_out() {
    let mut bench = WorkerHarness::new().await;
    let script = bench.script("begin t0; exec yes");
    let mut endless = lease(&script, 1);
    endless.limits.timeout_ms = Some(300);
    let seen = bench.run(endless).await;
    assert_eq!(seen.states(), ["A.t0 timed-out"]);
}

#[tokio::test]
async fn program_that_never_stops_writing_is_not_listed() {
    let mut bench = WorkerHarness::new().await;
    let script = bench.script_without_markers("echo gtest_list_tests gtest_filter; exec yes >&2");
    let error = bench.discover_as(&script, Some("gtest"), 300).await.unwrap_err();
    assert!(error.contains("timed out after 0.3 s"), "{error}");
}

#[tokio::test]
async fn cancel_ends_lease_and_running_test() {
    let mut bench = WorkerHarness::new().await;
    let script = bench.script("begin t0; sleep 1000; ok t0");
    bench.send(&ToWorker::Lease(Box::new(lease(&script, 2)))).await;
    bench.wait_until_started().await;
    bench.send(&ToWorker::Cancel { grace_ms: 1000 }).await;
    let seen = bench.wait_for_lease_end().await;
    assert_eq!(seen.end, LeaseEnd::Cancelled);
    assert_eq!(seen.states(), ["A.t0 cancelled"]);
}

#[tokio::test]
async fn cancel_returns_the_queued_lease() {
    let mut bench = WorkerHarness::new().await;
    let script = bench.script("begin t0; sleep 1000; ok t0");
    for _ in 0..2 {
        bench.send(&ToWorker::Lease(Box::new(lease(&script, 1)))).await;
    }
    bench.wait_until_started().await;
    bench.send(&ToWorker::Cancel { grace_ms: 1000 }).await;
    let ends = [bench.wait_for_lease_end().await.end, bench.wait_for_lease_end().await.end];
    assert_eq!(ends, [LeaseEnd::Cancelled, LeaseEnd::Cancelled]);
}

#[tokio::test]
async fn pause_stops_test_and_its_clock() {
    let mut bench = WorkerHarness::new().await;
    let script = bench.script("begin t0; sleep 0.2; ok t0; begin t1; ok t1; last 2 0");
    let mut paused = lease(&script, 2);
    paused.limits.timeout_ms = Some(600);
    bench.send(&ToWorker::Lease(Box::new(paused))).await;
    bench.wait_until_started().await;
    bench.send(&ToWorker::Pause).await;
    assert_eq!(bench.receive().await, FromWorker::Paused);
    bench.receive_nothing(Duration::from_millis(900)).await;
    bench.send(&ToWorker::Resume).await;
    let seen = bench.wait_for_lease_end().await;
    assert_eq!(seen.states(), ["A.t0 passed", "A.t1 passed"]);
    // Without a process, there is nothing to pause.
    bench.send(&ToWorker::Pause).await;
    assert_eq!(bench.receive().await, FromWorker::Paused);
}

#[tokio::test]
async fn child_outliving_test_process_is_reported_without_delay() {
    let mut bench = WorkerHarness::new().await;
    let script = bench.script("begin t0; sleep 1000 & ok t0; last 1 0");
    let started = Instant::now();
    let seen = bench.run(lease(&script, 1)).await;
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(seen.end, LeaseEnd::Complete);
    assert_eq!(seen.states(), ["A.t0 passed"]);
    assert!(seen.logs[0].contains("sleep (pid"), "{:?}", seen.logs);
}

#[tokio::test]
async fn process_with_own_session_delays_nothing() {
    let mut bench = WorkerHarness::new().await;
    let script = bench.script("begin t0; setsid -f sleep 1000; ok t0; last 1 0");
    let started = Instant::now();
    assert_eq!(bench.run(lease(&script, 1)).await.end, LeaseEnd::Complete);
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn exit_before_first_test_is_reported_with_output() {
    let mut bench = WorkerHarness::new().await;
    let script = bench.script("echo no license >&2; exit 3");
    let seen = bench.run(lease(&script, 2)).await;
    let LeaseEnd::DiedOutsideTest { end, message } = &seen.end else { panic!("{:?}", seen.end) };
    assert_eq!(end.code, Some(3));
    assert!(message.starts_with("the process exited with code 3 before its first test"), "{message}");
    assert!(message.ends_with("no license"), "{message}");
}

#[tokio::test]
async fn unexecutable_program_is_not_started() {
    let mut bench = WorkerHarness::new().await;
    let script = bench.script("");
    std::fs::write(script.path().as_path(), "\u{1}\u{2}").unwrap();
    let seen = bench.run(lease(&script, 2)).await;
    assert!(
        matches!(&seen.end, LeaseEnd::NotStarted { error } if error.contains("format")),
        "{:?}",
        seen.end
    );
    assert!(seen.reports.is_empty());
}

#[tokio::test]
async fn skipped_tests_need_no_process() {
    let mut bench = WorkerHarness::new().await;
    let script = bench.script("exit 9");
    let mut skipped = lease(&script, 2);
    for test in &mut skipped.tests {
        Arc::make_mut(test).listed.skip = Some("disabled".into());
    }
    let seen = bench.run(skipped).await;
    assert_eq!(seen.end, LeaseEnd::Complete);
    assert_eq!(seen.states(), ["A.t0 skipped", "A.t1 skipped"]);
}

#[tokio::test]
async fn output_flood_takes_bounded_memory() {
    let mut bench = WorkerHarness::new().await;
    let script = bench.script("begin t0; head -c 300000000 /dev/zero | tr '\\0' x; ok t0; last 1 0");
    let seen = bench.run(lease(&script, 1)).await;
    assert_eq!(seen.states(), ["A.t0 passed"]);
    let output = seen.nodes["A.t0"].standard_output.as_deref().unwrap();
    assert!(output.contains("bytes cut ...]") && output.len() < 2000);
    assert!(bench.worker_peak_kib() < 40_000, "{} KiB", bench.worker_peak_kib());
}

#[tokio::test]
async fn coordinator_disconnect_ends_test_and_worker() {
    let mut bench = WorkerHarness::new().await;
    let fifo = bench.fifo("held");
    let script = bench.script(&format!("exec 9>{}; begin t0; sleep 1000; ok t0", fifo.display()));
    bench.send(&ToWorker::Lease(Box::new(lease(&script, 1)))).await;
    // Opening blocks until there is a writer; end of file comes when all writers are dead.
    let opened = spawn_blocking(move || File::open(&fifo).unwrap());
    bench.wait_until_started().await;
    let mut held = opened.await.unwrap();
    let started = Instant::now();
    let worker = bench.disconnect();
    let ended = spawn_blocking(move || {
        assert_eq!(held.read(&mut [0]).unwrap(), 0);
        worker.wait_for_exit();
    });
    ended.await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn killed_guard_leaves_the_running_test_undecided() {
    let mut bench = WorkerHarness::new().await;
    let script = bench.script("begin t0; ok t0; begin t1; kill -KILL $PPID; exec sleep 1000");
    let seen = bench.run(lease(&script, 3)).await;
    assert_eq!(seen.end, LeaseEnd::GuardLost { loss: GuardLoss::Killed { signal: 9 } });
    // The end of the preceding test is proven only if its result was sent before the guard died.
    let states = seen.states();
    assert!(states.iter().all(|state| state == "A.t0 passed") && states.len() <= 1, "{states:?}");
    assert!(seen.reports.contains(&LeaseEvent::Started(TestId(1))), "{:?}", seen.reports);
    let is_decided = |report: &LeaseEvent| {
        matches!(
            report,
            LeaseEvent::Settled { test: TestId(1), .. }
                | LeaseEvent::FailedProvisionally { test: TestId(1), .. }
                | LeaseEvent::CrashedProvisionally { test: TestId(1), .. }
        )
    };
    assert!(!seen.reports.iter().any(is_decided), "{:?}", seen.reports);
    // The worker continues.
    let script = bench.script("begin t0; ok t0; last 1 0");
    assert_eq!(bench.run(lease(&script, 1)).await.end, LeaseEnd::Complete);
}

/// Shell functions that examine the process above the guard.
const ABOVE: &str = "above() { cut -d' ' -f4 /proc/$PPID/stat; }; name() { cat /proc/$(above)/comm; };";

#[tokio::test]
async fn killed_fork_server_is_replaced_and_guards_continue() {
    // In a session, the watchdog would become the guards' parent and kill them.
    let mut bench = WorkerHarness::new().await;
    let script =
        bench.script(&format!("{ABOVE} begin t0; ok t0; begin t1; kill -KILL $(above); ok t1; last 2 0"));
    for _ in 0..5 {
        let seen = bench.run(lease(&script, 2)).await;
        assert_eq!(seen.end, LeaseEnd::Complete);
        assert_eq!(seen.states(), ["A.t0 passed", "A.t1 passed"]);
    }
    let script =
        bench.script(&format!("{ABOVE} begin t0; [ $(name) = heeler-forksrv ] || exit 3; ok t0; last 1 0"));
    assert_eq!(bench.run(lease(&script, 1)).await.end, LeaseEnd::Complete);
}

#[tokio::test]
async fn guard_killed_with_its_fork_server_is_reported_as_such() {
    let mut bench = WorkerHarness::new().await;
    let script = bench.script(&format!("{ABOVE} begin t0; kill -KILL $(above) $PPID; exec sleep 1000"));
    for _ in 0..2 {
        let seen = bench.run(lease(&script, 2)).await;
        assert_eq!(seen.end, LeaseEnd::GuardLost { loss: GuardLoss::ForkServerKilled { signal: 9 } });
    }
}

#[tokio::test]
async fn one_fork_server_forks_all_guards_of_worker() {
    let mut bench = WorkerHarness::new().await;
    let noted = bench.path("noted");
    let note = format!("{ABOVE} begin t0; echo $(name) $(above) >> {}; ok t0; last 1 0", noted.display());
    let script = bench.script(&note);
    for _ in 0..3 {
        assert_eq!(bench.run(lease(&script, 1)).await.end, LeaseEnd::Complete);
    }
    let noted = std::fs::read_to_string(noted).unwrap();
    let lines: Vec<_> = noted.lines().collect();
    assert!(lines[0].starts_with("heeler-forksrv "), "{noted}");
    assert_eq!(lines, [lines[0]; 3]);
}

#[tokio::test]
async fn guards_are_executed_without_fork_server() {
    let mut bench = WorkerHarness::without_fork_server().await;
    let script =
        bench.script(&format!("{ABOVE} begin t0; [ $(name) != heeler-forksrv ] || exit 3; ok t0; last 1 0"));
    for _ in 0..5 {
        assert_eq!(bench.run(lease(&script, 1)).await.end, LeaseEnd::Complete);
    }
    let script = bench.script("begin t0; ok t0; begin t1; kill -KILL $PPID; exec sleep 1000");
    let seen = bench.run(lease(&script, 3)).await;
    assert_eq!(seen.end, LeaseEnd::GuardLost { loss: GuardLoss::Killed { signal: 9 } });
}

/// Program that runs one requested test. The test passes if a child of the process has exactly these
/// descriptors, and the guard kept no copy of the one that carries the requests.
fn dialogue_program(requests: u32, reports: u32, record_start: &str, of_child: &str) -> String {
    format!(
        r#"say() {{ printf '{record_start}%s\n' "$1" >&{reports}; }}
IFS= read -r request <&{requests}
say '{{"k":"begin","i":0}}'
state=failed
own=$(readlink /proc/$$/fd/{requests})
held=
for fd in /proc/$PPID/fd/*; do [ "$(readlink "$fd")" != "$own" ] || held="the guard holds $fd"; done
seen=$(ls /proc/self/fd | tr '\n' ' ')
case "$request$held$seen" in *'"A.t0"'*'}}{of_child} ') state=passed ;; esac
say "{{\"k\":\"end\",\"i\":0,\"state\":\"$state\",\"message\":\"$held; $seen\"}}"
say '{{"k":"done"}}'
IFS= read -r stop <&{requests}
exit 0"#
    )
}

#[tokio::test]
async fn requests_reach_tests_of_forked_and_executed_guards_and_nobody_else() {
    for mut bench in [WorkerHarness::new().await, WorkerHarness::without_fork_server().await] {
        // The child's last descriptor is the directory that it lists.
        for (framework, program) in [
            ("json-lines", dialogue_program(3, 3, "", "0 1 2 3 4")),
            ("json-lines-stdio", dialogue_program(0, 1, "\\036", "0 1 2 3")),
        ] {
            let script = bench.script_without_markers(&program);
            for _ in 0..2 {
                let mut open = lease(&script, 1);
                Arc::make_mut(&mut open.program).framework = Some(framework.into());
                let seen = bench.run(open).await;
                assert_eq!(seen.end, LeaseEnd::Complete, "{framework}");
                assert_eq!(seen.states(), ["A.t0 passed"], "{framework}");
            }
        }
    }
}

#[tokio::test]
async fn output_is_shown_immediately_when_enabled() {
    let (mut shown, output) = heeler_sys::io::pipe().map(|(read, write)| (File::from(read), write)).unwrap();
    let mut bench = WorkerHarness::with_output(ChildStdio::Fd(output)).await;
    let script = bench.script("begin t0; echo visible; ok t0; last 1 0");
    let mut open = lease(&script, 1);
    open.output_display =
        heeler_protocol::control::OutputDisplay::Shown(heeler_protocol::control::OutputForm::default());
    bench.run(open).await;
    let mut buffer = [0; 100];
    let count = shown.read(&mut buffer).unwrap();
    assert!(String::from_utf8_lossy(&buffer[..count]).contains("visible\n"));
}

#[tokio::test]
async fn missing_journal_directory_is_reported_once() {
    let mut bench = WorkerHarness::new().await;
    let script = bench.script("begin t0; ok t0; begin t1; ok t1; last 2 0");
    let mut homeless = lease(&script, 2);
    homeless.run_dir = "/nowhere/at/all".into();
    let seen = bench.run(homeless).await;
    assert_eq!(seen.states(), ["A.t0 passed", "A.t1 passed"]);
    assert_eq!(seen.logs.len(), 1, "{:?}", seen.logs);
}

#[tokio::test]
async fn invalid_test_program_yields_one_clear_error() {
    let mut bench = WorkerHarness::new().await;
    let talker = bench.script_without_markers("echo hi there; exit 1");
    let sleeper = bench.script_without_markers("# gtest_list_tests\nsleep 1000");
    let crasher = bench.script_without_markers("# gtest_list_tests\necho boom >&2; kill -SEGV $$");
    let broken = bench.script("");
    std::fs::write(broken.path().as_path(), "\u{1} gtest_list_tests").unwrap();
    for (script, framework, sentence) in [
        (
            &talker,
            None,
            "is a script and is not run to detect its framework; if it runs tests, set --framework",
        ),
        (&sleeper, Some("gtest"), ": timed out after 0.5 s"),
        (
            &crasher,
            Some("gtest"),
            "was killed by SIGSEGV while listing its tests; last line of output: \"boom\"",
        ),
        (&broken, Some("gtest"), "it could not be started: "),
    ] {
        let error = bench.discover_as(script, framework, 500).await.unwrap_err();
        assert!(error.contains(&script.path().to_text().into_owned()), "{error}");
        assert!(error.contains(sentence), "{error}");
    }
}

#[tokio::test]
async fn rust_test_program_is_recognised_listed_and_run() {
    let mut bench = WorkerHarness::new().await;
    let program = bench.rust_program(
        "#[test] fn good() { println!(\"hello\"); }
         #[test] fn bad() { assert_eq!(1, 2); }
         #[test] #[ignore = \"needs net\"] fn off() {}
         #[test] fn out() { std::process::exit(0) }",
    );
    let (framework, tests) = bench.discover(&program, 20_000).await.unwrap();
    assert!(framework.starts_with("libtest"), "{framework}");
    assert_eq!(
        tests.iter().map(|test| test.name.as_str()).collect::<Vec<_>>(),
        ["bad", "good", "off", "out"]
    );
    let mut all = lease(&program, 0);
    Arc::make_mut(&mut all.program).framework = Some(framework);
    all.tests = harness::leased(tests);
    let seen = bench.run(all).await;
    assert_eq!(seen.states(), ["bad failed", "good passed", "off skipped"]);
    assert!(
        matches!(
            seen.reports[..],
            [.., LeaseEvent::CrashedProvisionally { .. }, LeaseEvent::ProcessEnded { .. }]
        ),
        "{:?}",
        seen.reports
    );
}
