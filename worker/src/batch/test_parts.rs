//! The parts of one test: subtests, sections, data rows, points.

use std::collections::HashMap;

use heeler_adapters::{FrameworkResult, TestPart};
use heeler_core::{Outcome, PartResult};

/// Maximum number of parts kept per test. Large tables of cases have a few thousand rows.
const MAX_PARTS: usize = 10_000;
/// Maximum size of the names and messages of parts, to keep the result far below the limits of clients.
const PARTS_BYTES: usize = 2 << 20;

/// Parts of one test, in the order of their first begin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TestParts {
    parts: Vec<TestPart>,
    places: HashMap<String, usize>,
    bytes: usize,
    left_out: u32,
}

impl TestParts {
    /// Records a part. A part reported again replaces the earlier report, unless the earlier report was a
    /// failure.
    pub(super) fn record(&mut self, part: TestPart) {
        if let Some(&place) = self.places.get(&part.name) {
            if self.parts[place].result != Some(FrameworkResult::Failed) {
                self.parts[place] = part;
            }
            return;
        }
        let bytes = part.name.len() + part.message.as_ref().map_or(0, String::len);
        if self.parts.len() == MAX_PARTS || self.bytes.saturating_add(bytes) > PARTS_BYTES {
            // Only ends are counted, since a part that is left out may also be reported at its beginning.
            self.left_out = self.left_out.saturating_add(u32::from(part.result.is_some()));
            return;
        }
        self.bytes += bytes;
        self.places.insert(part.name.clone(), self.parts.len());
        self.parts.push(part);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the parts for a result, and the number of parts left out.
    pub(super) fn into_results(self) -> (Vec<PartResult>, u32) {
        let result = |part: TestPart| PartResult {
            name: part.name,
            outcome: part.result.map(Outcome::from),
            message: part.message,
        };
        (self.parts.into_iter().map(result).collect(), self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, result: Option<FrameworkResult>) -> TestPart {
        TestPart { name: name.to_owned(), result, message: None }
    }

    #[test]
    fn worst_result_of_a_repeated_part_is_kept() {
        use FrameworkResult::{Failed, Passed};
        let mut parts = TestParts::default();
        for (name, result) in
            [("a", None), ("b", Some(Failed)), ("a", Some(Passed)), ("b", Some(Passed)), ("c", None)]
        {
            parts.record(part(name, result));
        }
        let (results, left_out) = parts.into_results();
        let outcomes: Vec<_> = results.iter().map(|part| (part.name.as_str(), part.outcome)).collect();
        assert_eq!(outcomes, [("a", Some(Outcome::Passed)), ("b", Some(Outcome::Failed)), ("c", None)]);
        assert_eq!(left_out, 0);
    }

    #[test]
    fn parts_beyond_the_limit_are_counted() {
        let mut parts = TestParts::default();
        for number in 0..MAX_PARTS + 7 {
            parts.record(part(&number.to_string(), None));
            parts.record(part(&number.to_string(), Some(FrameworkResult::Passed)));
        }
        let (results, left_out) = parts.into_results();
        assert_eq!((results.len(), left_out), (MAX_PARTS, 7));
        let mut parts = TestParts::default();
        parts.record(part(&"x".repeat(PARTS_BYTES + 1), Some(FrameworkResult::Passed)));
        assert_eq!(parts.into_results(), (Vec::new(), 1));
    }
}
