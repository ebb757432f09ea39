//! Parses a listing, and finds the file that ended it early.

use std::path::Path;

use data_encoding::HEXLOWER;
use heeler_protocol::control::{ListedTest, OsText};

use super::adapter::NAME;
use crate::{AdapterListing, ListingError, ListingOutput, json_reports::message::ReportLine, scan};

/// Maximum number of listing commands per program. Each leaves out the files that ended the previous ones.
const MAX_LISTINGS: usize = 20;

/// Returns the files that the next listing must skip, because importing them ended the process; `None` if no
/// further listing is needed or would help.
pub(super) fn next_fatal_files(outputs: &[ListingOutput]) -> Option<Vec<String>> {
    let fatal_files: Vec<String> = outputs.iter().map_while(fatal_file).collect();
    let has_learned = outputs.len() == fatal_files.len() && outputs.len() < MAX_LISTINGS;
    has_learned.then_some(fatal_files)
}

/// Returns the file that was being imported when the process ended; `None` if the listing is complete or the
/// process ended elsewhere.
fn fatal_file(output: &ListingOutput) -> Option<String> {
    let mut file = None;
    for report in lines(output).filter_map(ReportLine::parse) {
        match report.kind() {
            "file" => file = report.text("path"),
            "test" | "listed" | "collected" => return None,
            _ => {}
        }
    }
    file
}

