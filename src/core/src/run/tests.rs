//! Tests of the run as a whole: events in, actions out.

mod failure_policy;
mod guard_loss;
mod lease_extension;
mod prerequisites;
mod repetition;
mod set_up;
mod start_delay;
mod take_back;

use std::{collections::VecDeque, num::NonZeroU32, time::Duration};

use super::*;
use crate::{
    GuardLoss, LeaseId, LeaseOutcome, NotRunReason, Outcome, ProgramId, ProvisionalReason, RetryDelay,
    RetryPolicy, SetUpProgress, SynthesizedResult, TestId, WorkerId,
    batching::{ProcessTraits, ProgramCosts},
    ledger::LedgerEntry,
};
