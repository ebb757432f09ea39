//! The measured times of a recorded run, for the explanation of its duration.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use heeler_core::TestId;
use heeler_protocol::manifest::{ManifestSchedule, TestDescriptions};
use heeler_report::{
    MeasuredNeeds, MeasuredProcess, MeasuredResource, MeasuredRun, MeasuredTest, shown_name,
};

use super::{RecordedProcess, RecordedResult, RecordedRun, RecordedTestResult};

/// Returns the measured times of the run. A run whose manifest has no schedule counts as a run on one
/// slot for each worker.
#[must_use]
pub fn measured_run(run: &RecordedRun) -> MeasuredRun {
    let schedule = run.manifest.plan.schedule.as_deref();
    let began = run.manifest.head.began_utc.parse::<jiff::Timestamp>();
    let began_ms = began.ok().and_then(|at| u64::try_from(at.as_millisecond()).ok()).unwrap_or(0);
    let clock = RunClock { began_ms };
    let processes: Vec<_> = run.processes.iter().map(|process| clock.process(process)).collect();
    let workers = run.processes.iter().map(|process| process.worker).max().flatten();
    let resource = |one: &heeler_protocol::manifest::ManifestResource| MeasuredResource {
        name: one.name.clone(),
        capacity: one.capacity,
    };
    MeasuredRun {
        slots: schedule.map_or(workers.map_or(1, |worker| worker.0), |schedule| schedule.slots),
        preparation: Duration::from_millis(schedule.map_or(0, |schedule| schedule.preparation_ms)),
        duration: run.duration(),
        resources: schedule.into_iter().flat_map(|one| &one.resources).map(resource).collect(),
        processes,
        tests: measured_tests(run, &clock),
    }
}

fn measured_tests(run: &RecordedRun, clock: &RunClock) -> Vec<MeasuredTest> {
    let plan = &run.manifest.plan;
    let descriptions = plan.clone().into_descriptions();
    // The later of two results of a test counts.
    let mut latest: BTreeMap<TestId, &RecordedTestResult> = BTreeMap::new();
    for result in &run.results {
        if let RecordedResult::Test(result) = result
            && result.duration.is_some()
            && result.started_ms.is_some()
        {
            latest.insert(result.test, result);
        }
    }
    let places: HashMap<u32, usize> =
        latest.keys().enumerate().map(|(place, test)| (test.0, place)).collect();
    let has_suites = plan.programs.len() > 1;
    let name = |test| name_of(&descriptions, test, has_suites);
    let measure = |result: &&RecordedTestResult| MeasuredTest {
        name: name(result.test),
        duration: result.duration.unwrap_or_default(),
        earlier_attempts: result.earlier_attempts,
        ended: clock.since_start(result.ended_ms.unwrap_or(0)),
        process: result.process,
        ..MeasuredTest::default()
    };
    let mut tests: Vec<_> = latest.values().map(measure).collect();
    if let Some(schedule) = &plan.schedule {
        add_schedule(&mut tests, schedule, &places);
    }
    tests
}

fn name_of(descriptions: &TestDescriptions, test: TestId, has_suites: bool) -> String {
    let name = descriptions.with_test(test, |test| match has_suites && !test.suite.is_empty() {
        true => format!("{} {}", test.suite, shown_name(test)),
        false => shown_name(test),
    });
    name.unwrap_or_default()
}

/// Adds the needs and prerequisites of the tests. `places` are the indices in `tests` of the plan's tests.
fn add_schedule(tests: &mut [MeasuredTest], schedule: &ManifestSchedule, places: &HashMap<u32, usize>) {
    for needs in &schedule.needs {
        let resources = needs.resources.iter().map(|(resource, amount)| (*resource as usize, *amount));
        let shared = MeasuredNeeds { weight: needs.weight, resources: resources.collect() };
        for place in needs.tests.iter().filter_map(|test| places.get(test)) {
            tests[*place].needs = shared.clone();
        }
    }
    for one in &schedule.prerequisites {
        let after = one.after.iter().filter_map(|test| places.get(test).copied());
        if let Some(place) = places.get(&one.test) {
            tests[*place].after = after.collect();
        }
    }
}

/// Converts recorded times to times since the start of the run.
struct RunClock {
    began_ms: u64,
}

impl RunClock {
    fn since_start(&self, ms: u64) -> Duration {
        Duration::from_millis(ms.saturating_sub(self.began_ms))
    }

    fn process(&self, process: &RecordedProcess) -> MeasuredProcess {
        let end = process.end.as_ref();
        let time = |ms: Option<u64>| ms.map(|ms| self.since_start(ms));
        MeasuredProcess {
            started: self.since_start(process.start.started_ms),
            first_test: time(end.and_then(|end| end.first_test_ms)),
            last_test: time(end.and_then(|end| end.last_test_ms)),
            ended: self.since_start(end.map_or(process.start.started_ms, |end| end.ended_ms)),
        }
    }
}
