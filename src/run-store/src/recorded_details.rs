//! The details of recorded results, one at a time, for the reports of summaries that have abridged them.

use std::collections::HashMap;

use heeler_protocol::manifest::TestDescriptions;
use heeler_report::{DetailLoadError, DetailSource, FailureDetail};

use super::{RecordedResult, RecordedRun};

/// The details of the results of one run, or of the runs of all partitions, by uid.
#[derive(Debug)]
pub struct RecordedDetails<'a> {
    runs: Vec<DescribedRun<'a>>,
    /// The last result of each test, and of each program that failed.
    latest: HashMap<&'a str, LatestResult<'a>>,
}

#[derive(Debug)]
struct DescribedRun<'a> {
    run: &'a RecordedRun,
    descriptions: TestDescriptions,
}

#[derive(Debug, Clone, Copy)]
struct LatestResult<'a> {
    /// Index of its run.
    run: usize,
    result: &'a RecordedResult,
}

impl<'a> RecordedDetails<'a> {
    /// Returns the details of these runs. Of two results of one uid the later counts.
    #[must_use]
    pub fn new(runs: impl IntoIterator<Item = &'a RecordedRun>) -> Self {
        let mut details = Self { runs: Vec::new(), latest: HashMap::new() };
        for run in runs {
            let number = details.runs.len();
            for result in &run.results {
                let uid = match result {
                    RecordedResult::Test(recorded) => {
                        run.manifest.plan.tests.get(recorded.test.index()).map(|test| test.uid.as_str())
                    }
                    RecordedResult::Program(failure) => Some(failure.suite.as_str()),
                };
                details.latest.extend(uid.map(|uid| (uid, LatestResult { run: number, result })));
            }
            let descriptions = run.manifest.plan.clone().into_descriptions();
            details.runs.push(DescribedRun { run, descriptions });
        }
        details
    }
}

impl DetailSource for RecordedDetails<'_> {
    fn load_detail(&self, uid: &str) -> Result<FailureDetail, DetailLoadError> {
        let missing = || DetailLoadError { reason: "the journals of the run do not hold it".to_owned() };
        let latest = self.latest.get(uid).ok_or_else(missing)?;
        let DescribedRun { run, descriptions } = &self.runs[latest.run];
        let report = run.report(descriptions, latest.result).ok_or_else(missing)?;
        Ok(report.detail.map(|detail| *detail).unwrap_or_default())
    }
}
