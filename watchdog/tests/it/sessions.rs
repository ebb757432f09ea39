//! The watchdog's session: worker lifecycle, journals, and exits caused by another process's death.

use std::process::ExitCode;

use heeler_core::{Outcome, RunRecord, TestId, TestResult, TestStart, WorkerId};
use heeler_protocol::{
    control::{ClientId, FromWatchdog, JournalledResult, RunKey, ToGuard, ToWatchdog, journal_name},
    journal::{MAGIC, write},
    packet,
};
use heeler_sys::{
    io::{socket_pair, wait_readable},
    process::{
        Pid, Signal, become_subreaper, children, kill_child, own_program_path, signal_descendants, stat,
    },
    spawn::{ChildStdio, SpawnOptions, spawn},
};

use crate::{
    NamedTest,
    coordinator::{TestCoordinator, WORKER_ROLE, run_async},
    support::{is_gone, shell_command, wait_until},
    tests,
};

pub(crate) const TESTS: &[NamedTest] = tests![
    worker_exit_is_reported_with_its_code,
    killed_worker_is_reported_after_its_tree,
    orphans_of_killed_guard_are_killed,
    coordinator_death_ends_all_processes,
    workers_die_with_killed_watchdog,
    exiting_watchdog_ends_its_workers,
    damaged_journal_is_reported_up_to_damage,
];

/// Script of a worker's guard: a process that hides in a new session, and the test.
const TREE_SCRIPT: &str = "setsid sleep 1001 & echo hidden: $! >&2; echo test: $$ >&2; exec sleep 1002";

/// Plays a worker: `exit` exits with code 3, `guarded` has a guard with a process tree.
pub(crate) fn play_worker() -> ExitCode {
    if std::env::var(WORKER_ROLE).unwrap() == "exit" {
        return ExitCode::from(3);
    }
    let (ours, theirs) = socket_pair().unwrap();
    let _guard = spawn(SpawnOptions {
        args: vec!["__guard".into()],
        stdin: ChildStdio::Fd(theirs),
        stdout: ChildStdio::Null,
        ..SpawnOptions::new(own_program_path())
    })
    .unwrap();
    let mut control = std::os::unix::net::UnixStream::from(ours);
    let exec = packet::encode_message(&ToGuard::Exec(shell_command(TREE_SCRIPT)));
    std::io::Write::write_all(&mut control, &exec).unwrap();
    wait_readable([], None).unwrap();
    ExitCode::SUCCESS
}

const FIRST_WORKER: WorkerId = WorkerId(1);

fn worker_exit_is_reported_with_its_code() {
    run_async(async {
        let mut coordinator = TestCoordinator::start("exit", None).await;
        coordinator.send(ToWatchdog::StartWorker { worker: FIRST_WORKER }).await;
        let expected = FromWatchdog::WorkerEnded { worker: FIRST_WORKER, code: Some(3), signal: None };
        assert_eq!(coordinator.next_message().await, expected);
        // A late kill has no effect, and must not reach another process with the same id.
        coordinator.send(ToWatchdog::KillWorker { worker: FIRST_WORKER }).await;
        coordinator.send(ToWatchdog::StartWorker { worker: WorkerId(2) }).await;
        let expected = FromWatchdog::WorkerEnded { worker: WorkerId(2), code: Some(3), signal: None };
        assert_eq!(coordinator.next_message().await, expected);
        coordinator.end_session().await;
    });
}

async fn start_guarded_worker() -> (TestCoordinator, [u32; 2]) {
    let mut coordinator = TestCoordinator::start("guarded", None).await;
    coordinator.send(ToWatchdog::StartWorker { worker: FIRST_WORKER }).await;
    coordinator.control.flush().await.unwrap();
    let family = [coordinator.stderr.number("hidden: "), coordinator.stderr.number("test: ")];
    (coordinator, family)
}

fn killed_worker_is_reported_after_its_tree() {
    run_async(async {
        let (mut coordinator, family) = start_guarded_worker().await;
        coordinator.send(ToWatchdog::KillWorker { worker: FIRST_WORKER }).await;
        let expected =
            FromWatchdog::WorkerEnded { worker: FIRST_WORKER, code: None, signal: Some(Signal::KILL.0) };
        assert_eq!(coordinator.next_message().await, expected);
        assert_eq!(family.map(is_gone), [true; 2]);
        assert_eq!(children(coordinator.watchdog.pid()), []);
        coordinator.end_session().await;
    });
}

