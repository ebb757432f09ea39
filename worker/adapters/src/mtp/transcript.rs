//! The dialogue of a run: requests all tests of a batch and reads their updates. Later batches are further
//! requests to the same process.

use heeler_core::{FixturePhase, SuiteFixture};
use std::collections::HashMap;

use heeler_protocol::{
    control::ListedTest,
    mtp::{ExecutionState, TestNode, method},
    rpc::{RpcError, code},
};

use super::{
    death_evidence::{Suspects, suspects},
    names::Selector,
    node_result::{files, is_superseded, verdict},
    session::{ApplicationEvent, FIRST_ID, MtpSession, cancel, exit, tests_request},
};
use crate::{
    ConnectionInput, DeathCulprit, DeathEvidence, FixtureFailure, FrameworkResult, FrameworkVerdict,
    TestPart, TranscriptEvent, TranscriptParser, scan,
};

/// Maximum number of suspects after a death. If there are more, none of them is reported as running, so none
/// is retried in isolation.
const MAX_SUSPECTS: usize = 16;
/// Maximum number of failed tear-downs that are kept.
const MAX_FIXTURE_FAILURES: usize = 100;
/// Log text of NUnit about a failed tear-down, which is reported nowhere else.
const TEAR_DOWN_FAILED: &str = "TearDown failed for test fixture ";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TestProgress {
    Waiting,
    Running,
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestState {
    /// No connection can run tests yet.
    Opening,
    /// The request with this id is open.
    Open(u64),
    /// No request is open or queued.
    Over,
}

pub(super) struct MtpParser {
    session: MtpSession,
    run: RunDialogue,
    has_asked_to_exit: bool,
}

/// State of the tests in one process.
struct RunDialogue {
    tests: Vec<Selector>,
    places: HashMap<String, usize>,
    progress: Vec<TestProgress>,
    /// First test of the current batch. Earlier tests are final.
    first: usize,
    request: RequestState,
    /// Tests of the open request.
    asked: Vec<usize>,
    /// Tests of the queued requests.
    queued: Vec<Vec<usize>>,
    next_id: u64,
    is_complete: bool,
    culprit: DeathCulprit,
    fault: Option<String>,
    fixture_failures: Vec<FixtureFailure>,
}

impl MtpParser {
    /// Creates the parser for a process that is started for these tests.
    pub(super) fn new(tests: &[&ListedTest]) -> Self {
        Self::with_session(MtpSession::default(), FIRST_ID, tests)
    }

    /// Creates the parser for a process that has listed its tests on these connections and waits.
    pub(super) fn continuing(session: MtpSession, tests: &[&ListedTest]) -> Self {
        Self::with_session(session, FIRST_ID + 1, tests)
    }

    fn with_session(session: MtpSession, next_id: u64, tests: &[&ListedTest]) -> Self {
        let mut run = RunDialogue {
            tests: Vec::new(),
            places: HashMap::new(),
            progress: Vec::new(),
            first: 0,
            request: RequestState::Opening,
            asked: Vec::new(),
            queued: Vec::new(),
            next_id,
            is_complete: false,
            culprit: DeathCulprit::RunningTests,
            fault: None,
            fixture_failures: Vec::new(),
        };
        run.add_batch(tests);
        Self { session, run, has_asked_to_exit: false }
    }
}

fn selector(test: &ListedTest) -> Selector {
    let read = test.selector.as_deref().and_then(Selector::read);
    read.unwrap_or_else(|| Selector {
        uid: test.name.clone(),
        display_name: test.name.clone(),
        function: None,
    })
}

impl RunDialogue {
    /// Adds the tests of a batch and queues a request for them.
    fn add_batch(&mut self, tests: &[&ListedTest]) {
        self.first = self.tests.len();
        self.tests.extend(tests.iter().map(|test| selector(test)));
        for place in self.first..self.tests.len() {
            self.places.insert(self.tests[place].uid.clone(), place);
        }
        self.progress.resize(self.tests.len(), TestProgress::Waiting);
        self.queued.push((self.first..self.tests.len()).collect());
        self.is_complete = false;
    }

    fn on_event(&mut self, event: ApplicationEvent, events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        match event {
            ApplicationEvent::Ready => return self.next_request(),
            ApplicationEvent::Changes(nodes) => {
                for node in nodes.into_iter().flatten() {
                    self.on_node(&node, events);
                }
            }
            ApplicationEvent::ErrorLog(message) => self.on_error_log(&message),
            ApplicationEvent::Response(id, answer) if self.request == RequestState::Open(id) => {
                return self.on_response(answer, events);
            }
            ApplicationEvent::Response(..) => {}
        }
        Vec::new()
    }

    fn on_node(&mut self, node: &TestNode, events: &mut Vec<TranscriptEvent>) {
        // Some frameworks run more tests than requested, or all tests if they do not know a member of the
        // request.
        let Some(place) = self.places.get(&node.uid).copied() else { return };
        if self.is_complete || place < self.first {
            return;
        }
        if node.state == Some(ExecutionState::InProgress) {
            // A finished test begins again for its next row or attempt.
            self.begin(place, events);
            return;
        }
        let Some(verdict) = verdict(node) else { return };
        self.begin(place, events);
        for file in files(node) {
            let (path, description) = (file.path, file.description);
            events.push(TranscriptEvent::File { place, path, description });
        }
        if is_superseded(node) {
            let number = node.members.get("retry.attempt").map(ToString::to_string).unwrap_or_default();
            events.push(part(place, format!("attempt {number}"), &verdict));
            return;
        }
        if node.display_name != self.tests[place].display_name {
            events.push(part(place, node.display_name.clone(), &verdict));
        }
        self.progress[place] = TestProgress::Ended;
        events.push(TranscriptEvent::Ended { place, verdict });
    }

    fn begin(&mut self, place: usize, events: &mut Vec<TranscriptEvent>) {
        if self.progress[place] == TestProgress::Waiting {
            self.progress[place] = TestProgress::Running;
            events.push(TranscriptEvent::Begun { place });
        }
    }

    fn on_error_log(&mut self, message: &str) {
        let Some(at) = message.find(TEAR_DOWN_FAILED) else { return };
        let rest = &message[at + TEAR_DOWN_FAILED.len()..];
        let suite = rest.split(['\r', '\n']).next().unwrap_or_default().trim();
        let is_known = self.fixture_failures.iter().any(|known| known.fixture.suite == suite);
        if suite.is_empty() || is_known || self.fixture_failures.len() == MAX_FIXTURE_FAILURES {
            return;
        }
        self.fixture_failures.push(FixtureFailure {
            fixture: SuiteFixture { suite: suite.to_owned(), phase: FixturePhase::TearDown },
            message: scan::truncated(message, 64 << 10).to_owned(),
        });
    }

    /// Returns the next queued request, if any.
    fn next_request(&mut self) -> Vec<u8> {
        let Some(asked) = self.queued.pop() else {
            self.request = RequestState::Over;
            self.is_complete = self.fault.is_none();
            return Vec::new();
        };
        let id = self.next_id;
        self.next_id += 1;
        self.request = RequestState::Open(id);
        let nodes = asked.iter().map(|place| self.tests[*place].to_node()).collect();
        self.asked = asked;
        tests_request(id, method::RUN, Some(nodes))
    }

    fn on_response(&mut self, answer: Result<(), RpcError>, events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        let mut asked = std::mem::take(&mut self.asked);
        let has_begun = |place: &usize| self.progress[*place] != TestProgress::Waiting;
        match answer {
            Ok(()) => {
                let reason = "not run by the framework: requested, but no result was reported";
                asked.into_iter().for_each(|place| self.end_not_run(place, reason, events));
            }
            Err(error) if error.code == code::REQUEST_CANCELLED => self.queued.clear(),
            Err(error) if asked.iter().any(has_begun) => {
                let error = shown(&error);
                self.fault.get_or_insert(format!("{} failed: {error}", method::RUN));
                self.queued.clear();
            }
            // Some frameworks reject the whole request because of one test name, so retry with halves.
            Err(_) if asked.len() > 1 => {
                let rest = asked.split_off(asked.len() / 2);
                self.queued.extend([rest, asked]);
                return self.next_request();
            }
            Err(error) => {
                let reason = format!("not run by the framework: {}", shown(&error));
                asked.into_iter().for_each(|place| self.end_not_run(place, &reason, events));
            }
        }
        events.push(TranscriptEvent::Confirmed);
        self.next_request()
    }

    fn end_not_run(&mut self, place: usize, reason: &str, events: &mut Vec<TranscriptEvent>) {
        if self.progress[place] != TestProgress::Ended {
            self.begin(place, events);
            self.progress[place] = TestProgress::Ended;
            let verdict = FrameworkVerdict {
                reason: Some(reason.to_owned()),
                ..FrameworkVerdict::new(FrameworkResult::NotRun, None)
            };
            events.push(TranscriptEvent::Ended { place, verdict });
        }
    }

    /// Returns the unfinished tests of the open request, in order.
    fn open_tests(&self) -> Vec<usize> {
        let is_open = |place: &usize| self.progress[*place] != TestProgress::Ended;
        self.asked.iter().copied().filter(is_open).collect()
    }

    fn on_death(&mut self, evidence: &DeathEvidence<'_>, events: &mut Vec<TranscriptEvent>) {
        if !matches!(self.request, RequestState::Open(_)) {
            return;
        }
        let open = self.open_tests();
        if open.is_empty() {
            return;
        }
        let is_running = |place: usize| self.progress[place] == TestProgress::Running;
        let Suspects { places: mut named, is_on_stack } = suspects(&self.tests, &open, is_running, evidence);
        if self.asked.len() == 1 {
            named = open;
        }
        // The journal, like the connection, may lack the last updates.
        self.culprit = match named[..] {
            [place] if is_on_stack || self.asked.len() == 1 => DeathCulprit::Test(place),
            _ => DeathCulprit::Unknown,
        };
        if named.len() <= MAX_SUSPECTS {
            for place in named {
                self.begin(place, events);
            }
        }
    }
}

fn part(place: usize, name: String, verdict: &FrameworkVerdict) -> TranscriptEvent {
    let message = verdict.failures.first().and_then(|failure| failure.message.clone());
    let message = message.or_else(|| verdict.reason.clone());
    TranscriptEvent::Part { place, part: TestPart { name, result: Some(verdict.result), message } }
}

fn shown(error: &RpcError) -> String {
    scan::truncated(&error.to_string(), 2000).to_owned()
}

impl TranscriptParser for MtpParser {
    fn opening_request(&mut self, _events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        // A process that was just started gets its request after it has connected.
        if self.session.awaited_opening().is_none() { self.run.next_request() } else { Vec::new() }
    }

    fn on_connection(
        &mut self,
        connection: usize,
        input: ConnectionInput<'_>,
        events: &mut Vec<TranscriptEvent>,
    ) -> Vec<u8> {
        let run = &mut self.run;
        self.session.on_input(connection, input, &mut |event| run.on_event(event, events))
    }

    fn cancel_request(&mut self, _reason: &str) -> Vec<u8> {
        match self.run.request {
            RequestState::Open(id) => cancel(id),
            RequestState::Opening | RequestState::Over => Vec::new(),
        }
    }

    fn on_output_end(&mut self, _events: &mut Vec<TranscriptEvent>) {}

    fn on_death(&mut self, evidence: &DeathEvidence<'_>, events: &mut Vec<TranscriptEvent>) {
        self.run.on_death(evidence, events);
    }

    fn culprit(&self) -> DeathCulprit {
        self.run.culprit
    }

    fn is_complete(&self) -> bool {
        self.run.is_complete
    }

    fn takes_more_tests(&self) -> bool {
        self.run.is_complete && self.outside_failure().is_none()
    }

    fn add_tests(&mut self, tests: &[&ListedTest], _events: &mut Vec<TranscriptEvent>) -> Vec<u8> {
        self.run.add_batch(tests);
        self.run.next_request()
    }

    fn closing_request(&mut self) -> Vec<u8> {
        if std::mem::replace(&mut self.has_asked_to_exit, true) { Vec::new() } else { exit() }
    }

    fn is_over(&self) -> bool {
        self.run.request == RequestState::Over || self.session.fault().is_some()
    }

    fn explains_exit(&self, code: i32) -> bool {
        code == 0 && self.outside_failure().is_none()
    }

    fn fixture_failures(&self) -> &[FixtureFailure] {
        &self.run.fixture_failures
    }

    fn outside_failure(&self) -> Option<&str> {
        self.run.fault.as_deref().or(self.session.fault())
    }
}
