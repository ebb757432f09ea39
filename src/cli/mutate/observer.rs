//! Who follows the tests of mutants, and ends them: a user at a terminal, or a client of a server.

use std::{future::pending, time::Instant};

use heeler_mutant::MutantResult;
use heeler_server::mutation::Cancellation;
use tokio::sync::mpsc;

use crate::cli::{
    display::mutation::MutationDisplay,
    signals::{SignalListener, SignalRequest},
};

/// Who follows the tests of mutants.
pub(super) enum MutationObserver {
    User {
        display: Box<MutationDisplay>,
        signals: SignalListener,
    },
    /// The queue is bounded: a client that reads slowly slows the tests.
    Client {
        results: mpsc::Sender<MutantResult>,
        cancellation: Cancellation,
    },
}

impl MutationObserver {
    /// Waits for the next request. After `is_cancelled`, that of a client does not come again.
    ///
    /// Cancel safe: yes, because a request stays until it is returned.
    pub(super) async fn next_request(&mut self, is_cancelled: bool) -> SignalRequest {
        match self {
            Self::User { signals, .. } => signals.next().await,
            Self::Client { .. } if is_cancelled => pending().await,
            Self::Client { cancellation, .. } => {
                cancellation.cancelled().await;
                SignalRequest::End
            }
        }
    }

    pub(super) fn warn(&mut self, text: &str) {
        match self {
            Self::User { display, .. } => display.warn(text),
            Self::Client { .. } => tracing::warn!("{text}"),
        }
    }

    /// Begins the mutants that tests run for. Others are known already.
    ///
    /// Cancel safe: no, because some of those that are known may be lost.
    pub(super) async fn begin<'a>(
        &mut self,
        total: usize,
        known: impl IntoIterator<Item = &'a MutantResult>,
    ) {
        match self {
            Self::User { display, .. } => display.begin(total, Instant::now()),
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
        match self {
            Self::User { display, .. } => display.tick(Instant::now()),
            Self::Client { .. } => {}
        }
    }
}
