//! The parts of GoogleTest's command line, listing and markers that the fake needs.

use std::{collections::HashSet, fmt::Write as _, io::Write as _};

/// The operation that the command line requests.
pub(crate) enum FakeInvocation {
    /// List the tests, also into this file if one is named.
    List { xml: Option<String> },
    /// Run the tests with these names; `None` means all.
    Run { filter: Option<HashSet<String>> },
    /// An unknown command line.
    Other,
}

impl FakeInvocation {
    /// `flag_file_name` is the prefix of the argument that names a flag file.
    pub(crate) fn parse(words: impl Iterator<Item = String>, flag_file_name: &str) -> Self {
        let mut words: Vec<String> = words.collect();
        if let Some(path) = words.iter().find_map(|word| word.strip_prefix(flag_file_name)) {
            let text = std::fs::read_to_string(path).expect("the flag file can be read");
            words.extend(text.lines().map(str::to_owned));
        }
        let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)).map(str::to_owned);
        if words.iter().any(|word| word == "--gtest_list_tests") {
            return Self::List { xml: value("--gtest_output=xml:") };
        }
        if let Some(filter) = value("--gtest_filter=") {
            return Self::Run { filter: Some(filter.split(':').map(str::to_owned).collect()) };
        }
        if words.iter().any(|word| word.starts_with("--gtest_")) {
            return Self::Run { filter: None };
        }
        Self::Other
    }
}

/// Lists tests of the suite `FakeFramework`, on standard output and in the file.
pub(crate) fn list(tests: &[&str], xml: Option<&str>) {
    println!("Fake.");
    for test in tests {
        println!("  {test}");
    }
    let Some(path) = xml else { return };
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites tests=\"{0}\" name=\"AllTests\">\n  <testsuite name=\"Fake\" tests=\"{0}\">\n",
        tests.len()
    );
    for (line, test) in tests.iter().enumerate() {
        writeln!(text, "    <testcase name=\"{test}\" file=\"fake.cc\" line=\"{}\" />", line + 1)
            .expect("a String takes all");
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    std::fs::write(path, text).expect("the listing can be written");
}

/// Output of a run in GoogleTest's format.
pub(crate) struct FakeRunOutput {
    count: usize,
}

impl FakeRunOutput {
    /// Prints the beginning of a run of `count` tests.
    pub(crate) fn begin(count: usize) -> Self {
        print(&format!("[==========] Running {count} tests from 1 test suite.\n"));
        print("[----------] Global test environment set-up.\n");
        print(&format!("[----------] {count} tests from Fake\n"));
        Self { count }
    }

    /// Prints the beginning of a test.
    pub(crate) fn start(&self, test: &str) {
        print(&format!("[ RUN      ] Fake.{test}\n"));
    }

    /// Prints that a test passed.
    pub(crate) fn pass(&self, test: &str) {
        print(&format!("[       OK ] Fake.{test} (0 ms)\n"));
    }

    /// Prints the end of the run.
    pub(crate) fn end(&self) {
        let count = self.count;
        let tests = if count == 1 { "test" } else { "tests" };
        print(&format!("[----------] {count} {tests} from Fake (0 ms total)\n\n"));
        print("[----------] Global test environment tear-down\n");
        print(&format!("[==========] {count} {tests} from 1 test suite ran. (0 ms total)\n"));
        print(&format!("[  PASSED  ] {count} {tests}.\n"));
    }
}

/// Writes the report of a run in which these tests passed, if the command line requests one.
pub(crate) fn report(tests: &[&str]) {
    let Some(path) =
        std::env::args().find_map(|word| word.strip_prefix("--gtest_output=xml:").map(str::to_owned))
    else {
        return;
    };
    let case = |test: &&str| {
        format!("<testcase name=\"{test}\" status=\"run\" result=\"completed\" time=\"0\" />\n")
    };
    let cases: String = tests.iter().map(case).collect();
    let text = format!("<testsuites>\n<testsuite name=\"Fake\">\n{cases}</testsuite>\n</testsuites>\n");
    std::fs::write(path, text).expect("the report can be written");
}

fn print(text: &str) {
    let mut stdout = std::io::stdout();
    // If the reader is gone, this process is about to be killed.
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    if written.is_err() {
        std::process::exit(1);
    }
}
