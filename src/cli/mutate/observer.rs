//! Who follows the tests of mutants, and ends them: a user at a terminal, or a client of a server.

use std::{
    future::pending,
    time::{Duration, Instant},
};

use heeler_mutant_model::MutantResult;
use heeler_server::mutation::Cancellation;
use tokio::sync::mpsc;

use super::unfinished::{TimeLimit, Unfinished};
use crate::cli::{
    display::mutation::MutationDisplay,
    signals::{SignalListener, SignalRequest},
};

/// Request of an observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObserverRequest {
    End(Unfinished),
    /// Ctrl-Z.
    Pause,
}

/// Who follows the tests of mutants.
pub(super) enum MutationObserver {
    User {
        display: Box<MutationDisplay>,
        signals: Box<SignalListener>,
        time_limit: Option<TimeLimit>,
    },
    /// The queue is bounded: a client that reads slowly slows the tests.
    Client {
        results: mpsc::Sender<MutantResult>,
        cancellation: Cancellation,
    },
}

impl MutationObserver {
    /// Waits for the next request. After `is_cancelled`, only a user's signals come again.
    ///
    /// Cancel safe: yes, because a request stays until it is returned.
    pub(super) async fn next_request(&mut self, is_cancelled: bool) -> ObserverRequest {
        match self {
            Self::User { signals, time_limit, .. } => {
                let time_limit = time_limit.filter(|_| !is_cancelled);
                let limit = async {
                    match time_limit {
                        Some(limit) => limit.reached().await,
                        None => pending().await,
                    }
                };
                tokio::select! {
                    unfinished = limit => ObserverRequest::End(unfinished),
                    request = signals.next() => match request {
                        SignalRequest::End => ObserverRequest::End(Unfinished::Cancelled),
                        SignalRequest::Pause => ObserverRequest::Pause,
                    },
                }
            }
            Self::Client { .. } if is_cancelled => pending().await,
            Self::Client { cancellation, .. } => {
                cancellation.cancelled().await;
                ObserverRequest::End(Unfinished::Cancelled)
            }
        }
    }

    /// Shows what is being done before the tests run.
    pub(super) fn show_phase(&mut self, label: &str, words: &str) {
        if let Some(display) = self.display() {
            display.show_phase(label, words);
        }
    }

    /// Returns whether the run may end before all mutants are tested.
    pub(super) fn has_time_limit(&self) -> bool {
        matches!(self, Self::User { time_limit: Some(_), .. })
    }

    /// Begins the tests without a mutant.
    pub(super) fn begin_original(&mut self, tests: usize) {
        if let Some(display) = self.display() {
            display.begin_original(tests, Instant::now());
        }
    }

    /// Notes how many tests without a mutant have ended so far.
    pub(super) fn set_original(&mut self, tests: usize) {
        if let Some(display) = self.display() {
            display.set_original(tests);
        }
    }

    /// Notes that tests without a mutant have ended, and how long the slowest of them took.
    pub(super) fn on_original(&mut self, tests: usize, slowest: Option<(&str, Duration)>) {
        if let Some(display) = self.display() {
            display.on_original(tests, slowest);
        }
    }

    fn display(&mut self) -> Option<&mut MutationDisplay> {
        match self {
            Self::User { display, .. } => Some(display),
            Self::Client { .. } => None,
        }
    }

    /// Returns the display of a user.
    pub(super) fn into_display(self) -> Option<Box<MutationDisplay>> {
        match self {
            Self::User { display, .. } => Some(display),
            Self::Client { .. } => None,
        }
    }

    pub(super) fn warn(&mut self, text: &str) {
        match self {
            Self::User { display, .. } => display.warn(text),
            Self::Client { .. } => tracing::warn!("{text}"),
        }
    }

    /// Begins the mutants that tests run for, and which take at most so long, if that is known. Others are
    /// known already.
    ///
    /// Cancel safe: no, because some of those that are known may be lost.
    pub(super) async fn begin<'a>(
        &mut self,
        total: usize,
        longest: Option<Duration>,
        known: impl IntoIterator<Item = &'a MutantResult>,
    ) {
        match self {
            Self::User { display, .. } => display.begin(total, longest, Instant::now()),
            Self::Client { .. } => {
                for result in known {
                    self.on_result(result).await;
                }
            }
        }
    }

    /// Cancel safe: no, because the result may be lost.
    pub(super) async fn on_result(&mut self, result: &MutantResult) {
        match self {
            Self::User { display, .. } => display.on_result(result),
            Self::Client { results, cancellation } => {
                tokio::select! {
                    // A client that is gone needs no result, and cancels.
                    _gone = results.send(result.clone()) => {}
                    () = cancellation.cancelled() => {}
                }
            }
        }
    }

    pub(super) fn tick(&mut self) {
        if let Some(display) = self.display() {
            display.tick(Instant::now());
        }
    }
}
