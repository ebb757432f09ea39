//! Parser of a failed test's output: panic message, location and compared values.

use heeler_core::Failure;

use crate::scan::truncated;

const MESSAGE_BYTES: usize = 64 * 1024;

/// Returns the failure of a test from its output and libtest's own message. A panic in `own_thread` takes
/// precedence.
pub(super) fn read_failure(message: Option<String>, output: &str, own_thread: Option<&str>) -> Failure {
    let mut failure = Failure::default();
    let panic = deciding_panic(output, own_thread);
    if let Some(panic) = &panic {
        failure.file = Some(panic.file.to_owned());
        failure.line = Some(panic.line);
        failure.stack = panic.stack.map(|stack| truncated(stack, MESSAGE_BYTES).to_owned());
    }
    match message {
        // libtest reports its own reason if a test should have panicked but did not, or panicked with another
        // message.
        Some(message) => {
            complete_should_panic(&mut failure, &message);
            failure.message = Some(message);
        }
        None => complete_from_panic(&mut failure, panic.map(|panic| panic.message), output),
    }
    failure
}

/// Returns the failure of a panicked test from its output; empty if the output contains no panic.
pub(crate) fn read_panic_of(output: &str) -> Failure {
    read_failure(None, output, None)
}

fn complete_from_panic(failure: &mut Failure, message: Option<&str>, output: &str) {
    let Some(message) = message else {
        // A `fn test() -> Result<(), E>` returned an error.
        failure.message = output
            .lines()
            .rev()
            .find(|line| line.starts_with("Error: "))
            .map(|line| truncated(line, MESSAGE_BYTES).to_owned());
        return;
    };
    failure.message = Some(truncated(message, MESSAGE_BYTES).to_owned());
    if message.starts_with("assertion `left == right`")
        || message.starts_with("assertion `left matches right`")
    {
        (failure.actual, failure.expected) = compared_values(message).unzip();
    }
}

/// Reads `test did not panic as expected at FILE:LINE:COLUMN`, or a panic message that differs from the
/// expected one.
fn complete_should_panic(failure: &mut Failure, message: &str) {
    if let Some((_, place)) = message.split_once("did not panic as expected at ")
        && let Some((file, line)) = parse_location(place)
    {
        (failure.file, failure.line) = (Some(file.to_owned()), Some(line));
    }
    if let Some((_, values)) = message.split_once("\n      panic message: ")
        && let Some((actual, expected)) = values.split_once("\n expected substring: ")
    {
        (failure.actual, failure.expected) = (Some(actual.to_owned()), Some(expected.to_owned()));
    }
}

fn compared_values(message: &str) -> Option<(String, String)> {
    let (_, values) = message.split_once("\n  left: ")?;
    let (left, right) = values.rsplit_once("\n right: ")?;
    Some((left.to_owned(), right.to_owned()))
}

struct PanicReport<'a> {
    file: &'a str,
    line: u32,
    message: &'a str,
    stack: Option<&'a str>,
}

const MARK: &str = " panicked at ";

/// Returns the decisive panic: the last one in the test's own thread, otherwise the last one in another
/// thread. Panics in other threads are often the cause, but may also be caught.
fn deciding_panic<'a>(output: &'a str, own_thread: Option<&str>) -> Option<PanicReport<'a>> {
    let mut last = None;
    let mut own = None;
    for (at, _) in output.match_indices(MARK) {
        let start = output[..at].rfind('\n').map_or(0, |end| end + 1);
        let Some(thread) = output[start..at].strip_prefix("thread '") else { continue };
        let Some(panic) = read_panic(&output[at + MARK.len()..]) else { continue };
        let is_own =
            own_thread.is_some_and(|own| thread.strip_prefix(own).is_some_and(|rest| rest.starts_with('\'')));
        if is_own {
            own = Some(panic);
        } else {
            last = Some(panic);
        }
    }
    own.or(last)
}

fn read_panic(text: &str) -> Option<PanicReport<'_>> {
    let (header, rest) = text.split_once('\n').unwrap_or((text, ""));
    let (message, (file, line)) = match header.strip_suffix(':').and_then(parse_location) {
        Some(place) => (rest, place),
        None => read_old_panic(text)?,
    };
    let end = message.find("\n\nthread '").unwrap_or(message.len());
    let (message, rest) = message.split_at(end_of_message(&message[..end]));
    let stack = rest.trim_start().strip_prefix("stack backtrace:\n").map(|stack| {
        let end = stack.find("\nnote: ").or_else(|| stack.find("\n\n")).unwrap_or(stack.len());
        stack[..end].trim_end()
    });
    Some(PanicReport { file, line, message: message.trim_end(), stack })
}

