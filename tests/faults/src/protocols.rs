//! The protocols on which rounds are played.

use crate::{
    mtp::{self, MtpPlan},
    round::FaultRound,
};

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RoundProtocol {
    /// The main protocol, and the command line.
    Mtp,
}

impl RoundProtocol {
    /// Returns the protocol's name on the command line.
    pub(crate) fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self).expect("no protocol is hidden").get_name().to_owned()
    }
}

/// Something about a round that the totals count.
#[derive(Debug)]
pub(crate) struct Peculiarity {
    pub(crate) name: String,
    /// Whether it could be provided.
    pub(crate) is_there: bool,
}

impl Peculiarity {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), is_there: true }
    }
}

/// The plan of a round.
#[derive(Debug)]
pub(crate) enum RoundPlan {
    Mtp(Box<MtpPlan>),
}

impl RoundPlan {
    /// Draws the round of a seed.
    pub(crate) fn draw(seed: u64, _protocol: Option<RoundProtocol>) -> Self {
        Self::Mtp(Box::new(MtpPlan::draw(seed)))
    }

    pub(crate) fn seed(&self) -> u64 {
        match self {
            Self::Mtp(plan) => plan.seed,
        }
    }

    /// Returns the configuration file.
    pub(crate) fn config(&self) -> String {
        match self {
            Self::Mtp(plan) => plan.config(),
        }
    }

    pub(crate) fn protocol(&self) -> RoundProtocol {
        match self {
            Self::Mtp(_) => RoundProtocol::Mtp,
        }
    }

    /// Returns what the totals count beside the faults.
    pub(crate) fn peculiarities(&self, has_disk: bool) -> Vec<Peculiarity> {
        match self {
            Self::Mtp(plan) => plan.peculiarities(has_disk),
        }
    }

    /// Plays the round; panics at the first broken guarantee.
    pub(crate) fn play(&self, round: &mut FaultRound<'_>) {
        match self {
            Self::Mtp(plan) => mtp::play(plan, round),
        }
    }
}
