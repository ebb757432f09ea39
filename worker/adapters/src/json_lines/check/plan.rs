//! The course of a check: chooses the next conversation and collects the results.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    super::adapter::JsonLines,
    conversation::{CheckConversation, CheckScript, CheckStep},
    judge::{JudgedTest, Judgement, judge, without_repetitions},
    reader::CheckReader,
    rules::{BrokenRule, CheckRule, RuleFinding, RuleResult},
    stages::{ConversationKind, UNKNOWN_ID},
};
use crate::Adapter as _;

/// Number of tests in one request.
const TESTS_PER_REQUEST: usize = 16;
/// Maximum number of tests that are run: enough to test all rules, however large the suite.
const MAX_TESTS: usize = 48;
/// Maximum number of test names in a note.
const NAMED_TESTS: usize = 5;

/// The check of one program.
#[derive(Debug)]
pub struct AdapterCheck {
    carrier: JsonLines,
    stages: std::slice::Iter<'static, ConversationKind>,
    stage: ConversationKind,
    broken: BTreeMap<CheckRule, (BrokenRule, usize)>,
    tried: BTreeSet<CheckRule>,
    /// Why rules were not tested.
    untried: BTreeMap<CheckRule, String>,
    listed: Vec<String>,
    /// Tests that still have to run.
    waiting: Vec<String>,
    /// Ended tests with their states.
    ended: Vec<(String, String)>,
    /// The process does not exit after `stop`.
    has_no_exit: bool,
    /// Why no further rule can be tested.
    obstacle: Option<String>,
    notes: Vec<String>,
}

impl AdapterCheck {
    /// Creates the check of a program of this framework; `None` if it is not a JSON lines framework.
    #[must_use]
    pub fn new(framework: &str) -> Option<Self> {
        let carriers = [JsonLines::Channel, JsonLines::StandardStreams];
        let carrier = carriers.into_iter().find(|carrier| carrier.traits().name == framework)?;
        Some(Self {
            carrier,
            stages: const { &ConversationKind::ALL }.iter(),
            stage: ConversationKind::Listing,
            broken: BTreeMap::new(),
            tried: BTreeSet::new(),
            untried: BTreeMap::new(),
            listed: Vec::new(),
            waiting: Vec::new(),
            ended: Vec::new(),
            has_no_exit: false,
            obstacle: None,
            notes: Vec::new(),
        })
    }

    /// Returns the command of each process.
    #[must_use]
    pub fn invocation(&self) -> crate::AdapterInvocation {
        self.carrier.invocation(Vec::new())
    }

    /// Returns a reader for the reports of one process.
    #[must_use]
    pub fn reader(&self) -> CheckReader {
        CheckReader::new(self.carrier)
    }

    /// Returns findings worth reporting that break no rule.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the scripts of the next conversations, which run at the same time; `None` at the end.
    pub fn next_scripts(&mut self) -> Option<Vec<CheckScript>> {
        if self.stage == ConversationKind::RunAll && !self.waiting.is_empty() && self.obstacle.is_none() {
            return Some(self.scripts());
        }
        loop {
            self.stage = *self.stages.next()?;
            if let Some(obstacle) = self.obstacle.clone().or_else(|| self.missing_need()) {
                if let Some(rule) = self.stage.own_rule() {
                    self.untried.insert(rule, obstacle);
                }
                continue;
            }
            return Some(self.scripts());
        }
    }

    fn scripts(&self) -> Vec<CheckScript> {
        let ended = |range: std::ops::Range<usize>| -> Vec<String> {
            let range = range.start..range.end.min(self.ended.len());
            self.ended[range].iter().map(|(id, _)| id.clone()).collect()
        };
        let count = self.ended.len();
        let requests = match self.stage {
            ConversationKind::RunAll => vec![self.waiting.iter().take(TESTS_PER_REQUEST).cloned().collect()],
            ConversationKind::Selection => vec![ended(count - 1..count)],
            ConversationKind::RequestOrder => vec![ended(0..TESTS_PER_REQUEST).into_iter().rev().collect()],
            ConversationKind::NextRequest => vec![ended(0..1), ended(1..2)],
            ConversationKind::NoTests => vec![Vec::new()],
            ConversationKind::UnknownTest => vec![[vec![UNKNOWN_ID.to_owned()], ended(0..1)].concat()],
            _ => Vec::new(),
        };
        let mut scripts = self.stage.scripts(&requests);
        if self.has_no_exit {
            // Waiting for the exit would only reach the time limit each time.
            for script in &mut scripts {
                script.steps.retain(|step| {
                    *step != CheckStep::AwaitExit || self.stage == ConversationKind::EndOfInput
                });
            }
        }
        scripts
    }

