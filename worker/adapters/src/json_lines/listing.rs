//! Parser of a JSON lines listing.

use heeler_protocol::control::ListedTest;

use crate::{
    ListingError, ListingOutput,
    json_reports::message::{RECORD_START, ReportLine},
    scan,
};

/// Error texts of a program that failed to open a socket by name.
const REFUSALS: [&str; 2] = ["No such device or address", "ENXIO"];

/// Maximum size of the standard error shown for a listing without any record.
const STDERR_BYTES: usize = 400;

/// Parses the reports of a listing on the report channel.
pub(super) fn read_channel(output: &ListingOutput) -> Result<Vec<ListedTest>, ListingError> {
    const NAME: &str = "json-lines";
    if output.code == Some(0) && output.channel.is_empty() {
        let reason = "it wrote nothing to its report channel, descriptor 3".to_owned();
        return Err(ListingError::NotThisFramework { framework: NAME, reason });
    }
    let lines = output.channel.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    read(NAME, output, lines)
}

/// Parses the reports of a listing on standard output. Text between them is output of the program.
pub(super) fn read_standard_output(output: &ListingOutput) -> Result<Vec<ListedTest>, ListingError> {
    const NAME: &str = "json-lines-stdio";
    if output.code == Some(0) && !output.stdout.contains(&RECORD_START) {
        let mut reason = "it wrote no record to its standard output".to_owned();
        let stderr = scan::decode_lossy(&output.stderr);
        if REFUSALS.iter().any(|words| stderr.contains(words)) {
            reason.push_str(
                ", which is a socket and can't be opened by a name such as /dev/stdout: write to descriptor 1",
            );
        }
        if !stderr.trim().is_empty() {
            reason.push_str(&format!("\n{}", scan::truncated(stderr.trim(), STDERR_BYTES)));
        }
        return Err(ListingError::NotThisFramework { framework: NAME, reason });
    }
    let records = output.stdout.split(|byte| *byte == RECORD_START).skip(1);
    read(NAME, output, records.map(|record| record.split(|byte| *byte == b'\n').next().unwrap_or(record)))
}

fn read<'a>(
    framework: &'static str,
    output: &ListingOutput,
    lines: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<ListedTest>, ListingError> {
    if output.code != Some(0) {
        return Err(ListingError::of_exit(output));
    }
    let damaged = |reason: String| ListingError::Damaged { framework, reason };
    let mut tests = Vec::new();
    for line in lines {
        let unreadable = || {
            let text = scan::decode_lossy(line);
            damaged(format!("unreadable line {:?}", scan::truncated(&text, 200)))
        };
        let report = ReportLine::parse(line).ok_or_else(unreadable)?;
        match report.kind() {
            "test" => tests.push(report.listed_test().ok_or_else(unreadable)?),
            "hello" => {
                if let Some(reason) = report.unknown_version() {
                    return Err(damaged(reason));
                }
            }
            "listed" => return Ok(tests),
            _ => {}
        }
    }
    Err(damaged("missing \"listed\" at the end".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(channel: &str) -> Result<Vec<ListedTest>, ListingError> {
        read_channel(&ListingOutput { channel: channel.into(), code: Some(0), ..ListingOutput::default() })
    }

    #[test]
    fn listing_is_read_up_to_its_end() {
        let text = "{\"k\":\"hello\",\"v\":1}\n{\"k\":\"test\",\"id\":\"a\",\"line\":3,\"tags\":[\"slow\"]}\n\
                    {\"k\":\"test\",\"id\":\"b\",\"skip\":\"off\"}\n";
        let tests = listing(&format!("{text}{{\"k\":\"listed\"}}\n")).unwrap();
        assert_eq!((tests.len(), tests[0].line, tests[1].skip.as_deref()), (2, Some(3), Some("off")));
        assert!(matches!(listing(text), Err(ListingError::Damaged { .. })));
        assert!(matches!(listing("{\"k\":\"test\"}\n"), Err(ListingError::Damaged { .. })));
        let broken = listing("{\"k\":\"test\",\"id\":\"a\",\"broken\":\"b\"}\n{\"k\":\"listed\"}\n").unwrap();
        assert_eq!(broken[0].broken.as_deref(), Some("b"));
        let later = listing("{\"k\":\"hello\",\"v\":2}\n{\"k\":\"listed\"}\n").unwrap_err().to_string();
        assert!(
            later.contains("\"hello\" of version 2; this version of Heeler supports version 1"),
            "{later}"
        );
        assert!(matches!(listing("garbage\n"), Err(ListingError::Damaged { .. })));
        assert!(matches!(listing(""), Err(ListingError::NotThisFramework { .. })));
    }

    #[test]
    fn records_of_a_listing_stand_between_output() {
        let listing = |stdout: &str| {
            let stdout = stdout.replace('~', "\u{1e}").into();
            read_standard_output(&ListingOutput { stdout, code: Some(0), ..ListingOutput::default() })
        };
        let text = "hello~{\"k\":\"test\",\"id\":\"a\"}\nnoise {\"k\":\"test\",\"id\":\"b\"}\n~{\"k\":\"listed\"}\nbye\n";
        let names: Vec<_> = listing(text).unwrap().into_iter().map(|test| test.name).collect();
        assert_eq!(names, ["a"]);
        assert!(matches!(listing("~{\"k\":\"test\",\"id\":\"a\"}\n"), Err(ListingError::Damaged { .. })));
        assert!(matches!(listing("~garbage\n"), Err(ListingError::Damaged { .. })));
        assert!(matches!(listing("{\"k\":\"listed\"}\n"), Err(ListingError::NotThisFramework { .. })));
    }

    #[test]
    fn listing_that_opened_the_socket_by_its_name_says_so() {
        let message = |stderr: &str| {
            let output = ListingOutput { stderr: stderr.into(), code: Some(0), ..ListingOutput::default() };
            read_standard_output(&output).unwrap_err().to_string()
        };
        let refused = message("adapter: line 2: /dev/stdout: No such device or address\n");
        assert!(refused.contains("write to descriptor 1\nadapter: line 2: /dev/stdout"), "{refused}");
        assert!(message("").ends_with("it wrote no record to its standard output"));
    }
}
