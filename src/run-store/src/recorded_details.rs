//! Loads details of recorded results one at a time, for reports whose summary has abridged them.

use std::{borrow::Cow, collections::HashMap, sync::OnceLock};

use heeler_protocol::manifest::TestDescriptions;
use heeler_report::{DetailLoadError, DetailSource, FailureDetail};

use super::{RecordedResult, RecordedRun};

/// Details of the results of one run, or of the runs of all partitions, by uid.
#[derive(Debug)]
pub struct RecordedDetails<'a> {
    runs: Vec<&'a RecordedRun>,
    /// Created when the first detail is loaded, because most reports load none.
    index: OnceLock<DetailIndex<'a>>,
}

#[derive(Debug, Default)]
struct DetailIndex<'a> {
    runs: Vec<DescribedRun<'a>>,
    /// Last result of each test, and of each failed program or fixture.
    latest: HashMap<Cow<'a, str>, LatestResult<'a>>,
}

#[derive(Debug)]
struct DescribedRun<'a> {
    run: &'a RecordedRun,
    descriptions: TestDescriptions,
}

#[derive(Debug, Clone, Copy)]
struct LatestResult<'a> {
    /// Index of the result's run.
    run: usize,
    result: &'a RecordedResult,
}

impl<'a> RecordedDetails<'a> {
    /// Provides the details of these runs. The later of two results with the same uid counts.
    #[must_use]
    pub fn new(runs: impl IntoIterator<Item = &'a RecordedRun>) -> Self {
        Self { runs: runs.into_iter().collect(), index: OnceLock::new() }
    }
}

impl<'a> DetailIndex<'a> {
    fn new(runs: &[&'a RecordedRun]) -> Self {
        let mut index = Self::default();
        for (number, run) in runs.iter().copied().enumerate() {
            for result in &run.results {
                let uid = match result {
                    RecordedResult::Test(recorded) => {
                        let test = run.manifest.plan.tests.get(recorded.test.index());
                        test.map(|test| Cow::Borrowed(test.uid.as_str()))
                    }
                    RecordedResult::Program(failure) => Some(Cow::Owned(failure.uid())),
                };
                index.latest.extend(uid.map(|uid| (uid, LatestResult { run: number, result })));
            }
            let descriptions = run.manifest.plan.clone().into_descriptions();
            index.runs.push(DescribedRun { run, descriptions });
        }
        index
    }
}

impl DetailSource for RecordedDetails<'_> {
    fn load_detail(&self, uid: &str) -> Result<FailureDetail, DetailLoadError> {
        let missing = || DetailLoadError { reason: "no journal of the run contains it".to_owned() };
        let index = self.index.get_or_init(|| DetailIndex::new(&self.runs));
        let latest = index.latest.get(uid).ok_or_else(missing)?;
        let DescribedRun { run, descriptions } = &index.runs[latest.run];
        let report = run.report(descriptions, latest.result).ok_or_else(missing)?;
        Ok(report.detail.map(|detail| *detail).unwrap_or_default())
    }
}
