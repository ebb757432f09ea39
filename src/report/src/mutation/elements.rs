//! The mutation testing report schema, version 2.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    io::Write,
    time::Duration,
};

use heeler_mutant_model::{MutantResult, MutantStatus, Position};
use heeler_protocol::mutation::{
    SourceLocation, SourcePosition, StatusName, StreamedList, StreamedMap, TestedMutant,
    elements::{
        ElementsReport, FrameworkName, MutatedFile, NamedTest, PhaseDurations, SCHEMA_VERSION,
        ScoreThresholds, TestFile, TestLocation,
    },
};

use serde::Serialize;

use super::MutationReport;
use crate::ReportError;

/// Writes a report in the mutation testing report schema.
///
/// # Errors
/// The writer fails.
pub fn write_elements(report: &MutationReport<'_>, writer: &mut dyn Write) -> Result<(), ReportError> {
    let ids = TestIds::of(report.results);
    let by_file = report.by_file();
    let files = || by_file.iter().map(|(path, results)| (*path, file(report.source(path), results, &ids)));
    let elements = ElementsReport {
        schema_version: SCHEMA_VERSION,
        thresholds: ScoreThresholds { high: report.bounds.high.min(100), low: report.bounds.low.min(100) },
        project_root: report.directory.to_str().map(str::to_owned),
        files: StreamedMap(files),
        test_files: ids.test_files(report),
        framework: FrameworkName { name: "Heeler", version: env!("CARGO_PKG_VERSION") },
        performance: report.phases.map(|phases| PhaseDurations {
            setup: milliseconds(phases.setup),
            initial_run: milliseconds(phases.initial_run),
            mutation: milliseconds(phases.mutation),
        }),
    };
    serde_json::to_writer(&mut *writer, &elements)?;
    writer.write_all(b"\n")?;
    Ok(())
}

/// Returns the report entry of a file. Its mutants are converted one at a time while they are written.
fn file<'a>(
    source: &'a str,
    results: &'a [&'a MutantResult],
    ids: &'a TestIds<'a>,
) -> MutatedFile<'a, impl Serialize + 'a> {
    let language = results.first().map_or("text", |result| result.mutant.language().name());
    let mutants = StreamedList(|| results.iter().map(|result| ids.shorten(tested_mutant(result))));
    MutatedFile { language, source, mutants }
}

/// Numbers that replace test uids. A mutant may be covered by a thousand tests, and uids are long.
struct TestIds<'a>(BTreeMap<&'a str, usize>);

impl<'a> TestIds<'a> {
    fn of(results: &'a [MutantResult]) -> Self {
        let named = |result: &'a MutantResult| result.covered_by.iter().chain(&result.killed_by);
        let uids: BTreeSet<&str> = results.iter().flat_map(named).map(|uid| &**uid).collect();
        Self(uids.into_iter().enumerate().map(|(number, uid)| (uid, number)).collect())
    }

    fn shorten(&self, mut mutant: TestedMutant) -> TestedMutant {
        for uid in mutant.covered_by.iter_mut().chain(&mut mutant.killed_by) {
            if let Some(number) = self.0.get(uid.as_str()) {
                *uid = number.to_string();
            }
        }
        mutant
    }

    fn test_files(&self, report: &MutationReport<'_>) -> BTreeMap<String, TestFile> {
        let mut files: BTreeMap<String, TestFile> = BTreeMap::new();
        for (uid, number) in &self.0 {
            let place = report.tests.get(*uid);
            let file = match place {
                Some(place) => place.file.as_str(),
                None => uid.split_once("::").map_or(*uid, |(program, _)| program),
            };
            let start = place.and_then(|place| place.line).map(|line| SourcePosition { line, column: 1 });
            files.entry(file.to_owned()).or_default().tests.push(NamedTest {
                id: number.to_string(),
                name: (*uid).to_owned(),
                location: start.map(|start| TestLocation { start }),
            });
        }
        files
    }
}

/// Converts a result to the form used in protocols and reports.
#[must_use]
pub fn tested_mutant(result: &MutantResult) -> TestedMutant {
    let MutantResult { mutant, status, reason, covered_by, killed_by, tests_completed, is_static, duration } =
        result;
    TestedMutant {
        id: mutant.id.to_string(),
        location: SourceLocation { start: position(mutant.start()), end: position(mutant.end()) },
        mutator_name: mutant.mutator.name().to_owned(),
        replacement: mutant.replacement().into_owned(),
        description: mutant.description().map(Cow::into_owned),
        status: status_name(*status),
        status_reason: reason.as_deref().map(str::to_owned),
        covered_by: covered_by.iter().map(|uid| uid.to_string()).collect(),
        killed_by: killed_by.iter().map(|uid| uid.to_string()).collect(),
        tests_completed: *tests_completed,
        r#static: *is_static,
        duration: duration.map(milliseconds),
    }
}

fn milliseconds(duration: Duration) -> f64 {
    // Microseconds are exact enough and keep the number short.
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

fn position(position: Position) -> SourcePosition {
    SourcePosition { line: position.line, column: position.column }
}

fn status_name(status: MutantStatus) -> StatusName {
    match status {
        MutantStatus::Pending => StatusName::Pending,
        MutantStatus::Ignored => StatusName::Ignored,
        MutantStatus::CompileError => StatusName::CompileError,
        MutantStatus::NoCoverage => StatusName::NoCoverage,
        MutantStatus::Survived => StatusName::Survived,
        MutantStatus::Killed => StatusName::Killed,
        MutantStatus::Timeout => StatusName::Timeout,
        MutantStatus::RuntimeError => StatusName::RuntimeError,
    }
}
