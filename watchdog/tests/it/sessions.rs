//! The watchdog's session: worker lifecycle, journals, and the exits that follow from another process's
//! death.

use std::process::ExitCode;

use host::{
    io::{socket_pair, wait_readable},
    process::{Pid, Signal, become_subreaper, children, kill_child, own_image, signal_descendants, stat},
    spawn::{Spawn, Stream, spawn},
};
use wire::{
    control::{FromWatchdog, JournalledResult, TestIndex, ToGuard, ToWatchdog, WorkerId, journal_name},
    journal::{MAGIC, Record, write},
    mtp::ExecutionState,
    packet,
};

use crate::{
    Test,
    coordinator::{Coordinator, WORKER, run},
    support::{is_gone, shell, until},
    tests,
};

pub(crate) const TESTS: &[Test] = tests![
    a_worker_that_leaves_is_told_with_its_code,
    a_killed_worker_is_told_when_all_below_it_is_gone,
    what_a_killed_guard_leaves_is_killed,
    everything_is_gone_after_the_coordinator,
    a_killed_watchdog_takes_its_workers,
    a_watchdog_that_leaves_ends_its_workers,
    a_journal_is_told_as_far_as_it_can_be_read,
];

/// Script of a worker's guard: one process that hides in a session of its own, and the test.
const FAMILY: &str = "setsid sleep 1001 & echo hidden: $! >&2; echo test: $$ >&2; exec sleep 1002";

/// Plays a worker: `exit` exits with code 3, `guarded` has a guard with a process tree.
pub(crate) fn worker() -> ExitCode {
    if std::env::var(WORKER).unwrap() == "exit" {
        return ExitCode::from(3);
    }
    let (ours, theirs) = socket_pair().unwrap();
    let _guard = spawn(Spawn {
        args: vec!["__guard".into()],
        stdin: Stream::Fd(theirs),
        stdout: Stream::Null,
        ..Spawn::new(own_image())
    })
    .unwrap();
    let mut control = std::os::unix::net::UnixStream::from(ours);
    let exec = packet::message(&ToGuard::Exec(shell(FAMILY)));
    std::io::Write::write_all(&mut control, &exec).unwrap();
    wait_readable([], None).unwrap();
    ExitCode::SUCCESS
}

const ONE: WorkerId = WorkerId(1);

fn a_worker_that_leaves_is_told_with_its_code() {
    run(async {
        let mut coordinator = Coordinator::start("exit", None).await;
        coordinator.tell(ToWatchdog::StartWorker { worker: ONE }).await;
        let expected = FromWatchdog::WorkerEnded { worker: ONE, code: Some(3), signal: None };
        assert_eq!(coordinator.message().await, expected);
        // A late kill has no effect, and must not reach another process with the same id.
        coordinator.tell(ToWatchdog::KillWorker { worker: ONE }).await;
        coordinator.tell(ToWatchdog::StartWorker { worker: WorkerId(2) }).await;
        let expected = FromWatchdog::WorkerEnded { worker: WorkerId(2), code: Some(3), signal: None };
        assert_eq!(coordinator.message().await, expected);
        coordinator.leave().await;
    });
}

async fn with_family() -> (Coordinator, [u32; 2]) {
    let mut coordinator = Coordinator::start("guarded", None).await;
    coordinator.tell(ToWatchdog::StartWorker { worker: ONE }).await;
    coordinator.control.flush().await.unwrap();
    let family = [coordinator.feet.number("hidden: "), coordinator.feet.number("test: ")];
    (coordinator, family)
}

fn a_killed_worker_is_told_when_all_below_it_is_gone() {
    run(async {
        let (mut coordinator, family) = with_family().await;
        coordinator.tell(ToWatchdog::KillWorker { worker: ONE }).await;
        let expected = FromWatchdog::WorkerEnded { worker: ONE, code: None, signal: Some(Signal::KILL.0) };
        assert_eq!(coordinator.message().await, expected);
        assert_eq!(family.map(is_gone), [true; 2]);
        assert_eq!(children(coordinator.watchdog.pid()), []);
        coordinator.leave().await;
    });
}

