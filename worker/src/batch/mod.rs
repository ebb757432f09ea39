//! The tests of one lease, from the first event to the end of the process: which is in flight, what it wrote, when
//! its time is up, and what the end of the process means for those without a result.
//!
//! ```text
//! waiting ──Begun──► in flight ──Ended──────────────► done (settled, or held for a retry)
//!    ▲                   ├─ process ended ──────────► done (died: held for a lone run, or settled)
//!    │                   ├─ time limit, then ended ─► done (timed out)
//!    └── process ended   └─ cancelled, then ended ──► done (cancelled)
//! ```
//!
//! Pure: events and times come in, parcels and deadlines go out. No test has two results, and a test without one is
//! still waiting, whatever the order of events: the coordinator lends those out again.

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

/// The framework's own durations are whole milliseconds, or none: below one, we measure.
const SHORT: Duration = Duration::from_millis(1);

/// An error message may be this long, however small the limit for output is.
const TEXT_BYTES: u64 = 64 << 10;

/// A test that has its process to itself is told with what its process left behind and took, if that ends within this
/// time after the test. Most do within a millisecond; one that left others behind takes the guard's patience more.
const KEPT: Duration = Duration::from_secs(1);

/// What a batch asks its framework.
pub(crate) trait Framework: Send {
    /// Returns the command line that runs one test alone.
    fn reproduce(&self, test: &ListedTest) -> String;
    /// Fills in what the framework wrote about a failed test to standard error.
    fn complete(&self, verdict: &mut Verdict, stderr: &str);
}

/// The tests of one lease.
pub(crate) struct Batch {
    tests: Vec<LeasedTest>,
    progress: Vec<Progress>,
    /// In the order in which they began; with our frameworks, one at the most.
    flights: Vec<Flight>,
    /// Memory of an ended flight, for the next.
    spare: Option<Flight>,
    limits: TestLimits,
    is_alone: bool,
    nodes: NodeWriter,
    framework: Box<dyn Framework>,
    outside: Outside,
    ending: Option<Ending>,
    first_begun: Option<Duration>,
    /// Since when no test has been in flight.
    idle_since: Duration,
    /// When the last chunk came, or the end.
    now: Moment,
    /// What each test that ended in this chunk took, where its framework's clock is too coarse to tell.
    share: Duration,
    last_ended: Option<usize>,
    /// Counts chunks, to mark who receives a chunk's errors without clearing the marks.
    chunk: u32,
    /// The process is being asked why it is silent.
    is_silence_checked: bool,
    /// Whether several tests can have written this chunk's errors.
    is_shared: bool,
    /// When the tests of a process can have run, to tell by whom something was left behind.
    spans: Spans,
    /// The result of the only test of the process, until the process has ended too.
    kept: Option<Kept>,
    /// How the process ended, where it had one test only.
    process: Option<RawEnd>,
    /// A debugger has the process, and time means nothing.
    is_unlimited: bool,
    /// A debugger has launched the process, and alone is told how it ends.
    is_launched: bool,
}

#[derive(Debug)]
struct Kept {
    place: usize,
    outcome: Box<Outcome>,
    times: Times,
    /// When it is told all the same, in running time.
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
    /// The last chunk whose errors may be this test's.
    receives_in: u32,
}

/// Why the process was told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// The tests in flight that are marked ran too long.
    TimedOut,
    /// Nothing began, or the process did not leave, for so long.
    Idle,
    /// It used more memory than it may: so many bytes.
    Memory(u64),
    /// The coordinator wished it.
    Cancelled,
    /// The worker leaves in the middle: whoever comes after it decides.
    Abandoned,
}

/// What is due at a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing: it was not the deadline.
    Nothing,
    /// The process is to be asked whether it was let run; [`Batch::silence_checked`] takes the answer.
    Silence,
    /// The result of a test whose process takes long to leave is to be told: [`Batch::tell_kept`].
    Result,
    /// The process is to be terminated.
    End,
}

