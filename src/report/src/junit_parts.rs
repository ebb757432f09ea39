//! JUnit elements other than a test's own case: earlier attempts, and cases of steps.

use std::{io, time::Duration};

use heeler_core::{Attempt, Outcome};

use super::{
    FailureDetail, TestReport,
    junit::{CaseKind, case_names, failure_type, seconds},
    sanitise::{headline, xml_text},
    test_steps::StepEnd,
    xml::{ElementStart, XmlWriter},
};

/// Writes a case for each step of a test, named like subtests in frameworks: `test/step`.
pub(super) fn write_steps(xml: &mut XmlWriter<'_>, record: &TestReport) -> io::Result<()> {
    let (class, name) = case_names(record);
    for part in record.detail.iter().flat_map(|detail| &detail.parts) {
        let name = format!("{name}/{}", part.name.replace(" > ", "/"));
        let head = ElementStart::new("testcase")
            .attribute("name", &xml_text(&name))
            .attribute("classname", &xml_text(class));
        let tag = match StepEnd::of(part) {
            StepEnd::Passed => {
                xml.empty(head)?;
                continue;
            }
            StepEnd::Skipped => "skipped",
            StepEnd::Failed => "failure",
            StepEnd::Unfinished => "error",
        };
        xml.open(head)?;
        let status = ElementStart::new(tag);
        match part.message.as_deref().filter(|message| !message.is_empty()) {
            Some(message) => {
                let status = status.attribute("message", &xml_text(&headline(message)));
                xml.text_in(status, &xml_text(message))?;
            }
            None => xml.empty(status)?,
        }
        xml.close("testcase")?;
    }
    Ok(())
}

/// Returns the number of attempts before the deciding one. If only their number is known, they are written
/// without text, because CI servers count them.
pub(super) fn rerun_count(detail: &FailureDetail, outcome: Outcome) -> u64 {
    if !detail.attempts.is_empty() {
        return detail.attempts.len() as u64;
    }
    match outcome {
        Outcome::Flaky => detail.attempt.unwrap_or(2).saturating_sub(1).clamp(1, 100),
        _ => detail.attempt.unwrap_or(1).saturating_sub(1).min(100),
    }
}

pub(super) fn write_reruns(
    xml: &mut XmlWriter<'_>,
    detail: &FailureDetail,
    kind: CaseKind,
    count: u64,
) -> io::Result<()> {
    let tag = |is_failure: bool| match (kind, is_failure) {
        (CaseKind::Success, true) => "flakyFailure",
        (CaseKind::Success, false) => "flakyError",
        (CaseKind::Skipped | CaseKind::Failure | CaseKind::Error, true) => "rerunFailure",
        (CaseKind::Skipped | CaseKind::Failure | CaseKind::Error, false) => "rerunError",
    };
    if detail.attempts.is_empty() {
        return (0..count).try_for_each(|_| xml.text_in(ElementStart::new(tag(true)), ""));
    }
    detail
        .attempts
        .iter()
        .try_for_each(|attempt| write_rerun(xml, tag(attempt.outcome == Outcome::Failed), attempt))
}

fn write_rerun(xml: &mut XmlWriter<'_>, tag: &'static str, attempt: &Attempt) -> io::Result<()> {
    let exit = attempt.exit_reason.as_ref();
    let (signal, code) = (exit.and_then(|exit| exit.signal.as_deref()), exit.and_then(|exit| exit.code));
    let mut head = ElementStart::new(tag)
        .attribute("time", &seconds(Duration::from_micros(attempt.duration_us)))
        .attribute("message", &xml_text(&headline(&attempt.message)));
    let runtime = exit.and_then(|exit| exit.runtime);
    if let Some(kind) = failure_type(attempt.outcome, signal, runtime, code) {
        head = head.attribute("type", &kind);
    }
    xml.open(head)?;
    xml.text(&xml_text(&attempt.message))?;
    let outputs = [("system-out", &attempt.stdout), ("system-err", &attempt.stderr)];
    let outputs = outputs.into_iter().filter(|(_, text)| !text.is_empty());
    for (place, (output_tag, text)) in outputs.enumerate() {
        if place == 0 {
            // After text, the writer does not insert a line break itself.
            xml.indent()?;
        }
        xml.text_element(output_tag, &xml_text(text))?;
    }
    xml.close(tag)
}
