//! Messages about the end of a process: how it ended, what it was probably doing, and the evidence. Pure.

use heeler_adapters::SuitePhase;
use heeler_core::{GuardLoss, describe::guard_loss_text};
use heeler_protocol::control::{ExitReason, TestDiagnostics};

/// Reason for a test whose process was ended by its debugger before the test began.
pub(super) const NOT_BEGUN: &str = "the process exited in the debugger before the test started";

/// Maximum number of tests named as running when their process died.
const NAMED_SUSPECTS: usize = 10;

/// Names what is being torn down.
pub(super) fn tear_down_place(phase: Option<&SuitePhase>) -> String {
    match phase {
        Some(SuitePhase::FixtureTearDown { fixture }) => format!("the fixture {fixture}"),
        Some(SuitePhase::TearDown { suite, .. } | SuitePhase::AfterTests { suite }) => {
            format!("suite {suite}")
        }
        Some(SuitePhase::SetUp { .. } | SuitePhase::Dependency { .. }) | None => "its suite".to_owned(),
    }
}

/// Describes the death of a process that was running several tests. Each test is rerun in isolation, and only
/// tests that die again are blamed. The death is a failure of the program even if no test is blamed.
pub(super) fn suspects_text(suspects: &[String], death: &ExitReason) -> String {
    let how = exit_text(death);
    let named = suspects.iter().take(NAMED_SUSPECTS).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match suspects.len().saturating_sub(NAMED_SUSPECTS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{how} while {} tests were running; rerunning each in isolation: {named}{more}", suspects.len())
}

/// Describes a process exit that contradicts the process's output.
pub(super) fn contradicting_exit_text(death: &ExitReason, unproven: usize) -> String {
    let how = exit_text(death);
    let tests = if unproven == 1 { "test" } else { "tests" };
    format!(
        "{how}, which contradicts its output; rerunning tests with unconfirmed results in isolation \
         ({unproven} {tests})"
    )
}

/// Describes that a process ran a test that was not selected.
pub(super) fn unselected_text(name: &str) -> String {
    format!("{name} ran but was not selected: the program does not select or order its tests as requested")
}

pub(super) fn exit_text(death: &ExitReason) -> String {
    match (&death.signal, death.code) {
        (Some(signal), _) => format!("the process was killed by {signal}"),
        (None, Some(code)) => format!("the process exited with code {code}"),
        (None, None) => "the process was lost".to_owned(),
    }
}

/// Appends the evidence about a process that died outside any test.
pub(super) fn append_evidence(message: &mut String, evidence: &TestDiagnostics, detail: Option<&str>) {
    append_section(message, "crash", detail.unwrap_or_default());
    append_section(message, "stack", &evidence.stack);
    let files: Vec<_> = evidence.files.iter().map(|file| file.path.to_text().into_owned()).collect();
    append_section(message, "files", &files.join("\n"));
}

pub(super) fn append_section(message: &mut String, title: &str, text: &str) {
    if !text.trim().is_empty() {
        message.push_str(&format!("\n--- {title} ---\n{}", text.trim_end()));
    }
}

/// Describes the loss of a process's guard. `is_any_waiting`: some of its tests have no result.
pub(super) fn guard_loss_message(loss: GuardLoss, is_any_waiting: bool) -> String {
    let effect = if is_any_waiting {
        "rerunning the unfinished tests of its process"
    } else {
        "the exit status of its process is unknown"
    };
    format!("{}; {effect}", guard_loss_text(loss))
}
