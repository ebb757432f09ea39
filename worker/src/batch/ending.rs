//! The end of a batch's process: decides the tests without a result, and whether the program failed.

use std::time::Duration;

use host::process::Signal;
use wire::{
    control::{Death, Evidence, Leaked, LeaseEnd, LogLine, Report},
    mtp::LogLevel,
};

use super::{Batch, Ending, Gone, State};
use crate::{
    clock::Moment,
    conclusion::Seen,
    death::death_of,
    leaks::{Leak, sentence},
    outside::Place,
    parcel::Parcel,
};

/// Exit reason of a process whose parent is a debugger.
const UNTOLD: &str = "ended under its debugger, which alone was told how, before the test had ended";
/// The same for a process that did not begin its test.
const NOT_BEGUN: &str = "its process ended under its debugger before it had begun";

impl Batch {
    /// Decides all tests that are still running when the process has ended and its output is read to the end.
    pub(crate) fn finish(&mut self, gone: Gone, now: Moment, parcel: &mut Parcel) -> LeaseEnd {
        self.now = now;
        // A test that ended after its time limit is not the one that crashed.
        if gone.is_own_death && self.flights.iter().all(|flight| !flight.is_late) {
            self.forget_limits();
        }
        let is_in_test = !self.flights.is_empty();
        if self.is_launched && self.ending.is_none() {
            self.tell_not_begun(parcel);
        }
        self.process = (self.tests.len() == 1).then(|| gone.end.clone());
        self.tell_kept(parcel);
        if let Some(usage) = gone.end.usage() {
            let test = self.tests.first().map(|test| test.test).filter(|_| self.process.is_some());
            let tests = u32::try_from(self.tests.len()).unwrap_or(u32::MAX);
            parcel.reports.push(Report::Ended { test, tests, usage });
        }
        self.tell_leaks(&gone.end.leaked, parcel);
        let mut evidence = gone.evidence.clone();
        for mut flight in std::mem::take(&mut self.flights) {
            flight.duration = now.running.saturating_sub(flight.begun.running);
            let seen = match self.ending {
                _ if flight.is_silent => {
                    Seen::Silent(self.silence_limit(flight.place).unwrap_or(flight.duration))
                }
                _ if flight.is_timed_out => {
                    Seen::TimedOut(self.time_limit(flight.place).unwrap_or(flight.duration))
                }
                Some(Ending::Cancelled) => Seen::Cancelled,
                // Another test timed out, or the worker exits: this test goes back to the queue.
                Some(Ending::TimedOut | Ending::Abandoned) => {
                    self.progress[flight.place].state = State::Waiting;
                    continue;
                }
                Some(Ending::Idle | Ending::Memory(_)) | None => {
                    let untold = || self.is_launched.then(|| UNTOLD.to_owned());
                    let detail = gone.detail.clone().or_else(untold);
                    let death = Death { cause: self.memory_cause(&gone), detail, ..death_of(&gone.end) };
                    Seen::Died { death, is_after_end_marker: gone.is_after_end_marker }
                }
            };
            self.close_with(flight, (seen, evidence.take()), parcel);
        }
        if let Some(evidence) = evidence.filter(|evidence| !evidence.files.is_empty()) {
            parcel.reports.push(Report::Attached { test: None, files: evidence.files });
        }
        match self.ending {
            Some(Ending::Cancelled | Ending::Abandoned) => LeaseEnd::Cancelled,
            _ if is_in_test => LeaseEnd::DiedInTest { end: gone.end },
            Some(Ending::TimedOut | Ending::Idle | Ending::Memory(_)) | None => self.end_outside(gone),
        }
    }

    /// Discards limits that passed while a crash was captured: it is a crash, whatever the clock says
    /// afterwards.
    fn forget_limits(&mut self) {
        if matches!(self.ending, Some(Ending::TimedOut | Ending::Idle)) {
            self.ending = None;
        }
        for flight in &mut self.flights {
            flight.is_timed_out = false;
            flight.is_silent = false;
        }
    }

