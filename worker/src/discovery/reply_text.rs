//! What a program said when it was asked for its tests, in short lines for messages.

use super::listing_process::CapturedListing;

/// Returns the first line that a program printed, truncated, and its exit code.
pub(super) fn reply_summary(captured: &CapturedListing) -> String {
    let line = first_line(&captured.stdout).or_else(|| first_line(&captured.stderr));
    let words = line.map_or("nothing".to_owned(), |line| format!("{line:?}"));
    match captured.end.code {
        None | Some(0) => words,
        Some(code) => format!("{words} and exit code {code}"),
    }
}

pub(super) fn last_output_note(captured: &CapturedListing) -> String {
    let last = last_line(&captured.stderr).or_else(|| last_line(&captured.stdout));
    last.map_or(String::new(), |line| format!("; its output: {line:?}"))
}

fn first_line(bytes: &[u8]) -> Option<String> {
    bytes.split(|byte| *byte == b'\n').find_map(printable)
}

/// Returns the last line that is for people: no object of a listing in JSON.
fn last_line(bytes: &[u8]) -> Option<String> {
    let is_object = |line: &[u8]| line.starts_with(b"{") && line.ends_with(b"}");
    bytes.rsplit(|byte| *byte == b'\n').filter(|line| !is_object(line.trim_ascii())).find_map(printable)
}

fn printable(line: &[u8]) -> Option<String> {
    let line = line.trim_ascii();
    (!line.is_empty()).then(|| String::from_utf8_lossy(&line[..line.len().min(100)]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_summary_is_one_short_line() {
        let captured = |stdout: &str, stderr: &str, code| CapturedListing {
            stdout: stdout.into(),
            stderr: stderr.into(),
            end: heeler_protocol::control::ProcessExit { code: Some(code), ..Default::default() },
            ..CapturedListing::default()
        };
        assert_eq!(reply_summary(&captured("\n  usage: x\nmore", "", 1)), "\"usage: x\" and exit code 1");
        assert_eq!(reply_summary(&captured("", "bad\n", 0)), "\"bad\"");
        assert_eq!(reply_summary(&captured("", "", 0)), "nothing");
        assert!(reply_summary(&captured(&"x".repeat(1000), "", 0)).len() < 110);
        assert_eq!(last_output_note(&captured("a\nb\n", "", 0)), "; its output: \"b\"");
        assert_eq!(last_output_note(&captured("a\n{ \"type\": \"test\" }\n", "", 0)), "; its output: \"a\"");
        assert_eq!(last_output_note(&captured("{}\n{\"a\":1}\n", "", 0)), "");
    }
}