fn lines(output: &ListingOutput) -> impl Iterator<Item = &[u8]> {
    output.channel.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

/// Parses the last listing.
///
/// # Errors
/// The listing is incomplete.
pub(super) fn read(outputs: &[ListingOutput]) -> Result<AdapterListing, ListingError> {
    let nothing = ListingOutput::default();
    let output = outputs.last().unwrap_or(&nothing);
    let damaged = |reason: String| ListingError::Damaged { framework: NAME, reason };
    let (mut tests, mut depends_on, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
    for line in lines(output) {
        let unreadable = || {
            let text = scan::decode_lossy(line);
            damaged(format!("unreadable line {:?}", scan::truncated(&text, 200)))
        };
        // A process that died may have left an incomplete last line.
        let Some(report) = ReportLine::parse(line) else {
            return Err(if output.code == Some(0) { unreadable() } else { ListingError::of_exit(output) });
        };
        match report.kind() {
            "test" => {
                let mut test = report.listed_test().ok_or_else(unreadable)?;
                test.selector = report.text("selector");
                tests.push(test);
            }
            "warning" => warnings.extend(report.text("message")),
            "depends" => depends_on = report.texts("paths").iter().map(|path| read_handle(path)).collect(),
            "listed" => {
                let failed = |output: &&ListingOutput| output.code != Some(0);
                // Files that crash are listed as tests, and the crash also fails the listing as a whole.
                let failure = outputs.iter().find(failed).map(ListingError::of_recognized_exit);
                return Ok(AdapterListing { framework: NAME, tests, failure, warnings, depends_on });
            }
            _ => {}
        }
    }
    if output.code != Some(0) {
        return Err(ListingError::of_exit(output));
    }
    if output.channel.is_empty() {
        let reason = "pytest did not load Heeler's plugin, which reports on descriptor 3".to_owned();
        return Err(ListingError::NotThisFramework { framework: NAME, reason });
    }
    Err(damaged("missing \"listed\" at the end".to_owned()))
}

/// Returns a path written by the plugin. A path that is not UTF-8 is written as a NUL and its bytes in hex.
fn read_handle(text: &str) -> OsText {
    let bytes = text.strip_prefix('\0').and_then(|hex| HEXLOWER.decode(hex.as_bytes()).ok());
    bytes.map_or_else(|| OsText::from(text), OsText::from)
}

/// Returns the argument that selects a test on a pytest command line in this directory. Node ids are relative
/// to pytest's root directory, which may be another directory.
pub(super) fn command_line_id(test: &ListedTest, cwd: &Path) -> OsText {
    let path = test.selector.as_deref().and_then(|selector| selector.split('\n').nth(1));
    let Some(path) = path.map(read_handle) else { return OsText::from(test.name.as_str()) };
    let path = path.as_path();
    let mut id = OsText::from(path.strip_prefix(cwd).unwrap_or(path)).as_bytes().to_vec();
    if let Some((_, rest)) = test.name.split_once("::") {
        id.extend(b"::");
        id.extend(rest.as_bytes());
    }
    OsText::from(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(channel: &str, code: Option<i32>) -> ListingOutput {
        ListingOutput { channel: channel.into(), code, ..ListingOutput::default() }
    }

    const HELLO: &str = "{\"k\":\"hello\",\"v\":1,\"fence\":\"ab\"}\n";
    const ALL: &str = "{\"k\":\"file\",\"path\":\"/w/a.py\"}\n\
        {\"k\":\"test\",\"id\":\"a.py::t\",\"selector\":\"0\\n/w/a.py\\na.py::t\",\"line\":3,\"tags\":[\"slow\"]}\n\
        {\"k\":\"depends\",\"paths\":[\"/w/a.py\",\"/w\"]}\n\
        {\"k\":\"warning\",\"message\":\"-x\"}\n{\"k\":\"listed\"}\n";

    #[test]
    fn listing_has_tests_and_what_it_depends_on() {
        let listing = read(&[output(&format!("{HELLO}{ALL}"), Some(0))]).unwrap();
        let [test] = listing.tests.as_slice() else { panic!("{listing:?}") };
        assert_eq!((test.name.as_str(), test.line), ("a.py::t", Some(3)));
        assert_eq!(test.selector.as_deref(), Some("0\n/w/a.py\na.py::t"));
        assert_eq!((listing.depends_on.len(), listing.failure), (2, None));
        assert_eq!(listing.warnings, ["-x"]);
        assert!(matches!(read(&[output(HELLO, Some(0))]), Err(ListingError::Damaged { .. })));
        assert!(matches!(read(&[output(HELLO, Some(4))]), Err(ListingError::Died { code: Some(4), .. })));
        assert!(matches!(read(&[output("", Some(0))]), Err(ListingError::NotThisFramework { .. })));
        assert!(matches!(read(&[output("garbage\n", Some(0))]), Err(ListingError::Damaged { .. })));
        assert!(matches!(read(&[]), Err(ListingError::Died { .. })));
    }

    #[test]
    fn file_that_ends_the_process_is_left_out_of_the_next_listing() {
        let fatal =
            |path: &str, code| output(&format!("{HELLO}{{\"k\":\"file\",\"path\":\"{path}\"}}\n"), code);
        let whole = output(&format!("{HELLO}{ALL}"), Some(0));
        assert_eq!(next_fatal_files(&[]), Some(vec![]));
        assert_eq!(next_fatal_files(&[fatal("/a", None)]), Some(vec!["/a".to_owned()]));
        assert_eq!(next_fatal_files(&[fatal("/a", None), fatal("/b", Some(0))]).unwrap(), ["/a", "/b"]);
        assert_eq!(next_fatal_files(&[fatal("/a", None), whole.clone()]), None);
        assert_eq!(next_fatal_files(&[output("", Some(4))]), None, "it is not known which file it was");
        assert_eq!(next_fatal_files(&vec![fatal("/a", None); MAX_LISTINGS]), None);
        let listing = read(&[fatal("/a", None), whole]).unwrap();
        assert_eq!(listing.tests.len(), 1);
        assert!(listing.failure.is_some(), "a crash is a failure of the program");
    }

    #[test]
    fn command_line_names_the_file_from_the_working_directory() {
        let test = ListedTest {
            name: "tests/a.py::C::t[x::y]".to_owned(),
            selector: Some("0\n/w/tests/a.py\ntests/a.py::C::t[x::y]".to_owned()),
            ..ListedTest::default()
        };
        let id = |test: &ListedTest, cwd| command_line_id(test, Path::new(cwd));
        assert_eq!(id(&test, "/w/tests"), OsText::from("a.py::C::t[x::y]"));
        assert_eq!(id(&test, "/other"), OsText::from("/w/tests/a.py::C::t[x::y]"));
        let whole = ListedTest { name: "tests/a.py".to_owned(), ..test };
        assert_eq!(id(&whole, "/w"), OsText::from("tests/a.py"));
        let of_bytes = ListedTest {
            name: "\\xff/a.py::t".to_owned(),
            selector: Some("0\n\x002f772fff2f612e7079\n\x00ff2f612e70793a3a74".to_owned()),
            ..ListedTest::default()
        };
        assert_eq!(id(&of_bytes, "/w"), OsText::from(b"\xff/a.py::t".to_vec()));
    }
}
