//! Synthesized results of tests whose run was interrupted. The selection of these tests is decided elsewhere.

use crate::{
    control::{Attempt, TestIndex},
    manifest::ManifestPlan,
    mtp::{EncodedChange, ExecutionState, TestNode, key},
};

/// Reason why a test has no terminal result. Each holds the event as a clause such as `the coordinator died`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum UnfinishedReason<'a> {
    /// The provisional result is final: nothing can replace it any more.
    Provisional(&'a Attempt, &'a str),
    /// The test was running.
    Interrupted(&'a str),
    /// The test never ran.
    NotRun(&'a str),
    /// The test may have a result, but it is not known.
    Lost(&'a str),
}

/// Composes the change of a test without a terminal result; `None` for a test that is not in the plan.
#[must_use]
pub fn synthesized_change(
    plan: &ManifestPlan,
    index: TestIndex,
    missing: UnfinishedReason<'_>,
) -> Option<EncodedChange> {
    let test = plan.tests.get(index.0 as usize)?;
    let mut node = TestNode::test(&test.uid, &test.display_name, ExecutionState::Error);
    match missing {
        UnfinishedReason::Provisional(attempt, why) => {
            node.state = Some(attempt.state);
            node.error_message = Some(format!("{}\n({why} before it could be tried again)", attempt.message));
            node.standard_output = Some(attempt.stdout.clone()).filter(|text| !text.is_empty());
            node.standard_error = Some(attempt.stderr.clone()).filter(|text| !text.is_empty());
            if let Some(evidence) = &attempt.diagnostics {
                node.error_stacktrace = Some(evidence.stack.clone()).filter(|stack| !stack.is_empty());
                node.add_attachments(&evidence.files);
            }
        }
        UnfinishedReason::Interrupted(why) => {
            node.outcome_kind = Some("interrupted".to_owned());
            node.error_message = Some(format!("it was running when {why}"));
        }
        UnfinishedReason::NotRun(why) => {
            node.outcome_kind = Some("not-run".to_owned());
            node.error_message = Some(format!("not run: {why}"));
        }
        UnfinishedReason::Lost(why) => {
            node.outcome_kind = Some("lost".to_owned());
            node.error_message = Some(format!("its result is not known: {why}"));
        }
    }
    node.members.insert(key::SUITE.to_owned(), test.suite.clone().into());
    Some(EncodedChange::new(group_uid(plan, test.group), &node, test.client_members.as_deref()))
}

/// Returns the uid of a group of the plan.
#[must_use]
pub fn group_uid(plan: &ManifestPlan, place: Option<u32>) -> Option<&str> {
    Some(plan.groups.get(place? as usize)?.uid.as_str())
}
