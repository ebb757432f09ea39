//! Cases of a conformance suite from their request to their answer.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use bytes::Bytes;
use heeler_protocol::connect::ClientRequest;

use crate::scheduler::RequestNumber;

/// How long cases are collected for one run. The suite writes all cases of a server at once, so later cases
/// belong to another server.
const GATHER_FOR: Duration = Duration::from_millis(10);
/// Number of cases that start a run without further waiting. Larger runs save nothing.
const RUN_CASES: usize = 256;
/// Maximum number of open cases. Beyond it, no more requests are read, which bounds memory: the suite keeps
/// the rest. The limit is several times the number of cases that can run at once.
const OPEN_CASES: usize = 4096;

/// A case that has not been answered.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OpenCase {
    pub(super) request: ClientRequest,
    /// The request exactly as written by the suite.
    pub(super) bytes: Bytes,
}

#[derive(Debug, Default)]
struct RunCases {
    /// Open cases by uid.
    open: HashMap<String, OpenCase>,
    /// Uids of all cases of the run.
    uids: HashSet<String>,
}

/// The run that collected cases are assigned to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    /// The run that executes the cases.
    pub(super) run: RequestNumber,
    /// Whether the run is new. Otherwise the cases are added to it.
    pub(super) is_new: bool,
    /// The run that this assignment closed, if any.
    pub(super) closed: Option<RequestNumber>,
}

/// The open cases. Times are relative to an arbitrary fixed instant.
#[derive(Debug, Default)]
pub(super) struct Cases {
    gathered: Vec<OpenCase>,
    gathering_since: Option<Duration>,
    runs: BTreeMap<RequestNumber, RunCases>,
    next_run: u64,
    /// The run that accepts more cases.
    open_run: Option<RequestNumber>,
    /// Whether the suite sends no more cases.
    is_ended: bool,
}

impl Cases {
    pub(super) fn add(&mut self, case: OpenCase, now: Duration) {
        self.gathering_since.get_or_insert(now);
        self.gathered.push(case);
    }

    /// Records that no more cases follow.
    pub(super) fn end(&mut self) {
        self.is_ended = true;
    }

    /// Returns whether all cases are answered and no more follow.
    pub(super) fn is_over(&self) -> bool {
        self.is_ended && self.gathered.is_empty() && self.runs.is_empty()
    }

    /// Returns whether any case is open.
    pub(super) fn has_open(&self) -> bool {
        !self.gathered.is_empty() || self.runs.values().any(|run| !run.open.is_empty())
    }

    /// Returns whether more requests should be read.
    pub(super) fn has_room(&self) -> bool {
        let open: usize = self.runs.values().map(|run| run.open.len()).sum();
        !self.is_ended && self.gathered.len() + open < OPEN_CASES
    }

    /// Returns when the collected cases become a run; `None` if there are none.
    pub(super) fn due_at(&self) -> Option<Duration> {
        let since = self.gathering_since?;
        let is_full = self.is_ended || self.gathered.len() >= RUN_CASES;
        Some(if is_full { since } else { since + GATHER_FOR })
    }

    /// Takes the collected cases in order of arrival.
    pub(super) fn take_gathered(&mut self) -> Vec<OpenCase> {
        self.gathering_since = None;
        std::mem::take(&mut self.gathered)
    }

    /// Assigns cases, by uid, to the open run, or to a new run if there is none. A run contains each uid
    /// once, so a repeated case goes to another run.
    pub(super) fn assign(&mut self, cases: HashMap<String, OpenCase>) -> Assignment {
        let is_taken = |run: &RequestNumber| {
            self.runs.get(run).is_none_or(|run| cases.keys().any(|uid| run.uids.contains(uid)))
        };
        let closed = self.open_run.take_if(|run| is_taken(run));
        let is_new = self.open_run.is_none();
        let run = *self.open_run.get_or_insert_with(|| {
            self.next_run += 1;
            RequestNumber(self.next_run - 1)
        });
        let assigned = self.runs.entry(run).or_default();
        assigned.uids.extend(cases.keys().cloned());
        assigned.open.extend(cases);
        Assignment { run, is_new, closed }
    }

    /// If no more cases follow, closes the open run and returns it.
    pub(super) fn close_run_at_end(&mut self) -> Option<RequestNumber> {
        self.open_run.take_if(|_| self.is_ended && self.gathered.is_empty())
    }

    pub(super) fn open(&self, run: RequestNumber, uid: &str) -> Option<&OpenCase> {
        self.runs.get(&run)?.open.get(uid)
    }

