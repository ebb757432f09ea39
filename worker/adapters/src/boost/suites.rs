//! Tracks the position of a run in the suite tree from the log: the current suite, an unselected test that
//! runs as a dependency, and errors in set-up and tear-down.

use heeler_core::{Failure, FixturePhase, SuiteFixture};
use heeler_protocol::control::ListedTest;

use super::listing::DEPENDENCY;
use crate::{FixtureFailure, FrameworkResult, FrameworkVerdict};

/// Maximum suite nesting that is tracked.
const SUITE_DEPTH: usize = 256;
/// Maximum number of dependencies kept from the log.
const MAX_INCLUDED: usize = 100_000;

/// A unit that runs because another one depends on it.
#[derive(Debug)]
struct IncludedUnit {
    path: String,
    dependent: String,
}

/// An error in the set-up of a suite or of the module.
#[derive(Debug)]
struct SetUpError {
    /// Line of the log.
    line: String,
    failure: Failure,
}

/// Position of the run in the suite tree.
#[derive(Debug, Default)]
pub(super) struct SuiteTracker {
    /// Name of the module, which is not part of paths.
    module: String,
    /// Suites around the next test, outermost first.
    suites: Vec<String>,
    /// The innermost suite (or the module) has begun, but nothing in it has.
    is_at_start: bool,
    /// A suite inside the innermost suite (or the module) has ended, and nothing has begun since.
    is_after_suite: bool,
    set_up_error: Option<SetUpError>,
    /// The unselected test that is running.
    other_test: Option<String>,
    included: Vec<IncludedUnit>,
    /// Paths of the dependencies of each test in the batch.
    dependencies: Vec<Vec<String>>,
    fixture_failures: Vec<FixtureFailure>,
    module_failure: Option<String>,
    /// Exception in the set-up of the module, which kept all tests from running.
    failed_module: Option<Failure>,
}

impl SuiteTracker {
    pub(super) fn new(tests: &[&ListedTest]) -> Self {
        let dependencies = |test: &&ListedTest| {
            let values = test.traits.iter().filter(|one| one.name == DEPENDENCY);
            values.map(|one| one.value.clone()).collect()
        };
        Self { dependencies: tests.iter().map(dependencies).collect(), ..Self::default() }
    }

    /// Returns the path of a unit with this name in the innermost suite.
    pub(super) fn path_of(&self, name: &str) -> String {
        self.suites.iter().map(String::as_str).chain([name]).collect::<Vec<_>>().join("/")
    }

    /// Returns whether no suite is open.
    pub(super) fn is_in_module(&self) -> bool {
        self.suites.is_empty()
    }

    /// Returns the path of the innermost suite, or the name of the module.
    pub(super) fn suite(&self) -> String {
        if self.suites.is_empty() { self.module.clone() } else { self.suites.join("/") }
    }

    pub(super) fn enter_module(&mut self, name: &str) {
        name.clone_into(&mut self.module);
        self.is_at_start = true;
    }

    pub(super) fn enter_suite(&mut self, name: &str) {
        self.go_on();
        if self.suites.len() < SUITE_DEPTH {
            self.suites.push(name.to_owned());
        }
        self.is_at_start = true;
    }

    /// Records that the innermost suite has continued after its set-up.
    pub(super) fn go_on(&mut self) {
        self.is_after_suite = false;
        self.skip();
    }

    /// Records that the log skips a unit of the innermost suite, which also shows that the set-up is over.
    pub(super) fn skip(&mut self) {
        self.is_at_start = false;
        self.other_test = None;
        if let Some(error) = self.set_up_error.take() {
            self.add_fixture_failure(FixturePhase::SetUp, error.line);
        }
    }

    pub(super) fn enter_other_test(&mut self, path: String) {
        self.go_on();
        self.other_test = Some(path);
    }

    /// Leaves the innermost suite. If none of its tests has begun, returns the failure of its set-up as the
    /// verdict of its tests in the batch.
    pub(super) fn leave_suite(&mut self, has_tests: bool) -> Option<FrameworkVerdict> {
        let suite = self.suite();
        let is_at_start = std::mem::take(&mut self.is_at_start);
        let verdict = match self.set_up_error.take().filter(|_| is_at_start) {
            Some(error) if has_tests => Some(verdict_of_set_up(&format!("suite {suite}"), error.failure)),
            Some(error) => {
                self.add_fixture_failure(FixturePhase::SetUp, error.line);
                None
            }
            None => None,
        };
        self.other_test = None;
        self.suites.pop();
        self.is_after_suite = true;
        verdict
    }

    pub(super) fn leave_module(&mut self) {
        let error = self.set_up_error.take().filter(|_| self.is_at_start);
        self.failed_module = error.map(|error| error.failure);
        self.is_at_start = false;
    }

    /// Returns the verdict for all tests if the set-up of the module failed.
    pub(super) fn verdict_for_all(&mut self) -> Option<FrameworkVerdict> {
        self.failed_module.take().map(|failure| verdict_of_set_up("the module", failure))
    }

