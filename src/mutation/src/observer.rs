//! The observer of a mutation run: a terminal user, or a client of the mutation server.

use std::{pin::Pin, time::Duration};

use heeler_mutant_model::MutantResult;

use crate::unfinished::Unfinished;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObserverRequest {
    End(Unfinished),
    /// The user pressed Ctrl-Z.
    Pause,
    /// The display must be redrawn.
    Tick,
}

/// A pending answer of an observer.
pub type ObserverFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Follows a mutation run, and can end it. By default, nothing is shown.
pub trait MutationObserver: Send {
    /// Waits for the next request. Once `is_cancelled`, only the user's signals and ticks are returned.
    ///
    /// Cancel safe: yes, because a request stays queued until it is returned.
    fn next_request(&mut self, is_cancelled: bool) -> ObserverFuture<'_, ObserverRequest>;

    /// Shows a warning.
    fn warn(&mut self, text: &str);

    /// Announces the number of mutants to test, the longest possible duration if known, and the results
    /// known so far.
    ///
    /// Cancel safe: no, because known results may be lost.
    fn begin<'a>(
        &'a mut self,
        total: usize,
        longest: Option<Duration>,
        known: &'a [MutantResult],
    ) -> ObserverFuture<'a, ()>;

    /// Receives the result of a mutant.
    ///
    /// Cancel safe: no, because the result may be lost.
    fn on_result<'a>(&'a mut self, result: &'a MutantResult) -> ObserverFuture<'a, ()>;

    /// Returns whether a time limit may end the run before all mutants are tested.
    fn has_time_limit(&self) -> bool {
        false
    }

    /// Shows the current step before the tests run.
    fn show_phase(&mut self, _label: &str, _words: &str) {}

    /// Announces the tests without a mutant.
    fn begin_original(&mut self, _tests: usize) {}

    /// Reports the total number of ended tests without a mutant.
    fn set_original(&mut self, _tests: usize) {}

    /// Reports further ended tests without a mutant, and the slowest of them.
    fn on_original(&mut self, _tests: usize, _slowest: Option<(&str, Duration)>) {}

    /// Reports that time has passed.
    fn tick(&mut self) {}

    /// Stops this process until the user continues it. The test processes are stopped already.
    fn pause(&mut self) {}
}
