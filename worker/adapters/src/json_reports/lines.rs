//! Splits a report channel into lines, one report each.

use super::message::ReportLine;
use crate::scan;

/// Maximum length of a line; a longer line is an error.
pub(crate) const LINE_BYTES: usize = 1 << 20;

/// Buffers the start of a line whose end is still missing.
#[derive(Debug, Default)]
pub(crate) struct ReportLineReader {
    buffered: Vec<u8>,
}

impl ReportLineReader {
    /// Reads the next chunk; returns the completed reports, and an error for each invalid line.
    pub(crate) fn read(&mut self, chunk: &[u8]) -> Vec<Result<ReportLine, String>> {
        let mut reports = Vec::new();
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_BYTES.saturating_sub(self.buffered.len());
            self.buffered.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.len() > room {
                reports.push(Err(format!("a line longer than {LINE_BYTES} bytes")));
            }
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.buffered);
                let unreadable = || {
                    let text = scan::decode_lossy(&line);
                    format!("unreadable line {:?}", scan::truncated(&text, 200))
                };
                reports.push(ReportLine::parse(line.trim_ascii()).ok_or_else(unreadable));
            }
        }
        reports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_line_is_an_error_and_not_kept() {
        let mut reader = ReportLineReader::default();
        let errors = (0..40).flat_map(|_| reader.read(&vec![b'x'; LINE_BYTES / 10]));
        assert!(errors.filter(Result::is_err).count() > 1);
        assert!(reader.buffered.len() <= LINE_BYTES);
    }
}
