//! Listings whose requests depend on the replies.

use std::time::Duration;

use heeler_protocol::control::ListedTest;

use crate::{AdapterListing, ConnectionInput, ListingError, ListingOutput, TranscriptParser};

/// The dialogue of one listing: requests go to the program's standard input, replies come on its standard
/// output. Pure: the worker writes, reads, and measures the time.
pub trait ListingDialogue: Send {
    /// Returns the first request.
    fn opening_request(&mut self) -> Vec<u8>;

    /// Parses the next chunk of standard output; returns the next requests.
    fn on_reply(&mut self, chunk: &[u8]) -> Vec<u8>;

    /// Handles what happens on one of several connections, as a transcript parser does.
    fn on_connection(&mut self, connection: usize, input: ConnectionInput<'_>) -> Vec<u8> {
        let _ = connection;
        match input {
            ConnectionInput::Opened => Vec::new(),
            ConnectionInput::Bytes(chunk) | ConnectionInput::BytesOf(_, chunk) => self.on_reply(chunk),
        }
    }

    /// Returns how long the reply to the last request may take before [`Self::on_reply_timeout`]; `None`
    /// leaves it to the time limit of the listing.
    fn reply_timeout(&self) -> Option<Duration> {
        None
    }

    /// Returns the requests to send because the reply took too long. It may still come.
    fn on_reply_timeout(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Returns which reply is awaited, as messages name it; `None` when no request follows, so that standard
    /// input ends.
    fn awaited_reply(&self) -> Option<&'static str>;

    /// Returns the listing after the end of the process. `output` has the code 0 if the process was ended
    /// because it went on after its last reply.
    ///
    /// # Errors
    /// The program is not of this framework, died while listing, or its listing is damaged.
    fn finish(&mut self, output: &ListingOutput) -> Result<AdapterListing, ListingError>;

    /// Has the process wait for tests to run when it has listed them, if its framework allows that: called
    /// before the process starts.
    fn stay(&mut self) {}

    /// Returns whether the process has listed its tests and waits for some to run.
    fn is_waiting(&self) -> bool {
        false
    }

    /// Returns the request by which a process that waits is asked to exit.
    fn closing_request(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Returns the parser of a run of these tests by the process that waits: its opening request asks for
    /// them. `None` if the process does not wait.
    fn continue_with(self: Box<Self>, tests: &[&ListedTest]) -> Option<Box<dyn TranscriptParser + Send>> {
        let _ = tests;
        None
    }
}
