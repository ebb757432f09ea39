//! One selected test of a plan.

use heeler_config::TestSettings;
use heeler_protocol::control::ListedTest;

/// A selected test with everything that its lease needs.
#[derive(Debug, Clone)]
pub struct SelectedTest {
    /// Client-visible identifier.
    pub uid: String,
    /// The test as listed by its framework. A program whose listing failed is represented by a test named
    /// after it.
    pub listed: ListedTest,
    /// Index of the program in `RunPlan::programs`.
    pub program: usize,
    /// Position of the test in the framework's listing.
    pub listing_index: usize,
    /// Index of the group in `RunPlan::groups`.
    pub group: Option<u32>,
    pub settings: TestSettings,
    /// Why the test can't be run, or `None` if it can.
    pub unrunnable: Option<String>,
    /// The role of a set-up or tear-down of a configured fixture; `None` for tests.
    pub fixture: Option<FixtureRole>,
}

/// The part of a configured fixture that a test of a plan stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FixtureRole {
    /// The set-up of the fixture with this name.
    SetUp(String),
    TearDown,
}
