//! The tests of one lease, from the first event to the end of the process: which one is running, what it
//! wrote, when its time limit passes, and what the end of the process means for the tests without a result.
//!
//! ```text
//! waiting ──Begun──► running ──Ended────────────────► done (settled, or provisional until a retry)
//!    ▲                  ├─ process ended ────────────► done (died: awaits an isolated rerun, or settled)
//!    │                  ├─ time limit, then ended ───► done (timed out)
//!    └── process ended  └─ cancelled, then ended ────► done (cancelled)
//! ```
//!
//! Pure: takes events and times, returns update batches and deadlines. No test gets two results, and a test
//! without one stays waiting, whatever the order of events: the coordinator leases it again.

mod ending;
mod flight;

use std::time::Duration;

use wire::{
    control::{
        Evidence, JournalledResult, Lease, LeasedTest, ListedTest, LogLine, RawEnd, Report, TestLimits,
        WorkerId,
    },
    mtp::{ExecutionState, LogLevel},
};

use crate::{
    adapter::{Event, Verdict},
    attribution::{Attribution, attribute},
    clock::{Moment, Utc},
    conclusion::{Conclusion, Outcome, Outputs, Rules, Seen, conclude, microseconds},
    leaks::Spans,
    node::{NodeWriter, Times, Told},
    output::cut_text,
    outside::Outside,
    parcel::Parcel,
};
use flight::Flight;

/// Framework durations are whole milliseconds or absent; a duration below this is measured by the worker.
const SHORT: Duration = Duration::from_millis(1);

/// The minimum size limit of an error message, however small the limit for output is.
const TEXT_BYTES: u64 = 64 << 10;

/// How long the result of a process's only test waits for the process to exit, so that it can include leaks
/// and resource usage. Most processes exit within a millisecond; one that left others behind also takes the
/// guard's wait for them.
const KEPT: Duration = Duration::from_secs(1);

/// Framework operations that a batch needs.
pub(crate) trait Framework: Send {
    /// Returns the command line that runs one test in isolation.
    fn reproduce(&self, test: &ListedTest) -> String;
    /// Fills in the details that the framework wrote about a failed test to standard error.
    fn complete(&self, verdict: &mut Verdict, stderr: &str);
}

/// The tests of one lease and their state.
pub(crate) struct Batch {
    tests: Vec<LeasedTest>,
    progress: Vec<Progress>,
    /// Running tests in the order in which they began; with the supported frameworks, at most one.
    flights: Vec<Flight>,
    /// Buffers of an ended test, recycled for the next.
    spare: Option<Flight>,
    limits: TestLimits,
    is_alone: bool,
    nodes: NodeWriter,
    framework: Box<dyn Framework>,
    outside: Outside,
    ending: Option<Ending>,
    first_begun: Option<Duration>,
    /// Since when no test has been running.
    idle_since: Duration,
    /// The time of the last chunk, or of the end.
    now: Moment,
    /// The estimated duration of each test that ended in this chunk, where the framework's clock is too
    /// coarse.
    share: Duration,
    last_ended: Option<usize>,
    /// Number of the current chunk, which marks the tests that receive its standard error without clearing
    /// older marks.
    chunk: u32,
    /// The idle process is being sampled.
    is_silence_checked: bool,
    /// Whether several tests can have written this chunk's standard error.
    is_shared: bool,
    /// When the tests of a process can have run, to attribute leaked processes.
    spans: Spans,
    /// The result of the process's only test, deferred until the process has ended too.
    kept: Option<Kept>,
    /// How the process ended, if it ran one test only.
    process: Option<RawEnd>,
    /// A debugger controls the process, and no limits apply.
    is_unlimited: bool,
    /// A debugger has launched the process, and only the debugger learns how it ends.
    is_launched: bool,
}

#[derive(Debug)]
struct Kept {
    place: usize,
    outcome: Box<Outcome>,
    times: Times,
    /// When it is sent even if the process still runs, in running time.
    until: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    InFlight,
    Done,
}

#[derive(Debug, Clone, Copy)]
struct Progress {
    state: State,
    /// The last chunk whose standard error may be this test's.
    receives_in: u32,
}

/// Why the process was terminated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// The marked running tests exceeded their time limit.
    TimedOut,
    /// No test began, or the process did not exit, within the startup limit.
    Idle,
    /// It exceeded its memory limit; the number of bytes used.
    Memory(u64),
    /// The coordinator cancelled the lease.
    Cancelled,
    /// The worker exits in the middle: the coordinator decides about the test.
    Abandoned,
}

