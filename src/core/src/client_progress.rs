//! How long a client is waited for that answers on other streams than the one that is waited for. A client
//! may handle all its streams in one queue: what the others hold comes first, and as long as it answers
//! anything, it makes progress.

/// A sign of a client's progress: it changes with each answer of the client to a barrier, on whichever
/// stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProgressStamp(pub u128);

/// What follows when a time limit for answers has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OverdueDecision {
    /// The client has made progress within the limit: it gets the same time once more.
    WaitOn,
    /// It has made none.
    GiveUp,
}

/// A wait for an answer on one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProgressWatch {
    seen: Option<ProgressStamp>,
}

impl ProgressWatch {
    /// Begins a wait with the present sign; `None` if there is none, or it is not known.
    #[must_use]
    pub fn new(stamp: Option<ProgressStamp>) -> Self {
        Self { seen: stamp }
    }

    /// Decides what follows when the limit has passed since the last decision, or since the beginning.
    pub fn on_overdue(&mut self, stamp: Option<ProgressStamp>) -> OverdueDecision {
        if stamp.is_none() || stamp == self.seen {
            return OverdueDecision::GiveUp;
        }
        self.seen = stamp;
        OverdueDecision::WaitOn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_is_waited_for_while_its_sign_changes_in_every_sequence_of_signs() {
        let signs = [None, Some(ProgressStamp(1)), Some(ProgressStamp(2))];
        for first in signs {
            for second in signs {
                for third in signs {
                    let mut watch = ProgressWatch::new(first);
                    let has_advanced = second.is_some() && second != first;
                    assert_eq!(watch.on_overdue(second) == OverdueDecision::WaitOn, has_advanced);
                    let last = if has_advanced { second } else { first };
                    let has_advanced = third.is_some() && third != last;
                    assert_eq!(watch.on_overdue(third) == OverdueDecision::WaitOn, has_advanced);
                    assert_eq!(watch.on_overdue(third), OverdueDecision::GiveUp, "nothing changes");
                }
            }
        }
    }
}
