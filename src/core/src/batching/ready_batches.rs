//! Counts the batches that the waiting tests would make. The number tells a run how many slots it can use.

use std::{collections::BTreeMap, time::Duration};

use super::{TestQueue, program_queue::ProgramQueue, slot_loads::SlotLoads};
use crate::ProgramId;

/// Counts the batches that the waiting tests would make if all slots were free.
pub(super) struct ReadyBatches<'a> {
    queue: &'a TestQueue,
    idle: SlotLoads,
    work: Duration,
    remainders: BTreeMap<ProgramId, usize>,
    /// Whether processes or resources are limited, so that single tests must be counted by program.
    is_limited: bool,
}

impl<'a> ReadyBatches<'a> {
    pub(super) fn new(queue: &'a TestQueue, loads: &SlotLoads) -> Self {
        let mut remainders: BTreeMap<ProgramId, usize> = BTreeMap::new();
        for rest in &queue.remainders {
            let cap = queue.programs.get(&rest.program).and_then(|one| one.cap).unwrap_or(usize::MAX);
            *remainders.entry(rest.program).or_default() += rest.tests.len().div_ceil(cap);
        }
        let is_limited = !queue.start_rules.are_trivial()
            || !loads.delayed_starts.is_empty()
            || queue.programs.values().any(|one| one.max_processes().is_some());
        let (idle, work) = (SlotLoads::idle(loads.slots), queue.remaining_work());
        Self { queue, idle, work, remainders, is_limited }
    }

    /// Returns the number of single tests if no program is limited.
    pub(super) fn unlimited_tests(&self) -> usize {
        if self.is_limited { 0 } else { self.queue.isolated.len() + self.queue.long.len() }
    }

    /// Returns the number of batches of a program. `counts_chunks`: also of the tests that share a process.
    pub(super) fn of(&self, id: ProgramId, one: &ProgramQueue, counts_chunks: bool) -> usize {
        let mut batches = self.remainders.get(&id).copied().unwrap_or(0);
        if self.is_limited {
            batches += self.queue.isolated.count_of(id) + self.queue.long.count_of(id);
        }
        if one.waiting.is_empty() || !counts_chunks {
            return batches;
        }
        let full =
            one.full_batch(self.queue.share_of_slot(id, self.work, &self.idle), self.queue.batch_limit);
        let work = one.remaining_work(self.queue.known_median).saturating_sub(full.remainder);
        let by_work = work.as_nanos().div_ceil(full.duration.as_nanos().max(1));
        let by_count = one.waiting.len().div_ceil(full.tests.min(full.unmeasured));
        let chunks = usize::try_from(by_work).unwrap_or(usize::MAX).max(by_count);
        batches.saturating_add(chunks.clamp(1, one.waiting.len()))
    }
}
