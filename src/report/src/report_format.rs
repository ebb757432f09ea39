//! The registry of report formats. To add a format, write a file with a [`ReportFormat`], and add a line to
//! [`REPORT_FORMATS`]. The command line, the configuration and the server use only the registry.

use std::{
    fmt,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{ReportContent, ctrf, junit};

/// All formats, in the order of help and messages.
pub static REPORT_FORMATS: &[&ReportFormat] = &[&junit::FORMAT, &junit::FORMAT_WITH_SUBTESTS, &ctrf::FORMAT];

/// A format of report files.
pub struct ReportFormat {
    /// Name that selects the format on the command line.
    pub name: &'static str,
    /// Display name of the format, such as `JUnit`.
    pub title: &'static str,
    /// Default file name.
    pub default_file: &'static str,
    /// Writes a run's report. Fails if the format can't represent the content, or if the writer fails.
    pub write: fn(&ReportContent<'_>, &mut dyn Write) -> Result<(), ReportError>,
}

impl fmt::Debug for ReportFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for ReportFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// Attributes of the whole run.
#[derive(Debug, Clone, Copy)]
pub struct ReportRunInfo<'a> {
    /// Name of the report, such as the profile's name.
    pub name: &'a str,
    /// Id of the run, chosen by the client.
    pub run: &'a str,
    /// Start of the run, in ISO 8601.
    pub start_utc: &'a str,
    pub duration: Duration,
    /// Directory that paths in the report are relative to; empty keeps all paths absolute.
    pub root: &'a Path,
}

/// A report that a user requested: format and file.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportRequest {
    pub format: &'static ReportFormat,
    /// The file; `{run}` in its name is replaced with the run's id.
    pub file: PathBuf,
}

/// Placeholder for the run's id in a report's file name.
const RUN_PLACEHOLDER: &str = "{run}";
/// Maximum number of characters of a run's id in a file name.
const MAX_RUN_ID_CHARS: usize = 64;

impl ReportRequest {
    /// Returns the file for a run. A client may choose any run id, so characters other than ASCII letters
    /// and digits become `-`.
    #[must_use]
    pub fn file_for_run(&self, run: &str) -> PathBuf {
        // A path that is not UTF-8 is used unchanged.
        let Some(file) = self.file.to_str().filter(|file| file.contains(RUN_PLACEHOLDER)) else {
            return self.file.clone();
        };
        let safe = |char: char| if char.is_ascii_alphanumeric() { char } else { '-' };
        let id: String = run.chars().take(MAX_RUN_ID_CHARS).map(safe).collect();
        PathBuf::from(file.replace(RUN_PLACEHOLDER, &id))
    }
}

/// Error of writing a report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

#[must_use]
pub fn find_report_format(name: &str) -> Option<&'static ReportFormat> {
    REPORT_FORMATS.iter().copied().find(|format| format.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_found_by_its_own_name() {
        for format in REPORT_FORMATS {
            assert_eq!(find_report_format(format.name), Some(*format));
        }
        let mut files: Vec<_> = REPORT_FORMATS.iter().map(|format| format.default_file).collect();
        files.dedup();
        assert_eq!(files.len(), REPORT_FORMATS.len(), "no format overwrites the file of another");
        assert_eq!(find_report_format("JUnit"), None);
    }

    #[test]
    fn run_id_in_a_file_name_stays_in_its_directory() {
        let request = ReportRequest { format: &junit::FORMAT, file: "out/{run}/{run}.xml".into() };
        assert_eq!(request.file_for_run("../a b"), PathBuf::from("out/---a-b/---a-b.xml"));
        assert_eq!(request.file_for_run(&"x".repeat(99)).to_str().map(str::len), Some(4 + 64 + 1 + 64 + 4));
        let fixed = ReportRequest { format: &junit::FORMAT, file: "out/a.xml".into() };
        assert_eq!(fixed.file_for_run("r"), PathBuf::from("out/a.xml"));
    }
}
