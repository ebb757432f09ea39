//! Survivors in SARIF (Static Analysis Results Interchange Format), which code scanning services read. Paths
//! are URIs relative to the root of the sources.

use std::{collections::BTreeMap, io::Write};

use heeler_mutant_model::{MutantResult, MutantStatus};
use heeler_protocol::mutation::sarif::{
    ArtifactLocation, PhysicalLocation, SCHEMA_URI, SarifDriver, SarifLocation, SarifLog, SarifRegion,
    SarifResult, SarifRule, SarifRun, SarifText, SarifTool, VERSION,
};

use super::{
    MutationReport,
    content::{change_text, survival_text},
};
use crate::ReportError;

/// Base id of all paths.
const ROOT: &str = "SRCROOT";

/// Writes the survivors: covered ones as warnings, uncovered ones as notes.
///
/// # Errors
/// The writer fails.
pub fn write_sarif(report: &MutationReport<'_>, writer: &mut dyn Write) -> Result<(), ReportError> {
    serde_json::to_writer(&mut *writer, &log(report))?;
    writer.write_all(b"\n")?;
    Ok(())
}

fn log(report: &MutationReport<'_>) -> SarifLog {
    let survivors = report.survivors();
    let names: BTreeMap<&str, usize> = survivors.iter().map(|one| (one.mutant.mutator.name(), 0)).collect();
    let indexes: BTreeMap<&str, usize> =
        names.into_keys().enumerate().map(|(index, name)| (name, index)).collect();
    let rule = |name: &&str| SarifRule {
        id: (*name).to_owned(),
        short_description: SarifText { text: format!("{name} mutant that no test detected") },
    };
    let results = survivors.iter().map(|survivor| result(survivor, &indexes)).collect();
    let root = report.directory.to_str().map(|directory| ArtifactLocation {
        uri: format!("file://{}/", uri_path(directory.trim_end_matches('/'))),
        uri_base_id: None,
    });
    let driver = SarifDriver {
        name: "Heeler",
        version: env!("CARGO_PKG_VERSION"),
        rules: indexes.keys().map(rule).collect(),
    };
    let run = SarifRun {
        tool: SarifTool { driver },
        original_uri_base_ids: root.map(|root| (ROOT, root)).into_iter().collect(),
        column_kind: "utf16CodeUnits",
        results,
    };
    SarifLog { schema: SCHEMA_URI, version: VERSION, runs: [run] }
}

fn result(survivor: &MutantResult, rules: &BTreeMap<&str, usize>) -> SarifResult {
    let mutant = &survivor.mutant;
    let name = mutant.mutator.name();
    let (start, end) = (mutant.start(), mutant.end());
    let location = PhysicalLocation {
        artifact_location: ArtifactLocation { uri: uri_path(mutant.path()), uri_base_id: Some(ROOT) },
        region: SarifRegion {
            start_line: start.line,
            start_column: start.column,
            end_line: end.line,
            end_column: end.column,
        },
    };
    SarifResult {
        rule_id: name.to_owned(),
        rule_index: rules.get(name).copied().unwrap_or_default(),
        level: if survivor.status == MutantStatus::Survived { "warning" } else { "note" },
        message: SarifText { text: format!("{}: {}", change_text(mutant), survival_text(survivor)) },
        locations: [SarifLocation { physical_location: location }],
        partial_fingerprints: [("mutant/v1", mutant.id.to_string())].into(),
    }
}

/// Percent-encodes a path for a URI.
fn uri_path(path: &str) -> String {
    let mut uri = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                uri.push(byte.into())
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_uris() {
        assert_eq!(uri_path("src/a b/ü:%.rs"), "src/a%20b/%C3%BC%3A%25.rs");
    }
}