/// An action due at a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// None: the deadline has not passed.
    Nothing,
    /// Sample the process to see whether the system scheduled it; [`Batch::silence_checked`] takes the
    /// answer.
    Silence,
    /// Send the deferred result of a test whose process takes long to exit: [`Batch::tell_kept`].
    Result,
    /// Terminate the process.
    End,
}

/// How a process ended, and what its transcript shows about the whole run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) end: RawEnd,
    /// The framework reported the end of the run.
    pub(crate) is_complete: bool,
    /// The process exited by itself, with a code that the transcript explains.
    pub(crate) is_explained: bool,
    /// The running test wrote its end marker, but no later output confirmed it.
    pub(crate) is_after_end_marker: bool,
    /// The failure that the framework reported outside any test.
    pub(crate) outside_failure: Option<String>,
    /// The kernel's out-of-memory killer has killed a process while this one ran.
    pub(crate) is_out_of_memory: bool,
    /// Dumps, stacks and states captured while it died or hung.
    pub(crate) evidence: Option<Box<Evidence>>,
    /// Where and by which signal it crashed.
    pub(crate) detail: Option<String>,
    /// It died before it was ordered to end: a limit that passed during the capture of the crash did not
    /// cause the end.
    pub(crate) is_own_death: bool,
}

/// Output from one read.
#[derive(Debug)]
pub(crate) struct Chunk<'a> {
    /// Events from the standard output; drained by the batch.
    pub(crate) events: &'a mut Vec<Event>,
    /// Standard error since the last chunk, read after the standard output.
    pub(crate) stderr: &'a [u8],
    pub(crate) now: Moment,
}

impl Batch {
    /// Returns the batch of the tests to run. Those that their framework would skip are settled at once, into
    /// `parcel`.
    pub(crate) fn new(
        lease: Lease,
        worker: WorkerId,
        parcel: &mut Parcel,
        framework: Box<dyn Framework>,
    ) -> Self {
        let mut nodes = NodeWriter::new(&lease, worker);
        let (skipped, tests): (Vec<_>, Vec<_>) =
            lease.tests.into_iter().partition(|test| test.listed.skip.is_some());
        for test in skipped {
            skip(&mut nodes, &test, parcel);
        }
        Self {
            progress: vec![Progress { state: State::Waiting, receives_in: 0 }; tests.len()],
            tests,
            flights: Vec::new(),
            spare: None,
            limits: lease.limits,
            is_alone: lease.is_alone,
            nodes,
            framework,
            outside: Outside::default(),
            ending: None,
            first_begun: None,
            idle_since: Duration::ZERO,
            now: Moment::default(),
            share: Duration::ZERO,
            last_ended: None,
            chunk: 0,
            is_silence_checked: false,
            is_shared: false,
            spans: Spans::default(),
            kept: None,
            process: None,
            is_unlimited: false,
            is_launched: false,
        }
    }

    /// Lifts all limits, because a debugger controls the process.
    pub(crate) fn lift_limits(&mut self) {
        self.is_unlimited = true;
    }

    /// Records that a debugger has launched the process: no limits apply, and its exit status is not known.
    pub(crate) fn was_launched(&mut self) {
        self.lift_limits();
        self.is_launched = true;
    }

    /// Returns the tests that need a process, in order; events refer to them by index.
    pub(crate) fn tests(&self) -> &[LeasedTest] {
        &self.tests
    }

    /// Returns how long the process ran before its first test.
    pub(crate) fn first_begun(&self) -> Option<Duration> {
        self.first_begun
    }

