//! Failures of the running test, of bounded size, and the two sides of a comparison.

use heeler_core::Failure;

use super::{FrameworkVerdict, MAX_FAILURES, scan::truncated};

/// Maximum total size of the failure texts of one test.
const MESSAGE_BYTES: usize = 64 * 1024;

/// The failures of the running test.
#[derive(Debug, Default)]
pub(super) struct AssertionFailures {
    failures: Vec<Failure>,
    /// Total size of the failure texts.
    failure_bytes: usize,
}

impl AssertionFailures {
    /// Adds a failed assertion. Beyond the limits, its text is appended to the previous failure as far as
    /// there is room.
    pub(super) fn push(&mut self, failure: Failure) {
        let room = MESSAGE_BYTES.saturating_sub(self.failure_bytes);
        let texts = [&failure.message, &failure.file, &failure.expected, &failure.actual];
        let size: usize = texts.into_iter().flatten().map(String::len).sum();
        let text = failure.message.as_deref().unwrap_or_default();
        if self.failures.len() < MAX_FAILURES && size <= room {
            self.failure_bytes += size;
            self.failures.push(failure);
        } else if let Some(last) = self.failures.last_mut() {
            let message = last.message.get_or_insert_default();
            let text = truncated(text, room);
            self.failure_bytes += text.len() + 1;
            if !text.is_empty() {
                message.push('\n');
                message.push_str(text);
            }
        } else {
            let message = Some(truncated(text, room).to_owned());
            self.failure_bytes = MESSAGE_BYTES;
            self.failures.push(Failure { message, line: failure.line, ..Failure::default() });
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.failures.is_empty()
    }

    /// Appends the failures to a verdict.
    pub(super) fn add_to(self, verdict: &mut FrameworkVerdict) {
        self.failures.into_iter().for_each(|failure| verdict.push_failure(failure));
    }
}

/// Returns the left and right side of an equality with expanded values, such as `2 == 3`. `None` if a value
/// contains the operator, because the sides are then ambiguous.
pub(super) fn equality_sides(expanded: &str) -> Option<(&str, &str)> {
    // Long values are on separate lines.
    let operator = if expanded.contains("\n==\n") { "\n==\n" } else { " == " };
    let (left, right) = expanded.split_once(operator)?;
    let is_comparison = |side: &str| side.contains(" == ") || side.contains("\n==\n");
    (!is_comparison(left) && !is_comparison(right)).then_some((left, right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_of_an_equality_are_known_only_if_it_has_one_operator() {
        assert_eq!(equality_sides("2 == 3"), Some(("2", "3")));
        assert_eq!(equality_sides("\"a\nb\"\n==\n\"c\""), Some(("\"a\nb\"", "\"c\"")));
        for other in ["2 < 3", "a == b == c", "\"x == y\"\n==\n\"c\"", ""] {
            assert_eq!(equality_sides(other), None, "{other}");
        }
    }
}
