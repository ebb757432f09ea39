//! The expected tests of a batch in order, and which of them have begun. Knows names only, no framework.

use std::collections::{HashMap, VecDeque};

use super::scan::{ByteCursor, ScanResult, ScanStop};

/// The expected sequence of tests of a batch.
#[derive(Debug)]
pub(super) struct ExpectedTests {
    names: Vec<Box<[u8]>>,
    /// Indices of the tests that have not begun, by the first line of the name. The first line can be read
    /// before the whole name is known.
    waiting: HashMap<Box<[u8]>, VecDeque<usize>>,
    has_begun: Vec<bool>,
    next: usize,
    longest_line: usize,
}

impl ExpectedTests {
    /// Creates the sequence from the names as the framework prints them.
    pub(super) fn new(names: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let names: Vec<Box<[u8]>> = names.into_iter().map(Vec::into_boxed_slice).collect();
        let mut waiting: HashMap<Box<[u8]>, VecDeque<usize>> = HashMap::with_capacity(names.len());
        for (place, name) in names.iter().enumerate() {
            waiting.entry(first_line(name).into()).or_default().push_back(place);
        }
        let longest_line = waiting.keys().map(|line| line.len()).max().unwrap_or(0);
        Self { has_begun: vec![false; names.len()], waiting, next: 0, longest_line, names }
    }

    /// Returns the name of a test as the framework prints it.
    pub(super) fn name(&self, place: usize) -> &[u8] {
        &self.names[place]
    }

    /// Returns the length of the longest first line of a name.
    pub(super) fn longest_line(&self) -> usize {
        self.longest_line
    }

    /// Returns the test that should begin next.
    pub(super) fn next_expected(&self) -> Option<usize> {
        (self.next..self.names.len()).find(|place| !self.has_begun[*place])
    }

    pub(super) fn not_begun(&self) -> impl Iterator<Item = usize> {
        (0..self.names.len()).filter(|place| !self.has_begun[*place])
    }

    pub(super) fn has_begun(&self, place: usize) -> bool {
        self.has_begun[place]
    }

    /// Returns whether a test has this name. Linear search, for rare cases.
    pub(super) fn is_any(&self, name: &[u8]) -> bool {
        self.names.iter().any(|one| **one == *name)
    }

    /// Returns the first test whose whole name is at the start of these bytes and is followed by one of
    /// `ends` or by nothing. Linear search, for rare cases.
    pub(super) fn find_anywhere(&self, bytes: &[u8], ends: &[u8]) -> Option<usize> {
        self.names.iter().position(|name| {
            let rest = bytes.strip_prefix(&**name);
            rest.is_some_and(|rest| rest.first().is_none_or(|next| ends.contains(next)))
        })
    }

    pub(super) fn has_none_begun(&self) -> bool {
        !self.has_begun.contains(&true)
    }

    pub(super) fn mark_begun(&mut self, place: usize) {
        self.has_begun[place] = true;
        self.next = place + 1;
        if let Some(places) = self.waiting.get_mut(first_line(&self.names[place])) {
            match places.front() {
                Some(front) if *front == place => drop(places.pop_front()),
                _ => places.retain(|waiting| *waiting != place),
            }
        }
    }

    /// Returns the test that has not begun and whose whole name, then `end`, is at the cursor. `line` is the
    /// first line.
    pub(super) fn find(&self, line: &[u8], cursor: ByteCursor<'_>, end: &[u8]) -> ScanResult<(usize, usize)> {
        let mut stop = ScanStop::Mismatch;
        for place in self.waiting.get(line).into_iter().flatten() {
            let mut cursor = cursor;
            match cursor.name(self.name(*place)).and_then(|()| cursor.literal(end)) {
                Ok(()) => return Ok((*place, cursor.used())),
                Err(ScanStop::NeedsMore) => stop = ScanStop::NeedsMore,
                Err(ScanStop::Mismatch) => {}
            }
        }
        Err(stop)
    }
}

fn first_line(name: &[u8]) -> &[u8] {
    memchr::memchr(b'\n', name).map_or(name, |end| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(sequence: &ExpectedTests, text: &[u8]) -> ScanResult<usize> {
        sequence.find(first_line(text), ByteCursor::new(text), b"\n").map(|(place, _)| place)
    }

    #[test]
    fn duplicate_names_begin_in_order() {
        let mut sequence = ExpectedTests::new(["a", "b", "a", "a\nb"].map(|name| name.as_bytes().to_vec()));
        assert_eq!(find(&sequence, b"a\n"), Ok(0));
        sequence.mark_begun(0);
        assert_eq!(sequence.next_expected(), Some(1));
        assert_eq!(find(&sequence, b"a\n"), Ok(2));
        sequence.mark_begun(2);
        assert_eq!((sequence.next_expected(), find(&sequence, b"a\nb\n")), (Some(3), Ok(3)));
        assert_eq!(find(&sequence, b"a\nc\n"), Err(ScanStop::Mismatch));
        assert_eq!(sequence.not_begun().collect::<Vec<_>>(), [1, 3]);
    }
}
