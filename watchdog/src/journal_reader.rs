//! Reads workers' journals: for the coordinator's `ReadJournal` request, and for results that are sent again.

use std::{fs, io, path::PathBuf};

use heeler_protocol::{
    control::{FromWatchdog, JournalledResult, OsText, RunKey, WorkerId, journal_name},
    journal::{self, JournalContent, JournalRecord},
    mtp::attachments_of,
};

use heeler_core::error_chain;

/// The terminal results of one journal, in order.
#[derive(Debug, Default)]
pub(crate) struct SettledResults {
    /// The results, each with the JSON of its change.
    pub(crate) results: Vec<(JournalledResult, Vec<u8>)>,
    /// The error, if the journal could not be read to its end.
    pub(crate) damage: Option<String>,
}

/// Reads a worker's journal. A journal that was never begun is empty.
///
/// Cancel safe: yes, because it only reads.
pub(crate) async fn read_settled(run_dir: &OsText, worker: WorkerId) -> SettledResults {
    let path = run_dir.as_path().join(journal_name(worker));
    let (sender, told) = tokio::sync::oneshot::channel();
    let aside = {
        let path = path.clone();
        // A cancelled receiver needs no result.
        move || drop(sender.send(read_journal_file(path)))
    };
    match std::thread::Builder::new().name("heeler-journal".to_owned()).spawn(aside) {
        Ok(_reader) => told.await.unwrap_or_else(|_| {
            let damage = Some("the reader of the journal failed".to_owned());
            SettledResults { results: Vec::new(), damage }
        }),
        // No thread can be started, so the event loop blocks while the journal is read.
        Err(_) => read_journal_file(path),
    }
}

fn read_journal_file(path: PathBuf) -> SettledResults {
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return SettledResults::default(),
        Err(error) => {
            let damage = Some(format!("read {}: {error}", path.display()));
            return SettledResults { results: Vec::new(), damage };
        }
    };
    let JournalContent { records, damage, torn_at } = journal::read(&bytes);
    if let Some(offset) = torn_at {
        tracing::debug!(path = %path.display(), offset, "the last record was never written to its end");
    }
    let results = records.into_iter().filter_map(|record| match record {
        JournalRecord::Settled { result, change } => Some((result, change)),
        JournalRecord::Started(_)
        | JournalRecord::Provisional { .. }
        | JournalRecord::ProgramFailure { .. }
        | JournalRecord::Ended(_) => None,
    });
    let damage = damage.map(|error| format!("read {}: {}", path.display(), error_chain(&error)));
    SettledResults { results: results.collect(), damage }
}

/// Returns the response to the coordinator's `ReadJournal` request.
///
/// Cancel safe: yes, because it only reads.
pub(crate) async fn journal_report(run: RunKey, run_dir: OsText, worker: WorkerId) -> FromWatchdog {
    let SettledResults { results, damage } = read_settled(&run_dir, worker).await;
    let attachments = results.iter().flat_map(|(_, change)| attachments_of(change)).collect();
    let settled = results.into_iter().map(|(result, _)| result).collect();
    FromWatchdog::Journal { run, worker, settled, attachments, damage }
}
