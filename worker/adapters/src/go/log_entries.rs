//! Log lines of tests: `    file_test.go:12: text`. `t.Error` and `t.Log` look the same.

use std::collections::VecDeque;

use heeler_core::Failure;

use super::marker::GoTestName;

/// Maximum number of entries kept for all running tests. The oldest are dropped first.
const MAX_ENTRIES: usize = 1000;
/// Maximum total size of the entries.
const MAX_BYTES: usize = 1 << 20;
/// Bytes of a line that are read; the rest is ignored.
const LINE_BYTES: usize = 16 << 10;

const INDENT: &str = "    ";

/// A log entry of a running test.
#[derive(Debug)]
struct LogEntry {
    place: usize,
    /// The part that wrote the entry.
    part: String,
    file: String,
    line: u32,
    text: String,
}

impl LogEntry {
    fn bytes(&self) -> usize {
        self.part.len() + self.file.len() + self.text.len()
    }
}

#[derive(Debug, Default)]
pub(super) struct LogEntries {
    entries: VecDeque<LogEntry>,
    bytes: usize,
    /// The last line, which may be unfinished.
    line: Vec<u8>,
    /// The last line belongs to the last entry.
    is_entry_open: bool,
}

impl LogEntries {
    /// Reads output of a test or one of its parts.
    pub(super) fn on_output(&mut self, place: usize, part: &str, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_BYTES.saturating_sub(self.line.len());
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.read_line(place, part, &String::from_utf8_lossy(&line));
                self.line = line;
                self.line.clear();
            }
        }
    }

    /// Drops an unfinished line, because a marker follows it.
    pub(super) fn end_line(&mut self) {
        self.line.clear();
        self.is_entry_open = false;
    }

    fn read_line(&mut self, place: usize, part: &str, line: &str) {
        let line = line.strip_suffix('\n').unwrap_or(line);
        if self.is_entry_open
            && let Some(more) = line.strip_prefix("        ")
            && let Some(last) = self.entries.back_mut().filter(|last| last.place == place)
        {
            last.text.push('\n');
            last.text.push_str(more);
            self.bytes += 1 + more.len();
            return self.shrink();
        }
        self.is_entry_open = false;
        let Some((file, line, text)) = line.strip_prefix(INDENT).and_then(read_entry) else { return };
        let entry =
            LogEntry { place, part: part.to_owned(), file: file.to_owned(), line, text: text.to_owned() };
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        self.is_entry_open = true;
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.entries.len() > MAX_ENTRIES || self.bytes > MAX_BYTES {
            let Some(first) = self.entries.pop_front() else { return };
            self.bytes -= first.bytes();
        }
    }

    /// Takes the entries of a finished part and its nested parts as one text.
    pub(super) fn take_part(&mut self, place: usize, name: &GoTestName) -> Option<String> {
        let is_within = |entry: &LogEntry| {
            let rest = entry.part.strip_prefix(name.part.as_str());
            entry.place == place && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let texts: Vec<String> = self.take(is_within).into_iter().map(|entry| entry.text).collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }

    /// Returns the texts of a failed part, and keeps its entries as failures of its test.
    pub(super) fn text_of_part(&self, place: usize, name: &GoTestName) -> Option<String> {
        let own = self.entries.iter().filter(|entry| entry.place == place && entry.part == name.part);
        let texts: Vec<&str> = own.map(|entry| entry.text.as_str()).collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }

    /// Takes the entries of a finished test as failures. Test files are in `directory`.
    pub(super) fn take_test(&mut self, place: usize, directory: Option<&str>) -> Vec<Failure> {
        let failure = |entry: LogEntry| {
            let LogEntry { part, file, line, text, .. } = entry;
            let is_of_tests = file.ends_with("_test.go") && !file.contains('/');
            let file = match directory.filter(|_| is_of_tests) {
                Some(directory) => format!("{directory}/{file}"),
                None => file,
            };
            let message = if part.is_empty() { text } else { format!("{part}: {text}") };
            Failure { message: Some(message), file: Some(file), line: Some(line), ..Failure::default() }
        };
        self.take(|entry| entry.place == place).into_iter().map(failure).collect()
    }

    fn take(&mut self, is_taken: impl Fn(&LogEntry) -> bool) -> Vec<LogEntry> {
        if !self.entries.iter().any(&is_taken) {
            return Vec::new();
        }
        let all = std::mem::take(&mut self.entries);
        let mut taken = Vec::new();
        for entry in all {
            if is_taken(&entry) {
                taken.push(entry);
            } else {
                self.entries.push_back(entry);
            }
        }
        self.bytes = self.entries.iter().map(LogEntry::bytes).sum();
        self.is_entry_open = false;
        taken
    }

    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.bytes + self.line.len()
    }
}

