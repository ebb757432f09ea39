//! The check of a program that reports as JSON lines: which conversations test which rules, and what the
//! conversations show. The worker runs the conversations; this module starts nothing.
//!
//! - `rules`: the rules, with their sections in the specification.
//! - `reader`: finds reports in the output of a process.
//! - `conversation`: the script of a conversation, and its record.
//! - `judge`: finds the rules that a conversation breaks.
//! - `plan`: chooses the next conversation and collects the results.
//! - `stages`: the requests of each kind of conversation.

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
