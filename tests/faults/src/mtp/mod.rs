//! Rounds with the main protocol, with or without callback connections, and rounds of the command line.

mod client;
mod guarantees;
mod hostility;
mod plan;
mod round;
mod run_files;
mod slow_client;

pub(crate) use plan::MtpPlan;
pub(crate) use round::play;
pub(crate) use slow_client::SlowClientLoad;
