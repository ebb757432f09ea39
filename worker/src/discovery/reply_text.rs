//! Extracts a program's last output while listing its tests, for messages.

use super::listing_process::CapturedListing;

pub(super) fn last_output_note(captured: &CapturedListing) -> String {
    let last = last_line(&captured.stderr).or_else(|| last_line(&captured.stdout));
    last.map_or(String::new(), |line| format!("; last line of output: {line:?}"))
}

/// Returns the last line meant for people, skipping JSON objects of a listing.
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
    fn note_has_the_last_line_for_people() {
        let captured = |stdout: &str, stderr: &str, code| CapturedListing {
            stdout: stdout.into(),
            stderr: stderr.into(),
            end: heeler_protocol::control::ProcessExit { code: Some(code), ..Default::default() },
            ..CapturedListing::default()
        };
        assert_eq!(last_output_note(&captured("a\nb\n", "", 0)), "; last line of output: \"b\"");
        assert_eq!(
            last_output_note(&captured("a\n{ \"type\": \"test\" }\n", "", 0)),
            "; last line of output: \"a\""
        );
        assert_eq!(last_output_note(&captured("{}\n{\"a\":1}\n", "", 0)), "");
    }
}
