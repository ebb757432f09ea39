//! Tests of a whole run: events in, actions out.

mod failure_policy;
mod guard_loss;
mod lease_extension;
mod needs;
mod prerequisites;
mod repetition;
mod set_up;
mod start_delay;
mod take_back;

use std::{collections::VecDeque, num::NonZeroU32, time::Duration};

use super::*;
use crate::{
    GuardLoss, LeaseId, LeaseOutcome, NotRunReason, Outcome, ProgramId, ProvisionalReason, RetryDelay,
    RetryPolicy, SetUpProgress, Slots, SynthesizedResult, TestId, WorkerId,
    batching::{ProcessTraits, ProgramCosts},
    ledger::LedgerEntry,
};

/// Returns a test of the first program, without data and without retries.
fn plain_test() -> ScheduledTest {
    ScheduledTest::new(ProgramId(0))
}

/// Returns a plan for these tests of one program, on one slot.
fn plan_of(tests: Vec<ScheduledTest>) -> SchedulingPlan {
    let programs = vec![ProgramCosts::default()];
    SchedulingPlan { programs, tests, slots: 1, max_startup_crashes: 3, ..SchedulingPlan::default() }
}

/// Returns a plan with equal tests of one program, on two slots.
fn two_slots_of(program: ProgramCosts, tests: usize, weight: Option<Duration>) -> SchedulingPlan {
    let tests = vec![ScheduledTest { weight, ..plain_test() }; tests];
    SchedulingPlan { programs: vec![program], slots: 2, ..plan_of(tests) }
}
