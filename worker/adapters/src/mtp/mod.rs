//! Microsoft Testing Platform applications: MSTest, NUnit, xUnit v3, and Heeler itself.
//!
//! - `adapter`: commands, and recognition of applications.
//! - `session`: connections, which of them runs tests, and messages.
//! - `names`: test names that stay stable across builds, unlike uids.
//! - `listing`, `transcript`: the two dialogues.
//! - `node_result`: the result in a test node.
//! - `death_evidence`: finds the test that killed a process.

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
