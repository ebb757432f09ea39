//! Reads workers' journals without blocking the event loop, for the coordinator's `ReadJournal` request and
//! for results that are resent.

use heeler_core::{DiagnosticsFile, OsText, TestId};
use heeler_protocol::{
    control::{FromWatchdog, ResultFile, RunKey, WorkerId},
    mtp::Attachment,
};
use heeler_recovery::JournalFile;

/// Reads a worker's journal. A journal that does not exist counts as empty.
///
/// Cancel safe: yes, because it only reads.
pub(crate) async fn read_journal(run_dir: &OsText, worker: WorkerId) -> JournalFile {
    let run_dir = run_dir.as_path().to_owned();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let read_dir = run_dir.clone();
    // Ignore errors: a cancelled receiver needs no result.
    heeler_sys::own_thread::run("heeler-journal", move || {
        drop(sender.send(JournalFile::read_worker(&read_dir, worker)));
    });
    let journal = receiver.await.unwrap_or_else(|_| JournalFile {
        read_error: Some("the thread that reads the journal failed".to_owned()),
        path: run_dir,
        ..JournalFile::default()
    });
    if let Some(offset) = journal.content.torn_at {
        tracing::debug!(path = %journal.path.display(), offset, "the last record of the journal is incomplete");
    }
    journal
}

/// Returns the response to the coordinator's `ReadJournal` request.
///
/// Cancel safe: yes, because it only reads.
pub(crate) async fn journal_report(run: RunKey, run_dir: OsText, worker: WorkerId) -> FromWatchdog {
    let journal = read_journal(&run_dir, worker).await;
    let files = journal
        .finished()
        .flat_map(|(test, result)| result.files().into_iter().map(move |file| (test, file)));
    let file = |(test, file): (TestId, DiagnosticsFile)| ResultFile {
        test,
        attachment: Attachment::file(&file.path, &file.description),
    };
    let files = files.map(file).collect();
    FromWatchdog::Journal { run, worker, settled: journal.settled(), files, damage: journal.damage() }
}