fn end_of_message(text: &str) -> usize {
    ["\nstack backtrace:\n", "\nnote: run with `RUST_BACKTRACE="]
        .iter()
        .filter_map(|end| text.find(end))
        .min()
        .unwrap_or(text.len())
}

/// Reads a panic from Rust before 1.73: `thread 'x' panicked at 'MESSAGE', FILE:LINE:COLUMN`.
fn read_old_panic(text: &str) -> Option<(&str, (&str, u32))> {
    let text = text.strip_prefix('\'')?;
    let mut at = 0;
    while let Some(found) = text[at..].find("', ") {
        let (message, place) = (&text[..at + found], &text[at + found + 3..]);
        if let Some(place) = parse_location(place.lines().next().unwrap_or_default()) {
            return Some((message, place));
        }
        at += found + 3;
    }
    None
}

/// Parses `FILE:LINE:COLUMN`.
fn parse_location(text: &str) -> Option<(&str, u32)> {
    let (rest, column) = text.rsplit_once(':')?;
    let (file, line) = rest.rsplit_once(':')?;
    column.parse::<u32>().ok()?;
    Some((file, line.parse().ok()?)).filter(|(file, _)| !file.is_empty())
}

#[cfg(test)]
mod tests {

    use super::*;

    fn failure(message: Option<&str>, output: &str) -> Failure {
        read_failure(message.map(str::to_owned), output, Some("t::a"))
    }

    #[test]
    fn assertion_gives_message_location_and_values() {
        let output = "out\n\nthread 't::a' (7) panicked at src/l.rs:5:51:\nassertion `left == right` failed: why\n  left: 1\n right: 2\nstack backtrace:\n   0: f\n   1: g\nnote: Some details\n";
        let failure = failure(None, output);
        assert_eq!(
            failure.message.as_deref(),
            Some("assertion `left == right` failed: why\n  left: 1\n right: 2")
        );
        assert_eq!((failure.actual.as_deref(), failure.expected.as_deref()), (Some("1"), Some("2")));
        assert_eq!((failure.file.as_deref(), failure.line), (Some("src/l.rs"), Some(5)));
        assert_eq!(failure.stack.as_deref(), Some("   0: f\n   1: g"));
    }

    #[test]
    fn last_panic_of_own_thread_decides() {
        let output = "\nthread 't::a' panicked at a.rs:1:1:\nfirst\n\nthread 't::a' panicked at a.rs:2:1:\nsecond\n\nthread '<unnamed>' panicked at a.rs:3:1:\nother\n";
        let own = failure(None, output);
        assert_eq!((own.message.as_deref(), own.line), (Some("second"), Some(2)));
        let foreign = failure(None, "\nthread 'main' panicked at a.rs:3:1:\nother\nline\n");
        assert_eq!((foreign.message.as_deref(), foreign.line), (Some("other\nline"), Some(3)));
    }

    #[test]
    fn panic_before_rust_1_73_is_read() {
        let failure = failure(None, "thread 't::a' panicked at 'it's, bad', src/l.rs:9:5\nnote: run with\n");
        assert_eq!((failure.message.as_deref(), failure.line), (Some("it's, bad"), Some(9)));
    }

    #[test]
    fn returned_error_is_the_message() {
        assert_eq!(failure(None, "x\nError: \"bad\"\n").message.as_deref(), Some("Error: \"bad\""));
        assert_eq!(failure(None, "").message, None);
    }

    #[test]
    fn should_panic_failure_keeps_libtest_message() {
        let missing = failure(Some("test did not panic as expected at src/l.rs:34:32"), "alive\n");
        assert_eq!((missing.file.as_deref(), missing.line), (Some("src/l.rs"), Some(34)));
        let message =
            "panic did not contain expected string\n      panic message: \"a\"\n expected substring: \"b\"";
        let other = failure(Some(message), "\nthread 't::a' panicked at src/l.rs:3:1:\na\n");
        assert_eq!((other.actual.as_deref(), other.expected.as_deref()), (Some("\"a\""), Some("\"b\"")));
        assert_eq!((other.message.as_deref(), other.line), (Some(message), Some(3)));
    }
}
