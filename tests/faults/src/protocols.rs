//! The protocols of rounds.

use crate::{
    connect::{self, ConnectPlan},
    mcp::{self, McpPlan},
    mtp::{self, MtpPlan},
    mutation::{self, MutationPlan},
    random::SeededRandom,
    round::FaultRound,
    rsp::{self, RspPlan},
    suites::config_of,
};

/// Separates the choice of protocol from a round's other random numbers.
const PROTOCOL: u64 = 0x0007_0c01;

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RoundProtocol {
    /// The main protocol and the command line.
    Mtp,
    /// The Runtime Server Protocol.
    Rsp,
    /// The Model Context Protocol, with Heeler as the server.
    Mcp,
    /// Connect's conformance suite with Heeler's relay.
    Connect,
    /// Mutation testing on the command line; played only if selected explicitly.
    Mutation,
}

impl RoundProtocol {
    /// Draws the protocol for a seed. Most rounds use the main protocol.
    fn draw(seed: u64) -> Self {
        let weights = [(55, Self::Mtp), (15, Self::Rsp), (15, Self::Mcp), (15, Self::Connect)];
        SeededRandom::new(seed ^ PROTOCOL).pick_weighted(&weights)
    }

    /// Returns the protocol's name on the command line.
    pub(crate) fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self).expect("no protocol is hidden").get_name().to_owned()
    }
}

/// A property of a round that is counted in the totals.
#[derive(Debug)]
pub(crate) struct Peculiarity {
    pub(crate) name: String,
    /// Whether the machine supports the property.
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
    Rsp(RspPlan),
    Mcp(McpPlan),
    Connect(ConnectPlan),
    Mutation(MutationPlan),
}

impl RoundPlan {
    /// Draws the round of a seed, with this protocol or a drawn one.
    pub(crate) fn draw(seed: u64, protocol: Option<RoundProtocol>) -> Self {
        match protocol.unwrap_or_else(|| RoundProtocol::draw(seed)) {
            RoundProtocol::Mtp => Self::Mtp(Box::new(MtpPlan::draw(seed))),
            RoundProtocol::Rsp => Self::Rsp(RspPlan::draw(seed)),
            RoundProtocol::Mcp => Self::Mcp(McpPlan::draw(seed)),
            RoundProtocol::Connect => Self::Connect(ConnectPlan::draw(seed)),
            RoundProtocol::Mutation => Self::Mutation(MutationPlan::draw(seed)),
        }
    }

    pub(crate) fn seed(&self) -> u64 {
        match self {
            Self::Mtp(plan) => plan.seed,
            Self::Rsp(plan) => plan.seed,
            Self::Mcp(plan) => plan.seed,
            Self::Connect(plan) => plan.seed,
            Self::Mutation(plan) => plan.seed,
        }
    }

    /// Returns the configuration file.
    pub(crate) fn config(&self) -> String {
        match self {
            Self::Mtp(plan) => plan.config(),
            Self::Rsp(plan) => config_of(&plan.suites, &plan.settings),
            Self::Mcp(plan) => config_of(&plan.suites, &plan.settings),
            Self::Connect(plan) => config_of(&[], &plan.settings),
            Self::Mutation(plan) => config_of(&[], &plan.settings),
        }
    }

    pub(crate) fn protocol(&self) -> RoundProtocol {
        match self {
            Self::Mtp(_) => RoundProtocol::Mtp,
            Self::Rsp(_) => RoundProtocol::Rsp,
            Self::Mcp(_) => RoundProtocol::Mcp,
            Self::Connect(_) => RoundProtocol::Connect,
            Self::Mutation(_) => RoundProtocol::Mutation,
        }
    }

    /// Returns the round's properties that are counted in the totals in addition to its faults.
    pub(crate) fn peculiarities(&self, has_disk: bool) -> Vec<Peculiarity> {
        match self {
            Self::Mtp(plan) => plan.peculiarities(has_disk),
            Self::Rsp(plan) => plan.peculiarities(),
            Self::Mcp(plan) => plan.peculiarities(),
            Self::Connect(plan) => plan.peculiarities(),
            Self::Mutation(plan) => plan.peculiarities(),
        }
    }

    /// Plays the round; panics at the first violated guarantee.
    pub(crate) fn play(&self, round: &mut FaultRound<'_>) {
        match self {
            Self::Mtp(plan) => mtp::play(plan, round),
            Self::Rsp(plan) => rsp::play(plan, round),
            Self::Mcp(plan) => mcp::play(plan, round),
            Self::Connect(plan) => connect::play(plan, round),
            Self::Mutation(plan) => mutation::play(plan, round),
        }
    }
}