    /// Removes a case that is about to be answered; `None` if it has been answered already.
    pub(super) fn answer(&mut self, run: RequestNumber, uid: &str) -> Option<OpenCase> {
        self.runs.get_mut(&run)?.open.remove(uid)
    }

    /// Removes a run that is over. Returns its open cases by uid.
    pub(super) fn finish(&mut self, run: RequestNumber) -> HashMap<String, OpenCase> {
        self.open_run.take_if(|open| *open == run);
        self.runs.remove(&run).unwrap_or_default().open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str) -> OpenCase {
        let request = ClientRequest { test_name: name.to_owned(), ..ClientRequest::default() };
        OpenCase { request, bytes: Bytes::new() }
    }

    /// Assigns the collected cases, using their names as uids.
    fn assign_gathered(cases: &mut Cases) -> Assignment {
        let taken = cases.take_gathered();
        cases.assign(taken.into_iter().map(|case| (case.request.test_name.clone(), case)).collect())
    }

    fn ms(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    #[test]
    fn cases_are_gathered_until_there_are_many_or_time_has_passed_or_all_are_there() {
        let mut cases = Cases::default();
        assert_eq!(cases.due_at(), None);
        cases.add(case("a"), ms(5));
        cases.add(case("b"), ms(9));
        assert_eq!(cases.due_at(), Some(ms(15)));
        for _ in 2..RUN_CASES {
            assert_eq!(cases.due_at(), Some(ms(15)));
            cases.add(case("c"), ms(10));
        }
        assert_eq!(cases.due_at(), Some(ms(5)));
        assert_eq!(cases.take_gathered().len(), RUN_CASES);
        assert_eq!(cases.due_at(), None);
        cases.add(case("d"), ms(20));
        cases.end();
        assert_eq!(cases.due_at(), Some(ms(20)));
    }

    #[test]
    fn every_case_is_answered_once() {
        let mut cases = Cases::default();
        cases.add(case("a"), ms(0));
        cases.add(case("b"), ms(0));
        let run = assign_gathered(&mut cases).run;
        cases.end();
        assert!(!cases.is_over() && cases.has_open());
        assert_eq!(cases.answer(run, "a"), Some(case("a")));
        assert_eq!(cases.answer(run, "a"), None, "an update may arrive twice");
        assert_eq!(cases.answer(RequestNumber(7), "b"), None);
        let owed = cases.finish(run);
        assert_eq!(owed, [("b".to_owned(), case("b"))].into(), "a run that is over owes the rest");
        assert!(cases.is_over() && !cases.has_open() && cases.finish(run).is_empty());
    }

    #[test]
    fn open_run_takes_each_case_once_until_it_is_over() {
        let mut cases = Cases::default();
        let assign = |cases: &mut Cases, name: &str| {
            cases.add(case(name), ms(0));
            let Assignment { run, is_new, closed } = assign_gathered(cases);
            (run.0, is_new, closed.map(|run| run.0))
        };
        assert_eq!(assign(&mut cases, "a"), (0, true, None));
        assert_eq!(assign(&mut cases, "b"), (0, false, None));
        assert!(cases.answer(RequestNumber(0), "a").is_some());
        assert_eq!(assign(&mut cases, "a"), (1, true, Some(0)), "the suite repeats a case");
        assert_eq!(assign(&mut cases, "b"), (1, false, None));
        assert_eq!(cases.finish(RequestNumber(0)).len(), 1);
        assert_eq!(cases.finish(RequestNumber(1)).len(), 2, "it has ended by itself");
        assert_eq!(assign(&mut cases, "c"), (2, true, None));
        assert_eq!(cases.close_run_at_end(), None, "others may follow");
        cases.end();
        assert_eq!(cases.close_run_at_end(), Some(RequestNumber(2)));
        assert_eq!(cases.close_run_at_end(), None);
    }

    #[test]
    fn no_more_is_read_than_there_is_room_for() {
        let mut cases = Cases::default();
        for _ in 0..OPEN_CASES {
            assert!(cases.has_room());
            cases.add(case("a"), ms(0));
        }
        assert!(!cases.has_room());
        let taken = cases.take_gathered();
        let run = cases.assign((0..).map(|number: u32| number.to_string()).zip(taken).collect()).run;
        assert!(!cases.has_room());
        assert!(cases.answer(run, "9").is_some());
        assert!(cases.has_room());
        cases.end();
        assert!(!cases.has_room());
    }
}
