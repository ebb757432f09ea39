//! Files attached to a run. Some reach the client with a result; the rest are sent at the end of the run.

use std::collections::HashSet;

use heeler_core::{
    TestId, WorkerId,
    ledger::{Ledger, LedgerEntry},
};
use heeler_protocol::mtp::Attachment;

/// Attached files of a run, without duplicates.
#[derive(Debug, Default)]
pub(super) struct RunAttachments {
    files: Vec<RunFile>,
    uris: HashSet<String>,
}

#[derive(Debug)]
struct RunFile {
    attachment: Attachment,
    source: FileSource,
}

/// Where a file comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileSource {
    /// A result of this test from this worker. The worker sends the file along with the result.
    Result { worker: WorkerId, test: TestId },
    /// No worker sends the file: it belongs to a program outside its tests, or to a synthesized result.
    Run,
}

impl RunAttachments {
    /// Adds a file unless its URI is already present.
    pub(super) fn add(&mut self, attachment: Attachment, source: FileSource) {
        if self.uris.insert(attachment.uri.clone()) {
            self.files.push(RunFile { attachment, source });
        }
    }

    /// Returns all files in the order they were added.
    pub(super) fn all(&self) -> Vec<Attachment> {
        self.files.iter().map(|file| file.attachment.clone()).collect()
    }

    /// Once all streams are closed, returns the files that no worker is proven to have sent.
    pub(super) fn due(&self, ledger: &Ledger) -> Vec<Attachment> {
        let is_due = |file: &&RunFile| match file.source {
            FileSource::Run => true,
            FileSource::Result { worker, test } => !is_proven(ledger, worker, test),
        };
        self.files.iter().filter(is_due).map(|file| file.attachment.clone()).collect()
    }
}

/// Returns whether the client is proven to have received this worker's result of the test.
fn is_proven(ledger: &Ledger, worker: WorkerId, test: TestId) -> bool {
    match ledger.entry(test) {
        LedgerEntry::Settled { worker: settler, position, .. } => {
            let stream = ledger.streams().get(&worker);
            settler == worker && stream.is_some_and(|stream| position <= stream.proven)
        }
        LedgerEntry::Open | LedgerEntry::Synthesized(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use heeler_core::{Outcome, ledger::StreamPosition};

    use super::*;

    #[test]
    fn files_of_proven_results_are_not_due() {
        let (one, other) = (WorkerId(1), WorkerId(2));
        let mut ledger = Ledger::new(3);
        for (test, worker, position) in [(0, one, 1), (1, one, 2), (2, other, 1)] {
            let position = StreamPosition { worker, position };
            ledger.settle(TestId(test), Outcome::Crashed, position).unwrap();
        }
        ledger.close_stream(one, 1);
        ledger.close_stream(other, 1);
        let mut attachments = RunAttachments::default();
        let mut add = |uri: &str, source| {
            attachments.add(Attachment { uri: uri.to_owned(), ..Attachment::default() }, source);
        };
        add("proven", FileSource::Result { worker: one, test: TestId(0) });
        add("proven", FileSource::Run);
        add("unproven", FileSource::Result { worker: one, test: TestId(1) });
        // The first worker died before the result was settled, and another worker reran the test.
        add("abandoned", FileSource::Result { worker: one, test: TestId(2) });
        add("again", FileSource::Result { worker: other, test: TestId(2) });
        add("program", FileSource::Run);
        let uris = |files: Vec<Attachment>| files.into_iter().map(|file| file.uri).collect::<Vec<_>>();
        assert_eq!(uris(attachments.due(&ledger)), ["unproven", "abandoned", "program"]);
        assert_eq!(uris(attachments.all()), ["proven", "unproven", "abandoned", "again", "program"]);
    }
}
