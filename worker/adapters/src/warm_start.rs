//! Processes that load a program once and are then forked for its tests.

use heeler_protocol::control::{ForkPoint, OsText};

use crate::AdapterInvocation;

/// How to start a warm process.
pub struct WarmStart {
    /// Command of the process, with [`crate::InvocationChannel::Descriptor`].
    pub invocation: AdapterInvocation,
    /// Dialogue with the process.
    pub dialogue: Box<dyn WarmDialogue>,
}

/// The dialogue with a warm process. Requests and reports use its report channel. A fork request also carries
/// the descriptors of a guard: connection, standard output, standard error and report channel.
pub trait WarmDialogue: Send {
    /// Returns the first request: to load the framework, and possibly the program.
    fn opening_request(&self, point: ForkPoint) -> Vec<u8>;

    /// Returns the request to fork a child. The child forks a test process with these environment changes,
    /// then executes a guard with this command line and the id of the test process. `None` if an argument or
    /// a variable can't be sent.
    fn fork_request(&self, guard: &[OsText], environment: &[(OsText, Option<OsText>)]) -> Option<Vec<u8>>;

    /// Parses the next chunk of reports. Skips anything that does not answer a request.
    fn on_channel(&mut self, chunk: &[u8]) -> Vec<WarmReport>;

    /// Returns the request to exit.
    fn closing_request(&self) -> Vec<u8>;
}

/// A reply from a warm process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WarmReport {
    /// The process has loaded what was requested and can be forked.
    Ready,
    /// The process has loaded, but its forks would share a resource.
    Unforkable(String),
    /// The process with this id is the guard of a fork.
    Forked(i32),
    /// A test process with these variables cannot be forked and must be started anew.
    Refused(String),
}
