//! What the user sees of a run of the judge: display, events for programs, summary; and what the user asks
//! for.

use std::time::{Duration, Instant};

use heeler_protocol::mtp::{ExecutionState, LogLevel, NodeChange, TestNode, key};
use heeler_report::{RunSummary, TestReport};
use tokio::time::{Interval, MissedTickBehavior};

use crate::cli::{
    display::{RunDisplay, RunHead},
    run_events::RunEventPrinter,
    signals::SignalListener,
};

/// Interval between display ticks.
const TICK: Duration = Duration::from_millis(100);

/// The user's side of a run.
pub(super) struct RunOutput<'a> {
    pub(super) display: RunDisplay,
    pub(super) summary: RunSummary,
    /// Where results are printed for programs, if they are.
    pub(super) events: Option<&'a mut RunEventPrinter>,
    pub(super) signals: SignalListener,
    pub(super) ticks: Interval,
}

/// A case that is running.
pub(super) struct RunningCase<'a> {
    pub(super) uid: &'a str,
    pub(super) name: &'a str,
    pub(super) suite: &'a str,
    pub(super) worker: u32,
}

impl<'a> RunOutput<'a> {
    pub(super) fn new(
        display: RunDisplay,
        events: Option<&'a mut RunEventPrinter>,
        signals: SignalListener,
    ) -> Self {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Self { display, summary: RunSummary::new(None), events, signals, ticks }
    }

    pub(super) fn begin(&mut self, head: &RunHead, summary: RunSummary) {
        self.summary = summary;
        if let Some(events) = &mut self.events {
            events.begin(head);
        }
        self.display.begin(head, Instant::now());
    }

    /// Shows that a case runs.
    pub(super) fn start_case(&mut self, case: &RunningCase<'_>) {
        let mut node = TestNode::test(case.uid, case.name, ExecutionState::InProgress);
        node.members.insert(key::SUITE.to_owned(), case.suite.into());
        node.members.insert(key::WORKER.to_owned(), case.worker.into());
        if let Some(events) = &mut self.events {
            events.print_change(&node, &self.summary);
            events.flush();
        }
        let change = [NodeChange { parent: None, node }];
        self.summary.apply(&change);
        self.display.apply_changes(&change, Instant::now());
    }

    /// Shows that a case has been answered, and awaits its verdict.
    pub(super) fn answer_case(&mut self, uid: &str) {
        self.display.await_verdict(uid, Instant::now());
    }

    /// Shows the result of a case.
    pub(super) fn end_case(&mut self, report: TestReport) {
        if let Some(events) = &mut self.events {
            events.print_end(&report, self.summary.is_unfinished(&report.uid));
        }
        self.display.apply_reports([report.clone()], Instant::now());
        self.summary.add_reports([report]);
    }

    pub(super) fn tick(&mut self) {
        self.display.tick(Instant::now());
    }

    pub(super) fn warn(&mut self, text: &str) {
        self.display.log(LogLevel::Warning, text);
    }

    /// Reports an error that ends the command.
    pub(super) fn fail(&mut self, text: &str) {
        self.display.log(LogLevel::Error, text);
        if let Some(events) = &mut self.events {
            events.set_error(text);
        }
    }
}
