//! Reasons why tests of a run wait, with the names that users know.

use heeler_core::run::{WaitCause, WaitingTests};

use super::{RunPlan, needs::ResourceName};

/// Tests that wait for the same reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunWait {
    pub cause: RunWaitCause,
    /// Number of waiting tests, at least one.
    pub tests: usize,
}

/// Reason why tests wait although slots are idle, or although a slot becomes free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunWaitCause {
    /// The tests take this number of slots, and fewer are free.
    Slots(usize),
    /// Running tests have taken the resource with this name.
    Resource(String),
    /// The suite may have no more processes.
    Process {
        /// Name of the suite.
        suite: String,
    },
    /// Tests that have waited longer go first.
    Turn,
    /// A prerequisite has no result yet.
    Test {
        /// Uid of the prerequisite.
        uid: String,
    },
}

impl RunWait {
    pub(super) fn new(wait: &WaitingTests, plan: &RunPlan) -> Self {
        let process = |program: usize| RunWaitCause::Process { suite: plan.programs[program].suite.clone() };
        let cause = match wait.cause {
            WaitCause::Slots(slots) => RunWaitCause::Slots(slots.0),
            WaitCause::Resource(resource) => match &plan.resources[resource.index()] {
                ResourceName::Named(name) => RunWaitCause::Resource(name.clone()),
                ResourceName::ProcessesOf(program) => process(*program),
            },
            WaitCause::Process(program) => process(plan.program_of(program)),
            WaitCause::Turn => RunWaitCause::Turn,
            WaitCause::Prerequisite(test) => RunWaitCause::Test { uid: plan.tests[test.index()].uid.clone() },
        };
        Self { cause, tests: wait.tests }
    }
}
