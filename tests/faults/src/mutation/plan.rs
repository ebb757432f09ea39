//! The plan of a round: the project, the user's actions, and the faults.

use std::time::Duration;

use crate::{
    planned_faults::{
        FaultMoment, FaultTarget, InjectedAction, JUMPS, PlannedFault, PointAction, draw_process_fault,
    },
    protocols::Peculiarity,
    random::SeededRandom,
    suites::{PlannedSettings, draw_settings},
};

/// Gives mutation rounds random numbers of their own for each seed.
const MUTATION: u64 = 0x0000_3247_a707;
/// Expected duration of a run; faults are drawn within it.
const RUN: Duration = Duration::from_millis(2500);

/// The plan of a round.
#[derive(Debug, Clone)]
pub(crate) struct MutationPlan {
    pub(crate) seed: u64,
    /// Number of functions of the project.
    pub(crate) functions: usize,
    pub(crate) settings: PlannedSettings,
    /// When the user interrupts the run; `None` if never.
    pub(crate) interrupted: Option<Duration>,
    pub(crate) faults: Vec<PlannedFault>,
    pub(crate) clock: Vec<i64>,
}

impl MutationPlan {
    /// Draws the round of a seed.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut draws = SeededRandom::new(seed ^ MUTATION);
        let draws = &mut draws;
        let faults = draws.pick_weighted(&[(5, 0), (55, 1), (30, 2), (10, 3)]);
        Self {
            seed,
            functions: draws.between(3, 5),
            settings: draw_settings(draws, false),
            interrupted: draws.with_probability(15).then(|| draws.duration_below(RUN)),
            faults: (0..faults).map(|_| draw_fault(draws)).collect(),
            clock: if draws.with_probability(10) { draws.pick(&JUMPS).to_vec() } else { Vec::new() },
        }
    }

    /// Returns the round's properties that are counted in the totals in addition to its faults.
    pub(crate) fn peculiarities(&self) -> Vec<Peculiarity> {
        let clock = (!self.clock.is_empty()).then(|| Peculiarity::new("clock jumps"));
        let interrupted = self.interrupted.map(|_| Peculiarity::new("SIGINT"));
        clock.into_iter().chain(interrupted).collect()
    }
}

/// Draws a fault of a Heeler process. Test processes are excluded: a test that is killed from outside just
/// fails.
fn draw_fault(draws: &mut SeededRandom) -> PlannedFault {
    let mut fault = draw_process_fault(draws);
    if !matches!(fault.action, InjectedAction::At(..)) {
        fault.when = FaultMoment::Requested(draws.duration_below(RUN));
    }
    if matches!(fault.action, InjectedAction::Kill(FaultTarget::Test)) {
        fault.action = InjectedAction::Stop(FaultTarget::Test, draws.duration_below(RUN / 4));
    }
    if let InjectedAction::At(point, nth, doing) = fault.action
        && point.role == FaultTarget::Test
    {
        let pause = draws.duration_below(RUN / 4);
        let doing = if doing == PointAction::Kill { PointAction::Sleep(pause) } else { doing };
        fault.action = InjectedAction::At(point, nth, doing);
    }
    fault
}
