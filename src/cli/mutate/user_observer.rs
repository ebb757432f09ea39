//! Shows the progress of mutation testing to the user at a terminal, and ends it on request.

use std::{
    future::pending,
    time::{Duration, Instant},
};

use heeler_mutant_model::MutantResult;
use heeler_mutation::{MutationObserver, ObserverFuture, ObserverRequest, TimeLimit, Unfinished};

use crate::cli::{
    command_user::{CommandUser, UserEvent, stop_process},
    display::mutation::MutationDisplay,
    signals::SignalRequest,
};

/// The user at a terminal, with display, signals and time limit.
pub(super) struct UserObserver {
    pub(super) display: MutationDisplay,
    pub(super) user: CommandUser,
    pub(super) time_limit: Option<TimeLimit>,
}

impl MutationObserver for UserObserver {
    fn next_request(&mut self, is_cancelled: bool) -> ObserverFuture<'_, ObserverRequest> {
        let time_limit = self.time_limit.filter(|_| !is_cancelled);
        let limit = async move {
            match time_limit {
                Some(limit) => limit.reached().await,
                None => pending().await,
            }
        };
        Box::pin(async move {
            tokio::select! {
                unfinished = limit => ObserverRequest::End(unfinished),
                event = self.user.next_event() => match event {
                    UserEvent::Signal(SignalRequest::End) => ObserverRequest::End(Unfinished::Cancelled),
                    UserEvent::Signal(SignalRequest::Pause) => ObserverRequest::Pause,
                    UserEvent::Tick => ObserverRequest::Tick,
                },
            }
        })
    }

    fn warn(&mut self, text: &str) {
        self.display.warn(text);
    }

    fn begin<'a>(
        &'a mut self,
        total: usize,
        longest: Option<Duration>,
        _known: &'a [MutantResult],
    ) -> ObserverFuture<'a, ()> {
        self.display.begin(total, longest, Instant::now());
        Box::pin(async {})
    }

    fn on_result<'a>(&'a mut self, result: &'a MutantResult) -> ObserverFuture<'a, ()> {
        self.display.on_result(result);
        Box::pin(async {})
    }

    fn has_time_limit(&self) -> bool {
        self.time_limit.is_some()
    }

    fn show_phase(&mut self, label: &str, words: &str) {
        self.display.show_phase(label, words);
    }

    fn begin_original(&mut self, tests: usize) {
        self.display.begin_original(tests, Instant::now());
    }

    fn set_original(&mut self, tests: usize) {
        self.display.set_original(tests);
    }

    fn on_original(&mut self, tests: usize, slowest: Option<(&str, Duration)>) {
        self.display.on_original(tests, slowest);
    }

    fn tick(&mut self) {
        self.display.tick(Instant::now());
    }

    fn pause(&mut self) {
        stop_process();
    }
}