    /// Records an error outside the selected tests; returns whether it belongs to a set-up or tear-down.
    /// `event` is the line after its location.
    pub(super) fn record_error(&mut self, line: &str, place: &str, event: &str) -> bool {
        let Some((_, rest)) = event.split_once("error: in \"") else { return false };
        let Some((path, text)) = rest.split_once("\": ") else { return false };
        if self.other_test.is_some() || path != self.suite() {
            return false;
        }
        if !self.is_at_start {
            self.add_fixture_failure(FixturePhase::TearDown, line.to_owned());
        } else if self.set_up_error.is_none() {
            let (file, number) = place.split_once('(').unwrap_or((place, ""));
            let number = number.parse().ok().filter(|number| *number > 0);
            self.set_up_error = Some(SetUpError {
                line: line.to_owned(),
                failure: Failure {
                    message: Some(text.to_owned()),
                    file: number.map(|_| file.to_owned()),
                    line: number,
                    ..Failure::default()
                },
            });
        }
        true
    }

    fn add_fixture_failure(&mut self, phase: FixturePhase, message: String) {
        if self.suites.is_empty() {
            let what = format!("the {} of module {} failed: {message}", phase.as_str(), self.module);
            self.module_failure.get_or_insert(what);
        } else if self.fixture_failures.len() < crate::MAX_FAILURES {
            let fixture = SuiteFixture { suite: self.suite(), phase };
            self.fixture_failures.push(FixtureFailure { fixture, message });
        }
    }

    /// Records a line such as `Including test case a as a dependency of test suite b`.
    pub(super) fn include(&mut self, line: &str) -> Option<()> {
        let (unit, dependent) =
            line.strip_prefix("Including test ")?.split_once(" as a dependency of test ")?;
        let path = |unit: &str| {
            unit.strip_prefix("case ").or_else(|| unit.strip_prefix("suite ")).map(str::to_owned)
        };
        if self.included.len() < MAX_INCLUDED {
            self.included.push(IncludedUnit { path: path(unit)?, dependent: path(dependent)? });
        }
        Some(())
    }

    /// Returns whether an unselected test runs because a test of the batch depends on it. Versions that do
    /// not log dependencies may run any test if some test has dependencies.
    pub(super) fn is_included(&self, path: &str) -> bool {
        match self.included.as_slice() {
            [] => self.dependencies.iter().any(|paths| !paths.is_empty()),
            included => included.iter().any(|unit| is_in(path, &unit.path)),
        }
    }

    pub(super) fn other_test(&self) -> Option<&str> {
        self.other_test.as_deref()
    }

    pub(super) fn suite_in_set_up(&self) -> Option<String> {
        (self.is_at_start && !self.suites.is_empty()).then(|| self.suite())
    }

    /// Returns the suite (or the module) whose tear-down is running, provided that no further tests follow in
    /// it.
    pub(super) fn suite_after_another(&self) -> Option<String> {
        self.is_after_suite.then(|| self.suite())
    }

    /// Returns whether a test of the batch depends on a unit, directly or transitively.
    pub(super) fn depends_on(&self, place: usize, test: &str, unit: &str) -> bool {
        let mut open: Vec<&str> = self.dependencies[place].iter().map(String::as_str).collect();
        let is_of = |dependent: &str, path: &str| is_in(path, dependent) || is_in(dependent, path);
        let of_test = self.included.iter().filter(|one| is_of(&one.dependent, test));
        open.extend(of_test.map(|one| one.path.as_str()));
        let mut seen: Vec<&str> = Vec::new();
        while let Some(path) = open.pop() {
            if is_in(unit, path) {
                return true;
            }
            if !seen.contains(&path) {
                seen.push(path);
                let further = self.included.iter().filter(|one| is_of(&one.dependent, path));
                open.extend(further.map(|one| one.path.as_str()));
            }
        }
        false
    }

    /// Discards the errors of set-ups and tear-downs, because the exit code shows that the suites expected
    /// them.
    pub(super) fn forgive(&mut self) {
        self.fixture_failures.clear();
        self.module_failure = None;
    }

    pub(super) fn fixture_failures(&self) -> &[FixtureFailure] {
        &self.fixture_failures
    }

    pub(super) fn module_failure(&self) -> Option<&str> {
        self.module_failure.as_deref()
    }
}

/// Returns whether `path` is this unit or inside it.
pub(super) fn is_in(path: &str, unit: &str) -> bool {
    path.strip_prefix(unit).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn verdict_of_set_up(what: &str, failure: Failure) -> FrameworkVerdict {
    let mut verdict = FrameworkVerdict::new(FrameworkResult::Failed, None);
    let text = failure.message.clone().unwrap_or_default();
    let message = Some(format!("the set-up of {what} failed: {text}"));
    verdict.push_failure(Failure { message, ..failure });
    verdict
}
