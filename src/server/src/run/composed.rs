//! On-disk record of a run whose results are decided by its front end, from other runs and from later
//! verdicts. Later commands read the record like any other run.

use std::{io, path::Path, time::Duration};

use heeler_core::{NotRunReason, OutcomeCounts, TestId, TestResult};
use heeler_protocol::{
    journal::{self, RunEnd, SYNTHESIZED_JOURNAL_NAME},
    manifest::TestDescriptions,
    mtp::RunResult,
};
use heeler_report::TestReport;
use heeler_run_store::history::{self, FILE_NAME, HistoryError, HistoryStore};
use heeler_sys::dirs::write_file_atomically;

use super::{RunPlan, SelectedTest, manifest};

/// A run whose results are decided by its front end.
#[derive(Debug)]
pub struct ComposedRun {
    plan: RunPlan,
    descriptions: TestDescriptions,
}

/// How a composed run ended.
#[derive(Debug)]
pub struct ComposedRunEnd<'a> {
    /// The result of each test, in the order of the plan.
    pub results: &'a [TestResult],
    /// Why the run was stopped early.
    pub stopped_by: Option<NotRunReason>,
    pub duration: Duration,
    /// Whether durations and outcomes are added to the test history.
    pub is_history_kept: bool,
}

impl ComposedRun {
    /// Begins the run on disk.
    ///
    /// # Errors
    /// The manifest can't be written.
    pub fn begin(plan: RunPlan) -> io::Result<Self> {
        manifest::write_manifest(&plan)?;
        let descriptions = manifest::manifest_plan(&plan).into_descriptions();
        Ok(Self { plan, descriptions })
    }

    #[must_use]
    pub fn tests(&self) -> &[SelectedTest] {
        &self.plan.tests
    }

    /// Returns the directory of the run.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.plan.run_dir.path
    }

    /// Returns a report entry: the result together with the description of its test.
    ///
    /// # Panics
    /// The test is not part of the plan.
    #[must_use]
    pub fn report(&self, test: TestId, result: &TestResult) -> TestReport {
        let report = self.descriptions.with_test(test, |test| TestReport::from_result(test, result));
        report.expect("every test of the plan is described")
    }

    /// Ends the run on disk; returns warnings for the user.
    #[must_use]
    pub fn end(self, end: &ComposedRunEnd<'_>) -> Vec<String> {
        let mut warnings = Vec::new();
        if end.is_history_kept
            && let Err(error) = self.record_history(end)
        {
            tracing::warn!(
                error = heeler_core::error_chain(&error),
                "failed to write the test history; later runs will not know the durations of this run"
            );
        }
        if let Err(error) = self.write_results(end) {
            warnings.push(format!(
                "failed to record the results of this run, so later commands will show it as interrupted: {error}"
            ));
        }
        warnings
    }

    fn write_results(&self, end: &ComposedRunEnd<'_>) -> io::Result<()> {
        let mut counts = OutcomeCounts::default();
        let mut bytes = journal::MAGIC.to_vec();
        for (test, result) in (0..).map(TestId).zip(end.results) {
            journal::write_finished(&mut bytes, test, result);
            counts.add(result.outcome, None);
        }
        let record = RunEnd {
            ended_utc: heeler_run_store::wall_clock().to_string(),
            duration_ms: u64::try_from(end.duration.as_millis()).unwrap_or(u64::MAX),
            stopped_by: end.stopped_by,
            counts,
            failed_programs: 0,
            result: RunResult::default(),
        };
        journal::write_end(&mut bytes, &record);
        write_file_atomically(&self.plan.run_dir.path.join(SYNTHESIZED_JOURNAL_NAME), &bytes)
    }

    fn record_history<'a>(&'a self, end: &ComposedRunEnd<'_>) -> Result<(), HistoryError> {
        let recorded = |(selected, result): (&'a SelectedTest, &TestResult)| {
            Some(history::RecordedOutcome {
                uid: &selected.uid,
                suite: &self.plan.programs[selected.program].suite,
                outcome: history::stored_outcome(result.outcome)?,
                duration: Duration::from_micros(result.duration_us.unwrap_or_default()),
                usage: None,
            })
        };
        let outcomes: Vec<_> = self.plan.tests.iter().zip(end.results).filter_map(recorded).collect();
        HistoryStore::open(&self.plan.state_dir.join(FILE_NAME))?.record(&outcomes, &[])
    }
}
