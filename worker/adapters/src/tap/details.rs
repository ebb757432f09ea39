//! Details of a failed test point: a YAML block. Members that describe the failure are parsed; the rest is
//! shown unchanged.

use heeler_core::Failure;

use crate::scan;

/// Maximum size of the details text; the rest is dropped.
const DETAILS_BYTES: usize = 64 << 10;

/// Adds a line to the details text.
pub(super) fn push_line(text: &mut String, line: &str) {
    let room = DETAILS_BYTES.saturating_sub(text.len());
    text.push_str(scan::truncated(line, room));
    if room > line.len() {
        text.push('\n');
    }
}

/// Returns the failure of a test point: its message is the description, then the details.
pub(super) fn failure(description: &str, details: &str) -> Failure {
    let mut failure = Failure::default();
    for (key, value) in members(details) {
        let slot = match key.as_str() {
            "file" => &mut failure.file,
            "found" | "got" | "actual" => &mut failure.actual,
            "wanted" | "want" | "expected" => &mut failure.expected,
            "stack" => &mut failure.stack,
            // Node's reporter writes FILE:LINE:COLUMN.
            "location" => {
                let place = value.rsplit_once(':').and_then(|(place, _)| place.rsplit_once(':'));
                if let Some((file, line)) = place {
                    failure.file.get_or_insert_with(|| file.to_owned());
                    failure.line = failure.line.or_else(|| line.parse().ok());
                }
                continue;
            }
            "line" => {
                failure.line = failure.line.or_else(|| value.parse().ok());
                continue;
            }
            _ => continue,
        };
        slot.get_or_insert(value);
    }
    let separator = if details.is_empty() { "" } else { "\n" };
    failure.message = Some(format!("{description}{separator}{}", details.trim_end()));
    failure
}

/// Returns the scalar members of all mappings, including block scalars.
fn members(details: &str) -> Vec<(String, String)> {
    let mut members: Vec<(String, String)> = Vec::new();
    let mut lines = details.lines().peekable();
    while let Some(line) = lines.next() {
        let indentation = indentation_of(line);
        let Some((key, value)) = line.trim().split_once(':') else { continue };
        let value = match value.trim() {
            "|" | "|-" | "|+" | ">" | ">-" => {
                let mut block = Vec::new();
                while let Some(next) =
                    lines.next_if(|next| next.trim().is_empty() || indentation_of(next) > indentation)
                {
                    block.push(next);
                }
                let least =
                    block.iter().filter(|line| !line.trim().is_empty()).map(|line| indentation_of(line));
                let least = least.min().unwrap_or_default();
                block.iter().map(|line| line.get(least..).unwrap_or_default()).collect::<Vec<_>>().join("\n")
            }
            value => unquoted(value).to_owned(),
        };
        members.push((key.trim().to_lowercase(), value));
    }
    members
}

fn indentation_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn unquoted(value: &str) -> &str {
    let of = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    of('"').or_else(|| of('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_details_are_members_of_the_failure() {
        let details = "message: 'differs'\nseverity: fail\nfound: 3\nwanted: \"4\"\nat:\n  file: t/add.t\n  \
                       line: 12\nstack: |-\n  one\n    two\n\nlast: x\n";
        let failure = failure("adds", details);
        assert_eq!((failure.actual.as_deref(), failure.expected.as_deref()), (Some("3"), Some("4")));
        assert_eq!(failure.place().unwrap().to_string(), "t/add.t:12");
        assert_eq!(failure.stack.as_deref(), Some("one\n  two\n"));
        assert!(failure.message.unwrap().starts_with("adds\nmessage: 'differs'\n"));
    }

    #[test]
    fn any_text_is_some_failure() {
        assert_eq!(failure("a", "").message.as_deref(), Some("a"));
        for details in ["line: x\n: y\n-", "stack: |\n", "a: |\n ü\n  \n", "\"", "found: \""] {
            assert!(failure("a", details).message.unwrap().starts_with("a\n"));
        }
        let mut text = String::new();
        (0..10_000).for_each(|_| push_line(&mut text, "0123456789ü"));
        assert!(text.len() <= DETAILS_BYTES);
    }
}
