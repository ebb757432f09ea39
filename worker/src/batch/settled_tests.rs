//! Tests of a batch that have a result or an attempt.

use heeler_adapters::FrameworkResult;

/// What is settled of each test, by its place. A place behind the last one is that of a test that is not
/// settled.
#[derive(Debug, Default)]
pub(super) struct SettledTests {
    tests: Vec<SettledTest>,
}

#[derive(Debug, Clone, Copy, Default)]
struct SettledTest {
    /// The test has a result or an attempt: files that come later belong to neither.
    is_settled: bool,
    /// The result that was settled while the process ran.
    early_result: Option<FrameworkResult>,
}

impl SettledTests {
    pub(super) fn contains(&self, place: usize) -> bool {
        self.tests.get(place).is_some_and(|test| test.is_settled)
    }

    /// Returns the result that was settled while the process ran.
    pub(super) fn early_result(&self, place: usize) -> Option<FrameworkResult> {
        self.tests.get(place)?.early_result
    }

    /// Records that a test has a result or an attempt.
    pub(super) fn record(&mut self, place: usize) {
        self.entry(place).is_settled = true;
    }

    /// Records a result that is settled while the process runs.
    pub(super) fn record_early(&mut self, place: usize, result: FrameworkResult) {
        self.entry(place).early_result = Some(result);
    }

    fn entry(&mut self, place: usize) -> &mut SettledTest {
        if self.tests.len() <= place {
            self.tests.resize(place + 1, SettledTest::default());
        }
        &mut self.tests[place]
    }
}
