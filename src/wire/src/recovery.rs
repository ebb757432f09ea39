//! Synthesized results of tests whose run was interrupted. The selection of these tests is decided elsewhere.

use crate::{
    control::{Attempt, TestIndex},
    manifest::Plan,
    mtp::{ExecutionState, RawChange, TestNode, key},
};

/// Reason why a test has no terminal result. Each holds the event as a clause such as `the coordinator died`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Missing<'a> {
    /// The provisional result is final: nothing can replace it any more.
    Held(&'a Attempt, &'a str),
    /// The test was running.
    Interrupted(&'a str),
    /// The test never ran.
    NotRun(&'a str),
    /// The test may have a result, but it is not known.
    Lost(&'a str),
}

/// Composes the change of a test without a terminal result; `None` for a test that is not in the plan.
#[must_use]
pub fn told(plan: &Plan, index: TestIndex, missing: Missing<'_>) -> Option<RawChange> {
    let test = plan.tests.get(index.0 as usize)?;
    let mut node = TestNode::test(&test.uid, &test.display_name, ExecutionState::Error);
    match missing {
        Missing::Held(attempt, why) => {
            node.state = Some(attempt.state);
            node.error_message = Some(format!("{}\n({why} before it could be tried again)", attempt.message));
            node.standard_output = Some(attempt.stdout.clone()).filter(|text| !text.is_empty());
            node.standard_error = Some(attempt.stderr.clone()).filter(|text| !text.is_empty());
            if let Some(evidence) = &attempt.evidence {
                node.error_stacktrace = Some(evidence.stack.clone()).filter(|stack| !stack.is_empty());
                node.attach(&evidence.files);
            }
        }
        Missing::Interrupted(why) => {
            node.outcome_kind = Some("interrupted".to_owned());
            node.error_message = Some(format!("it was running when {why}"));
        }
        Missing::NotRun(why) => {
            node.outcome_kind = Some("not-run".to_owned());
            node.error_message = Some(format!("not run: {why}"));
        }
        Missing::Lost(why) => {
            node.outcome_kind = Some("lost".to_owned());
            node.error_message = Some(format!("its result is not known: {why}"));
        }
    }
    node.other.insert(key::SUITE.to_owned(), test.suite.clone().into());
    Some(RawChange::new(group_uid(plan, test.group), &node, test.foreign.as_deref()))
}

/// Returns the uid of a group of the plan.
#[must_use]
pub fn group_uid(plan: &Plan, place: Option<u32>) -> Option<&str> {
    Some(plan.groups.get(place? as usize)?.uid.as_str())
}
