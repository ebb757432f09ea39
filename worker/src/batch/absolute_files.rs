//! Makes file names of failures absolute. Compilers record file names as passed to them, often relative, and
//! frameworks report these names. Pure.

use heeler_protocol::control::ListedTest;

use super::test_ending::TestEnding;

/// Returns the ending of a test with absolute file names in its failures. Relative names are resolved against
/// the directory that the test's own file name is relative to.
pub(super) fn with_absolute_files(seen: TestEnding, listed: &ListedTest) -> TestEnding {
    let Some(directory) = directory_of(listed) else { return seen };
    let TestEnding::Verdict(mut verdict) = seen else { return seen };
    let files = verdict.failures.iter_mut().filter_map(|failure| failure.file.as_mut());
    for file in files.filter(|file| !file.is_empty() && !file.starts_with('/')) {
        file.insert(0, '/');
        file.insert_str(0, directory);
    }
    TestEnding::Verdict(verdict)
}

/// Returns the directory that reported file names are relative to, or `None` if unknown.
fn directory_of(listed: &ListedTest) -> Option<&str> {
    let (file, reported) = (listed.file.as_deref()?, listed.reported_file.as_deref()?);
    let directory = file.strip_suffix(reported)?.trim_end_matches('/');
    (!directory.is_empty()).then_some(directory)
}

#[cfg(test)]
mod tests {
    use heeler_adapters::{FrameworkResult, FrameworkVerdict};
    use heeler_core::Failure;

    use super::*;

    fn files(listed: &ListedTest, reported: &[Option<&str>]) -> Vec<Option<String>> {
        let failure = |file: &Option<&str>| Failure { file: file.map(str::to_owned), ..Failure::default() };
        let failures = reported.iter().map(failure).collect();
        let verdict = FrameworkVerdict { failures, ..FrameworkVerdict::new(FrameworkResult::Failed, None) };
        match with_absolute_files(TestEnding::Verdict(verdict), listed) {
            TestEnding::Verdict(verdict) => {
                verdict.failures.into_iter().map(|failure| failure.file).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn files_of_failures_are_below_the_directory_of_their_test() {
        let text = |text: &str| Some(text.to_owned());
        let reported = [Some("t/a.cc"), Some("../b.h"), Some("/usr/c.h"), Some(""), None];
        let found =
            ListedTest { file: text("/w/t/a.cc"), reported_file: text("t/a.cc"), ..ListedTest::default() };
        let expected = [text("/w/t/a.cc"), text("/w/../b.h"), text("/usr/c.h"), text(""), None];
        assert_eq!(files(&found, &reported), expected);
        // A test whose file was listed but not found has no directory.
        let listed = ListedTest { file: text("t/a.cc"), ..ListedTest::default() };
        assert_eq!(files(&listed, &reported), reported.map(|file| file.map(str::to_owned)));
    }
}
