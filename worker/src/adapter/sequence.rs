//! The expected tests of a batch, in the order in which they should begin, and which of them have begun.
//! Works on names, and knows no framework.

use std::collections::{HashMap, VecDeque};

use super::scan::{Cursor, Step, Stop};

/// The expected sequence of tests of a batch.
#[derive(Debug)]
pub(super) struct Sequence {
    spelled: Vec<Box<[u8]>>,
    /// Indices of the tests not begun, by the first line of the name: the part that can be read before the
    /// name is identified.
    waiting: HashMap<Box<[u8]>, VecDeque<usize>>,
    has_begun: Vec<bool>,
    next: usize,
    longest_line: usize,
}

impl Sequence {
    /// Creates the sequence from the names as the framework's output spells them.
    pub(super) fn new(names: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let spelled: Vec<Box<[u8]>> = names.into_iter().map(Vec::into_boxed_slice).collect();
        let mut waiting: HashMap<Box<[u8]>, VecDeque<usize>> = HashMap::with_capacity(spelled.len());
        for (place, name) in spelled.iter().enumerate() {
            waiting.entry(first_line(name).into()).or_default().push_back(place);
        }
        let longest_line = waiting.keys().map(|line| line.len()).max().unwrap_or(0);
        Self { has_begun: vec![false; spelled.len()], waiting, next: 0, longest_line, spelled }
    }

    /// Returns the name of a test as the framework's output spells it.
    pub(super) fn name(&self, place: usize) -> &[u8] {
        &self.spelled[place]
    }

    /// Returns the length of the longest first line of a name.
    pub(super) fn longest_line(&self) -> usize {
        self.longest_line
    }

    /// Returns the test that should begin next.
    pub(super) fn expected(&self) -> Option<usize> {
        (self.next..self.spelled.len()).find(|place| !self.has_begun[*place])
    }

    /// Returns the tests that have not begun.
    pub(super) fn not_begun(&self) -> impl Iterator<Item = usize> {
        (0..self.spelled.len()).filter(|place| !self.has_begun[*place])
    }

    /// Returns whether no test has begun.
    pub(super) fn is_fresh(&self) -> bool {
        !self.has_begun.contains(&true)
    }

    /// Records that a test begins.
    pub(super) fn begin(&mut self, place: usize) {
        self.has_begun[place] = true;
        self.next = place + 1;
        if let Some(places) = self.waiting.get_mut(first_line(&self.spelled[place])) {
            match places.front() {
                Some(front) if *front == place => drop(places.pop_front()),
                _ => places.retain(|waiting| *waiting != place),
            }
        }
    }

    /// Returns the test, not begun yet, whose whole name and then `end` are at the cursor; `line` is the
    /// first line.
    pub(super) fn find(&self, line: &[u8], cursor: Cursor<'_>, end: &[u8]) -> Step<(usize, usize)> {
        let mut stop = Stop::No;
        for place in self.waiting.get(line).into_iter().flatten() {
            let mut cursor = cursor;
            match cursor.name(self.name(*place)).and_then(|()| cursor.literal(end)) {
                Ok(()) => return Ok((*place, cursor.used())),
                Err(Stop::Partial) => stop = Stop::Partial,
                Err(Stop::No) => {}
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

    fn find(sequence: &Sequence, text: &[u8]) -> Step<usize> {
        sequence.find(first_line(text), Cursor::new(text), b"\n").map(|(place, _)| place)
    }

    #[test]
    fn names_that_stand_twice_begin_in_order() {
        let mut sequence = Sequence::new(["a", "b", "a", "a\nb"].map(|name| name.as_bytes().to_vec()));
        assert_eq!(find(&sequence, b"a\n"), Ok(0));
        sequence.begin(0);
        assert_eq!(sequence.expected(), Some(1));
        assert_eq!(find(&sequence, b"a\n"), Ok(2));
        sequence.begin(2);
        assert_eq!((sequence.expected(), find(&sequence, b"a\nb\n")), (Some(3), Ok(3)));
        assert_eq!(find(&sequence, b"a\nc\n"), Err(Stop::No));
        assert_eq!(sequence.not_begun().collect::<Vec<_>>(), [1, 3]);
    }
}
