//! The changed lines of sources, as `git diff --unified=0` reports them.

use std::collections::{BTreeMap, BTreeSet};

use heeler_mutant_model::Mutant;

/// Changed lines, by path relative to the directory of the comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedLines {
    /// First and last line of each change, ascending.
    changes: BTreeMap<String, Vec<(u32, u32)>>,
    /// Files that are entirely new.
    new_files: BTreeSet<String>,
}

impl ChangedLines {
    /// Parses the output of `git diff --unified=0 --no-prefix`. Ignores lines that do not belong to a diff.
    #[must_use]
    pub fn read(diff: &str) -> Self {
        let mut changed = Self::default();
        let mut path = None;
        // Remaining content lines of the hunk. They can look like diff headers, so they are skipped by
        // count.
        let mut content = 0_u32;
        for line in diff.lines() {
            if content > 0 {
                content -= u32::from(!line.starts_with('\\'));
            } else if let Some(name) = line.strip_prefix("+++ ") {
                path = Some(unquoted(name.trim_end_matches('\t')));
            } else if let Some(hunk) = Hunk::read(line) {
                content = hunk.removed.saturating_add(hunk.added);
                if let Some((path, lines)) = path.as_ref().zip(hunk.lines()) {
                    changed.changes.entry(path.clone()).or_default().push(lines);
                }
            }
        }
        changed
    }

    /// Adds entirely new files, one per line.
    pub fn add_new_files(&mut self, lines: &str) {
        self.new_files.extend(lines.lines().map(unquoted));
    }

    /// Returns whether a change overlaps the code that a mutant replaces.
    #[must_use]
    pub fn touch(&self, mutant: &Mutant) -> bool {
        let path: &str = mutant.path();
        let (start, end) = (mutant.start().line, mutant.end().line);
        let is_changed =
            |changes: &Vec<(u32, u32)>| changes.iter().any(|&(first, last)| first <= end && start <= last);
        self.new_files.contains(path) || self.changes.get(path).is_some_and(is_changed)
    }
}

/// The header of a hunk: `@@ -1,2 +3,4 @@`.
struct Hunk {
    removed: u32,
    /// First added line.
    first: u32,
    added: u32,
}

impl Hunk {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("@@ -")?.split(' ');
        let numbers = |word: &str| {
            let (first, count) = word.split_once(',').unwrap_or((word, "1"));
            Some((first.parse::<u32>().ok()?, count.parse::<u32>().ok()?))
        };
        let (_, removed) = numbers(words.next()?)?;
        let (first, added) = numbers(words.next()?.strip_prefix('+')?)?;
        Some(Self { removed, first, added })
    }

    /// Returns the first and last added line, if any.
    fn lines(&self) -> Option<(u32, u32)> {
        let last = self.first.checked_add(self.added)?.checked_sub(1)?;
        (self.added > 0).then_some((self.first, last))
    }
}

/// Undoes Git's quoting of paths with quotes, backslashes or control characters.
fn unquoted(name: &str) -> String {
    let Some(inner) = name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return name.to_owned();
    };
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.bytes().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'n') => bytes.push(b'\n'),
            Some(b't') => bytes.push(b'\t'),
            Some(digit @ b'0'..=b'7') => {
                let mut value = u32::from(digit - b'0');
                for _ in 0..2 {
                    let Some(next @ b'0'..=b'7') = rest.peek().copied() else { break };
                    value = value * 8 + u32::from(next - b'0');
                    rest.next();
                }
                bytes.push(value.to_le_bytes()[0]);
            }
            Some(other) => bytes.push(other),
            None => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use heeler_mutant_model::{ForeignMutant, ForeignSource, Language, Position};

    use super::*;

    fn mutant(path: &str, lines: (u32, u32)) -> Mutant {
        let position = |line| Position { line, column: 1 };
        let source =
            ForeignSource { path: path.into(), language: Language::Rust, text: "\n".repeat(50).into() };
        let found = ForeignMutant {
            start: position(lines.0),
            end: position(lines.1),
            mutator: "BooleanLiteral".to_owned(),
            replacement: "false".to_owned(),
            description: None,
        };
        source.mutants(vec![found]).unwrap().remove(0)
    }

    const DIFF: &str = "diff --git src/a.rs src/a.rs\n--- src/a.rs\n+++ src/a.rs\n@@ -10 +10 @@ fn f() {\n-old\n+new\n\
        @@ -20,3 +19,0 @@ fn g() {\n-gone\n-gone\n-gone\n\\ No newline at end of file\n@@ -30,0 +28,2 @@\n+one\n+++ two\ndiff --git x x\n+++ \"src/\\303\\251\\\"\\t.rs\"\n\
        @@ -1 +1,2 @@\n";

    #[test]
    fn mutants_are_touched_by_changes_that_overlap_them() {
        let changed = ChangedLines::read(DIFF);
        for (lines, is_touched) in [
            ((10, 10), true),
            ((9, 11), true),
            ((11, 11), false),
            ((19, 20), false),
            ((27, 27), false),
            ((29, 40), true),
            ((30, 30), false),
        ] {
            assert_eq!(changed.touch(&mutant("src/a.rs", lines)), is_touched, "{lines:?}");
        }
        assert!(!changed.touch(&mutant("src/b.rs", (10, 10))));
        assert!(changed.touch(&mutant("src/é\"\t.rs", (2, 2))));
    }

    #[test]
    fn new_files_are_touched_as_a_whole() {
        let mut changed = ChangedLines::read("");
        changed.add_new_files("src/new.rs\n\"src/a b.rs\"\n");
        assert!(changed.touch(&mutant("src/new.rs", (7, 7))) && changed.touch(&mutant("src/a b.rs", (1, 1))));
        assert!(!changed.touch(&mutant("src/old.rs", (7, 7))));
    }

    #[test]
    fn damaged_comparisons_are_read_as_far_as_possible() {
        for end in 0..DIFF.len() {
            if DIFF.is_char_boundary(end) {
                let _any = ChangedLines::read(&DIFF[..end]);
            }
        }
        for line in ["@@ -1 +0,0 @@", "@@ -1 +4294967295,9 @@", "@@ -1 +x @@", "@@ -1", "@@ +1 @@"] {
            assert_eq!(Hunk::read(line).and_then(|hunk| hunk.lines()), None, "{line}");
        }
        assert_eq!(unquoted("\"\\"), "\"\\");
        assert_eq!(unquoted("\"\\\""), "");
    }
}
