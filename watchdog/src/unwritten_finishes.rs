//! Finishes that went through the coordinator, and that it has not written to the client's main connection
//! yet: they are sent again if it dies before.

use heeler_protocol::control::{ClientId, FinishRequest, RelayedPart, RunKey};

/// A finish that the coordinator has to write.
#[derive(Debug)]
pub(crate) struct UnwrittenFinish {
    pub(crate) finish: FinishRequest,
    /// The number of its frames that are known to be written; `None` as long as it is not known either
    /// whether what went there before them is.
    pub(crate) written: Option<u64>,
}

/// The unwritten finishes, oldest first: as many as there are runs that end while their client does not read.
#[derive(Debug, Default)]
pub(crate) struct UnwrittenFinishes(Vec<UnwrittenFinish>);

impl UnwrittenFinishes {
    pub(crate) fn add(&mut self, finish: FinishRequest) {
        // A finish that a dead watchdog had begun is sent once more.
        self.0.retain(|earlier| earlier.finish.run != finish.run);
        self.0.push(UnwrittenFinish { finish, written: None });
    }

    /// Records what the coordinator has written.
    pub(crate) fn on_written(&mut self, run: &RunKey, part: RelayedPart) {
        match part {
            RelayedPart::Frames(frames) => {
                if let Some(entry) = self.0.iter_mut().find(|entry| entry.finish.run == *run) {
                    entry.written = entry.written.max(Some(frames));
                }
            }
            RelayedPart::Completion => self.0.retain(|entry| entry.finish.run != *run),
        }
    }

    /// Forgets the finishes of a client that has left.
    pub(crate) fn end_client(&mut self, client: ClientId) {
        self.0.retain(|entry| entry.finish.run.client != client);
    }

    /// Takes all of them, oldest first.
    pub(crate) fn take(&mut self) -> Vec<UnwrittenFinish> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finish_is_kept_until_its_completion_is_written_or_its_client_leaves() {
        let mut finishes = UnwrittenFinishes::default();
        let keys = [(1, "a"), (1, "b"), (2, "a")].map(|(client, id)| RunKey::new(ClientId(client), id));
        for run in &keys {
            finishes.add(FinishRequest { run: run.clone(), ..FinishRequest::default() });
        }
        finishes.on_written(&keys[0], RelayedPart::Frames(2));
        finishes.on_written(&keys[0], RelayedPart::Frames(1));
        finishes.on_written(&keys[1], RelayedPart::Completion);
        finishes.end_client(ClientId(2));
        let left = finishes.take();
        let left: Vec<_> = left.iter().map(|entry| (&entry.finish.run, entry.written)).collect();
        assert_eq!(left, [(&keys[0], Some(2))]);
    }
}
