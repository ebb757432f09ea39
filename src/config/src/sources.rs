//! The keys of `[[suite]]` that name its source of test programs. Each source has a key that selects it, and
//! may have further ones.

use std::path::{Path, PathBuf};

use heeler_core::{OsText, SourceRequest};
use serde::Deserialize;

#[cfg(test)]
use super::reference::WriteNotation as _;
use super::{
    notation::{CommandText, DirectoryPath, Notation as _, PathArray, TextArray},
    profiles::resolve_path,
    reader::TableReader,
};

/// The keys of each source: the one that selects it, then those that have no effect without it.
const SOURCE_KEYS: [&[&str]; 3] = [&["programs"], &["cargo", "cargo-args"], &["mcp"]];

/// The keys of `[[suite]]` that name its source; exactly one source is named.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct SourceTable {
    /// Test programs: paths or globs (`*`, `?`, `**`, `[…]`, `{…}`), relative to the file. A suite has either
    /// this key, `cargo` or `mcp`.
    #[serde(with = "PathArray")]
    programs: Option<Vec<String>>,
    /// A cargo package or workspace whose test programs are built and run, relative to the file.
    #[serde(with = "DirectoryPath")]
    cargo: Option<PathBuf>,
    /// Arguments after `cargo test --no-run`, such as `["--features", "net"]`.
    #[serde(with = "TextArray")]
    cargo_args: Option<Vec<String>>,
    /// The command of an MCP server whose `mcp.test.*` tools are run, such as `"node server.js"`, with quotes
    /// as in a shell. Its program is looked up in `PATH`, or relative to the file.
    #[serde(with = "CommandText")]
    mcp: Option<String>,
}

impl SourceTable {
    /// Returns the request for the source that the keys name.
    fn into_request(self, dir: &Path) -> Option<SourceRequest> {
        let texts = |texts: Vec<String>| texts.into_iter().map(OsText::from);
        let programs = self.programs.map(|patterns| SourceRequest::new("programs", texts(patterns)));
        let cargo_args = self.cargo_args.unwrap_or_default();
        let cargo = self.cargo.map(|path| {
            let path = OsText::from(resolve_path(dir, path).as_path());
            SourceRequest::new("cargo", [path].into_iter().chain(texts(cargo_args)))
        });
        let server = self.mcp.map(|command| SourceRequest::new("mcp", [OsText::from(dir), command.into()]));
        programs.or(cargo).or(server)
    }
}

/// Reads the source of a suite. A suite without one, or with several, is reported.
pub(super) fn read_source(dir: &Path, table: &TableReader<'_, '_>) -> SourceRequest {
    let source: SourceTable = table.read();
    let selected: Vec<&str> =
        SOURCE_KEYS.iter().map(|keys| keys[0]).filter(|key| table.contains_key(key)).collect();
    match selected[..] {
        [] => {
            let keys = SOURCE_KEYS.map(|keys| format!("{:?}", keys[0])).join(" or ");
            table.document.report(
                table.span.clone(),
                format!("[[suite]] needs {keys}, the source of its test programs"),
            );
        }
        [key] => report_keys_without_effect(table, key),
        [first, other, ..] => {
            let message = format!("{other:?} and {first:?} exclude each other; make two suites");
            table.document.report(table.key_span(other), message);
        }
    }
    // A wrong value has been reported, and the file is not used.
    source.into_request(dir).unwrap_or_default()
}

/// Reports the keys that belong to another source than the selected one.
fn report_keys_without_effect(table: &TableReader<'_, '_>, selected: &str) {
    for keys in SOURCE_KEYS.iter().filter(|keys| keys[0] != selected) {
        for key in keys[1..].iter().filter(|key| table.contains_key(key)) {
            let message = format!("{key:?} has no effect without {:?}", keys[0]);
            table.document.report(table.key_span(key), message);
        }
    }
}