    /// Returns why this stage cannot run.
    fn missing_need(&self) -> Option<String> {
        let see = |rule: CheckRule| self.broken.contains_key(&rule).then(|| format!("see {}", rule.id()));
        let states: BTreeSet<&str> =
            self.ended.iter().take(TESTS_PER_REQUEST).map(|(_, state)| state.as_str()).collect();
        match self.stage {
            ConversationKind::JoinedRequests if self.has_no_exit => see(CheckRule::Stop),
            ConversationKind::LongRequests => see(CheckRule::UnknownMembers),
            ConversationKind::RunAll if self.waiting.is_empty() => {
                Some("the program lists no runnable tests".to_owned())
            }
            ConversationKind::Selection | ConversationKind::UnknownTest if self.ended.is_empty() => {
                Some("no test ended normally".to_owned())
            }
            ConversationKind::RequestOrder if states.len() < 2 => {
                Some("needs two tests with different results among the first 16".to_owned())
            }
            ConversationKind::RequestOrder | ConversationKind::UnknownTest => see(CheckRule::Selection),
            ConversationKind::NextRequest if self.ended.len() < 2 => {
                Some("needs two tests that end normally".to_owned())
            }
            // A report after the answer might be read only after the next request.
            ConversationKind::NextRequest => see(CheckRule::ReportsOnRequest),
            _ => None,
        }
    }

    /// Judges the conversations of the last returned scripts, in the same order.
    pub fn on_conversations(&mut self, conversations: &[CheckConversation]) {
        for conversation in conversations {
            let judgement = judge(conversation, self.carrier);
            self.has_no_exit |= judgement.has_no_exit && self.stage == ConversationKind::Listing;
            match self.stage {
                ConversationKind::Listing => self.on_first_listing(judgement),
                ConversationKind::RunAll => self.on_run(judgement, conversation),
                stage => self.on_special(stage, judgement, conversation),
            }
        }
    }

    fn on_first_listing(&mut self, judgement: Judgement) {
        use CheckRule::{
            AtOnce, Carrier, Hello, Json, LineLength, Listed, ReportsOnRequest, Start, Stop, TestMembers,
            UniqueIds,
        };
        let is_listed = judgement.listed.is_some();
        self.listed = judgement.listed.unwrap_or_default();
        self.waiting = without_repetitions(&judgement.runnable);
        if self.waiting.len() > MAX_TESTS {
            self.notes.push(format!("only the first {MAX_TESTS} of {} tests were run", self.waiting.len()));
            self.waiting.truncate(MAX_TESTS);
        }
        judgement.broken.into_iter().for_each(|broken| self.record(broken));
        if !is_listed {
            self.obstacle = Some("the first listing did not end".to_owned());
            return;
        }
        self.tried.extend([Start, Carrier, AtOnce, Json, LineLength, Hello, ReportsOnRequest, Listed]);
        self.tried.extend([TestMembers, UniqueIds, Stop]);
    }

    fn on_run(&mut self, judgement: Judgement, conversation: &CheckConversation) {
        let left: Vec<String> = judgement.left_running().into_iter().map(str::to_owned).collect();
        if judgement.is_unanswered && !left.is_empty() {
            let names =
                left.iter().take(NAMED_TESTS).map(|id| format!("{id:?}")).collect::<Vec<_>>().join(", ");
            let end = match (conversation.code, conversation.signal) {
                (None, None) => format!("no further report within {}", conversation.limit),
                _ => conversation.describe_end(),
            };
            self.notes.push(format!("{end} while {names} ran, which is not a fault of the adapter"));
        }
        let answers = judgement.runs.iter().flat_map(|run| run.tests.iter().zip(&run.progress));
        let mut reported = left;
        for (id, progress) in answers {
            if let JudgedTest::Ended(state) = progress {
                self.ended.push((id.clone(), state.clone()));
                reported.push(id.clone());
            }
        }
        let is_faulty = !judgement.broken.is_empty();
        if is_faulty || reported.is_empty() {
            // The remaining tests would fail the same way, or the program left them out.
            self.waiting.clear();
        }
        self.waiting.retain(|id| !reported.contains(id));
        self.record_details(&judgement);
        if !judgement.is_unanswered {
            self.tried.extend([CheckRule::BeginEnd, CheckRule::ReportMembers]);
            self.tried.extend([CheckRule::AllTests, CheckRule::Done]);
        } else if is_faulty {
            self.obstacle = Some("a run was not answered".to_owned());
        }
        judgement.broken.into_iter().for_each(|broken| self.record(broken));
    }

    fn record_details(&mut self, judgement: &Judgement) {
        if judgement.has_details {
            self.tried.insert(CheckRule::PartInTest);
        }
        if judgement.fence.is_some() && !judgement.is_unanswered && !judgement.runs.is_empty() {
            self.tried.insert(CheckRule::Fence);
        }
    }

