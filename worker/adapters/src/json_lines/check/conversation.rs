//! What is to be said to a process, and what has come.

use super::reader::SeenReport;

/// The report that ends an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedReply {
    /// That of a listing.
    Listed,
    /// That of a run.
    Done,
}

impl ExpectedReply {
    /// Returns its kind.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Listed => "listed",
            Self::Done => "done",
        }
    }
}

/// A step of a conversation with one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckStep {
    /// Send these bytes at once.
    Send(Vec<u8>),
    /// Send these bytes in pieces, each when the process has read the one before.
    SendInPieces(Vec<u8>),
    /// Read until this reply.
    Await(ExpectedReply),
    /// Read nothing until the process writes no more.
    ReadNothing,
    /// Wait until the other conversations have come here, or have ended.
    Meet,
    /// End the requests.
    EndRequests,
    /// Read until the process has exited.
    AwaitExit,
}

/// The steps of a conversation with one new process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckScript {
    /// In order; the rest is left out when a reply does not come.
    pub steps: Vec<CheckStep>,
    /// Whether the process can write little before somebody reads.
    pub has_small_buffers: bool,
    /// Whether what comes after a missing reply is read as well, when the requests have ended.
    pub reads_on: bool,
}

/// What happened in a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckMoment {
    /// Bytes were sent.
    Sent(Vec<u8>),
    /// A report was read.
    Reported(SeenReport),
    /// The reply did not come within the limit.
    NoReply(ExpectedReply),
    /// The process closed its reports, or exited, before this reply.
    EndedBefore(ExpectedReply),
    /// The requests were ended.
    RequestsEnded,
    /// The process did not exit within the limit.
    NoExit,
}

/// A conversation that is over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckConversation {
    /// In order.
    pub moments: Vec<CheckMoment>,
    /// The first bytes of its standard output.
    pub stdout: Vec<u8>,
    /// The first bytes of its standard error.
    pub stderr: Vec<u8>,
    /// Its exit code, if it exited by itself.
    pub code: Option<i32>,
    /// The number of the signal that ended it, if the check did not send it.
    pub signal: Option<i32>,
    /// Whether the process had to wait for a reader.
    pub had_to_wait: bool,
    /// The time limit of each reply, in words.
    pub limit: String,
}

impl CheckConversation {
    /// Describes how the process has ended, with the last line of its standard error.
    #[must_use]
    pub(crate) fn describe_end(&self) -> String {
        let end = match (self.code, self.signal) {
            (Some(code), _) => format!("the process exited with code {code}"),
            (None, Some(signal)) => format!("the process was ended by signal {signal}"),
            (None, None) => "the process closed its reports and did not exit".to_owned(),
        };
        let text = String::from_utf8_lossy(&self.stderr);
        match text.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(line) => format!("{end}; its standard error: {}", shortened(line.trim())),
            None => end,
        }
    }
}

/// Bytes of a line that are shown.
const SHOWN_BYTES: usize = 200;

/// Returns text in one line, at most as much as is shown.
pub(super) fn shortened(text: &str) -> String {
    let line: String =
        text.trim_end_matches('\n').chars().map(|one| if one == '\n' { '⏎' } else { one }).collect();
    if line.len() <= SHOWN_BYTES {
        return line;
    }
    let cut = (0..=SHOWN_BYTES).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
    format!("{}… ({} bytes)", &line[..cut], line.len())
}

/// Returns bytes as they are shown.
pub(super) fn shown(bytes: &[u8]) -> String {
    shortened(&String::from_utf8_lossy(bytes))
}