    /// Returns the next deadline in running time; `None` when nothing is waited for.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        if self.ending.is_some() {
            return None;
        }
        if self.is_unlimited {
            return self.kept.as_ref().map(|kept| kept.until);
        }
        if self.flights.is_empty() {
            let idle = self.idle_since.saturating_add(Duration::from_millis(self.limits.startup_ms));
            return Some(self.kept.as_ref().map_or(idle, |kept| idle.min(kept.until)));
        }
        self.flights.iter().filter_map(|flight| self.deadline_of(flight)).min()
    }

    fn deadline_of(&self, flight: &Flight) -> Option<Duration> {
        let by_time = self.time_limit(flight.place).map(|limit| flight.begun.running.saturating_add(limit));
        let by_silence = self.silence_limit(flight.place).filter(|_| !self.is_silence_checked);
        let by_silence = by_silence.map(|limit| flight.last_sign.saturating_add(limit));
        by_time.into_iter().chain(by_silence).chain(self.slow_at(flight)).min()
    }

    /// Returns when, in running time, a test is next reported as slow.
    fn slow_at(&self, flight: &Flight) -> Option<Duration> {
        let period = Duration::from_millis(self.tests[flight.place].slow_ms?);
        Some(flight.begun.running.saturating_add(period.saturating_mul(flight.warnings + 1)))
    }

    /// Logs the running tests that have become slow.
    pub(crate) fn tell_slow(&mut self, now: Moment, parcel: &mut Parcel) {
        for place in 0..self.flights.len() {
            let is_due = self.slow_at(&self.flights[place]).is_some_and(|due| due <= now.running);
            if !is_due || self.ending.is_some() {
                continue;
            }
            let flight = &mut self.flights[place];
            let (test, ran) = (&self.tests[flight.place], now.running - flight.begun.running);
            let periods = ran.as_millis() / u128::from(test.slow_ms.unwrap_or(u64::MAX).max(1));
            flight.warnings = u32::try_from(periods).unwrap_or(u32::MAX - 1);
            let message = format!("slow: it has been running for {:.1} s", ran.as_secs_f64());
            parcel.logs.push(LogLine { test: Some(test.test), level: LogLevel::Information, message });
        }
    }

    /// Handles a passed deadline; returns the action due.
    pub(crate) fn on_time(&mut self, now: Moment) -> Due {
        if self.deadline().is_none_or(|deadline| now.running < deadline) {
            return Due::Nothing;
        }
        if self.kept.is_some() {
            return Due::Result;
        }
        for place in 0..self.flights.len() {
            let limit = self.time_limit(self.flights[place].place).unwrap_or(Duration::MAX);
            let flight = &mut self.flights[place];
            flight.is_timed_out = flight.begun.running.saturating_add(limit) <= now.running;
        }
        if !self.flights.is_empty() && self.flights.iter().all(|flight| !flight.is_timed_out) {
            self.is_silence_checked = true;
            return Due::Silence;
        }
        self.ending = Some(if self.flights.is_empty() { Ending::Idle } else { Ending::TimedOut });
        Due::End
    }

    /// Handles a sample of an idle process: `starved` is how long the system did not schedule it since the
    /// last sample. Returns the action due.
    pub(crate) fn silence_checked(&mut self, now: Moment, starved: Duration) -> Due {
        self.is_silence_checked = false;
        for place in 0..self.flights.len() {
            let Some(limit) = self.silence_limit(self.flights[place].place) else { continue };
            let flight = &mut self.flights[place];
            let silent = now.running.saturating_sub(flight.last_sign);
            flight.last_sign = flight.last_sign.saturating_add(starved.min(silent));
            flight.is_silent = silent.saturating_sub(starved) >= limit;
            flight.is_timed_out = flight.is_silent;
        }
        if self.ending.is_some() || self.flights.iter().all(|flight| !flight.is_silent) {
            return Due::Nothing;
        }
        self.ending = Some(Ending::TimedOut);
        Due::End
    }

    /// Returns the running test and what it has written.
    pub(crate) fn in_flight(&self) -> Option<(&LeasedTest, Outputs)> {
        let flight = self.flights.first()?;
        Some((&self.tests[flight.place], flight.outputs()))
    }

    /// Settles a test that no command can select, before the start. The tests after it move up by one index.
    pub(crate) fn refuse(&mut self, place: usize, reason: &str, parcel: &mut Parcel) {
        self.tell_not_run(place, reason, parcel);
        self.tests.remove(place);
        self.progress.remove(place);
    }

    fn tell_not_run(&mut self, place: usize, reason: &str, parcel: &mut Parcel) {
        let times = Times { start: None, stop: Utc::now(), duration: Duration::ZERO };
        let outcome = Outcome::not_run(reason);
        let told = Told { outcome: &outcome, times, reproduce: None, process: None };
        settle(&mut self.nodes, &self.tests[place], &told, parcel);
    }

    /// Keeps only the first `count` tests: the others don't fit into one command, and stay waiting.
    pub(crate) fn cut_at(&mut self, count: usize) {
        self.tests.truncate(count);
        self.progress.truncate(count);
    }

    /// Records that the coordinator cancelled the lease. The caller terminates the process.
    pub(crate) fn cancel(&mut self) {
        self.ending = Some(Ending::Cancelled);
    }

    /// Records that the process exceeds its memory limit with `used_bytes`. The caller kills it.
    pub(crate) fn out_of_memory(&mut self, used_bytes: u64) {
        self.ending = Some(Ending::Memory(used_bytes));
    }

    /// Records that the worker must exit. The caller kills the process, and the running test stays undecided.
    pub(crate) fn abandon(&mut self) {
        self.ending = Some(Ending::Abandoned);
    }

    /// Handles the output of one read.
    pub(crate) fn chunk(&mut self, chunk: Chunk<'_>, parcel: &mut Parcel) {
        let Chunk { events, stderr, now } = chunk;
        self.chunk += 1;
        let before = self.now.since_boot;
        for flight in &mut self.flights {
            flight.last_sign = now.running;
        }
        (self.share, self.now) = (self.share_of_each(events, now), now);
        if !stderr.is_empty() {
            self.attribute(events, stderr);
        }
        for event in events.drain(..) {
            match event {
                Event::Begun { place } => self.begin(place, (stderr, before), parcel),
                Event::Output(bytes) => self.output(&bytes),
                Event::Ended { place, verdict } => {
                    // An end without a beginning: some frameworks report skipped tests in this way only.
                    self.begin(place, (stderr, before), parcel);
                    self.end(place, verdict, parcel);
                }
            }
        }
    }

    /// Returns the time limit of a test: its own, otherwise the lease's.
    fn time_limit(&self, place: usize) -> Option<Duration> {
        self.tests[place].timeout_ms.or(self.limits.timeout_ms).map(Duration::from_millis)
    }

    fn silence_limit(&self, place: usize) -> Option<Duration> {
        self.tests[place].silence_ms.map(Duration::from_millis)
    }

    fn share_of_each(&self, events: &[Event], now: Moment) -> Duration {
        let ended = events.iter().filter(|event| matches!(event, Event::Ended { .. })).count();
        let since = self.flights.first().map_or(self.now.running, |flight| flight.begun.running);
        now.running.saturating_sub(since) / u32::try_from(ended.max(1)).unwrap_or(u32::MAX)
    }

    /// Marks the tests that receive a chunk's standard error; running tests receive it now, others when they
    /// begin.
    fn attribute(&mut self, events: &[Event], stderr: &[u8]) {
        let places = self.flights.iter().map(|flight| flight.place);
        let is_open = |place| self.progress.get(place).is_some_and(|one: &Progress| one.state != State::Done);
        let Attribution { receivers, is_shared } = attribute(places, events, is_open);
        if receivers.is_empty() {
            self.outside.stderr(stderr);
        }
        for place in receivers {
            self.progress[place].receives_in = self.chunk;
        }
        self.is_shared = is_shared;
        for flight in &mut self.flights {
            if self.progress[flight.place].receives_in == self.chunk {
                flight.give(stderr, is_shared);
            }
        }
    }

    /// Handles a test's beginning, which was written after the previous chunk was read.
    fn begin(&mut self, place: usize, (stderr, before): (&[u8], Duration), parcel: &mut Parcel) {
        let is_waiting = self.progress.get(place).is_some_and(|one| one.state == State::Waiting);
        // A process that is being ended begins no test that would count.
        if !is_waiting || self.ending.is_some() {
            return;
        }
        let test = &self.tests[place];
        let mut flight = self.spare.take().unwrap_or_else(|| Flight::with_limit(self.limits.output_bytes));
        (flight.place, flight.begun, flight.last_sign) = (place, self.now, self.now.running);
        if self.progress[place].receives_in == self.chunk {
            flight.give(stderr, self.is_shared);
        }
        self.first_begun.get_or_insert(self.now.running);
        self.spans.begin(place, before);
        self.nodes.groups_above(test, parcel);
        parcel.started(test.test, |out| self.nodes.in_progress(out, test, self.now.utc));
        self.progress[place].state = State::InFlight;
        self.flights.push(flight);
    }

    fn output(&mut self, bytes: &[u8]) {
        match self.flights.last_mut() {
            Some(flight) => flight.stdout.push(bytes),
            None => self.outside.stdout(bytes),
        }
    }

    fn end(&mut self, place: usize, verdict: Verdict, parcel: &mut Parcel) {
        let Some(index) = self.flights.iter().position(|flight| flight.place == place) else { return };
        // It timed out, or it failed because the user cancelled it: the end of the process decides.
        let is_over = self.flights[index].is_timed_out
            || self.ending == Some(Ending::Cancelled) && verdict.state == ExecutionState::Failed;
        if is_over {
            self.flights[index].is_late = true;
            return;
        }
        let mut flight = self.flights.remove(index);
        let mut verdict = verdict;
        self.spans.end(place, self.now.since_boot, verdict.duration.unwrap_or_default());
        if let Some(captured) = verdict.stdout.take() {
            flight.stdout.push(captured.as_bytes());
        }
        if verdict.state == ExecutionState::Failed {
            self.framework.complete(&mut verdict, &flight.stderr.text());
        }
        verdict.message =
            verdict.message.map(|text| cut_text(text, self.limits.output_bytes.max(TEXT_BYTES)));
        let since_begun = self.now.running.saturating_sub(flight.begun.running);
        flight.duration = match verdict.duration {
            Some(duration) if !duration.is_zero() => duration,
            None if !since_begun.is_zero() => since_begun,
            Some(_) | None => self.share.min(SHORT),
        };
        self.close(flight, Seen::Verdict(verdict), parcel);
    }

    /// Decides a test's result: settled or provisional.
    fn close(&mut self, flight: Flight, seen: Seen, parcel: &mut Parcel) {
        self.close_with(flight, (seen, None), parcel);
    }

    fn close_with(
        &mut self,
        mut flight: Flight,
        (seen, evidence): (Seen, Option<Box<Evidence>>),
        parcel: &mut Parcel,
    ) {
        let test = &self.tests[flight.place];
        let duration = flight.duration;
        let rules = Rules { test, is_alone: self.is_alone, duration };
        let outputs = Outputs { evidence, ..flight.outputs() };
        match conclude(rules, seen, outputs) {
            Conclusion::Settle(outcome) => {
                if let Some(evidence) = outcome.outputs.evidence.as_ref().filter(|one| !one.files.is_empty())
                {
                    let files = evidence.files.clone();
                    parcel.reports.push(Report::Attached { test: Some(test.test), files });
                }
                let times = Times { start: Some(flight.begun.utc), stop: self.now.utc, duration };
                let kept = Kept { place: flight.place, outcome, times, until: self.now.running + KEPT };
                let is_ended = self.process.is_some();
                if self.tests.len() == 1 && !is_ended {
                    self.kept = Some(kept)
                } else {
                    self.tell(&kept, parcel)
                }
            }
            Conclusion::Hold(attempt, held) => parcel.held(test.test, *attempt, held),
        }
        self.progress[flight.place].state = State::Done;
        self.last_ended = Some(flight.place);
        self.idle_since = self.now.running;
        flight.clear();
        self.spare = Some(flight);
    }

    /// Sends the deferred result, if there is one.
    pub(crate) fn tell_kept(&mut self, parcel: &mut Parcel) {
        if let Some(kept) = self.kept.take() {
            self.tell(&kept, parcel);
        }
    }

    fn tell(&mut self, kept: &Kept, parcel: &mut Parcel) {
        let Kept { place, outcome, times, .. } = kept;
        let test = &self.tests[*place];
        let is_good = matches!(outcome.state, ExecutionState::Passed | ExecutionState::Skipped);
        let reproduce = (!is_good).then(|| self.framework.reproduce(&test.listed));
        let process = self.process.as_ref();
        settle(&mut self.nodes, test, &Told { outcome, times: *times, reproduce, process }, parcel);
    }
}

fn skip(nodes: &mut NodeWriter, test: &LeasedTest, parcel: &mut Parcel) {
    let outcome = Outcome::skipped(test.listed.skip.as_deref().unwrap_or_default());
    let times = Times { start: None, stop: Utc::now(), duration: Duration::ZERO };
    settle(nodes, test, &Told { outcome: &outcome, times, reproduce: None, process: None }, parcel);
}

fn settle(nodes: &mut NodeWriter, test: &LeasedTest, told: &Told<'_>, parcel: &mut Parcel) {
    let result = JournalledResult {
        test: test.test,
        state: told.outcome.state,
        duration_us: microseconds(told.times.duration),
    };
    nodes.groups_above(test, parcel);
    parcel.settled(result, |out| nodes.terminal(out, test, told));
}

#[cfg(test)]
mod tests;
