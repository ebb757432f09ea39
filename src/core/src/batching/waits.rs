//! Counts the queued tests that could not start even in a free slot, by what they lack. Users see the counts
//! while the run goes on.

use std::collections::BTreeMap;

use super::{SlotLoads, TestQueue, program_queue::ProgramQueue, start_rules::QueueWait};
use crate::ProgramId;

/// Returns the number of waiting tests for each reason. A test that only needs a free slot has no reason.
pub(crate) fn queue_waits(queue: &TestQueue, loads: &SlotLoads) -> BTreeMap<QueueWait, usize> {
    let waiting = queue.waiting_programs();
    let lacking = queue.start_rules.lacking(&waiting, loads);
    let mut waits: BTreeMap<QueueWait, usize> = BTreeMap::new();
    for program in waiting {
        let most = queue.programs.get(&program).and_then(ProgramQueue::max_processes);
        let is_full = most.is_some_and(|most| loads.processes_of(program) >= most);
        let reason = match lacking.get(&program) {
            _ if loads.delayed_starts.contains(&program) => None,
            _ if is_full => Some(QueueWait::Process(program)),
            reason => reason.copied(),
        };
        if let Some(reason) = reason {
            *waits.entry(reason).or_default() += waiting_tests(queue, program);
        }
    }
    waits
}

/// Returns the number of a program's tests in the queue.
fn waiting_tests(queue: &TestQueue, program: ProgramId) -> usize {
    let rests = queue.remainders.iter().filter(|rest| rest.program == program);
    let chunked = queue.programs.get(&program).map_or(0, |one| one.waiting.len());
    let single = queue.isolated.count_of(program) + queue.long.count_of(program);
    rests.map(|rest| rest.tests.len()).sum::<usize>() + chunked + single
}
