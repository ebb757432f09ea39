//! Parser of a listing in JSON lines.

use heeler_protocol::control::{ListedTest, TraitPair};

use super::{adapter::NAME, message::ReportLine};
use crate::{ListingError, ListingOutput, scan};

/// Parses the reports of a listing.
pub(super) fn read(output: &ListingOutput) -> Result<Vec<ListedTest>, ListingError> {
    if output.code != Some(0) {
        return Err(ListingError::of_exit(output));
    }
    if output.channel.is_empty() {
        let reason = "it wrote nothing to its report channel, descriptor 3".to_owned();
        return Err(ListingError::NotThisFramework { framework: NAME, reason });
    }
    let mut tests = Vec::new();
    for line in output.channel.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let unreadable = || {
            let text = scan::decode_lossy(line);
            damaged(format!("unreadable line {:?}", scan::truncated(&text, 200)))
        };
        let report = ReportLine::parse(line).ok_or_else(unreadable)?;
        match report.kind() {
            "test" => tests.push(listed_test(&report).ok_or_else(unreadable)?),
            "listed" => return Ok(tests),
            _ => {}
        }
    }
    Err(damaged("it ends without \"listed\"".to_owned()))
}

fn damaged(reason: String) -> ListingError {
    ListingError::Damaged { framework: NAME, reason }
}

fn listed_test(report: &ReportLine) -> Option<ListedTest> {
    let tags = report.texts("tags").into_iter();
    Some(ListedTest {
        name: report.text("id")?,
        display: report.text("name"),
        file: report.text("file"),
        line: report.line_number(),
        skip: report.text("skip"),
        traits: tags.map(|name| TraitPair { name, value: String::new() }).collect(),
        selector: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(channel: &str) -> Result<Vec<ListedTest>, ListingError> {
        read(&ListingOutput { channel: channel.into(), code: Some(0), ..ListingOutput::default() })
    }

    #[test]
    fn listing_is_read_up_to_its_end() {
        let text = "{\"k\":\"hello\",\"v\":1}\n{\"k\":\"test\",\"id\":\"a\",\"line\":3,\"tags\":[\"slow\"]}\n\
                    {\"k\":\"test\",\"id\":\"b\",\"skip\":\"off\"}\n";
        let tests = listing(&format!("{text}{{\"k\":\"listed\"}}\n")).unwrap();
        assert_eq!((tests.len(), tests[0].line, tests[1].skip.as_deref()), (2, Some(3), Some("off")));
        assert!(matches!(listing(text), Err(ListingError::Damaged { .. })));
        assert!(matches!(listing("{\"k\":\"test\"}\n"), Err(ListingError::Damaged { .. })));
        assert!(matches!(listing("garbage\n"), Err(ListingError::Damaged { .. })));
        assert!(matches!(listing(""), Err(ListingError::NotThisFramework { .. })));
    }
}