fn what_a_killed_guard_leaves_is_killed() {
    run(async {
        let (coordinator, family) = with_family().await;
        let workers = children(coordinator.watchdog.pid());
        let guards = children(workers[0]);
        assert_eq!((workers.len(), guards.len()), (1, 1));
        let test = Pid(family[1].cast_signed());
        assert_eq!(stat(test).unwrap().parent, guards[0]);
        // The test is gone with its guard; the hidden process is reparented to the watchdog without a signal.
        let killed = signal_descendants(workers[0], Signal::KILL, |pid, _| pid == guards[0]);
        assert_eq!(killed, guards);
        until("the family is gone", || family.map(is_gone), |gone| *gone == [true; 2]);
        let left = || children(coordinator.watchdog.pid());
        until("the dead are reaped and the worker lives", left, |left| *left == workers);
        coordinator.leave().await;
    });
}

fn everything_is_gone_after_the_coordinator() {
    run(async {
        let (coordinator, family) = with_family().await;
        let (mut watchdog, mut feet, directory) = coordinator.die().await;
        feet.wait_for_end();
        assert_eq!(watchdog.wait().unwrap().code, Some(1));
        assert_eq!(family.map(is_gone), [true; 2]);
        assert!(!directory.exists());
    });
}

fn a_killed_watchdog_takes_its_workers() {
    run(async {
        become_subreaper().unwrap();
        let (mut coordinator, family) = with_family().await;
        coordinator.watchdog.signal(Signal::KILL).unwrap();
        coordinator.watchdog.wait().unwrap();
        // The guard notices its worker's exit, and dies because of it at about the same time. Processes that
        // it leaves are reparented to the next subreaper above, which is the coordinator in production and
        // the test here.
        let kill_orphans = || {
            children(Pid::own()).into_iter().for_each(kill_child);
            family.map(is_gone)
        };
        until("the family is gone", kill_orphans, |gone| *gone == [true; 2]);
        coordinator.feet.wait_for_end();
    });
}

fn a_watchdog_that_leaves_ends_its_workers() {
    run(async {
        let (coordinator, family) = with_family().await;
        coordinator.leave().await;
        assert_eq!(family.map(is_gone), [true; 2]);
    });
}

fn a_journal_is_told_as_far_as_it_can_be_read() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let run_dir = directory.path();
        let results: Vec<_> = [ExecutionState::Passed, ExecutionState::Failed]
            .into_iter()
            .zip(7..)
            .map(|(state, test)| JournalledResult { test: TestIndex(test), state, duration_us: 5 })
            .collect();
        let mut bytes = MAGIC.to_vec();
        for result in &results {
            write(&mut bytes, &Record::Started(result.test));
            write(&mut bytes, &Record::Settled { result: *result, change: b"{}".to_vec() });
        }
        std::fs::write(run_dir.join(journal_name(ONE)), &bytes).unwrap();
        bytes[MAGIC.len() + 8] ^= 0x55;
        std::fs::write(run_dir.join(journal_name(WorkerId(2))), &bytes).unwrap();

        let mut coordinator = Coordinator::start("exit", None).await;
        let mut journal = async |worker| {
            let run_dir = run_dir.into();
            coordinator.tell(ToWatchdog::ReadJournal { run: "r".into(), run_dir, worker }).await;
            match coordinator.message().await {
                FromWatchdog::Journal { run, worker: told, settled, damage, .. } => {
                    assert_eq!((run.as_str(), told), ("r", worker));
                    (settled, damage)
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(journal(ONE).await, (results, None));
        let (settled, damage) = journal(WorkerId(2)).await;
        assert!(settled.is_empty());
        assert!(damage.unwrap().contains("damaged record at byte"));
        assert_eq!(journal(WorkerId(3)).await, (Vec::new(), None));
        coordinator.leave().await;
    });
}
