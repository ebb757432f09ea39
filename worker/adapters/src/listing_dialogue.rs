//! Listings whose requests depend on earlier replies.

use std::time::Duration;

use heeler_protocol::control::ListedTest;

use crate::{AdapterListing, ConnectionInput, ListingError, ListingOutput, TranscriptParser};

/// The dialogue of one listing. Requests go to the program's standard input; replies come on standard output.
/// Pure: the worker writes, reads and measures time.
pub trait ListingDialogue: Send {
    /// Returns the first request.
    fn opening_request(&mut self) -> Vec<u8>;

    /// Parses the next chunk of standard output; returns the next requests.
    fn on_reply(&mut self, chunk: &[u8]) -> Vec<u8>;

    /// Handles an event on one of several connections, like a transcript parser.
    fn on_connection(&mut self, connection: usize, input: ConnectionInput<'_>) -> Vec<u8> {
        let _ = connection;
        match input {
            ConnectionInput::Opened => Vec::new(),
            ConnectionInput::Bytes(chunk) | ConnectionInput::BytesOf(_, chunk) => self.on_reply(chunk),
        }
    }

    /// Returns how long the last reply may take before [`Self::on_reply_timeout`] is called. `None` means
    /// that only the time limit of the listing applies.
    fn reply_timeout(&self) -> Option<Duration> {
        None
    }

    /// Returns the requests to send when the reply is late. The reply may still arrive.
    fn on_reply_timeout(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Returns the name of the awaited reply, for messages. `None` when no request follows and standard input
    /// can be closed.
    fn awaited_reply(&self) -> Option<&'static str>;

    /// Returns the listing when the process has ended. `output` has the exit code 0 if the process was killed
    /// because it kept running after its last reply.
    ///
    /// # Errors
    /// The program is not of this framework or died while listing, or its listing is damaged.
    fn finish(&mut self, output: &ListingOutput) -> Result<AdapterListing, ListingError>;

    /// Asks the process to wait for tests to run after listing them, if its framework supports it. Called
    /// before the process starts.
    fn stay(&mut self) {}

    /// Returns whether the process has listed its tests and waits for tests to run.
    fn is_waiting(&self) -> bool {
        false
    }

    /// Returns the request that asks a waiting process to exit.
    fn closing_request(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Returns the parser for a run of these tests by the waiting process. The parser's opening request asks
    /// for them. `None` if the process does not wait.
    fn continue_with(self: Box<Self>, tests: &[&ListedTest]) -> Option<Box<dyn TranscriptParser + Send>> {
        let _ = tests;
        None
    }
}
