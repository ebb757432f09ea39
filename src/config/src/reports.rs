//! Parses requests for report files of the form `FORMAT` or `FORMAT=FILE`.

use std::path::PathBuf;

use heeler_report::{REPORT_FORMATS, ReportRequest, find_report_format};

use super::closest_match::known_words_hint;

/// Error of parsing a report request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReportRequestError {
    /// No format has this name.
    #[error("unknown report format \"{name}\"{hint}")]
    UnknownFormat {
        name: String,
        /// A hint with the closest format or all formats, appended to the message.
        hint: String,
    },
    /// The file name after the equals sign is missing.
    #[error("missing file path after \"{name}=\"")]
    NoFile { name: String },
}

/// Parses a report request. Without a file, the format's default file name is used, as a relative path.
///
/// # Errors
/// The format is unknown, or the file is missing after the equals sign.
pub fn parse_report_request(text: &str) -> Result<ReportRequest, ReportRequestError> {
    let (name, file) = match text.split_once('=') {
        Some((name, file)) => (name, Some(file)),
        None => (text, None),
    };
    let Some(format) = find_report_format(name) else {
        return Err(ReportRequestError::UnknownFormat { name: name.to_owned(), hint: name_hint(name) });
    };
    match file {
        Some("") => Err(ReportRequestError::NoFile { name: name.to_owned() }),
        file => Ok(ReportRequest { format, file: PathBuf::from(file.unwrap_or(format.default_file)) }),
    }
}

/// Returns the names of all report formats as a list for messages.
#[must_use]
pub fn report_format_names() -> String {
    REPORT_FORMATS.iter().map(|format| format.name).collect::<Vec<_>>().join(", ")
}

fn name_hint(name: &str) -> String {
    let known: Vec<&str> = REPORT_FORMATS.iter().map(|format| format.name).collect();
    known_words_hint(&name.to_ascii_lowercase(), &known)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn request_names_a_format_and_may_name_a_file() {
        let request = parse_report_request("ctrf=out/a=b.json").unwrap();
        assert_eq!((request.format.name, request.file.as_path()), ("ctrf", Path::new("out/a=b.json")));
        assert_eq!(parse_report_request("junit").unwrap().file, Path::new("junit.xml"));
    }

    #[test]
    fn bad_requests_have_one_clear_error() {
        let error = |text: &str| parse_report_request(text).unwrap_err().to_string();
        assert_eq!(error("JUnit=a.xml"), "unknown report format \"JUnit\"; did you mean \"junit\"?");
        assert_eq!(error("crtf"), "unknown report format \"crtf\"; did you mean \"ctrf\"?");
        assert_eq!(
            error("pdf=x"),
            format!("unknown report format \"pdf\" (available: {})", report_format_names())
        );
        assert_eq!(error("ctrf="), "missing file path after \"ctrf=\"");
    }
}
