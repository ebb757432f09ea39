//! The kinds of conversations in a check, one per stage, and their requests.

use serde_json::{Value, json};

use super::{
    conversation::{CheckScript, CheckStep, ExpectedReply},
    rules::CheckRule,
};
use crate::json_reports::message::{self, VERSION};

/// An id that no program lists.
pub(super) const UNKNOWN_ID: &str = "heeler check-adapter: no such test";
/// A request kind that does not exist.
const UNKNOWN_REQUEST: &str = "heeler-check-adapter";
/// Size of a long request, larger than a pipe or socket buffer.
const LONG_REQUEST_BYTES: usize = 256 << 10;
/// How far the offered version is ahead of the current one.
const LATER_VERSIONS: u64 = 1000;

/// Kinds of conversations, in run order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConversationKind {
    /// The first conversation.
    Listing,
    TwoProcesses,
    JoinedRequests,
    CutRequests,
    UnknownMembers,
    UnknownRequests,
    LaterVersion,
    LongRequests,
    SlowReader,
    EndOfInput,
    /// Runs all tests, in as many processes as needed.
    RunAll,
    Selection,
    RequestOrder,
    NextRequest,
    NoTests,
    UnknownTest,
}

impl ConversationKind {
    pub(super) const ALL: [Self; 16] = [
        Self::Listing,
        Self::TwoProcesses,
        Self::JoinedRequests,
        Self::CutRequests,
        Self::UnknownMembers,
        Self::UnknownRequests,
        Self::LaterVersion,
        Self::LongRequests,
        Self::SlowReader,
        Self::EndOfInput,
        Self::RunAll,
        Self::Selection,
        Self::RequestOrder,
        Self::NextRequest,
        Self::NoTests,
        Self::UnknownTest,
    ];

    /// Returns the rule that only this stage tests. A break that occurred in no earlier stage breaks this
    /// rule.
    pub(super) fn own_rule(self) -> Option<CheckRule> {
        match self {
            Self::Listing | Self::RunAll => None,
            Self::TwoProcesses => Some(CheckRule::TwoProcesses),
            Self::JoinedRequests => Some(CheckRule::JoinedRequests),
            Self::CutRequests => Some(CheckRule::CutRequests),
            Self::UnknownMembers => Some(CheckRule::UnknownMembers),
            Self::UnknownRequests => Some(CheckRule::UnknownRequests),
            Self::LaterVersion => Some(CheckRule::LaterVersion),
            Self::LongRequests => Some(CheckRule::LongRequests),
            Self::SlowReader => Some(CheckRule::SlowReader),
            Self::EndOfInput => Some(CheckRule::EndOfInput),
            Self::Selection => Some(CheckRule::Selection),
            Self::RequestOrder => Some(CheckRule::RequestOrder),
            Self::NextRequest => Some(CheckRule::NextRequest),
            Self::NoTests => Some(CheckRule::NoTests),
            Self::UnknownTest => Some(CheckRule::UnknownTest),
        }
    }

    /// Returns the scripts of the stage's processes, which run at the same time. `requests` has the tests of
    /// each request to one process.
    pub(super) fn scripts(self, requests: &[Vec<String>]) -> Vec<CheckScript> {
        let listing = |first: CheckStep| script([first, CheckStep::Await(ExpectedReply::Listed)]);
        let plain = || listing(CheckStep::Send(message::list()));
        match self {
            // Conversations with a listing.
            Self::Listing => vec![CheckScript { reads_on: true, ..plain() }],
            Self::TwoProcesses => {
                let steps = [
                    CheckStep::Send(message::list()),
                    CheckStep::Await(ExpectedReply::Listed),
                    CheckStep::Meet,
                ];
                vec![script(steps.clone()), script(steps)]
            }
            Self::JoinedRequests => {
                let both = [message::list(), message::stop()].concat();
                let steps = vec![
                    CheckStep::Send(both),
                    CheckStep::Await(ExpectedReply::Listed),
                    CheckStep::AwaitExit,
                ];
                vec![CheckScript { steps, ..CheckScript::default() }]
            }
            Self::CutRequests => vec![listing(CheckStep::SendInPieces(message::list()))],
            Self::UnknownMembers => {
                vec![listing(CheckStep::Send(listing_with(
                    json!({"a-later-member": {"k": [1, null, "run"]}}),
                )))]
            }
            Self::UnknownRequests => {
                // In pieces, so that this request does not arrive together with the next one.
                vec![script([
                    CheckStep::SendInPieces(line(&json!({"k": UNKNOWN_REQUEST}))),
                    CheckStep::Send(message::list()),
                    CheckStep::Await(ExpectedReply::Listed),
                ])]
            }
            Self::LaterVersion => {
                vec![listing(CheckStep::Send(listing_with(json!({"v": VERSION + LATER_VERSIONS}))))]
            }
            Self::LongRequests => {
                let padding = "x".repeat(LONG_REQUEST_BYTES);
                vec![listing(CheckStep::Send(listing_with(json!({"padding": padding}))))]
            }
            Self::SlowReader => {
                let steps = [
                    CheckStep::Send(message::list()),
                    CheckStep::ReadNothing,
                    CheckStep::Await(ExpectedReply::Listed),
                ];
                vec![CheckScript { has_small_buffers: true, ..script(steps) }]
            }
            Self::EndOfInput => {
                let steps = vec![
                    CheckStep::Send(message::list()),
                    CheckStep::Await(ExpectedReply::Listed),
                    CheckStep::EndRequests,
                    CheckStep::AwaitExit,
                ];
                vec![CheckScript { steps, ..CheckScript::default() }]
            }
            // Conversations with runs.
            Self::RunAll
            | Self::Selection
            | Self::RequestOrder
            | Self::NextRequest
            | Self::NoTests
            | Self::UnknownTest => {
                let is_only_test = self == Self::Selection;
                let steps = requests.iter().flat_map(|tests| {
                    [
                        CheckStep::Send(message::run(tests, is_only_test)),
                        CheckStep::Await(ExpectedReply::Done),
                    ]
                });
                vec![script(steps)]
            }
        }
    }
}

/// Returns a script with these steps and an orderly end.
fn script(steps: impl IntoIterator<Item = CheckStep>) -> CheckScript {
    let end = [CheckStep::Send(message::stop()), CheckStep::AwaitExit];
    CheckScript { steps: steps.into_iter().chain(end).collect(), ..CheckScript::default() }
}

fn listing_with(members: Value) -> Vec<u8> {
    let mut request = json!({"k": "list", "v": VERSION});
    if let (Some(request), Value::Object(members)) = (request.as_object_mut(), members) {
        request.extend(members);
    }
    line(&request)
}

fn line(message: &Value) -> Vec<u8> {
    format!("{message}\n").into_bytes()
}
