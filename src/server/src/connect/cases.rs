//! The cases of a conformance suite between their request and their answer.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use bytes::Bytes;
use heeler_protocol::connect::ClientRequest;

use crate::scheduler::RequestNumber;

/// How long cases are gathered for one run: the suite writes the cases of a server at once, so that what
/// comes later belongs to another server.
const GATHER_FOR: Duration = Duration::from_millis(10);
/// Number of cases that make a run without further waiting; larger runs save nothing.
const RUN_CASES: usize = 256;
/// Number of cases that are not answered yet, from which no request is read: the suite waits with the rest,
/// and this process needs no memory for it. Several times what any number of slots works on.
const OPEN_CASES: usize = 4096;

/// A case that is not answered yet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OpenCase {
    pub(super) request: ClientRequest,
    /// The request as the suite wrote it.
    pub(super) bytes: Bytes,
}

/// The cases that are not answered yet. Times are those since any fixed instant.
#[derive(Debug, Default)]
pub(super) struct Cases {
    gathered: Vec<OpenCase>,
    gathering_since: Option<Duration>,
    /// The cases of each run by their uid.
    runs: BTreeMap<RequestNumber, HashMap<String, OpenCase>>,
    next_run: u64,
    /// No further case comes.
    is_ended: bool,
}

impl Cases {
    pub(super) fn add(&mut self, case: OpenCase, now: Duration) {
        self.gathering_since.get_or_insert(now);
        self.gathered.push(case);
    }

    /// Records that no further case comes.
    pub(super) fn end(&mut self) {
        self.is_ended = true;
    }

    /// Returns whether all cases have been answered, and no further one comes.
    pub(super) fn is_over(&self) -> bool {
        self.is_ended && self.gathered.is_empty() && self.runs.is_empty()
    }

    /// Returns whether a further request is to be read.
    pub(super) fn has_room(&self) -> bool {
        let open: usize = self.runs.values().map(HashMap::len).sum();
        !self.is_ended && self.gathered.len() + open < OPEN_CASES
    }

    /// Returns when the gathered cases become a run; `None` while there are none.
    pub(super) fn due_at(&self) -> Option<Duration> {
        let since = self.gathering_since?;
        let is_full = self.is_ended || self.gathered.len() >= RUN_CASES;
        Some(if is_full { since } else { since + GATHER_FOR })
    }

    /// Takes the gathered cases for a new run, in the order in which they came.
    pub(super) fn take_run(&mut self) -> (RequestNumber, Vec<OpenCase>) {
        self.gathering_since = None;
        let number = RequestNumber(self.next_run);
        self.next_run += 1;
        (number, std::mem::take(&mut self.gathered))
    }

    /// Records a run that has been started, with its cases by uid.
    pub(super) fn start(&mut self, run: RequestNumber, cases: HashMap<String, OpenCase>) {
        self.runs.insert(run, cases);
    }

    /// Returns a case that is not answered yet.
    pub(super) fn open(&self, run: RequestNumber, uid: &str) -> Option<&OpenCase> {
        self.runs.get(&run)?.get(uid)
    }

    /// Takes a case that is to be answered; `None` if it has been answered.
    pub(super) fn answer(&mut self, run: RequestNumber, uid: &str) -> Option<OpenCase> {
        self.runs.get_mut(&run)?.remove(uid)
    }

    /// Removes a run that is over; returns the cases that it has not answered.
    pub(super) fn finish(&mut self, run: RequestNumber) -> Vec<OpenCase> {
        self.runs.remove(&run).into_iter().flat_map(HashMap::into_values).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str) -> OpenCase {
        let request = ClientRequest { test_name: name.to_owned(), ..ClientRequest::default() };
        OpenCase { request, bytes: Bytes::new() }
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
        assert_eq!(cases.take_run().1.len(), RUN_CASES);
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
        let (run, taken) = cases.take_run();
        let by_uid = taken.into_iter().map(|case| (case.request.test_name.clone(), case)).collect();
        cases.start(run, by_uid);
        cases.end();
        assert!(!cases.is_over());
        assert_eq!(cases.answer(run, "a"), Some(case("a")));
        assert_eq!(cases.answer(run, "a"), None, "an update may arrive twice");
        assert_eq!(cases.answer(RequestNumber(7), "b"), None);
        assert_eq!(cases.finish(run), [case("b")], "a run that is over owes the rest");
        assert!(cases.is_over() && cases.finish(run).is_empty());
    }

    #[test]
    fn no_more_is_read_than_there_is_room_for() {
        let mut cases = Cases::default();
        for _ in 0..OPEN_CASES {
            assert!(cases.has_room());
            cases.add(case("a"), ms(0));
        }
        assert!(!cases.has_room());
        let (run, taken) = cases.take_run();
        cases.start(run, (0..).map(|number: u32| number.to_string()).zip(taken).collect());
        assert!(!cases.has_room());
        assert!(cases.answer(run, "9").is_some());
        assert!(cases.has_room());
        cases.end();
        assert!(!cases.has_room());
    }
}
