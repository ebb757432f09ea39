//! Resource usage of a run's processes: start time, memory, CPU time. Memory is bounded by the number of
//! selected tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use heeler_core::TestId;
use heeler_protocol::{control::ProcessUsage, mtp::LargeProcess};

use super::RunPlan;

/// Number of shared processes that are reported, largest first.
const MAX_REPORTED_PROCESSES: usize = 3;

/// Measurements by test and by program.
#[derive(Debug, Clone, Default)]
pub struct RunResourceUsage {
    /// Shortest time from process start to the first test, by program.
    pub start_times: BTreeMap<usize, Duration>,
    /// Longest time from process start to the first test, by program.
    pub longest_starts: BTreeMap<usize, Duration>,
    /// Programs with a process that got stuck in a set-up that another process had already completed.
    pub conflicts: BTreeSet<usize>,
    /// Peak memory of the largest process, by program.
    pub peaks_kib: BTreeMap<usize, u64>,
    /// Usage of tests that ran alone in their process.
    pub tests: BTreeMap<TestId, ProcessUsage>,
    largest: Vec<(usize, u32, ProcessUsage)>,
}

impl RunResourceUsage {
    pub(super) fn record_start(&mut self, program: usize, start: Duration) {
        let least = self.start_times.entry(program).or_insert(start);
        *least = start.min(*least);
        let longest = self.longest_starts.entry(program).or_default();
        *longest = start.max(*longest);
    }

    /// Records the end of a process that ran `tests` tests. `only_test` is set if it ran just that one.
    /// `program` is `None` if the process belonged to another run.
    pub(super) fn record_process(
        &mut self,
        program: Option<usize>,
        tests: u32,
        only_test: Option<TestId>,
        usage: ProcessUsage,
    ) {
        let Some(program) = program else { return };
        let peak = self.peaks_kib.entry(program).or_default();
        *peak = usage.peak_kib.max(*peak);
        if let Some(test) = only_test {
            self.tests.insert(test, usage);
            return;
        }
        self.largest.push((program, tests, usage));
        self.largest.sort_by_key(|(_, _, usage)| std::cmp::Reverse(usage.peak_kib));
        self.largest.truncate(MAX_REPORTED_PROCESSES);
    }

    /// Returns the largest processes shared by several tests, largest first.
    pub(super) fn largest(&self, plan: &RunPlan) -> Vec<LargeProcess> {
        let to_large_process = |(program, tests, usage): &(usize, u32, ProcessUsage)| LargeProcess {
            suite: plan.programs[*program].suite.clone(),
            tests: *tests,
            cpu_ms: Duration::from_micros(usage.cpu_us).as_secs_f64() * 1e3,
            peak_memory_kib: usage.peak_kib,
        };
        self.largest.iter().map(to_large_process).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_shared_processes_and_isolated_tests_are_kept() {
        let usage = |peak_kib| ProcessUsage { cpu_us: 1, peak_kib, wall_us: 2 };
        let mut costs = RunResourceUsage::default();
        for peak in [5, 9, 1, 7, 8] {
            costs.record_process(Some(0), 3, None, usage(peak));
        }
        costs.record_process(Some(1), 1, Some(TestId(4)), usage(99));
        let peaks: Vec<_> = costs.largest.iter().map(|(_, _, usage)| usage.peak_kib).collect();
        assert_eq!(peaks, [9, 8, 7]);
        assert_eq!(costs.tests[&TestId(4)].peak_kib, 99);
        assert_eq!(costs.peaks_kib, BTreeMap::from([(0, 9), (1, 99)]));
    }
}
