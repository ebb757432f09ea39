//! Finishes that were relayed but not yet written by the coordinator to the client's main connection. If the
//! coordinator dies first, they are sent again.

use heeler_protocol::control::{ClientId, FinishRequest, RelayedPart, RunKey};

/// A finish that the coordinator must write.
#[derive(Debug)]
pub(crate) struct UnwrittenFinish {
    pub(crate) finish: FinishRequest,
    /// Number of the finish's frames known to be written. `None` while even earlier frames on that connection
    /// may be unwritten.
    pub(crate) written: Option<u64>,
}

/// Unwritten finishes, oldest first. One for each run that ended while its client was not reading.
#[derive(Debug, Default)]
pub(crate) struct UnwrittenFinishes(Vec<UnwrittenFinish>);

impl UnwrittenFinishes {
    pub(crate) fn add(&mut self, finish: FinishRequest) {
        // A finish that a dead watchdog had begun is repeated.
        self.0.retain(|earlier| earlier.finish.run != finish.run);
        self.0.push(UnwrittenFinish { finish, written: None });
    }

    /// Records how much the coordinator has written.
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

    /// Drops the finishes of a client that has left.
    pub(crate) fn end_client(&mut self, client: ClientId) {
        self.0.retain(|entry| entry.finish.run.client != client);
    }

    /// Takes all unwritten finishes, oldest first.
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
