//! The check of a program that reports as JSON lines: which conversations try which rule, and what a
//! conversation shows. The worker holds the conversations; nothing is started here.
//!
//! - `rules`: the rules, each with its section of the specification.
//! - `reader`: finds the reports in the bytes of a process.
//! - `conversation`: what is to be said to a process, and what has come.
//! - `judge`: finds the rule that an answer breaks.
//! - `plan`: which conversation follows, and what all of them show.
//! - `stages`: the requests of each conversation.

mod conversation;
mod judge;
mod plan;
mod reader;
mod rules;
mod stages;
#[cfg(test)]
mod tests;

pub use conversation::{CheckConversation, CheckMoment, CheckScript, CheckStep, ExpectedReply};
pub use plan::AdapterCheck;
pub use reader::{CheckReader, SeenReport};
pub use rules::{BrokenRule, CheckRule, RuleFinding, RuleResult};