/// How a process ended, and what its transcript says of the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) end: RawEnd,
    /// The framework said its own last word.
    pub(crate) is_complete: bool,
    /// The process left by itself, with a code that the transcript explains.
    pub(crate) is_explained: bool,
    /// The test in flight wrote its end marker, but nothing behind it came to confirm that.
    pub(crate) is_after_end_marker: bool,
    /// What the framework reported as failed outside of any test.
    pub(crate) outside_failure: Option<String>,
    /// The kernel has killed a process for want of memory while this one ran.
    pub(crate) is_out_of_memory: bool,
    /// What was seen while it died or hung.
    pub(crate) evidence: Option<Box<Evidence>>,
    /// Where and by what it crashed.
    pub(crate) detail: Option<String>,
    /// It died before it was told to end: a limit that passed while that was looked into has ended nothing.
    pub(crate) is_own_death: bool,
}

/// What one read brought.
#[derive(Debug)]
pub(crate) struct Chunk<'a> {
    /// From the standard output; left empty.
    pub(crate) events: &'a mut Vec<Event>,
    /// What came on the standard error since the last chunk, read after the standard output.
    pub(crate) stderr: &'a [u8],
    pub(crate) now: Moment,
}

impl Batch {
    /// Settles the tests that their framework would not run, and returns the batch of the others, and what is settled.
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

    /// Takes note that a debugger has the process: from now on nothing takes too long.
    pub(crate) fn lift_limits(&mut self) {
        self.is_unlimited = true;
    }

    /// Takes note that a debugger has launched the process: nothing takes too long, and how it ends is not told.
    pub(crate) fn was_launched(&mut self) {
        self.lift_limits();
        self.is_launched = true;
    }

    /// Returns the tests that need a process, in order: events name them by their place here.
    pub(crate) fn tests(&self) -> &[LeasedTest] {
        &self.tests
    }

    /// Returns how long the process ran before its first test.
    pub(crate) fn first_begun(&self) -> Option<Duration> {
        self.first_begun
    }

    /// Returns when, in running time, something must have happened; `None` when nothing is waited for.
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

    /// When, in running time, a test is told to be slow, or to be slow still.
    fn slow_at(&self, flight: &Flight) -> Option<Duration> {
        let period = Duration::from_millis(self.tests[flight.place].slow_ms?);
        Some(flight.begun.running.saturating_add(period.saturating_mul(flight.warnings + 1)))
    }

    /// Says of the tests in flight which of them have become slow.
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

    /// Takes note of the time; returns what is due.
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

    /// Takes note of how long a silent process was not let run since the last look; returns what is due.
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

    /// Returns the test in flight, and what it has written.
    pub(crate) fn in_flight(&self) -> Option<(&LeasedTest, Outputs)> {
        let flight = self.flights.first()?;
        Some((&self.tests[flight.place], flight.outputs()))
    }

    /// Settles a test that no command can select, before the start. Those behind it move up by one place.
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

    /// Keeps only the first tests: the others don't fit into one command, and stay waiting.
    pub(crate) fn cut_at(&mut self, count: usize) {
        self.tests.truncate(count);
        self.progress.truncate(count);
    }

    /// Takes note that the coordinator wishes an end. The process is to be terminated.
    pub(crate) fn cancel(&mut self) {
        self.ending = Some(Ending::Cancelled);
    }

    /// Takes note that the process uses so many bytes, which is too much. It is to be killed.
    pub(crate) fn out_of_memory(&mut self, used_bytes: u64) {
        self.ending = Some(Ending::Memory(used_bytes));
    }

    /// Takes note that the worker must leave. The process is to be killed, and the test in flight stays undecided.
    pub(crate) fn abandon(&mut self) {
        self.ending = Some(Ending::Abandoned);
    }

    /// Takes what one read brought.
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
                    // An end without a beginning: some frameworks tell tests that they skip only so.
                    self.begin(place, (stderr, before), parcel);
                    self.end(place, verdict, parcel);
                }
            }
        }
    }

    /// A test's own limit goes before the lease's.
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

    /// Marks the tests that get a chunk's errors; those in flight get them now, others when they begin.
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

    /// Takes a test's beginning, which was written after the last chunk came.
    fn begin(&mut self, place: usize, (stderr, before): (&[u8], Duration), parcel: &mut Parcel) {
        let is_waiting = self.progress.get(place).is_some_and(|one| one.state == State::Waiting);
        // A process that is being ended begins nothing that would count.
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
        // Its time was up, or it ended badly because the user ended it: the end of the process decides.
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

    /// Gives a test its result: settled, or held.
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

    /// Tells the result that waits for its process's end, if there is one.
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