/// Reads `file_test.go:12: text`.
fn read_entry(line: &str) -> Option<(&str, u32, &str)> {
    let end = line.find(".go:")?;
    let (file, rest) = line.split_at(end + ".go".len());
    let (number, text) = rest.strip_prefix(':')?.split_once(':')?;
    let text = text.strip_prefix(' ').or_else(|| text.is_empty().then_some(text))?;
    let is_file = !file.starts_with([' ', '\t']);
    Some((file, number.parse().ok().filter(|number| *number > 0 && is_file)?, text))
}

#[cfg(test)]
mod cases {
    use super::*;

    fn part(name: &str) -> GoTestName {
        GoTestName { test: "TestA".into(), part: name.into() }
    }

    fn texts(failures: &[Failure]) -> Vec<String> {
        let text = |failure: &Failure| {
            let message = failure.message.as_deref().unwrap_or_default();
            format!("{}:{} {message}", failure.file.as_deref().unwrap_or_default(), failure.line.unwrap_or(0))
        };
        failures.iter().map(text).collect()
    }

    #[test]
    fn entries_have_a_place_and_all_of_their_lines() {
        let mut log = LogEntries::default();
        let text = "noise\n    a_test.go:3: one\n        and more\n        other.go:4: no entry\n    x\n        y\n    /w/b.go:12: two\n    a_test.go:5: \n";
        for byte in text.bytes() {
            log.on_output(1, "", &[byte]);
        }
        log.on_output(2, "", b"    c_test.go:1: of another\n");
        let failures = log.take_test(1, Some("/d"));
        assert_eq!(
            texts(&failures),
            ["/d/a_test.go:3 one\nand more\nother.go:4: no entry", "/w/b.go:12 two", "/d/a_test.go:5 "]
        );
        assert_eq!(texts(&log.take_test(2, None)), ["c_test.go:1 of another"]);
        assert_eq!((log.take_test(1, None), log.kept_bytes()), (Vec::new(), 0));
    }

    #[test]
    fn entries_of_parts_end_with_them_unless_they_have_failed() {
        let mut log = LogEntries::default();
        for (name, text) in [("a", "in a"), ("a/b", "in b"), ("ab", "in ab"), ("", "own")] {
            log.on_output(0, name, format!("    a_test.go:1: {text}\n").as_bytes());
        }
        assert_eq!(log.text_of_part(0, &part("ab")).as_deref(), Some("in ab"));
        assert_eq!(log.take_part(0, &part("a")).as_deref(), Some("in a\nin b"));
        assert_eq!(log.take_part(0, &part("c")), None);
        assert_eq!(texts(&log.take_test(0, None)), ["a_test.go:1 ab: in ab", "a_test.go:1 own"]);
    }

    #[test]
    fn latest_entries_are_kept() {
        let mut log = LogEntries::default();
        for number in 1..=3 * MAX_ENTRIES {
            log.on_output(0, "", format!("    a_test.go:{number}: x\n").as_bytes());
        }
        let failures = log.take_test(0, None);
        assert_eq!((failures.len(), failures.last().and_then(|one| one.line)), (1000, Some(3000)));
        let long = format!("    a_test.go:1: {}\n", "x".repeat(100_000));
        (0..200).for_each(|_| log.on_output(0, "", long.as_bytes()));
        assert!(log.kept_bytes() <= MAX_BYTES + LINE_BYTES);
    }
}