    /// Sends a not-run result for tests whose process its debugger ended before they began: the user ended
    /// it, and must not be offered the same test again.
    fn tell_not_begun(&mut self, parcel: &mut Parcel) {
        let reason = self.outside.under(NOT_BEGUN.to_owned());
        for place in 0..self.tests.len() {
            if self.progress[place].state == State::Waiting {
                self.progress[place].state = State::Done;
                self.tell_not_run(place, &reason, parcel);
            }
        }
    }

    /// Reports leaked processes and the tests that may have started them.
    fn tell_leaks(&self, leaked: &[Leaked], parcel: &mut Parcel) {
        for Leak { places, processes } in self.spans.charge(leaked, host::process::start_tick()) {
            let tests: Vec<_> = places.iter().map(|place| &self.tests[*place]).collect();
            let uids: Vec<_> = tests.iter().map(|test| test.uid.as_str()).collect();
            let message = sentence(self.nodes.suite(), &uids, &processes);
            let tests: Vec<_> = tests.iter().map(|test| test.test).collect();
            let test = tests.first().copied().filter(|_| tests.len() == 1);
            parcel.logs.push(LogLine { test, level: LogLevel::Warning, message });
            parcel.reports.push(Report::Leaked { tests, processes });
        }
    }

    /// Returns a message if the process ended because it ran out of memory.
    fn memory_cause(&self, gone: &Gone) -> Option<String> {
        let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
        match self.ending {
            Some(Ending::Memory(used)) => {
                let limit = self.limits.memory_bytes.unwrap_or_default();
                let (used, limit) = (mebibytes(used), mebibytes(limit));
                Some(format!("killed because it used {used} MiB of memory, over its limit of {limit} MiB"))
            }
            None if let Some(peak) = gone.end.limit_peak_bytes => {
                let limit = self.limits.memory_bytes.unwrap_or_default();
                let (peak, limit) = (mebibytes(peak), mebibytes(limit));
                Some(format!("killed because it used {peak} MiB of memory, at its limit of {limit} MiB"))
            }
            None if gone.is_out_of_memory && gone.end.signal == Some(Signal::KILL.0) => {
                let peak = mebibytes(gone.end.peak_kib.saturating_mul(1024));
                Some(format!("killed by the kernel for want of memory; it had used up to {peak} MiB"))
            }
            _ => None,
        }
    }

    fn end_outside(&self, gone: Gone) -> LeaseEnd {
        let is_idle = self.ending == Some(Ending::Idle);
        let is_explained = gone.is_explained || self.is_launched;
        if gone.is_complete && is_explained && !is_idle {
            return LeaseEnd::Complete;
        }
        let is_waiting = self.progress.iter().any(|one| one.state == State::Waiting);
        if self.is_launched && self.last_ended.is_none() && !is_waiting {
            return LeaseEnd::Complete;
        }
        let place = match self.last_ended {
            None => Place::BeforeFirst,
            Some(last) if is_waiting => Place::After(&self.tests[last].listed.name),
            Some(_) => Place::AfterLast,
        };
        let limit = is_idle.then(|| Duration::from_millis(self.limits.startup_ms));
        let mut message = self.outside.message(place, &gone.end, limit);
        if let Some(evidence) = &gone.evidence {
            tell_evidence(&mut message, evidence, gone.detail.as_deref());
        }
        if let Some(cause) = self.memory_cause(&gone) {
            message = format!("{cause}\n{message}");
        }
        if let Some(failure) = &gone.outside_failure {
            message.push_str("\n--- failed outside tests ---\n");
            message.push_str(failure.trim_end());
        }
        let end = gone.end;
        if is_waiting { LeaseEnd::DiedOutside { end, message } } else { LeaseEnd::BadExit { end, message } }
    }
}

/// Appends the evidence of a process that died outside any test.
fn tell_evidence(message: &mut String, evidence: &Evidence, detail: Option<&str>) {
    let mut section = |title: &str, text: &str| {
        if !text.trim().is_empty() {
            message.push_str(&format!("\n--- {title} ---\n{}", text.trim_end()));
        }
    };
    section("crash", detail.unwrap_or_default());
    section("stack", &evidence.stack);
    let files: Vec<_> = evidence.files.iter().map(|file| file.path.to_text().into_owned()).collect();
    section("files", &files.join("\n"));
}
