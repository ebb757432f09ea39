//! Tests that end several times in one run of their framework: rows and attempts under one name, and a class
//! whose tear-down fails after them. Any failure wins.

use heeler_adapters::{FrameworkResult, FrameworkVerdict, TestPart};

use super::{RunningBatch, held_tests::HeldTest, test_ending::TestEnding};
use crate::{results::output_capture::truncate_text, results::update_batch::UpdateBatch};

/// Failures that are named where they come after the results of their tests.
const NAMED_FAILURES: usize = 10;

impl RunningBatch {
    /// Handles the end of a test that has ended before.
    pub(super) fn record_later_end(&mut self, place: usize, verdict: FrameworkVerdict) {
        if !self.held_tests.is_until_confirmed {
            return;
        }
        let limit_bytes = self.limits.output_bytes;
        if let Some(held) = self.held_tests.find(place) {
            add_end(held, verdict, limit_bytes);
        } else if verdict.result == FrameworkResult::Failed
            && self.settled.early_result(place) == Some(FrameworkResult::Passed)
            && self.held_tests.late_failures.len() < NAMED_FAILURES
        {
            let name = &self.order.listed(place).name;
            let message = verdict.failures.into_iter().find_map(|failure| failure.message);
            let message = message.map_or(String::new(), |message| format!(": {message}"));
            self.held_tests.late_failures.push(format!("{name} failed after its result was sent{message}"));
        }
    }

    /// Records a part of a test that has ended before.
    pub(super) fn record_later_part(&mut self, place: usize, part: TestPart) {
        if let Some(held) = self.held_tests.find(place) {
            held.ended.outputs.parts.record(part);
        }
    }

    /// Settles the tests that do not end again. The only test of a process waits for its end.
    pub(super) fn settle_confirmed(&mut self, updates: &mut UpdateBatch) {
        if self.order.is_single() {
            return;
        }
        for HeldTest { ended, verdict } in self.held_tests.take() {
            self.settled.record_early(ended.place, verdict.result);
            self.settle(ended, TestEnding::Verdict(verdict), updates);
        }
    }
}

/// Adds another end of a test to the one that is held.
fn add_end(held: &mut HeldTest, verdict: FrameworkVerdict, limit_bytes: u64) {
    let FrameworkVerdict { result, duration, reason, failures, stdout, stderr, .. } = verdict;
    let known = &mut held.verdict;
    if severity(result) > severity(known.result) {
        known.result = result;
        known.reason = None;
    }
    if result == known.result {
        known.reason = known.reason.take().or(reason);
    }
    known.duration =
        known.duration.zip(duration).map(|(one, other)| one.saturating_add(other)).or(known.duration);
    failures.into_iter().for_each(|failure| known.push_failure(failure));
    let outputs = &mut held.ended.outputs;
    for (text, more) in [(&mut outputs.stdout, stdout), (&mut outputs.stderr, stderr)] {
        if let Some(more) = more {
            text.push_str(&more);
            *text = truncate_text(std::mem::take(text), limit_bytes);
        }
    }
}

fn severity(result: FrameworkResult) -> u8 {
    match result {
        FrameworkResult::NotRun => 0,
        FrameworkResult::Skipped => 1,
        FrameworkResult::Passed => 2,
        FrameworkResult::Failed => 3,
    }
}
