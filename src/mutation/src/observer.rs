//! Who follows the tests of mutants, and ends them: a user at a terminal, or a client of a server.

use std::{pin::Pin, time::Duration};

use heeler_mutant_model::MutantResult;

use crate::unfinished::Unfinished;

/// Request of an observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObserverRequest {
    End(Unfinished),
    /// Ctrl-Z.
    Pause,
    /// The display is due.
    Tick,
}

/// An answer of an observer that may take time.
pub type ObserverFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Who follows the tests of mutants. What an observer does not show, it ignores.
pub trait MutationObserver: Send {
    /// Waits for the next request. After `is_cancelled`, only a user's signals and ticks come again.
    ///
    /// Cancel safe: yes, because a request stays until it is returned.
    fn next_request(&mut self, is_cancelled: bool) -> ObserverFuture<'_, ObserverRequest>;

    /// Shows a warning.
    fn warn(&mut self, text: &str);

    /// Begins the mutants that tests run for, and which take at most so long, if that is known. Others are
    /// known already.
    ///
    /// Cancel safe: no, because some of those that are known may be lost.
    fn begin<'a>(
        &'a mut self,
        total: usize,
        longest: Option<Duration>,
        known: &'a [MutantResult],
    ) -> ObserverFuture<'a, ()>;

    /// Takes the result of a mutant.
    ///
    /// Cancel safe: no, because the result may be lost.
    fn on_result<'a>(&'a mut self, result: &'a MutantResult) -> ObserverFuture<'a, ()>;

    /// Returns whether the run may end before all mutants are tested.
    fn has_time_limit(&self) -> bool {
        false
    }

    /// Shows what is being done before the tests run.
    fn show_phase(&mut self, _label: &str, _words: &str) {}

    /// Begins the tests without a mutant.
    fn begin_original(&mut self, _tests: usize) {}

    /// Notes how many tests without a mutant have ended so far.
    fn set_original(&mut self, _tests: usize) {}

    /// Notes that tests without a mutant have ended, and how long the slowest of them took.
    fn on_original(&mut self, _tests: usize, _slowest: Option<(&str, Duration)>) {}

    /// Notes that time has passed.
    fn tick(&mut self) {}

    /// Stops this process until the user continues it. Test processes are stopped before.
    fn pause(&mut self) {}
}