fn orphans_of_killed_guard_are_killed() {
    run_async(async {
        let (coordinator, family) = start_guarded_worker().await;
        let workers = children(coordinator.watchdog.pid());
        let guards = children(workers[0]);
        assert_eq!((workers.len(), guards.len()), (1, 1));
        let test = Pid(family[1].cast_signed());
        assert_eq!(stat(test).unwrap().parent, guards[0]);
        // The test is gone with its guard. The hidden process is reparented to the watchdog without a signal.
        let killed = signal_descendants(workers[0], Signal::KILL, |pid, _| pid == guards[0]);
        assert_eq!(killed, guards);
        wait_until("the family is gone", || family.map(is_gone), |gone| *gone == [true; 2]);
        let left = || children(coordinator.watchdog.pid());
        wait_until("the dead are reaped and the worker lives", left, |left| *left == workers);
        coordinator.end_session().await;
    });
}

fn coordinator_death_ends_all_processes() {
    run_async(async {
        let (coordinator, family) = start_guarded_worker().await;
        let (mut watchdog, mut feet, directory) = coordinator.cut_connection().await;
        feet.wait_for_end();
        assert_eq!(watchdog.wait().unwrap().code, Some(1));
        assert_eq!(family.map(is_gone), [true; 2]);
        assert!(!directory.exists());
    });
}

fn workers_die_with_killed_watchdog() {
    run_async(async {
        become_subreaper().unwrap();
        let (mut coordinator, family) = start_guarded_worker().await;
        coordinator.watchdog.signal(Signal::KILL).unwrap();
        coordinator.watchdog.wait().unwrap();
        // The guard notices its worker's exit, and exits at about the same time. Processes that it leaves are
        // reparented to the next subreaper: the coordinator in production, this test here.
        let kill_orphans = || {
            children(Pid::own()).into_iter().for_each(|child| assert!(kill_child(child)));
            family.map(is_gone)
        };
        wait_until("the family is gone", kill_orphans, |gone| *gone == [true; 2]);
        coordinator.stderr.wait_for_end();
    });
}

fn exiting_watchdog_ends_its_workers() {
    run_async(async {
        let (coordinator, family) = start_guarded_worker().await;
        coordinator.end_session().await;
        assert_eq!(family.map(is_gone), [true; 2]);
    });
}

fn damaged_journal_is_reported_up_to_damage() {
    run_async(async {
        let directory = tempfile::tempdir().unwrap();
        let run_dir = directory.path();
        let results: Vec<_> = [Outcome::Passed, Outcome::Failed]
            .into_iter()
            .zip(7..)
            .map(|(outcome, test)| JournalledResult { test: TestId(test), outcome, duration_us: 5 })
            .collect();
        let mut bytes = MAGIC.to_vec();
        for result in &results {
            let start = TestStart { test: result.test, started_ms: 1, is_again: false };
            write(&mut bytes, &RunRecord::Started(start));
            let duration_us = Some(result.duration_us);
            let finished = TestResult { duration_us, ..TestResult::new(result.outcome) };
            write(&mut bytes, &RunRecord::Finished { test: result.test, result: finished });
        }
        std::fs::write(run_dir.join(journal_name(FIRST_WORKER)), &bytes).unwrap();
        bytes[MAGIC.len() + 8] ^= 0x55;
        std::fs::write(run_dir.join(journal_name(WorkerId(2))), &bytes).unwrap();

        let mut coordinator = TestCoordinator::start("exit", None).await;
        let mut journal = async |worker| {
            let run_dir = run_dir.into();
            coordinator
                .send(ToWatchdog::ReadJournal { run: RunKey::new(ClientId(1), "r"), run_dir, worker })
                .await;
            match coordinator.next_message().await {
                FromWatchdog::Journal { run, worker: reporter, settled, damage, .. } => {
                    assert_eq!((run.id.as_str(), reporter), ("r", worker));
                    (settled, damage)
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(journal(FIRST_WORKER).await, (results, None));
        let (settled, damage) = journal(WorkerId(2)).await;
        assert!(settled.is_empty());
        assert!(damage.unwrap().contains("damaged record at byte"));
        assert_eq!(journal(WorkerId(3)).await, (Vec::new(), None));
        coordinator.end_session().await;
    });
}
