//! Applications of Microsoft Testing Platform: MSTest, NUnit, xUnit v3, and Heeler itself.
//!
//! - `adapter`: commands, and how such an application is recognized.
//! - `session`: its connections, up to the one that runs tests, and the messages on it.
//! - `names`: the names of tests, which outlive a build; uids do not.
//! - `listing`, `transcript`: the two dialogues.
//! - `node_result`: what a node says of a test.
//! - `death_evidence`: which test a process died in, by what it left behind.

mod adapter;
mod death_evidence;
mod listing;
mod names;
mod node_result;
mod session;
#[cfg(test)]
mod tests;
mod transcript;

pub(crate) use adapter::Mtp;
