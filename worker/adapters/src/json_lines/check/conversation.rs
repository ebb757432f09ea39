//! The script of a conversation with a process, and its record.

use super::reader::SeenReport;

/// The report that completes an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedReply {
    /// Completes a listing.
    Listed,
    /// Completes a run.
    Done,
}

impl ExpectedReply {
    /// Returns the kind of the report.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Listed => "listed",
            Self::Done => "done",
        }
    }
}

/// A step of a conversation with a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckStep {
    /// Send these bytes at once.
    Send(Vec<u8>),
    /// Send these bytes in pieces, each after the process has read the previous one.
    SendInPieces(Vec<u8>),
    /// Read until this reply.
    Await(ExpectedReply),
    /// Read nothing until the process stops writing.
    ReadNothing,
    /// Wait until the other conversations reach this step or end.
    Meet,
    /// Send no more requests.
    EndRequests,
    /// Read until the process has exited.
    AwaitExit,
}

/// Steps of a conversation with one new process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckScript {
    /// Steps in order. A missing reply skips the rest.
    pub steps: Vec<CheckStep>,
    /// The pipe buffer is small, so the process blocks early without a reader.
    pub has_small_buffers: bool,
    /// Keep reading after a missing reply, once the requests have ended.
    pub reads_on: bool,
}

/// An event in a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckMoment {
    /// Bytes were sent.
    Sent(Vec<u8>),
    /// A report was read.
    Reported(SeenReport),
    /// The reply did not arrive within the time limit.
    NoReply(ExpectedReply),
    /// The process closed its reports or exited before this reply.
    EndedBefore(ExpectedReply),
    /// The requests were ended.
    RequestsEnded,
    /// The process did not exit within the time limit.
    NoExit,
}

/// A finished conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckConversation {
    /// Events in order.
    pub moments: Vec<CheckMoment>,
    /// First bytes of standard output.
    pub stdout: Vec<u8>,
    /// First bytes of standard error.
    pub stderr: Vec<u8>,
    /// Exit code, if the process exited by itself.
    pub code: Option<i32>,
    /// Signal that killed the process, unless the check sent it.
    pub signal: Option<i32>,
    /// The process was blocked because its output was not read.
    pub had_to_wait: bool,
    /// Time limit of each reply, as text.
    pub limit: String,
}

impl CheckConversation {
    /// Describes how the process ended, with the last line of its standard error.
    #[must_use]
    pub(crate) fn describe_end(&self) -> String {
        let end = match (self.code, self.signal) {
            (Some(code), _) => format!("the process exited with code {code}"),
            (None, Some(signal)) => format!("the process was killed by signal {signal}"),
            (None, None) => "the process closed its report channel but did not exit".to_owned(),
        };
        let text = String::from_utf8_lossy(&self.stderr);
        match text.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(line) => format!("{end}; standard error: {}", shortened(line.trim())),
            None => end,
        }
    }
}

/// Maximum number of bytes shown of a line.
const SHOWN_BYTES: usize = 200;

/// Returns text on one line, shortened for messages.
pub(super) fn shortened(text: &str) -> String {
    let line: String =
        text.trim_end_matches('\n').chars().map(|one| if one == '\n' { '⏎' } else { one }).collect();
    if line.len() <= SHOWN_BYTES {
        return line;
    }
    let cut = (0..=SHOWN_BYTES).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
    format!("{}… ({} bytes)", &line[..cut], line.len())
}

/// Returns bytes as text, shortened for messages.
pub(super) fn shown(bytes: &[u8]) -> String {
    shortened(&String::from_utf8_lossy(bytes))
}
