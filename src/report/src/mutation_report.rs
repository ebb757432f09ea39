//! Mutants as a report of mutation testing tools, which their viewers show.

use heeler_mutant::{MutantResult, Position, SourceFile};
use heeler_protocol::mutation_report::{
    MutationFramework, MutationReport, MutationThresholds, ReportedLocation, ReportedMutant,
    ReportedPosition, ReportedSource,
};

/// Scores that viewers show as good and as bad, in percent: the usual ones.
const THRESHOLDS: MutationThresholds = MutationThresholds { high: 80, low: 60 };

/// A source, and what became of its mutants.
#[derive(Clone, Copy, Debug)]
pub struct SourceResults<'a> {
    pub source: &'a SourceFile,
    pub mutants: &'a [MutantResult],
}

/// Returns the report of a project whose root has this path.
pub fn render_mutation_report(
    root: &str,
    sources: &[SourceResults<'_>],
) -> Result<String, serde_json::Error> {
    let files = sources.iter().map(|one| {
        let mutants = one.mutants.iter().map(reported).collect();
        let language = one.source.language.name().to_owned();
        let source = ReportedSource { language, source: one.source.text.to_string(), mutants };
        (one.source.path.to_string(), source)
    });
    let version = Some(env!("CARGO_PKG_VERSION").to_owned());
    let report = MutationReport {
        schema_version: MutationReport::SCHEMA_VERSION,
        thresholds: THRESHOLDS,
        project_root: Some(root.to_owned()),
        files: files.collect(),
        framework: Some(MutationFramework { name: "Heeler".to_owned(), version }),
    };
    serde_json::to_string(&report)
}

fn reported(result: &MutantResult) -> ReportedMutant {
    let mutant = &result.mutant;
    let position = |position: Position| ReportedPosition { line: position.line, column: position.column };
    ReportedMutant {
        id: mutant.id.to_string(),
        mutator_name: mutant.mutator.name().to_owned(),
        replacement: mutant.replacement.clone(),
        location: ReportedLocation { start: position(mutant.span.start), end: position(mutant.span.end) },
        status: result.status.name(),
        description: mutant.description.clone(),
        status_reason: result.reason.clone(),
    }
}