    /// Judges a conversation that tests a single rule.
    fn on_special(
        &mut self,
        stage: ConversationKind,
        judgement: Judgement,
        conversation: &CheckConversation,
    ) {
        let Some(rule) = stage.own_rule() else { return };
        self.record_details(&judgement);
        if stage == ConversationKind::SlowReader && !conversation.had_to_wait {
            let reason = "the listing fits into the buffer of the channel".to_owned();
            self.untried.insert(rule, reason);
            return;
        }
        let mut broken = judgement.broken.iter().filter(|one| !self.broken.contains_key(&one.rule));
        let own = broken.next().cloned().or_else(|| self.own_break(stage, &judgement));
        match own {
            // Listings differ between processes in general, so this stage's own rule is not to blame.
            Some(own) if own.rule == CheckRule::StableListing => self.record(own),
            Some(own) => self.record(BrokenRule { rule, ..own }),
            None if judgement.is_unanswered => {
                let known = judgement.broken.first().map(|one| format!("see {}", one.rule.id()));
                let reason = known.unwrap_or_else(|| "a test did not end this time".to_owned());
                self.untried.insert(rule, reason);
            }
            None => {
                self.tried.insert(rule);
            }
        }
        if stage == ConversationKind::TwoProcesses && judgement.listed.is_some() {
            self.tried.insert(CheckRule::StableListing);
        }
    }

    /// Returns a break that only the comparison with earlier conversations shows.
    fn own_break(&self, stage: ConversationKind, judgement: &Judgement) -> Option<BrokenRule> {
        let broken = |rule, sent: &str, came: String, expected: String| {
            Some(BrokenRule { rule, sent: sent.to_owned(), came, expected })
        };
        // The listing differs from the first one.
        if let Some(listed) = judgement.listed.as_ref().filter(|listed| **listed != self.listed) {
            if self.broken.contains_key(&CheckRule::StableListing) {
                return None;
            }
            let rule = match stage {
                ConversationKind::TwoProcesses => CheckRule::StableListing,
                stage => stage.own_rule()?,
            };
            let (came, expected) = difference(listed, &self.listed);
            return broken(rule, "a list", came, expected);
        }
        // Results differ from the expected or earlier results.
        let run = judgement.runs.last()?;
        let mut answers = run.tests.iter().zip(&run.progress);
        match stage {
            ConversationKind::UnknownTest => match &run.progress[0] {
                JudgedTest::Ended(state) if state != "failed" => {
                    let came = format!("{UNKNOWN_ID:?} ended as {state}");
                    broken(
                        CheckRule::UnknownTest,
                        "a run with this id",
                        came,
                        "failed, or no report for this id".to_owned(),
                    )
                }
                _ => None,
            },
            ConversationKind::RequestOrder => {
                let states: BTreeMap<_, _> = self.ended.iter().map(|(id, state)| (id, state)).collect();
                let other = answers.find_map(|(id, progress)| match progress {
                    JudgedTest::Ended(state) if *state != *states[id] => Some((id, state)),
                    _ => None,
                });
                let (id, state) = other?;
                let came = format!("{id:?} ended as {state}");
                let expected = format!("{}, as before (unless the test is flaky)", states[id]);
                broken(CheckRule::RequestOrder, "a run of the tests in reverse order", came, expected)
            }
            _ => None,
        }
    }

    fn record(&mut self, broken: BrokenRule) {
        self.broken.entry(broken.rule).or_insert((broken, 0)).1 += 1;
    }

    /// Returns the result for each rule.
    #[must_use]
    pub fn results(&self) -> Vec<RuleResult> {
        let finding = |rule: CheckRule| {
            if let Some((first, times)) = self.broken.get(&rule) {
                return RuleFinding::Broken { first: first.clone(), times: *times };
            }
            if self.tried.contains(&rule) {
                return RuleFinding::Kept;
            }
            let reason = match (rule, self.untried.get(&rule)) {
                (_, Some(reason)) => reason.clone(),
                (CheckRule::PartInTest, None) if self.obstacle.is_none() => {
                    "no part, output or file was reported".to_owned()
                }
                (CheckRule::Fence, None) if self.obstacle.is_none() => {
                    "the program uses no fences".to_owned()
                }
                (_, None) => self.obstacle.clone().unwrap_or_else(|| "no test was run".to_owned()),
            };
            RuleFinding::NotTried { reason }
        };
        CheckRule::ALL.iter().map(|rule| RuleResult { rule: *rule, finding: finding(*rule) }).collect()
    }
}

/// Returns the first difference between two listings: the received and the expected text.
fn difference(listed: &[String], expected: &[String]) -> (String, String) {
    let place = listed.iter().zip(expected).position(|(one, other)| one != other);
    let place = place.unwrap_or(listed.len().min(expected.len()));
    let at = |ids: &[String]| {
        let id = ids.get(place).map_or("the end of the listing".to_owned(), |id| format!("{id:?}"));
        format!("{id} as test {}", place + 1)
    };
    (at(listed), format!("{}, as in the first listing", at(expected)))
}
