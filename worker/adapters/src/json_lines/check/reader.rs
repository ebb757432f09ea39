//! Finds the reports in the output of a process, for a check. Also keeps lines that a run would treat as
//! output.

use super::super::adapter::JsonLines;
use crate::json_reports::{
    lines::LINE_BYTES,
    message::{RECORD_START, ReportLine},
};

/// A line or record in the position of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenReport {
    /// Bytes of the line, at most the maximum length of a report.
    pub line: Vec<u8>,
    /// Whether the line is longer than a report may be.
    pub is_too_long: bool,
}

impl SeenReport {
    /// Returns the kind of the report; empty if the line is not a report or has no kind.
    #[must_use]
    pub fn kind(&self) -> String {
        self.parse().map(|report| report.kind().to_owned()).unwrap_or_default()
    }

    pub(super) fn parse(&self) -> Option<ReportLine> {
        if self.is_too_long { None } else { ReportLine::parse(self.line.trim_ascii()) }
    }
}

/// Reader of one process's reports.
#[derive(Debug)]
pub struct CheckReader {
    carrier: JsonLines,
    line: Vec<u8>,
    is_too_long: bool,
    /// Whether the bytes being read belong to a record. Always true on the channel. On standard output, true
    /// after a `RECORD_START`, until the line ends.
    is_in_record: bool,
}

impl CheckReader {
    pub(super) fn new(carrier: JsonLines) -> Self {
        let is_in_record = carrier == JsonLines::Channel;
        Self { carrier, line: Vec::new(), is_too_long: false, is_in_record }
    }

    /// Reads the next bytes; returns the completed reports.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<SeenReport> {
        let mut seen = Vec::new();
        for byte in bytes {
            match (self.carrier, *byte) {
                // The earlier bytes were not a record, because no JSON line contains this byte.
                (JsonLines::StandardStreams, RECORD_START) => {
                    self.line.clear();
                    self.is_in_record = true;
                }
                (_, b'\n') if self.is_in_record => seen.push(self.take()),
                (_, byte) if self.is_in_record => {
                    if self.line.len() < LINE_BYTES {
                        self.line.push(byte);
                    } else {
                        self.is_too_long = true;
                    }
                }
                _ => {}
            }
        }
        seen
    }

    /// Returns the last report if it has no line ending.
    pub fn finish(&mut self) -> Option<SeenReport> {
        (self.is_in_record && !self.line.is_empty()).then(|| self.take())
    }

    fn take(&mut self) -> SeenReport {
        self.is_in_record = self.carrier == JsonLines::Channel;
        let is_too_long = std::mem::take(&mut self.is_too_long);
        SeenReport { line: std::mem::take(&mut self.line), is_too_long }
    }
}
